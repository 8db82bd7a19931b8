"""Why a program of the trace tree was new: the nearest one there was, and the first event that differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treadle.ir.core import Loc, Operation
from treadle.recorder.generalise import structure
from treadle.recorder.tree import LEAF, MARK, Node, children

__all__ = ["Known", "Novelty", "novelty"]


@dataclass(frozen=True)
class Novelty:
    """`why` in words; where there is a nearest program, its number and the first event that differs from it."""

    why: str
    nearest: int | None = None
    event: int | None = None
    now: str = ""
    earlier: str = ""
    place: Loc | None = None

    def __str__(self) -> str:
        text = self.why
        if self.event is not None:
            text += f" at event {self.event}" + (f", {self.place}" if self.place else "")
            text += f": {self.now}, where it had {self.earlier}"
        return text


@dataclass(frozen=True, eq=False)
class Known:
    """A program of the tree with what tells it apart: its number, the node and path of its events, live and donated."""

    number: int
    path: tuple[Node, ...]
    structure: tuple
    live: tuple[int, ...]
    donated: tuple[int, ...]
    symbols: tuple[str, ...]

    @classmethod
    def at(cls, number: int, node: Node, key: tuple[tuple[int, ...], tuple[int, ...]]) -> Known:
        """The program `key` of a node."""
        return cls(number, tuple(node.path()), structure(node), *key, tuple(node.symbols))


def novelty(program: Known, others: Iterable[Known]) -> Novelty:
    """What sets `program` apart from the nearest of those that were there before it."""
    before = [k for k in others if k.number < program.number]
    if not before:
        return Novelty("it is the first program")
    nearest = max(before, key=lambda k: (*_shared(k, program), k.number))
    n = nearest.number
    same = _common(nearest.path, program.path)
    if same == len(program.path) == len(nearest.path):
        return _other_values(program, nearest)
    if same == len(program.path):
        return Novelty(f"a value was needed earlier than in program {n}", n)
    now = program.path[same]
    if same == len(nearest.path):
        why = f"it goes on where program {n} ends"
        return Novelty(why, n, now.event, describe_event(now), "the end", event_place(now))
    earlier = nearest.path[same]
    if nearest.structure == program.structure and set(program.symbols) - set(nearest.symbols):
        why = f"numbers differ from program {n}, and this one serves them all"
    elif nearest.structure == program.structure:
        why = f"numbers differ from program {n}"
    elif same == 0 and _common(nearest.structure, program.structure) == 0:
        return Novelty("it begins as no earlier program does")
    else:
        at = _common(nearest.structure, program.structure)
        if at < min(len(program.path), len(nearest.path)):
            now, earlier = program.path[at], nearest.path[at]
        why = f"it differs from program {n}"
    return Novelty(why, n, now.event, describe_event(now), describe_event(earlier), event_place(now))


def _shared(a: Known, b: Known) -> tuple[int, int]:
    """How many first events are of the same structure, and how many the same."""
    return _common(a.structure, b.structure), _common(a.path, b.path)


def _common(a: tuple, b: tuple) -> int:
    """Length of the common beginning."""
    for k, (x, y) in enumerate(zip(a, b, strict=False)):
        if x is not y and x != y:
            return k
    return min(len(a), len(b))


def _other_values(now: Known, before: Known) -> Novelty:
    n = before.number
    new, gone = set(now.live) - set(before.live), set(before.live) - set(now.live)
    if new or gone:
        return Novelty(f"same events as program {n}, other values still alive (+{len(new)}, -{len(gone)})", n)
    more, fewer = set(now.donated) - set(before.donated), set(before.donated) - set(now.donated)
    return Novelty(f"same events as program {n}, other inputs may be overwritten (+{len(more)}, -{len(fewer)})", n)


# ---- events in words -------------------------------------------------------------------------------------------------


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
        text += " under no_grad" if node.no_grad else ""
        return text if len(text) <= 120 else text[:117] + "..."
    return _SPECIAL.get(str(operation), str(operation))


_SPECIAL = {
    "grad": "a backward",
    "hook": "a hook",
    "python": "a hook or custom backward",
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
