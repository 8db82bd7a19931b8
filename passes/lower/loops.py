"""Writes a nest as loops, by its schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treadle.ir.core import Value
from treadle.ir.dims import Dim, ceildiv, product
from treadle.ir.loops import Affine, Alloc, For, IndexDiv, IndexMin, IndexMod
from treadle.ir.loops import Load as LoopLoad
from treadle.ir.loops import Store as LoopStore
from treadle.passes.lower.cost import likely, node_cost, subtree_cost
from treadle.passes.lower.index import Ix, LoopVar, is_one
from treadle.passes.lower.nodes import Load, Nest, Node, Reduce, Store, all_nodes
from treadle.passes.lower.write import Axis, Writer, merge_axes
from treadle.passes.machine import Machine
from treadle.passes.schedule import TILE, NestSchedule, check, choose, fitting

__all__ = ["write_nest"]

KEEP = 10  # what must be saved for a value to be kept for a later stage
KEEP_BYTES = 1 << 18  # of scratch for one kept value
SETTLE = 4  # the cost of a value of a row that is computed for all rows beforehand
SETTLED = 1 << 14  # rows for which that is done


def write_nest(
    w: Writer, nest: Nest, results: list[Value], machine: Machine, schedule: NestSchedule | None = None
) -> Dim:
    """Append the loops of a nest; the number of its tasks. `results`: the buffers of its stores."""
    n = _NestWriter(w, nest, results, machine)
    if schedule is None:
        schedule = choose(nest, n.nodes, n.outer[-1].last if n.outer else None, machine)
    check(schedule, nest)
    n.schedule = schedule
    if schedule.shape == "map":
        return n.map()
    return n.rows() if schedule.shape == "rows" else n.columns()


@dataclass(eq=False)
class _Stage:
    """One pass over an inner space: reductions and stores that share its loops."""

    level: int
    inner: tuple[LoopVar, ...]
    reduces: list[Reduce] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    keeps: list[Node] = field(default_factory=list)  # computed here, read again by later stages

    @property
    def roots(self) -> list[Node]:
        return [*(t for r in self.reduces for t in r.terms), *(s.node for s in self.stores)]


def _stages(nest: Nest) -> list[_Stage]:
    """Stages in order; a store joins the first pass over its space that comes after what it reads."""
    found: list[_Stage] = []
    for r in nest.reduces:
        for st in found:
            if st.level == r.level and st.inner == r.inner:
                st.reduces.append(r)
                break
        else:
            found.append(_Stage(r.level, r.inner, [r]))
    for store in nest.stores:
        if not store.inner:
            continue
        fits = [st for st in found if set(st.inner) == set(store.inner) and st.level > store.node.level]
        if fits:
            min(fits, key=lambda st: st.level).stores.append(store)
        else:
            found.append(_Stage(store.node.level + 1, store.inner, [], [store]))
    return sorted(found, key=lambda st: st.level)


class _NestWriter:
    """One nest being written."""

    schedule: NestSchedule

    def __init__(self, writer: Writer, nest: Nest, results: list[Value], machine: Machine) -> None:
        self.w = writer
        self.nest = nest
        self.results = results
        self.machine = machine
        self.nodes = all_nodes([*nest.reduces, *(s.node for s in nest.stores)])
        self.outer = merge_axes(nest.outer, nest.forms)
        self.stages = _stages(nest)
        self.axes: dict[tuple[LoopVar, ...], tuple[Axis, ...]] = {}
        for st in self.stages:
            if st.inner not in self.axes:
                self.axes[st.inner] = merge_axes(st.inner, nest.forms)
        writer.add_axes([*self.outer, *(a for axes in self.axes.values() for a in axes)])

    # Outer loops -----------------------------------------------------------------------------------------------------

    def parallel(self, tasks: Dim, body: Callable[[Value], None]) -> Dim:
        """The tasks' loop."""
        w = self.w

        def one(iv: Value, carried: tuple[Value, ...]) -> Sequence[Value]:
            w.base = len(w.scopes) - 1
            body(iv)
            w.base = 0
            return ()

        w.loop(None, w.const(0), w.const(tasks), For("parallel"), one)
        return tasks

    def span(self, at: Value, block: int, extent: Dim) -> tuple[Value, Value]:
        """(start, end) of block number `at` of range(extent)."""
        w = self.w
        if isinstance(extent, int) and extent <= block:
            return w.const(0), w.const(extent)
        lo = w.s.emit(Affine((block,)), at)
        hi = w.s.emit(Affine((block,), block), at)
        if isinstance(extent, int) and extent % block == 0:
            return lo, hi
        return lo, w.s.emit(IndexMin(), hi, w.const(extent))

    # Maps ------------------------------------------------------------------------------------------------------------

    def map(self) -> Dim:
        if not self.outer:
            return self.parallel(1, lambda iv: self.stores(self.nest.stores))
        *rest, last = self.outer
        if not rest:
            block = self.schedule.block
            tasks = ceildiv(last.extent, block)

            def flat(iv: Value) -> None:
                self.lanes(last, *self.span(iv, block, last.extent), self.nest.stores)

            return self.parallel(tasks, flat)
        turned = self.turned(last)
        if turned is not None:
            return self.tiles(turned)

        def row(iv: Value) -> None:
            self.w.unravel_axes(rest, iv)
            self.lanes(last, self.w.const(0), self.w.const(last.extent), self.nest.stores)

        return self.parallel(product(a.extent for a in rest), row)

    def turned(self, last: Axis) -> Axis | None:
        """The loop along which memory is read or written in order, where that is not the innermost one."""
        for at in self.addresses():
            strides = {a: c for a, c in at.parts}
            if is_one(strides.get(last.last, 0)) or last.last not in strides:
                continue
            for axis in self.outer[:-1]:
                if is_one(strides.get(axis.last, 0)) and min(likely(axis.extent), likely(last.extent)) >= 4:
                    return axis
        return None

    def addresses(self) -> list[Ix]:
        found = [n.at for n in self.nodes if isinstance(n, Load)] + [s.at for s in self.nest.stores]
        return [at for at in found if isinstance(at, Ix)]

    def tiles(self, across: Axis) -> Dim:
        """Square blocks over `across` and the innermost loop. What lies across is copied in order to scratch, with rows
        a little longer than the block: so neither memory nor cache is read in large powers of two."""
        w, last = self.w, self.outer[-1]
        side = self.schedule.tile or TILE
        rest = [a for a in self.outer[:-1] if a is not across]
        blocks = ceildiv(across.extent, side)
        tasks = product(a.extent for a in rest) * blocks
        loads = self.crossing(across, last)

        def tile(iv: Value) -> None:
            at = iv
            if rest:
                at = w.s.emit(IndexMod(blocks), iv)
                w.unravel_axes(rest, w.s.emit(IndexDiv(blocks), iv))
            lo, hi = self.span(at, side, across.extent)
            scratch = {n: w.s.emit(Alloc(n.dtype, side * (side + 1))) for n in loads}

            def strip(j: Value, _: tuple[Value, ...]) -> Sequence[Value]:
                first, end = self.span(j, side, last.extent)
                block = _Block(self, across, last, lo, first, side + 1)

                def line(i: Value, _: tuple[Value, ...]) -> Sequence[Value]:
                    self.lanes(last, first, end, self.nest.stores)
                    return ()

                block.fill(scratch, hi, end)
                w.loop(across.last, lo, hi, For("serial"), line)
                block.forget(scratch)
                return ()

            w.loop(None, w.const(0), w.const(ceildiv(last.extent, side)), For("serial"), strip)

        return self.parallel(tasks, tile)

    def crossing(self, across: Axis, last: Axis) -> list[Load]:
        """Loads that run along memory with `across`, and not with the innermost loop."""
        found = []
        for n in self.nodes:
            if isinstance(n, Load) and n.mask is None and isinstance(n.at, Ix):
                strides = dict(n.at.parts)
                if is_one(strides.get(across.last, 0)) and not is_one(strides.get(last.last, 1)):
                    found.append(n)
        return found

    def stores(self, stores: Sequence[Store]) -> None:
        """Everything is read before anything is written: a result may lie over an operand."""
        values = [self.w.scalar(s.node) for s in stores]
        for s, value in zip(stores, values, strict=True):
            self.w.store_result(self.results[s.result], s.at, value)

    def lanes(
        self, axis: Axis, lo: Value, hi: Value, stores: Sequence[Store], keeps: Sequence[tuple[Node, Value, Dim]] = ()
    ) -> None:
        """A vector loop that stores."""

        def body(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            self.keep(keeps)
            self.stores(stores)
            return ()

        self.w.loop(axis.last, lo, hi, self.vector(axis), body)

    def keep(self, keeps: Sequence[tuple[Node, Value, Dim]]) -> None:
        for n, buffer, at in keeps:
            self.w.store(buffer, at, self.w.scalar(n))

    def vector(self, axis: Axis, unroll: int = 1, combiners: tuple[str, ...] = ()) -> For:
        width = fitting(self.schedule.width, axis.extent)
        return For("vector" if width > 1 else "serial", width, unroll if width > 1 else 1, 1, combiners)

    # Rows ------------------------------------------------------------------------------------------------------------

    def rows(self) -> Dim:
        def point(iv: Value) -> None:
            self.w.unravel_axes(self.outer, iv)
            kept = self.keeps()
            for st in self.stages:
                self.row_stage(st, [k for k in kept if k[0] in st.keeps])
            self.w.pass_number += 1
            self.stores([s for s in self.nest.stores if not s.inner])

        return self.parallel(product(a.extent for a in self.outer), point)

    def row_stage(self, st: _Stage, keeps: list[tuple[Node, Value, Dim]]) -> None:
        w = self.w
        w.pass_number += 1
        axes = self.axes[st.inner]
        inits = [w.s.const(r.identity, r.accumulate) for r in st.reduces]
        totals = self.row_loops(st, axes, keeps, inits)
        for r, total in zip(st.reduces, totals, strict=True):
            w.scopes[-1].found[r] = total
        self.offer(keeps)

    def row_loops(
        self, st: _Stage, axes: tuple[Axis, ...], keeps: list[tuple[Node, Value, Dim]], inits: Sequence[Value]
    ) -> Sequence[Value]:
        w = self.w
        combiners = tuple(r.combiner for r in st.reduces)

        def innermost(carried: Sequence[Value]) -> Sequence[Value]:
            out = [self.combine(r, c) for r, c in zip(st.reduces, carried, strict=True)]
            self.keep(keeps)
            self.stores(st.stores)
            return out

        def level(k: int, carried: Sequence[Value]) -> Sequence[Value]:
            if k == len(axes):
                return innermost(carried)
            last = k == len(axes) - 1
            kind = self.vector(axes[k], self.schedule.unroll, combiners) if last else For("serial", combiners=combiners)
            lo, hi = w.const(0), w.const(axes[k].extent)
            return w.loop(axes[k].last, lo, hi, kind, lambda iv, c: level(k + 1, c), carried)

        return level(0, inits)

    def combine(self, r: Reduce, carried: Value) -> Value:
        """The next partial result."""
        w = self.w
        terms = [w.scalar(t) for t in r.terms]
        s = w.s
        wide = [s.cast(t, r.accumulate) for t in terms]
        if len(wide) == 1:
            return s.call(r.combiner, carried, wide[0])
        if r.accumulate.kind == "f":
            return s.fma(*wide, carried)
        return s.add(carried, s.mul(*wide))

    # Kept values -----------------------------------------------------------------------------------------------------

    def keeps(self, lane: LoopVar | None = None, lanes: int = 1) -> list[tuple[Node, Value, Dim]]:
        """Scratch for values that later stages need and that are dear to compute twice: (node, buffer, element).

        With a `lane` variable, there are `lanes` of each, side by side.
        """
        found: list[tuple[Node, Value, Dim]] = []
        for k, st in enumerate(self.stages):
            earlier = [e for e in self.stages[:k] if e.inner == st.inner and e.inner]
            size = product(v.extent for v in st.inner) * lanes
            if not earlier or likely(size) * 8 > KEEP_BYTES or (lane is not None and not isinstance(size, int)):
                continue
            inside = frozenset(st.inner)
            seen_before = {n: e for e in reversed(earlier) for n in self.varying(e)}
            for n in self.worth_keeping(st, seen_before, inside, lane):
                stage = seen_before[n]
                if n not in stage.keeps:
                    stage.keeps.append(n)
                    found.append((n, self.w.s.emit(Alloc(n.dtype, size)), _address(st.inner) * lanes))
        return found

    def varying(self, st: _Stage) -> list[Node]:
        """Nodes that vary with the loops of a stage, not looking behind kept values."""
        inside = set(st.inner)
        return [n for n in self.reached(st.roots, inside)]

    def reached(self, roots: Sequence[Node], inside: set[LoopVar]) -> list[Node]:
        found = dict.fromkeys(n for n in roots if not n.vars.isdisjoint(inside))
        pending = list(found)
        while pending:
            n = pending.pop()
            if isinstance(n, Reduce):
                continue
            for a in n.args:
                if a not in found and not a.vars.isdisjoint(inside):
                    found[a] = None
                    pending.append(a)
        return list(found)

    def worth_keeping(
        self, st: _Stage, before: dict[Node, _Stage], inside: frozenset[LoopVar], lane: LoopVar | None
    ) -> list[Node]:
        """The outermost values of a stage that an earlier one computes and that are dear."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        pending = list(st.roots)
        while pending:
            n = pending.pop()
            if n in seen or n.vars.isdisjoint(inside) or isinstance(n, Reduce):
                continue
            seen.add(n)
            gathered = lane is not None and isinstance(n, Load) and _strided(n, lane)
            dear = gathered or (node_cost(n) and subtree_cost(n, inside, KEEP) >= KEEP)
            if n in before and inside <= n.vars and dear:
                found[n] = None
                continue
            pending += n.args
        return list(found)

    def offer(self, keeps: list[tuple[Node, Value, Dim]]) -> None:
        """From here on, kept values are loaded."""
        for n, buffer, at in keeps:
            self.w.replaced[n] = lambda buffer=buffer, at=at: self.read(buffer, at)  # type: ignore[misc]

    def read(self, buffer: Value, at: Dim) -> Value:
        values, strides, offset = self.w.terms(at)
        return self.w.s.emit(LoopLoad(strides, offset), buffer, *values)

    # Columns ---------------------------------------------------------------------------------------------------------

    def columns(self) -> Dim:
        """Strips of columns: sums lie in scratch, rows go by from the outermost inner loop to the innermost."""
        w = self.w
        *rest, last = self.outer
        block = self.schedule.block
        strips = ceildiv(last.extent, block)
        tasks = product(a.extent for a in rest) * strips

        def task(iv: Value) -> None:
            at = iv
            if rest:
                at = w.s.emit(IndexMod(strips), iv)
                w.unravel_axes(rest, w.s.emit(IndexDiv(strips), iv))
            lo, hi = self.span(at, block, last.extent)
            strip = _Strip(self, last, lo, hi, block, self.keeps(last.last, block))
            for st in self.stages:
                strip.stage(st)
            strip.finish([s for s in self.nest.stores if not s.inner])

        return self.parallel(tasks, task)


def _strided(n: Load, lane: LoopVar) -> bool:
    """Are the lanes of a load apart in memory?"""
    return isinstance(n.at, Ix) and dict(n.at.parts).get(lane, 1) != 1


def _address(inner: tuple[LoopVar, ...]) -> Dim:
    """The row-major number of a point of an inner space."""
    at: Dim = 0
    for v in inner:
        at = at * v.extent + Ix.of(v)
    return at


@dataclass(eq=False)
class _Block:
    """A block of a turned map: from `lo` along `across` and from `first` along the innermost loop."""

    n: _NestWriter
    across: Axis
    last: Axis
    lo: Value
    first: Value
    pitch: int

    def place(self) -> tuple[tuple[int, ...], tuple[Value, ...]]:
        """(strides, indices) of this element in a scratch buffer, where `across` is innermost."""
        w = self.n.w
        return (self.pitch, -self.pitch, 1, -1), (w.atom(self.last.last), self.first, w.atom(self.across.last), self.lo)

    def fill(self, scratch: dict[Load, Value], hi: Value, end: Value) -> None:
        """Copy the block, along memory, and read it from the copy from here on."""
        w = self.n.w

        def copy(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            values = [w.scalar(n) for n in scratch]
            strides, indices = self.place()
            for buffer, value in zip(scratch.values(), values, strict=True):
                w.s.emit(LoopStore(strides), buffer, value, *indices)
            return ()

        def row(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            w.loop(self.across.last, self.lo, hi, self.n.vector(self.across), copy)
            return ()

        if not scratch:
            return
        w.loop(self.last.last, self.first, end, For("serial"), row)
        for n, buffer in scratch.items():
            w.replaced[n] = lambda buffer=buffer: self.get(buffer)  # type: ignore[misc]

    def get(self, buffer: Value) -> Value:
        strides, indices = self.place()
        return self.n.w.s.emit(LoopLoad(strides), buffer, *indices)

    def forget(self, scratch: dict[Load, Value]) -> None:
        for n in scratch:
            del self.n.w.replaced[n]


@dataclass(eq=False)
class _Strip:
    """A strip of columns [lo, hi) of at most `block`: values of one column are kept in scratch, at column - lo."""

    n: _NestWriter
    axis: Axis
    lo: Value
    hi: Value
    block: int
    kept: list[tuple[Node, Value, Dim]]

    def alloc(self, node: Node) -> Value:
        return self.n.w.s.emit(Alloc(node.dtype, self.block))

    def loop(self, body: Callable[[], None]) -> None:
        """Over the columns, with lanes."""

        def one(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
            body()
            return ()

        self.n.w.loop(self.axis.last, self.lo, self.hi, self.n.vector(self.axis), one)

    def at(self) -> tuple[tuple[int, int], tuple[Value, Value]]:
        """(strides, indices) of this column's element of a scratch buffer."""
        w = self.n.w
        return (1, -1), (w.atom(self.axis.last), self.lo)

    def put(self, buffer: Value, value: Value, row: Dim = 0) -> None:
        strides, indices = self.at()
        more, steps, offset = self.n.w.terms(row)
        self.n.w.s.emit(LoopStore((*strides, *steps), offset), buffer, value, *indices, *more)

    def get(self, buffer: Value, row: Dim = 0) -> Value:
        strides, indices = self.at()
        more, steps, offset = self.n.w.terms(row)
        return self.n.w.s.emit(LoopLoad((*strides, *steps), offset), buffer, *indices, *more)

    def stage(self, st: _Stage) -> None:
        n, w = self.n, self.n.w
        w.pass_number += 1
        self.settle(st)
        sums = [self.alloc(r) for r in st.reduces]
        kept = [k for k in self.kept if k[0] in st.keeps]

        def start() -> None:
            for r, buffer in zip(st.reduces, sums, strict=True):
                self.put(buffer, w.s.const(r.identity, r.accumulate))

        def add() -> None:
            values = [n.combine(r, self.get(buffer)) for r, buffer in zip(st.reduces, sums, strict=True)]
            for value, buffer in zip(values, sums, strict=True):
                self.put(buffer, value)
            for node, buffer, row in kept:
                self.put(buffer, w.scalar(node), row)
            n.stores(st.stores)

        def level(k: int) -> None:
            axes = n.axes[st.inner]
            if k == len(axes):
                self.loop(add)
                return

            def row(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
                level(k + 1)
                return ()

            w.loop(axes[k].last, w.const(0), w.const(axes[k].extent), For("serial"), row)

        if sums:
            self.loop(start)
        level(0)
        for node, buffer, row in kept:
            w.replaced[node] = lambda buffer=buffer, row=row: self.get(buffer, row)  # type: ignore[misc]
        for r, buffer in zip(st.reduces, sums, strict=True):
            w.replaced[r] = lambda buffer=buffer: self.get(buffer)  # type: ignore[misc]

    def settle(self, st: _Stage) -> None:
        """What a stage needs of a column only, or of a row only, is computed once before it, with lanes."""
        inside = set(st.inner)
        column = self.axis.last
        columns: dict[Node, None] = {}
        rows: dict[Node, None] = {}
        for n in self.n.reached(st.roots, inside):
            if isinstance(n, Reduce):
                continue
            if column not in n.vars and n not in self.n.w.replaced and node_cost(n) >= SETTLE:
                rows[n] = None
            for a in n.args:
                if a.vars.isdisjoint(inside) and column in a.vars and a not in self.n.w.replaced and node_cost(a) > 1:
                    columns[a] = None
        if columns:
            self.settle_columns(list(columns))
        axes = self.n.axes[st.inner]
        if rows and len(axes) == 1 and likely(axes[0].extent) <= SETTLED:
            self.settle_rows(axes[0], [n for n in rows if not self.behind(n, rows)])

    def behind(self, n: Node, others: dict[Node, None]) -> bool:
        """Is `n` needed by others of `others` only?"""
        return any(n in all_nodes([o])[1:] for o in others if o is not n)

    def settle_columns(self, wanted: list[Node]) -> None:
        buffers = {a: self.alloc(a) for a in wanted}

        def compute() -> None:
            for a, buffer in buffers.items():
                self.put(buffer, self.n.w.scalar(a))

        self.loop(compute)
        for a, buffer in buffers.items():
            self.n.w.replaced[a] = lambda buffer=buffer: self.get(buffer)  # type: ignore[misc]

    def settle_rows(self, rows: Axis, wanted: list[Node]) -> None:
        n, w = self.n, self.n.w
        kept = [(a, w.s.emit(Alloc(a.dtype, rows.extent)), _address(rows.vars)) for a in wanted]
        n.lanes(rows, w.const(0), w.const(rows.extent), (), kept)
        n.offer(kept)

    def finish(self, stores: list[Store]) -> None:
        self.n.w.pass_number += 1
        if stores:
            self.loop(lambda: self.n.stores(stores))
