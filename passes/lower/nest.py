"""From a region to a Nest: where its outer space is, and at which index of it each result is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from treadle.ir.core import Block, Op, Value
from treadle.ir.dims import Dim, product
from treadle.passes.lower.index import Ix, LoopVar, Space, linear, ratio
from treadle.passes.lower.nodes import Nest, Node, Store
from treadle.passes.lower.trace import REDUCTIONS, Misplaced, Place, Refused, Tracer, is_short

__all__ = ["trace_nest"]

RESTARTS = 8


def trace_nest(block: Block) -> Nest:
    """The nest of a region. Raises Refused where the region is not one nest.

    Short reductions are written out where they are all there is, or where that makes a nest.
    """
    producers = {r: op for op in block.ops for r in op.results}
    folds = [op for op in block.ops if isinstance(op.operation, REDUCTIONS)]
    short = {op for op in folds if is_short(op, producers)}
    if not short or len(short) == len(folds):
        return _trace(block, short)
    try:
        return _trace(block, set())
    except Refused:
        return _trace(block, short)


def _trace(block: Block, short: set[Op]) -> Nest:
    splits: dict = {}
    for _ in range(RESTARTS):
        space = Space(dict(splits))
        made = _NestTracer(block, space, short).run()
        fresh = {k: d for k, d in space.wanted.items() if k not in splits}
        if not fresh:
            return made
        splits.update(fresh)
    return made


class _Restart(Exception):
    """A variable has to be split before more can be told."""


@dataclass(frozen=True)
class _Span:
    """A variable and the stride at which it moves through a linear index."""

    var: LoopVar
    stride: Dim

    @property
    def reach(self) -> Dim:
        return self.stride * self.var.extent


class _NestTracer:
    """One attempt at a nest."""

    def __init__(self, block: Block, space: Space, short: set[Op]) -> None:
        self.block = block
        self.space = space
        self.tracer = Tracer(block, space)
        self.tracer.short = short
        self.behind = _behind_reductions(block, short)
        self.stores: dict[int, Store] = {}

    def run(self) -> Nest:
        t = self.tracer
        reductions = [op for op in self.block.ops if _is_fold(op, self.tracer.short)]
        results = list(dict.fromkeys(self.block.yields))
        shape = reductions[0].result.shape if reductions else _widest(results).shape
        t.outer = t.place(shape, (self.space.index(("o", j), d) for j, d in enumerate(shape)))
        outer = tuple(self.space.variables.values())
        numel = product(shape)
        for v in results:
            if v.tensor.numel != numel:
                t.watched[v] = []
        for op in reductions:
            if op.result.tensor.numel != numel:
                raise Misplaced("reductions of different outer sizes")
            t.reduce(op.result, op)
        try:
            placed = {v: self.result(v, numel) for v in results}
        except _Restart:
            return Nest(outer, (), ())
        stores = []
        for k, v in enumerate(self.block.yields):
            at, node = placed[v]
            stores.append(Store(k, t.form(at), node, self.inner_of(at, outer)))
        reduces = tuple(sorted(t.reduces, key=lambda r: r.level))
        return Nest(outer, reduces, tuple(stores), tuple(t.forms))

    def inner_of(self, at: Dim, outer: tuple[LoopVar, ...]) -> tuple[LoopVar, ...]:
        """The variables of an address that are not outer ones."""
        known = set(outer)
        parts = at.parts if isinstance(at, Ix) else ()
        return tuple(a for a, _ in parts if isinstance(a, LoopVar) and a not in known)

    # Where a result is written ---------------------------------------------------------------------------------------

    def result(self, v: Value, numel: Dim) -> tuple[Dim, Node]:
        """(address, scalar) of result `v`."""
        t = self.tracer
        assert t.outer is not None
        if v.tensor.numel == numel:
            try:
                return t.outer.at, t.value(v, t.outer)
            except Refused:
                if v not in self.behind:
                    raise
        for at, node in t.watched.get(v, ()):
            if at.mask is None and self.covers(at.at, v.tensor.numel):
                return at.at, node
        if v not in self.behind:
            for at in t.spaces:
                if product(at.shape) == v.tensor.numel and self.covers(at.at, v.tensor.numel):
                    return at.at, t.value(v, at)
            raise Refused("a result has no point in common with the outer space")
        index = self.index_of(v)
        return linear(v.shape, index), t.value(v, t.place(v.shape, index))

    def covers(self, at: Dim, numel: Dim) -> bool:
        """Does an address take each value once while the outer variables and its own run?"""
        if not isinstance(at, Ix) or at.const != 0:
            return False
        spans = [_Span(a, c) for a, c in at.parts if isinstance(a, LoopVar)]
        assert self.tracer.outer is not None
        outer = self.tracer.outer.at
        wanted = {a for a, _ in outer.parts} if isinstance(outer, Ix) else set()
        if len(spans) != len(at.parts) or not wanted <= {s.var for s in spans}:
            return False
        return _chain(spans) == numel

    def index_of(self, v: Value) -> tuple[Dim, ...]:
        """The index of `v`, in outer variables where reductions are read, in inner ones elsewhere."""
        t = self.tracer
        assert t.outer is not None
        keys = [("y", self.block.yields.index(v), j) for j in range(v.rank)]
        probes = tuple(self.space.index(k, d) for k, d in zip(keys, v.shape, strict=True))
        read = self.probe(v, t.place(v.shape, probes))
        mine = _spans(read)
        theirs = _spans(t.outer.at)
        self.align(mine, theirs)
        at_stride = {s.stride: s for s in theirs}
        known: dict[LoopVar, Dim] = {}
        for s in mine:
            match = at_stride.pop(s.stride, None)
            if match is None or match.var.extent != s.var.extent:
                raise Refused("a result does not run over the outer space of its reductions")
            known[s.var] = Ix.of(match.var)
        if at_stride:
            raise Refused("a result does not run over all of the outer space")
        free = [
            a for ix in probes if isinstance(ix, Ix) for a, _ in ix.parts if isinstance(a, LoopVar) and a not in known
        ]
        inner, _ = t.inner(tuple(a.extent for a in free))
        known.update(zip(free, inner, strict=True))
        return tuple(_substitute(ix, known) for ix in probes)

    def probe(self, v: Value, at: Place) -> Dim:
        """The one linear outer index at which `v` reads reductions."""
        t = self.tracer
        t.probe, memo = [], t.memo
        t.memo = {}  # what a probe makes stands for nothing
        try:
            t.value(v, at)
            found = set(t.probe)
        finally:
            t.probe, t.memo = None, memo
        if len(found) != 1:
            raise Refused("a result reads reductions at several points")
        (read,) = found
        return read

    def align(self, mine: list[_Span], theirs: list[_Span]) -> None:
        """Ask for the splits by which the strides of both sides become the same."""
        before = len(self.space.wanted)
        cuts = [s.stride for s in (*mine, *theirs)]
        for s in (*mine, *theirs):
            for cut in cuts:
                low = ratio(cut, s.stride)
                if low is not None and low != 1 and ratio(s.reach, cut) not in (None, 1):
                    if s.var.key not in self.space.splits:
                        self.space.ask(s.var, low)
        if len(self.space.wanted) > before:
            raise _Restart


def _spans(at: Dim) -> list[_Span]:
    if not isinstance(at, Ix):
        return []
    if any(not isinstance(a, LoopVar) for a, _ in at.parts) or at.const != 0:
        raise Refused("a reduction is read at an index that is not affine")
    return [_Span(a, c) for a, c in at.parts if isinstance(a, LoopVar)]


def _chain(spans: list[_Span]) -> Dim | None:
    """The number of addresses, where each stride is the reach of the one below; else None."""
    by_stride = {s.stride: s for s in spans}
    reach: Dim = 1
    for _ in spans:
        s = by_stride.pop(reach, None)
        if s is None:
            return None
        reach = s.reach
    return reach


def _substitute(ix: Dim, known: dict[LoopVar, Dim]) -> Dim:
    if not isinstance(ix, Ix):
        return ix
    total: Dim = ix.const
    for a, c in ix.parts:
        assert isinstance(a, LoopVar)
        total = known[a] * c + total
    return total


def _widest(values: Iterable[Value]) -> Value:
    """The value with the most dims: the others' shapes are coarser views of the same elements, most often."""
    best: Value | None = None
    for v in values:
        if best is None or v.rank > best.rank:
            best = v
    assert best is not None
    return best


def _behind_reductions(block: Block, short: set[Op]) -> set[Value]:
    """Values that a reduction goes into."""
    found: set[Value] = set()
    for op in block.ops:
        if _is_fold(op, short) or any(v in found for v in op.operands):
            found.update(op.results)
    return found


def _is_fold(op: Op, short: set[Op]) -> bool:
    return isinstance(op.operation, REDUCTIONS) and op not in short
