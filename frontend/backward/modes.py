"""Grad modes: no_grad, enable_grad, set_grad_enabled, inference_mode. Per thread; each is a context manager and decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from treadle.recorder.trace import set_no_grad, state

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


def is_grad_enabled() -> bool:
    """True where ops on tensors that require grad are recorded for backward."""
    return not state.trace.no_grad


def is_inference_mode_enabled() -> bool:
    return state.inference


class _Mode:
    """Sets the grad mode on entry and restores it on exit."""

    _no_grad = 0

    def __enter__(self) -> None:
        self._previous = set_no_grad(self._no_grad)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        set_no_grad(self._previous)

    def __call__(self, function: Callable) -> Callable:
        mode = self

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with mode._clone():
                return function(*args, **kwargs)

        return wrapped

    def _clone(self) -> _Mode:
        return type(self)()


class _ModeType(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """`@no_grad` without parentheses decorates as well."""
        if len(args) == 1 and callable(args[0]) and not isinstance(args[0], bool):
            return super().__call__()(args[0])
        return super().__call__(*args, **kwargs)


class no_grad(_Mode, metaclass=_ModeType):
    """Ops recorded inside are not differentiated."""

    _no_grad = 1


class enable_grad(_Mode, metaclass=_ModeType):
    """Turns recording for backward on inside a `no_grad` region."""

    _no_grad = 0


class set_grad_enabled(_Mode):
    """Sets the grad mode at once; as a context manager restores it on exit."""

    def __init__(self, mode: bool) -> None:
        self._no_grad = 0 if mode else 1
        self._previous = set_no_grad(self._no_grad)

    def __enter__(self) -> None:
        set_no_grad(self._no_grad)

    def __call__(self, function: Callable) -> Callable:
        set_no_grad(self._previous)
        return super().__call__(function)

    def _clone(self) -> _Mode:
        return set_grad_enabled(not self._no_grad)


class inference_mode(_Mode, metaclass=_ModeType):
    """no_grad, and results that can never enter autograd (they are plain values here)."""

    def __init__(self, mode: bool = True) -> None:
        self._mode = mode
        self._no_grad = 1 if mode else 0

    def __enter__(self) -> None:
        super().__enter__()
        self._was = state.inference
        state.inference = self._mode

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        state.inference = self._was

    def _clone(self) -> _Mode:
        return inference_mode(self._mode)
