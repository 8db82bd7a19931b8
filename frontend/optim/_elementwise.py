"""What optimizers that treat every parameter by itself have in common: the step loop and option checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import treadle
from treadle.optim.optimizer import Group, Optimizer
from treadle.tensor import from_array

__all__ = ["ElementwiseOptimizer", "check_betas", "check_flags", "check_lr", "check_not_negative", "number", "scalar"]


def scalar(value: float) -> Any:
    """A number that changes from step to step, wrapped so that a new value needs no new compilation."""
    return treadle.runtime_scalar(value)


def number(value: Any) -> float:
    """The Python number of an option that may also be given as a one-element tensor."""
    return value.item() if isinstance(value, treadle.Tensor) else value


def zeros_like(p: Any) -> Any:
    """Zeros of the shape and type of `p`, without a gradient: in memory at once, so that the first step is recorded
    like all later ones."""
    return from_array(np.zeros(p.shape, p.dtype.numpy), p.dtype)


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose rule maps (parameter, gradient, state) to new values, one parameter at a time.

    A subclass gives `_new_state`, `_coefficients` and `_update`. The coefficients of a step are computed once and
    shared by all parameters with the same `_key`, so that a step records few distinct scalars.
    """

    _tensor_scalars: ClassVar[frozenset[str]] = frozenset({"step"})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the loss if a `closure` computes one."""
        loss = None
        if closure is not None:
            with treadle.enable_grad():
                loss = closure()
        with treadle.no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: Group) -> None:
        shared: dict[Any, Any] = {}
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            state = self.state[p]
            if not state:
                state.update(self._new_state(p, group))
            state["step"] += 1.0
            key = self._key(state)
            coefficients = shared.get(key)
            if coefficients is None:
                coefficients = shared[key] = self._coefficients(group, state)
            self._update(p, -grad if group["maximize"] else grad, state, coefficients)

    def _key(self, state: dict[str, Any]) -> Any:
        """What the coefficients depend on besides the options of the group."""
        return state["step"]

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        """State of a parameter before its first step; has a `step` of 0."""
        raise NotImplementedError

    def _coefficients(self, group: Group, state: dict[str, Any]) -> Any:
        """Numbers of the rule for this step, those that vary as runtime scalars."""
        raise NotImplementedError

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: Any) -> None:
        """Apply the rule in place to `p` and the tensors of `state`; `grad` is left as it is."""
        raise NotImplementedError


# -------------------------------------------------------------------- option checks


def check_lr(lr: Any, foreach: bool | None = None, capturable: bool = False) -> None:
    """Raise ValueError unless `lr` is a number >= 0 or a one-element tensor (not with `foreach` alone)."""
    if isinstance(lr, treadle.Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if not number(lr) >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_not_negative(**options: Any) -> None:
    """Raise ValueError for an option that is negative or NaN."""
    for name, value in options.items():
        if not number(value) >= 0.0:
            raise ValueError(f"Invalid {name} value: {value}")


def check_betas(betas: Any) -> None:
    """Raise ValueError unless both decay rates are in [0, 1)."""
    for index in (0, 1):
        if not 0.0 <= number(betas[index]) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {betas[index]}")


def check_flags(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Raise RuntimeError for execution flags that exclude each other; apart from that they have no effect here."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
