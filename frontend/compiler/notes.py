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

from treadle.ir.core import Function, Loc, Operation
from treadle.recorder.locate import user_location
from treadle.recorder.tree import LEAF, MARK, Node, children

__all__ = [
    "Novelty",
    "ProgramNote",
    "compiling",
    "current",
    "describe_event",
    "event_place",
    "kernels",
    "loaded",
    "noted",
    "of",
    "refused",
]

Key = tuple[tuple[int, ...], tuple[int, ...]]  # (live, donated): what tells the programs of one node apart
S = TypeVar("S")

_numbers = itertools.count(1)
_known: dict[int, tuple[weakref.ref, ProgramNote]] = {}  # id(step) -> (step, note)
_local = threading.local()


@dataclass(frozen=True)
class Novelty:
    """Why a program had to be compiled: the nearest one there was, and the first event that differs."""

    why: str
    nearest: int | None = None  # number of the nearest program
    event: int | None = None  # position of the first event that differs
    now: str = ""
    earlier: str = ""
    place: Loc | None = None

    def __str__(self) -> str:
        text = self.why
        if self.event is not None:
            text += f" at event {self.event}" + (f", {self.place}" if self.place else "")
            text += f": {self.now}, not {self.earlier}"
        return text


@dataclass
class ProgramNote:
    """One compiled program. `reason`: what ended its trace, at `place` in the user's code."""

    number: int
    reason: str
    place: Loc | None
    novelty: Novelty
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
def compiling(node: Node, key: Key, reason: str, place: Loc | None) -> Iterator[ProgramNote]:
    """Around the compilation of the program `key` of a tree node."""
    note = ProgramNote(next(_numbers), reason, place, _novelty(node, key))
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
        with compiling(tr.node, (live, donated), reason, user_location()) as note:
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


# ---- why a program is new -------------------------------------------------------------------------------------------


def _novelty(node: Node, key: Key) -> Novelty:
    """What sets the program `key` of `node` apart from the nearest one in the tree."""
    same = next(iter(node.programs.items()), None)
    if same is not None:
        return _other_values(key, same[0], _number(same[1]))
    if (below := _program_in(node)) is not None:
        return Novelty("a value was needed earlier than in program " + str(below), below)
    came: Node = node
    at = node.parent
    while at is not None:
        if at.programs:
            nearest = _number(next(iter(at.programs.values())))
            return Novelty(f"goes on after what program {nearest} computed", nearest, came.depth, describe_event(came),
                           "the end", event_place(came))  # fmt: skip
        for sibling in children(at):
            if sibling is not came and (nearest := _program_in(sibling)) is not None:
                return _difference(came, sibling, nearest)
        came, at = at, at.parent
    return Novelty("the first program")


def _other_values(key: Key, before: Key, nearest: int | None) -> Novelty:
    (live, donated), (live_before, donated_before) = key, before
    if live != live_before:
        new, gone = set(live) - set(live_before), set(live_before) - set(live)
        return Novelty(f"same events as program {nearest}, other values alive (+{len(new)}, -{len(gone)})", nearest)
    if donated != donated_before:
        return Novelty(f"same events as program {nearest}, other inputs may be overwritten", nearest)
    return Novelty(f"program {nearest} compiled again", nearest)


def _difference(now: Node, earlier: Node, nearest: int | None) -> Novelty:
    fresh = [s for s in now.symbols if s not in earlier.symbols]
    if fresh:
        why = f"made general over program {nearest} ({', '.join(fresh)} may vary)"
    elif earlier.symbols and not now.symbols:
        why = f"no symbol explains its numbers (nearest: program {nearest})"
    else:
        why = f"differs from program {nearest}"
    return Novelty(why, nearest, now.depth, describe_event(now), describe_event(earlier), event_place(now))


def _program_in(node: Node) -> int | None:
    """Number of a program of `node` or below it, None where there is none."""
    stack = [node]
    while stack:
        found = stack.pop()
        for step in found.programs.values():
            return _number(step)
        stack.extend(children(found))
    return None


def _number(step: Any) -> int:
    note = of(step)
    return note.number if note is not None else 0


def describe_event(node: Node) -> str:
    """An event of the tree in a few words."""
    operation = node.operation
    if operation is LEAF:
        return f"{node.types[0]} enters{', requires grad' if node.grads[0] else ''}"
    if operation is MARK:
        return f"value {node.operands[0]} becomes a leaf"
    if isinstance(operation, Operation):
        operands = ", ".join(f"#{int(o)}" if hasattr(o, "bit_length") else _scalar_text(o) for o in node.operands)
        attributes = ", ".join(f"{k}={v}" for k, v in operation.attributes.items())
        text = operation.name.removeprefix("graph.") + f"({operands})" + (f" {{{attributes}}}" if attributes else "")
        return text if len(text) <= 100 else text[:97] + "..."
    return _SPECIAL.get(str(operation), str(operation))


_SPECIAL = {
    "grad": "a backward",
    "call": "a backward through an earlier program",
    "scalar": "a runtime scalar enters",
}


def _scalar_text(o: Any) -> str:
    kind = getattr(o, "kind", None)
    return f"any {kind.__name__}" if isinstance(kind, type) else repr(o)


def event_place(node: Node) -> Loc | None:
    """The user's line of an event; of the next one for a tensor that enters."""
    seen = 0
    at: Node | None = node
    while at is not None and seen < 64:
        for op in at.ops:
            if op.loc is not None:
                return op.loc
        at, seen = next(iter(children(at)), None), seen + 1
    return None
