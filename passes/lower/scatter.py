"""Scatters: tasks own disjoint parts of the result, copy the base there and apply the updates in order.

So the result does not depend on threads, and of several writes to one place the last one stays. Parts are either strips
of the dims that the index does not touch, or, where those are few, ranges of the indexed dim: every task then looks at
all updates and takes those that fall into its range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Block, Op, Value
from treadle.ir.dims import Dim, ceildiv, product
from treadle.ir.loops import Affine, Check, For, If, IndexCast, IndexDiv, IndexMin, IndexMod, Load, Store
from treadle.ir.ops.indexing import Put
from treadle.passes.lower.cost import likely
from treadle.passes.lower.index import Ix, LoopVar, Picked, Space, linear
from treadle.passes.lower.nodes import Node
from treadle.passes.lower.trace import Tracer, out_of_range
from treadle.passes.lower.write import Writer
from treadle.passes.machine import Machine

__all__ = ["write_scatter"]

RANGES = 16  # parts of the indexed dim where the other dims are few: independent of the number of threads
MANY = 1 << 16  # elements of updates for each of which tasks may look at every update


def write_scatter(w: Writer, region: Block, results: list[Value], machine: Machine) -> Dim:
    """Append the loops of a region whose last op is a Put or Scatter; the number of tasks."""
    return _Scatter(w, region, results[0], machine).write()


@dataclass(eq=False)
class _Lanes:
    """The strip [lo, hi) of the dim that runs with lanes."""

    var: LoopVar
    lo: Value
    hi: Value


class _Scatter:
    """One scatter being written."""

    def __init__(self, w: Writer, region: Block, result: Value, machine: Machine) -> None:
        self.w = w
        self.result = result
        self.op: Op = region.ops[-1]
        o: Any = self.op.operation
        self.o = o
        self.dim: int = o.dim
        self.put = isinstance(o, Put)
        self.shape = self.op.result.shape
        self.size = self.shape[self.dim]
        self.space = Space()
        self.t = Tracer(Block(region.params, region.ops[:-1]), self.space)
        base, index, source = self.op.operands
        rank = len(self.shape)
        self.free = {d: self.space.index(("o", d), self.shape[d]) for d in range(rank) if d != self.dim}
        self.row = self.space.index(("row",), self.size)
        self.updates = index.shape if self.put else (index.shape[self.dim],)
        self.update = tuple(self.space.index(("u", k), d) for k, d in enumerate(self.updates))
        variables = [i.parts[0][0] for i in self.free.values() if isinstance(i, Ix)]
        self.outer = [v for v in variables if isinstance(v, LoopVar)]
        last = self.free.get(rank - 1)
        self.lane: LoopVar | None = self.outer.pop() if isinstance(last, Ix) else None
        lanes = machine.vector_bits // (8 * max(4, self.op.result.dtype.compute.itemsize))
        self.width = lanes if self.lane is not None and likely(self.lane.extent) >= lanes else 1
        self.strip = self.width * 8
        self.bounds: tuple[Value, Value] | None = None
        self.lanes: _Lanes | None = None

    # Tasks -----------------------------------------------------------------------------------------------------------

    def write(self) -> Dim:
        w = self.w
        strips = 1 if self.lane is None else ceildiv(self.lane.extent, self.strip)
        parts = product(v.extent for v in self.outer) * strips
        few = (
            likely(parts) < 8
            and likely(product(self.updates)) * likely(parts) <= MANY
            and likely(self.size) >= 4 * RANGES
        )
        ranges = RANGES if few else 1
        tasks = parts * ranges

        def task(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            w.base = len(w.scopes) - 1
            at = iv
            rows = (w.const(0), w.const(self.size))
            if ranges > 1:
                share = ceildiv(self.size, ranges)
                at, rows = w.s.emit(IndexDiv(ranges), iv), self.range_of(w.s.emit(IndexMod(ranges), iv), share)
                self.bounds = rows
            if self.lane is not None:
                number = w.s.emit(IndexMod(strips), at)
                at = w.s.emit(IndexDiv(strips), at)
                lo = w.s.emit(Affine((self.strip,)), number)
                hi = w.s.emit(
                    IndexMin(), w.s.emit(Affine((self.strip,), self.strip), number), w.const(self.lane.extent)
                )
                self.lanes = _Lanes(self.lane, lo, hi)
            w.unravel([(v, v.extent) for v in self.outer], at)
            self.copy_base(*rows)
            self.apply_updates()
            w.base = 0
            return ()

        w.loop(None, w.const(0), w.const(tasks), For("parallel"), task)
        return tasks

    def range_of(self, number: Value, share: Dim) -> tuple[Value, Value]:
        s, end = self.w.s, self.w.const(self.size)
        lo = s.emit(IndexMin(), s.emit(Affine((share,)), number), end)
        return lo, s.emit(IndexMin(), s.emit(Affine((share,), share), number), end)

    def along_lanes(self, body: Callable[[], None]) -> None:
        if self.lanes is None:
            body()
            return

        def one(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            body()
            return ()

        kind = For("vector" if self.width > 1 else "serial", self.width)
        self.w.loop(self.lanes.var, self.lanes.lo, self.lanes.hi, kind, one)

    def index(self, at: Dim) -> tuple[Dim, ...]:
        """The index of the result with `at` along the dim."""
        return tuple(at if d == self.dim else self.free[d] for d in range(len(self.shape)))

    # Base ------------------------------------------------------------------------------------------------------------

    def copy_base(self, lo: Value, hi: Value) -> None:
        w, base = self.w, self.op.operands[0]
        index = self.index(self.row)
        node = self.t.value(base, self.t.place(base.shape, index))
        address = linear(self.shape, index)

        def copy() -> None:
            w.store_result(self.result, address, w.scalar(node))

        if not isinstance(self.row, Ix):
            self.along_lanes(copy)
            return

        def row(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            self.along_lanes(copy)
            return ()

        (atom, _), *_rest = self.row.parts
        assert isinstance(atom, LoopVar)
        w.loop(atom, lo, hi, For("serial"), row)

    # Updates ---------------------------------------------------------------------------------------------------------

    def apply_updates(self) -> None:
        w = self.w
        w.pass_number += 1
        variables = [i.parts[0][0] for i in self.update if isinstance(i, Ix)]

        def level(k: int) -> None:
            if k == len(variables):
                self.one_update()
                return
            v = variables[k]
            assert isinstance(v, LoopVar)

            def step(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
                level(k + 1)
                return ()

            w.loop(v, w.const(0), w.const(v.extent), For("serial"), step)

        level(0)

    def one_update(self) -> None:
        t, w = self.t, self.w
        _, index, source = self.op.operands
        if self.put:
            where = t.value(index, t.place(index.shape, self.update))
            at = (
                *(self.free[d] for d in range(self.dim)),
                *self.update,
                *(self.free[d] for d in range(self.dim + 1, len(self.shape))),
            )
            value = t.value(source, t.place(source.shape, at))
            place = self.checked(where)
            self.guarded(place, lambda: self.along_lanes(lambda: self.combine(where, value, None)))
            return
        at = self.index(self.update[0])
        mask = t.holds([(i, "lt", n) for i, n, m in zip(at, index.shape, self.shape, strict=True) if n != m])
        if mask is False:
            return
        inside = None if mask is True else mask
        assert inside is None or isinstance(inside, Node)
        where = t.value(index, t.place(index.shape, at, inside))
        value = t.value(source, t.place(source.shape, at, inside))

        def each() -> None:
            self.checked(where, inside)
            self.combine(where, value, inside)

        if self.lanes is None:
            self.guarded(w.scalar(where) if inside is None else None, each)
        else:
            self.along_lanes(each)

    def checked(self, where: Node, inside: Node | None = None) -> Value:
        """The position, after the check of its bounds."""
        w = self.w
        x = w.scalar(where)
        s = w.s
        ok = s.and_(s.ge(x, s.const(0, x.dtype)), s.lt(x, w.number(self.size, x.dtype, s)))
        if inside is not None:
            ok = s.or_(ok, s.not_(w.scalar(inside)))
        message = out_of_range(self.dim, self.size)
        if message not in w.messages:
            w.messages.append(message)
        s.emit(Check(w.messages.index(message) + 1, message), ok)
        return x

    def guarded(self, place: Value | None, body: Callable[[], None]) -> None:
        """`body` where the position falls into this task's rows."""
        if self.bounds is None or place is None:
            body()
            return
        w = self.w
        with w.scope({}) as inner:
            body()
        region = inner.builder.block((), ())
        s = w.s
        lo, hi = (s.emit(IndexCast(dtypes.int64), b) for b in self.bounds)
        w.s.emit(If(), s.and_(s.ge(place, lo), s.lt(place, hi)), regions=(region,))

    def combine(self, where: Node, value: Node, inside: Node | None) -> None:
        """result[where] = combination of what is there and `value`."""
        w, s = self.w, self.w.s
        picked = Ix.of(Picked(self.space, where, self.size))
        address = linear(self.shape, self.index(picked))
        new = w.scalar(value)
        mask = [] if inside is None else [w.scalar(inside)]
        if self.bounds is not None and self.lanes is not None and not self.put:
            x = w.scalar(where)
            lo, hi = (s.emit(IndexCast(dtypes.int64), b) for b in self.bounds)
            mine = s.and_(s.ge(x, lo), s.lt(x, hi))
            mask = [s.and_(mask[0], mine) if mask else mine]
        values, strides, offset = w.terms(address)
        if self.o.combiner != "last":
            old = s.emit(Load(strides, offset, bool(mask)), self.result, *values, *mask)
            new = self.combined(old, new)
        s.emit(Store(strides, offset, bool(mask)), self.result, new, *values, *mask)

    def combined(self, old: Value, new: Value) -> Value:
        s, fn = self.w.s, self.o.combiner
        if old.dtype.kind == "b":
            return s.call("or" if fn in ("add", "maximum") else "and", old, new)
        return s.call(fn, old, new)
