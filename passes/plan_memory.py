"""plan_memory: the order of launches, and where each value of a kernel-level function lives.

Temporaries share one arena. An output may take over a donated input's memory: then every other reader of the input
runs earlier, the launch that writes it reads it at the very elements it writes, and no launch that may fail a check
runs after it, so that a failed run leaves the caller's values intact.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from treadle.ir.core import Function, Op, Value
from treadle.ir.dims import Dim, maximum
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take
from treadle.ir.ops.views import Reshape
from treadle.passes.lower.kernel import LoweredKernel, lower_kernel

__all__ = ["MemoryPlan", "Place", "plan_memory"]

ALIGN = 64


@dataclass(frozen=True)
class Place:
    """Memory of a value: "input" i, "output" j (over input `alias`, or -1), or "temp" at `offset` of the arena."""

    kind: str
    index: int = 0
    offset: Dim = 0
    alias: int = -1


@dataclass(frozen=True)
class MemoryPlan:
    """Launches in order, the place of each value, and the size of the arena."""

    order: tuple[Op, ...]
    places: dict[Value, Place]
    arena: Dim


def plan_memory(fn: Function, donated: frozenset[int] = frozenset()) -> MemoryPlan:
    """Plan a kernel-level function whose parameters `donated` may be overwritten."""
    launches = _Launches(fn.ops)
    places = {p: Place("input", k) for k, p in enumerate(fn.params)}
    aliases = _donations(fn, launches, donated)
    for j, v in enumerate(fn.returns):
        if v not in places:
            places[v] = Place("output", j, alias=aliases.get(v, -1))
    order = launches.sorted()
    arena = _arena(launches, order, places)
    return MemoryPlan(order, places, arena)


# Order ---------------------------------------------------------------------------------------------------------------


class _Launches:
    """The launches of a function and the order between them, to which edges can be added."""

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self.ops = ops
        self.writer = {r: k for k, op in enumerate(ops) for r in op.results}
        self.after: list[set[int]] = [set() for _ in ops]
        for k, op in enumerate(ops):
            for v in op.operands:
                if v in self.writer:
                    self.after[self.writer[v]].add(k)
        self.readers: dict[Value, list[int]] = {}
        for k, op in enumerate(ops):
            for v in dict.fromkeys(op.operands):
                self.readers.setdefault(v, []).append(k)
        self._lowered: dict[int, LoweredKernel | None] = {}

    def lowered(self, k: int) -> LoweredKernel | None:
        """The loops of a launch; None for one of the runtime's functions."""
        if k not in self._lowered:
            self._lowered[k] = lower_kernel(self.ops[k]) if self.ops[k].regions else None
        return self._lowered[k]

    def failing(self) -> list[int]:
        """Launches that may fail a check. One that only checks indices which another has checked runs after that."""
        first: dict[tuple[Value, Dim], int] = {}
        found = []
        for k, op in enumerate(self.ops):
            wanted = _checked_indices(op)
            fresh = [w for w in wanted if w is None or w not in first]
            known = [first[w] for w in wanted if w is not None and w in first]
            if fresh or not self.require(known, k):
                found.append(k)
            for w in wanted:
                if w is not None:
                    first.setdefault(w, k)
        return found

    def in_place(self, k: int, source: Value, result: Value) -> bool:
        """May launch `k` write `result` over its operand `source`?"""
        low, op = self.lowered(k), self.ops[k]
        return low is not None and (op.operands.index(source), op.results.index(result)) in low.in_place

    def reaches(self, first: int, then: int) -> bool:
        """Must `first` run before `then`?"""
        pending, seen = [first], {first}
        while pending:
            k = pending.pop()
            if k == then:
                return True
            fresh = self.after[k] - seen
            seen |= fresh
            pending += fresh
        return False

    def require(self, before: Iterable[int], k: int) -> bool:
        """Let launches run before `k`; False, and nothing changes, where one must run after it."""
        wanted = [b for b in before if k not in self.after[b] and b != k]
        if any(self.reaches(k, b) for b in wanted):
            return False
        for b in wanted:
            self.after[b].add(k)
        return True

    def sorted(self) -> tuple[Op, ...]:
        """The launches, as near to their first order as the edges allow."""
        waiting = [0] * len(self.ops)
        for targets in self.after:
            for k in targets:
                waiting[k] += 1
        ready = [k for k, n in enumerate(waiting) if not n]
        heapq.heapify(ready)
        out: list[Op] = []
        while ready:
            k = heapq.heappop(ready)
            out.append(self.ops[k])
            for target in self.after[k]:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, target)
        return tuple(out)


def _checked_indices(op: Op) -> list[tuple[Value, Dim] | None]:
    """What a launch checks: all of an operand against a size, or (None) something computed."""
    found: list[tuple[Value, Dim] | None] = []
    for region in op.regions:
        producers = {r: o for o in region.ops for r in o.results}
        for o in region.ops:
            if not isinstance(o.operation, Take | Gather | Put | Scatter):
                continue
            v = o.operands[1]
            while v in producers and isinstance(producers[v].operation, Reshape):
                v = producers[v].operands[0]
            size = o.operands[0].shape[o.operation.dim]
            plain = v in region.params and region.params.index(v) < len(op.operands)
            found.append((op.operands[region.params.index(v)], size) if plain else None)
    return found


# Donation ------------------------------------------------------------------------------------------------------------


def _donations(fn: Function, launches: _Launches, donated: frozenset[int]) -> dict[Value, int]:
    """For outputs, the donated input whose memory they take over."""
    found: dict[Value, int] = {}
    free = {i: fn.params[i] for i in sorted(donated) if fn.params[i] not in fn.returns}
    if not free:
        return found
    failing = launches.failing()
    wanted: list[tuple[bool, Value, int]] = []
    for v in dict.fromkeys(fn.returns):
        k = launches.writer.get(v)
        if k is None or k in failing:
            continue
        for i, p in free.items():
            if p.dtype is v.dtype and p.tensor.numel == v.tensor.numel:
                reads = p in launches.ops[k].operands
                if not reads or launches.in_place(k, p, v):
                    wanted.append((not reads, v, i))
    # Updates in place first; then outputs that only find room.
    for _, v, i in sorted(wanted, key=lambda w: w[0]):
        if v in found or i not in free:
            continue
        k = launches.writer[v]
        others = [r for r in launches.readers.get(free[i], ()) if r != k]
        if launches.require([*others, *failing], k):
            found[v] = i
            del free[i]
    return found


# Arena ---------------------------------------------------------------------------------------------------------------


def _arena(launches: _Launches, order: tuple[Op, ...], places: dict[Value, Place]) -> Dim:
    """Give temporaries their offsets: best fit for sizes that are numbers; symbolic ones share with equal sizes.

    A result takes over an operand that nothing reads after it, where the launch may write in place.
    """
    last: dict[Value, int] = {}
    for k, op in enumerate(order):
        for v in (*op.operands, *op.results):
            last[v] = k
    static, symbolic = _Blocks(), _Buckets()
    numbers = {op: k for k, op in enumerate(launches.ops)}
    offsets: dict[Value, Dim] = {}
    dying: dict[int, dict[Value, None]] = {}
    for k, op in enumerate(order):
        mine = dying.pop(k, {})
        for v in op.results:
            if v in places:
                continue
            size = _rounded(v.tensor.nbytes)
            taken = next((u for u in mine if _fits(launches, numbers[op], u, v)), None)
            if taken is not None:
                offsets[v] = offsets[taken]
                del mine[taken]
            else:
                pool = static if isinstance(size, int) else symbolic
                offsets[v] = pool.take(size)  # type: ignore[arg-type]
            (mine if last[v] == k else dying.setdefault(last[v], {}))[v] = None
        for v in mine:
            size = _rounded(v.tensor.nbytes)
            (static if isinstance(size, int) else symbolic).give(offsets[v], size)  # type: ignore[arg-type]
    for v, offset in offsets.items():
        fixed = isinstance(v.tensor.nbytes, int)
        places[v] = Place("temp", offset=offset if fixed else offset + static.top)
    return static.top + symbolic.top


def _fits(launches: _Launches, k: int, operand: Value, result: Value) -> bool:
    """May launch `k` write `result` over `operand`, which nothing reads after it?"""
    same = operand.dtype is result.dtype and operand.tensor.numel == result.tensor.numel
    return same and operand in launches.ops[k].operands and launches.in_place(k, operand, result)


def _rounded(nbytes: Dim) -> Dim:
    if isinstance(nbytes, int):
        return max(ALIGN, -(-nbytes // ALIGN) * ALIGN)
    return maximum((nbytes + (ALIGN - 1)) // ALIGN * ALIGN, ALIGN)


class _Blocks:
    """Free blocks of the arena, by offset."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []
        self.top = 0

    def take(self, size: int) -> int:
        fits = [n for n, (_, have) in enumerate(self.free) if have >= size]
        if not fits:
            if self.free and sum(self.free[-1]) == self.top:  # the last block can grow
                offset, _ = self.free.pop()
                self.top = offset + size
                return offset
            offset, self.top = self.top, self.top + size
            return offset
        offset, have = self.free.pop(min(fits, key=lambda n: self.free[n][1]))
        if have > size:
            self._insert(offset + size, have - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        self._insert(offset, size)
        merged: list[tuple[int, int]] = []
        for start, have in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + have)
            else:
                merged.append((start, have))
        self.free = merged

    def _insert(self, offset: int, size: int) -> None:
        self.free.append((offset, size))
        self.free.sort()


class _Buckets:
    """Blocks of symbolic sizes: one that is free is taken again for the same size."""

    def __init__(self) -> None:
        self.free: dict[Dim, list[Dim]] = {}
        self.top: Dim = 0

    def take(self, size: Dim) -> Dim:
        known = self.free.get(size)
        if known:
            return known.pop()
        offset, self.top = self.top, self.top + size
        return offset

    def give(self, offset: Dim, size: Dim) -> None:
        self.free.setdefault(size, []).append(offset)
