"""group: graph -> kernel. Which values live in memory, and which of them are computed by one launch.

A *root* is a value that is written to memory or reduced; everything else is computed where it is read. Roots join a
group while every value of the group is read at the same point of the group's outer space (`can_join`), so that a group is
one nest of loops: elementwise roots of one shape; rows (reductions of the last dims and what reads them: softmax, layer
norm, cross entropy); columns (reductions of leading dims); a contraction with its epilogue. Independent nests then share a
launch. A refusal is a value with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.ir.core import Block, Builder, Function, Level, Op, Value
from treadle.ir.dims import Dim, product, symbol
from treadle.ir.kernels import Contraction, Fused, Host
from treadle.ir.ops.base import Elementwise, View
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.identity import Barrier
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take
from treadle.ir.ops.reductions import ArgMax, ArgMin, Reduction
from treadle.ir.ops.scans import Scan
from treadle.ir.ops.sorting import Sort
from treadle.ir.ops.sources import RandomBits
from treadle.ir.ops.padding import Fold
from treadle.passes.nests.cost import is_dear
from treadle.passes.nests.index import likely, linear_index
from treadle.passes.nests.nests import REDUCTIONS, _reduces_last
from treadle.passes.nests.scalars import Memory, Pull
from treadle.ir.types import INDEX, BufferType
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["No", "group"]

SMALL = 16384  # elements of nests that run on one thread behind another launch
OPAQUE = (Contract, Scan, Put, Scatter, Sort)


@dataclass(frozen=True)
class No:
    """Why two things are not one kernel."""

    reason: str


@dataclass(eq=False)
class Group:
    """Roots that one nest computes, in order."""

    kind: str  # flat | rows | columns | contract | scatter | scan | host
    space: tuple[Dim, ...]
    roots: list[Value] = field(default_factory=list)
    number: int = 0
    before: int = 0  # bit mask of the numbers of groups that this one (transitively) reads


@dataclass
class Fuser:
    """State of one run of the pass."""

    fn: Function
    refusals: list[tuple[Value, No]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.producers = {r: op for op in self.fn.ops for r in op.results}
        self.position = {r: k for k, op in enumerate(self.fn.ops) for r in op.results}
        self.users: dict[Value, list[Op]] = {}
        for op in self.fn.ops:
            for v in dict.fromkeys(op.operands):
                self.users.setdefault(v, []).append(op)
        self._from_memory: dict[Value, bool] = {}
        self.roots = self._roots()
        self.memory = {v: Memory(Value(BufferType(v.dtype, 1))) for v in (*self.fn.params, *self.roots)}
        self.groups: list[Group] = []
        self.group_of: dict[Value, Group] = {}

    # ---- roots --------------------------------------------------------------------------------------------------

    def _roots(self) -> dict[Value, None]:
        found: dict[Value, None] = {}
        params = set(self.fn.params)

        def need(v: Value) -> None:
            if v not in params:
                found[v] = None

        for v in self.fn.returns:
            need(v)
        for op in self.fn.ops:
            o = op.operation
            if isinstance(o, OPAQUE):
                for r in op.results:
                    need(r)
                for v in op.operands:
                    need(self._behind_views(v, isinstance(o, Contract)))
            elif isinstance(o, REDUCTIONS):
                need(op.result)
            elif isinstance(o, Take | Gather):
                source = self._behind_views(op.operands[0], True)
                few = 4 * likely(product(op.result.shape)) <= likely(product(source.shape))
                if not self._is_cheap_source(source) and not few:  # a few elements are computed where they are read
                    need(source)
            elif isinstance(o, Barrier):
                need(op.result)
        for op in self.fn.ops:
            for r in op.results:
                if r not in found and isinstance(op.operation, Elementwise) and self._worth_keeping(r, found):
                    found[r] = None
        return found

    def _behind_views(self, v: Value, views: bool) -> Value:
        while views and v in self.producers and isinstance(self.producers[v].operation, View):
            v = self.producers[v].operands[0]
        return v

    def _is_cheap_source(self, v: Value) -> bool:
        op = self.producers.get(v)
        return op is None or not op.operands and not isinstance(op.operation, OPAQUE)

    def _worth_keeping(self, v: Value, roots: dict[Value, None]) -> bool:
        """Read by several roots, or read many times over, and dearer to compute again than to load."""
        if not self._reads_memory(v):
            return False
        readers = self._root_readers(v, roots)
        if len(readers) > 1:
            return is_dear(self.producers, v, 3)
        spread = any(_expands(u) for u in self.users.get(v, ()))
        return spread and is_dear(self.producers, v, 8) and likely(product(v.shape)) > 1

    def _reads_memory(self, v: Value) -> bool:
        """False for what comes from indices and constants alone: that is never worth storing."""
        known = self._from_memory.get(v)
        if known is None:
            op = self.producers.get(v)
            known = op is None or any(self._reads_memory(x) for x in op.operands) or isinstance(op.operation, RandomBits)
            self._from_memory[v] = known
        return known

    def _root_readers(self, v: Value, roots: dict[Value, None]) -> set[Value]:
        """Roots whose computation reads `v` (at most a few are looked for)."""
        found: set[Value] = set()
        pending, seen = [v], set()
        while pending and len(found) < 3:
            x = pending.pop()
            for op in self.users.get(x, ()):
                for r in op.results:
                    if r in seen:
                        continue
                    seen.add(r)
                    if r in roots:
                        found.add(r)
                    else:
                        pending.append(r)
        return found

    # ---- groups -------------------------------------------------------------------------------------------------

    def run(self) -> Function:
        order = sorted(self.roots, key=lambda v: self.position[v])
        for v in order:
            if v not in self.group_of:
                self._place(v)
        return self._emit()

    def _place(self, v: Value) -> None:
        op = self.producers[v]
        reads = self._reads(v)
        sources = {self.group_of[x] for x, _ in reads if x in self.group_of}
        kind, space = self._shape_of(v, op)
        if kind in ("flat", "rows", "columns"):
            for g in sorted(sources, key=lambda g: -g.number):
                answer = self._can_join(v, kind, space, g, reads, sources)
                if answer is None:
                    self._join(v, g, sources)
                    return
                self.refusals.append((v, answer))
        g = Group(kind, space, number=len(self.groups))
        self.groups.append(g)
        for r in op.results if isinstance(op.operation, OPAQUE) else (v,):
            self._join(r, g, sources)

    def _join(self, v: Value, g: Group, sources: set[Group]) -> None:
        g.roots.append(v)
        self.group_of[v] = g
        for s in sources:
            if s is not g:
                self._order(s, g)

    def _order(self, first: Group, then: Group) -> None:
        """`then` reads what `first` writes; so do all that read `then`."""
        mask = first.before | (1 << first.number)
        if then.before & mask == mask:
            return
        then.before |= mask
        for g in self.groups:
            if g.before >> then.number & 1:
                g.before |= mask

    def _shape_of(self, v: Value, op: Op) -> tuple[str, tuple[Dim, ...]]:
        o = op.operation
        if isinstance(o, Contract):
            return "contract", v.shape
        if isinstance(o, Put | Scatter):
            return "scatter", v.shape
        if isinstance(o, Scan):
            return "scan", v.shape
        if isinstance(o, Sort):
            return "host", v.shape
        if isinstance(o, Fold):
            return "columns", v.shape
        if isinstance(o, Reduction | ArgMax | ArgMin):
            return ("rows" if _reduces_last(op) else "columns"), v.shape
        return "flat", v.shape

    def _reads(self, v: Value) -> list[tuple[Value, tuple[Dim, ...] | None]]:
        """What computing `v` reads from memory, and at which index in terms of the loop variables of `v`; None where the
        index is not told (contractions and the like read everything)."""
        op = self.producers[v]
        if isinstance(op.operation, OPAQUE):
            return [(self._behind_views(x, isinstance(op.operation, Contract)), None) for x in op.operands]
        p = Pull(self.producers, dict(self.memory), {})
        names = [f"o{k}" for k in range(v.rank)]
        p.ranges = dict(zip(names, v.shape, strict=True))
        index = tuple(symbol(n) for n in names)
        if isinstance(op.operation, REDUCTIONS):
            at, x = _inside_reduction(op, index, p)
        else:
            at, x = index, v
        p.loops = {n: _INDEX for n in p.ranges}
        if x is v:
            del p.memory[v]
        if isinstance(op.operation, Fold):
            p.place(op.operands[0], *at, None)
        else:
            p.value(x, at)
        return [(u, i) for u, i, _ in p.reads]

    def _can_join(
        self, v: Value, kind: str, space: tuple[Dim, ...], g: Group, reads: list, sources: set[Group]
    ) -> No | None:
        """None where `v` may be computed by the nest of `g`; else why not."""
        for s in sources:
            if s is not g and s.before >> g.number & 1:
                return No("another kernel stands between")
        index = tuple(symbol(f"o{k}") for k in range(len(space)))
        if g.kind in ("flat", "contract"):
            if kind == "flat" and space == g.space:
                return self._same_point(v, g, reads, index)
            if kind == "flat" and g.kind == "contract" and product(space) == product(g.space):
                return self._same_element(v, g, reads, index)
            if kind == "flat":
                return No("the shapes differ")
            if kind == "rows" and g.kind == "flat":
                return self._to_rows(v, g, reads, index)
            return No(f"a reduction does not join a {g.kind} kernel")
        depth = len(g.space)
        if g.kind == "rows":
            if kind == "columns" or v.shape[:depth] != g.space or (kind == "rows" and len(space) != depth):
                return No("the outer shapes differ")
            return self._same_point(v, g, reads, index[:depth])
        if g.kind == "columns" and kind == "flat" and space == g.space:
            return self._same_point(v, g, reads, index)
        return No(f"{kind} does not join {g.kind}")

    def _to_rows(self, v: Value, g: Group, reads: list, index: tuple[Dim, ...]) -> No | None:
        if g.space[: len(index)] != v.shape:
            return No("the rows are not those of the kernel")
        if likely(product(v.shape)) < 16 and likely(product(g.space)) > 16384:
            return No("too few rows to share the work")
        answer = self._same_point(v, g, reads, index)
        if answer is None:
            g.kind, g.space = "rows", v.shape
        return answer

    def _same_point(self, v: Value, g: Group, reads: list, point: tuple[Dim, ...]) -> No | None:
        for x, at in reads:
            if self.group_of.get(x) is g and (at is None or at[: len(point)] != point):
                return No("a value is read at other points than it is computed at")
        return None

    def _same_element(self, v: Value, g: Group, reads: list, index: tuple[Dim, ...]) -> No | None:
        """Like `_same_point` for values of other shapes: the same place in row-major order."""
        ranges = {str(n): d for n, d in zip(index, v.shape, strict=True)}
        here = linear_index(index, v.shape, ranges)
        for x, at in reads:
            if self.group_of.get(x) is g and (at is None or linear_index(at, x.shape, ranges) != here):
                return No("a value is read at other points than it is computed at")
        return None

    # ---- kernels ------------------------------------------------------------------------------------------------

    def _emit(self) -> Function:
        b = Builder()
        mapping: dict[Value, Value] = {p: p for p in self.fn.params}
        pending: list[list[Group]] = []  # nests of one launch: independent ones, then small ones that follow in order
        for level in self._levels():
            for batch in _batches(level):
                if pending and _is_nest(batch[0]) and self._is_small(batch):
                    pending += [[g] for g in batch]
                    continue
                self._launch(b, mapping, pending)
                pending = [batch]
                if not _is_nest(batch[0]):
                    self._launch(b, mapping, pending)
                    pending = []
        self._launch(b, mapping, pending)
        body = Block(self.fn.params, tuple(b.ops), tuple(mapping[v] for v in self.fn.returns))
        return Function(self.fn.name, body, Level.KERNEL, self.fn.symbols)

    def _levels(self) -> list[list[Group]]:
        """Groups by the latest step at which they may run: independent ones meet, and inputs stay free for long."""
        after: dict[Group, list[Group]] = {g: [] for g in self.groups}
        for g in self.groups:
            for s in self.groups:
                if g.before >> s.number & 1:
                    after[s].append(g)
        height: dict[Group, int] = {}
        for g in sorted(self.groups, key=lambda g: -bin(g.before).count("1")):
            height[g] = 1 + max((height[x] for x in after[g]), default=-1)
        levels: dict[int, list[Group]] = {}
        for g in self.groups:
            levels.setdefault(height[g], []).append(g)
        return [sorted(levels[h], key=lambda g: g.number) for h in sorted(levels, reverse=True)]

    def _outputs(self, g: Group) -> list[Value]:
        """Roots of `g` that others read."""
        returned = set(self.fn.returns)
        kept = []
        for v in g.roots:
            readers = self._root_readers_all(v)
            if v in returned or any(self.group_of[r] is not g for r in readers):
                kept.append(v)
        return kept

    def _root_readers_all(self, v: Value) -> set[Value]:
        found: set[Value] = set()
        pending, seen = [v], set()
        while pending:
            x = pending.pop()
            for op in self.users.get(x, ()):
                for r in op.results:
                    if r not in seen:
                        seen.add(r)
                        if r in self.roots:
                            found.add(r)
                        else:
                            pending.append(r)
        return found

    def _is_small(self, batch: list[Group]) -> bool:
        """Is the work of these nests less than handing them to other threads costs?"""
        return sum(self._elements(g) for g in batch) <= SMALL

    def _elements(self, g: Group) -> int:
        ops = [self.producers[v] for v in g.roots]
        return sum(
            likely(product((op.operands[0] if isinstance(op.operation, REDUCTIONS) else op.results[0]).shape)) for op in ops
        )

    def _launch(self, b: Builder, mapping: dict[Value, Value], phases: list[list[Group]]) -> None:
        """Emit one launch: the groups of the first phase are independent, the others follow one by one."""
        if not phases:
            return
        if phases[0][0].kind == "host":
            self._host(b, mapping, phases[0][0])
            return
        bodies = [(g, self._outputs(g), *self._closure(g), k) for k, batch in enumerate(phases) for g in batch]
        bodies = [x for x in bodies if x[1]]
        if not bodies:
            return
        made_here = {v for _, outputs, _, _, _ in bodies for v in outputs}
        operands = dict.fromkeys(v for _, _, _, inputs, _ in bodies for v in inputs if v not in made_here)
        parallel = sum(k == bodies[0][4] for *_, k in bodies)
        ordered = parallel < len(bodies)
        regions: list[Block] = []
        results: list[Value] = []
        for n, (_, outputs, ops, _, _) in enumerate(bodies):
            seen = [*operands, *results] if ordered and n >= parallel else list(operands)
            regions.append(_region(seen, ops, outputs))
            results += outputs
        kind = phases[0][0].kind
        loops = Fused("loops" if _is_nest(phases[0][0]) else kind, parallel if ordered else 0)
        operation = Contraction() if kind == "contract" else loops
        b.loc = next((op.loc for _, _, ops, _, _ in bodies for op in reversed(ops) if op.loc), None)
        types = tuple(v.type for v in results)
        made = b.emit(operation, *(mapping[v] for v in operands), regions=tuple(regions), types=types)
        mapping.update(zip(results, made if isinstance(made, tuple) else (made,), strict=True))

    def _closure(self, g: Group) -> tuple[list[Op], list[Value]]:
        """Ops that compute the roots of `g`, in order, and the values from memory they read."""
        own = set(g.roots)
        ops: dict[int, Op] = {}
        inputs: dict[Value, None] = {}
        pending = list(g.roots)
        while pending:
            v = pending.pop()
            if v not in self.producers or (v in self.roots and v not in own):
                inputs[v] = None
                continue
            op = self.producers[v]
            k = self.position[v]
            if k not in ops:
                ops[k] = op
                pending.extend(op.operands)
        return [ops[k] for k in sorted(ops)], list(inputs)

    def _host(self, b: Builder, mapping: dict[Value, Value], g: Group) -> None:
        op = self.producers[g.roots[0]]
        o: Sort = op.operation  # type: ignore[assignment]
        (x,) = op.operands
        n = x.shape[o.dim]
        name = f"sort_{x.dtype.short}_{'desc' if o.descending else 'asc'}"
        rows: Dim = product(d for k, d in enumerate(x.shape) if k != o.dim)
        made = b.emit(Host(name, tuple(r.tensor for r in op.results), (n,), rows), mapping[x])
        mapping.update(zip(op.results, made, strict=True))


def _expands(op: Op) -> bool:
    """Does the op read one element of its operand many times?"""
    return op.operation.name == "graph.expand" and likely(product(op.result.shape)) > 2 * likely(product(op.operands[0].shape))


_INDEX = Value(INDEX)


def _inside_reduction(op: Op, index: tuple[Dim, ...], p: Pull) -> tuple:
    """(index of the operand, operand) for a point of a reduction's result."""
    (x,) = op.operands
    o = op.operation
    if isinstance(o, Fold):
        n = len(o.shape)
        names = [f"r{k}" for k in range(n)]
        p.ranges.update(zip(names, x.shape[x.rank - n :], strict=True))
        return o.index_map(index, tuple(symbol(k) for k in names), x.shape), x
    dims = o.dims if isinstance(o, Reduction) else (o.dim,)  # type: ignore[attr-defined]
    kept = iter(index)
    at = []
    for d in range(x.rank):
        if d in dims:
            p.ranges[f"r{d}"] = x.shape[d]
            at.append(symbol(f"r{d}"))
        else:
            at.append(next(kept))
    return tuple(at), x


def _region(seen: list[Value], ops: list[Op], outputs: list[Value]) -> Block:
    """Ops as a region whose parameters stand for `seen`."""
    params = {v: Value(v.type) for v in seen}
    local: dict[Value, Value] = dict(params)
    copied = []
    for op in ops:
        made = tuple(Value(r.type) for r in op.results)
        copied.append(Op(op.operation, tuple(local[v] for v in op.operands), made, (), op.loc))
        local.update(zip(op.results, made, strict=True))
    return Block(tuple(params.values()), tuple(copied), tuple(local[v] for v in outputs))


def _is_nest(g: Group) -> bool:
    return g.kind in ("flat", "rows", "columns")


def _batches(level: list[Group]) -> list[list[Group]]:
    """Groups of one level that share a launch: nests of loops; everything else runs alone."""
    together = [g for g in level if g.kind in ("flat", "rows", "columns")]
    alone = [[g] for g in level if g.kind not in ("flat", "rows", "columns")]
    return alone + ([together] if together else [])


@compiler_pass("group", before=Level.GRAPH, after=Level.KERNEL)
def group(fn: Function, context: Context | None = None) -> Function:
    """Group the ops of a graph into launches."""
    from treadle.passes.prepare import prepare

    return Fuser(prepare(fn)).run()
