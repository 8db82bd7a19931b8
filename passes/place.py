"""place: where each value of a kernel-level function lives.

Temporaries share one arena; an output may take over a donated input's memory where every other reader of that input runs
earlier, or reads it at the very index that is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.core import Function, Op, Value
from treadle.ir.dims import Dim
from treadle.ir.kernels import Contraction, Fused
from treadle.ir.ops.base import Elementwise, View
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take

__all__ = ["MemoryPlan", "Place", "place"]

ALIGN = 64


@dataclass(frozen=True)
class Place:
    """Memory of a value: "input" i, "output" j (taking over input `alias`, or -1), or "temp" at `offset` of the arena."""

    kind: str
    index: int = 0
    offset: Dim = 0
    alias: int = -1


@dataclass(frozen=True)
class MemoryPlan:
    """Launches in order, and the place of each value."""

    order: tuple[Op, ...]
    places: dict[Value, Place]
    arena: Dim


def place(fn: Function, donated: frozenset[int]) -> MemoryPlan:
    """Plan a kernel-level function whose parameters `donated` may be overwritten."""
    order = fn.ops
    last: dict[Value, int] = {}
    for k, op in enumerate(order):
        for v in op.operands:
            last[v] = k
    places = {p: Place("input", k) for k, p in enumerate(fn.params)}
    aliases = _donations(fn, donated, last)
    for j, v in enumerate(fn.returns):
        places[v] = Place("output", j, alias=aliases.get(v, -1))
    arena = _arena(order, last, places)
    return MemoryPlan(order, places, arena)


def _arena(order: tuple[Op, ...], last: dict[Value, int], places: dict[Value, Place]) -> Dim:
    """First fit for static sizes; symbolic ones get space of their own behind them."""
    free: list[tuple[int, int]] = []  # (offset, size), sorted
    top = 0
    symbolic: list[Value] = []
    dying: dict[int, list[tuple[int, int]]] = {}
    for k, op in enumerate(order):
        for v in op.results:
            if v in places:
                continue
            size = v.tensor.nbytes
            if not isinstance(size, int):
                symbolic.append(v)
                continue
            size = max(ALIGN, -(-size // ALIGN) * ALIGN)
            offset = _take(free, size)
            if offset is None:
                offset, top = top, top + size
            places[v] = Place("temp", offset=offset)
            dying.setdefault(last.get(v, k), []).append((offset, size))
        for block in dying.pop(k, ()):
            _give(free, block)
    end: Dim = top
    for v in symbolic:
        places[v] = Place("temp", offset=end)
        end = end + (v.tensor.nbytes + (ALIGN - 1)) // ALIGN * ALIGN
    return end


def _take(free: list[tuple[int, int]], size: int) -> int | None:
    best = min((n for n, (_, s) in enumerate(free) if s >= size), key=lambda n: free[n][1], default=None)
    if best is None:
        return None
    offset, have = free.pop(best)
    if have > size:
        free.append((offset + size, have - size))
        free.sort()
    return offset


def _give(free: list[tuple[int, int]], block: tuple[int, int]) -> None:
    free.append(block)
    free.sort()
    merged: list[tuple[int, int]] = []
    for offset, size in free:
        if merged and merged[-1][0] + merged[-1][1] == offset:
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        else:
            merged.append((offset, size))
    free[:] = merged


# ---- donation -----------------------------------------------------------------------------------------------------------


def _donations(fn: Function, donated: frozenset[int], last: dict[Value, int]) -> dict[Value, int]:
    """For outputs, the donated input whose memory they take over."""
    if not donated:
        return {}
    writer = {r: k for k, op in enumerate(fn.ops) for r in op.results}
    checks = max((k for k, op in enumerate(fn.ops) if _may_fail(op)), default=-1)
    taken: set[int] = set()
    returned = {p for p in fn.returns if p in set(fn.params)}
    found: dict[Value, int] = {}
    for v in fn.returns:
        k = writer[v]
        op = fn.ops[k]
        if k <= checks or isinstance(op.operation, Contraction):
            continue
        for i in sorted(donated):
            p = fn.params[i]
            if i in taken or p in returned or p.type is not v.type or last.get(p, -1) > k:
                continue
            if last.get(p, -1) == k and not _same_index(op, v, p):
                continue
            found[v] = i
            taken.add(i)
            break
    return found


def _may_fail(op: Op) -> bool:
    return any(isinstance(inner.operation, Take | Gather | Put | Scatter) for region in op.regions for inner in region.ops)


def _same_index(op: Op, v: Value, p: Value) -> bool:
    """Is `p` read by this launch only by the nest that writes `v`, elementwise, without a view between?"""
    if not isinstance(op.operation, Fused) or op.operation.kind != "loops":
        return False
    position = op.operands.index(p)
    at = 0
    for region in op.regions:
        mine = op.results[at : at + len(region.yields)]
        at += len(region.yields)
        param = region.params[position]
        if v in mine:
            if not all(y.shape == v.shape for y in region.yields):
                return False
            if not all(isinstance(o.operation, Elementwise | View) or not o.operands for o in region.ops):
                return False
            if any(isinstance(o.operation, View) and param in o.operands for o in region.ops):
                return False
        elif any(param in o.operands for o in region.ops):
            return False
    return True


