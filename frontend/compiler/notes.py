"""What the driver noticed about each program it compiled: reason, time, kernels. `explain` and `dump` read it.

    @notes.noted
    def compile_step(tr, live, donated, reason): ...

A note lives as long as its program.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from treadle.ir.core import Function, Loc
from treadle.recorder.locate import user_location

__all__ = ["ProgramNote", "compiling", "current", "kernels", "loaded", "noted", "of", "refused"]

S = TypeVar("S")

_numbers = itertools.count(1)
_known: dict[int, tuple[weakref.ref, ProgramNote]] = {}  # id(step) -> (step, note)
_local = threading.local()


@dataclass
class ProgramNote:
    """One compiled program. `reason`: what ended its trace, at `place` in the user's code."""

    number: int
    reason: str
    place: Loc | None
    seconds: float = 0.0
    source: str = "compiled"  # or "disk cache"
    kernels: Function | None = None
    launches: tuple[str, ...] = ()  # places of the launches, where the program came without its IR
    refusals: list[str] = field(default_factory=list)

    def bind(self, step: S) -> S:
        """Tie this note to the program it describes; gives the program back."""
        key = id(step)
        _known[key] = (weakref.ref(step, lambda _: _known.pop(key, None)), self)
        return step


def of(step: Any) -> ProgramNote | None:
    """The note of a program."""
    found = _known.get(id(step))
    return found[1] if found is not None and found[0]() is step else None


def current() -> ProgramNote | None:
    """The note of the program that this thread is compiling."""
    return getattr(_local, "note", None)


@contextmanager
def compiling(reason: str, place: Loc | None) -> Iterator[ProgramNote]:
    """Around the compilation of one program."""
    note = ProgramNote(next(_numbers), reason, place)
    outer, _local.note = current(), note
    start = time.perf_counter()
    try:
        yield note
    finally:
        note.seconds = time.perf_counter() - start
        _local.note = outer


def noted(compile_step: Callable[[Any, tuple[int, ...], tuple[int, ...], str], S]) -> Callable[..., S]:
    """Decorator of the driver's function from (trace, live, donated, reason) to a program."""

    @functools.wraps(compile_step)
    def wrapper(tr: Any, live: tuple[int, ...], donated: tuple[int, ...], reason: str) -> S:
        with compiling(reason, user_location()) as note:
            return note.bind(compile_step(tr, live, donated, reason))

    return wrapper


def kernels(function: Function) -> None:
    """The driver has this kernel-level function of the program it compiles."""
    note = current()
    if note is not None:
        note.kernels = function


def loaded(launches: Iterable[str]) -> None:
    """The driver found the program in the disk cache; `launches` are the places of its launches."""
    note = current()
    if note is not None:
        note.source, note.launches = "disk cache", tuple(launches)


def refused(reasons: Iterable[Any]) -> None:
    """The fuser did not join what one might have expected, and says why."""
    note = current()
    if note is not None:
        note.refusals.extend(map(str, reasons))
