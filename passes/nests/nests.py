"""Loop nests of fused regions: flat (elementwise), by rows (reductions of the last dims), by columns (of leading dims).

A region has stages: its reductions, its results, and what several stages need and is dear to compute twice. All stages
of a nest run at one point of the outer space before the next point: their rows stay in cache, and in registers where
one value is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.ir import dtypes
from treadle.ir.core import Block, Builder, Op, Value
from treadle.ir.dims import Dim, ceildiv, product, symbol
from treadle.ir.dtypes import DType
from treadle.ir.loops import Alloc, For, IndexConst, IndexMin, Affine, IndexDiv, IndexMod
from treadle.ir.ops.base import Elementwise
from treadle.ir.ops.padding import Fold
from treadle.ir.ops.reductions import ArgMax, ArgMin, Reduction
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX, ScalarType
from treadle.passes.nests.index import Space, likely
from treadle.passes.nests.scalars import Memory, Pull
from treadle.passes.nests.cost import is_dear

__all__ = ["Nest", "REDUCTIONS", "lower_nest"]

REDUCTIONS = (Reduction, ArgMax, ArgMin, Fold)
BLOCK = 8192  # elements of a task of a flat kernel
ROW_BLOCK = 4096  # elements that a task of short rows gathers


@dataclass
class Nest:
    """One region being lowered: its ops, and where its results go."""

    region: Block
    memory: dict[Value, Memory]
    lanes: Callable[[DType], int]
    messages: list[str]

    def __post_init__(self) -> None:
        self.producers = {r: op for op in self.region.ops for r in op.results}
        self.reductions = [op for op in self.region.ops if isinstance(op.operation, REDUCTIONS)]

    def pull(self, ranges: dict[str, Dim]) -> Pull:
        return Pull(self.producers, dict(self.memory), ranges, messages=self.messages)


def lower_nest(nest: Nest, b: Builder) -> Dim:
    """Append the nest's loops to `b`; the number of its tasks."""
    if not nest.reductions:
        return _flat(nest, b)
    first = nest.reductions[0]
    if _reduces_last(first):
        return _rows(nest, b)
    return _columns(nest, b)


def _reduced_dims(op: Op) -> tuple[int, ...]:
    o = op.operation
    if isinstance(o, Fold):
        return ()
    return o.dims if isinstance(o, Reduction) else (o.dim,)  # type: ignore[attr-defined]


def _reduces_last(op: Op) -> bool:
    dims = [d for d in _reduced_dims(op) if op.operands[0].shape[d] != 1] or list(_reduced_dims(op))
    rank = op.operands[0].rank
    kept = [d for d in range(rank) if d not in dims and op.operands[0].shape[d] != 1]
    return not isinstance(op.operation, Fold) and (not kept or (bool(dims) and max(dims) > max(kept)))


# ---- helpers for loops ------------------------------------------------------------------------------------------------


def const(b: Builder, d: Dim) -> Value:
    return b.emit(IndexConst(d))


def loop(b: Builder, lo: Value, hi: Value, operation: For, body: Callable[[ScalarBuilder, Value], None]) -> None:
    """A loop without carried values."""
    iv = Value(INDEX)
    inner = ScalarBuilder()
    body(inner, iv)
    b.emit(operation, lo, hi, regions=(inner.block((iv,), ()),))


# ---- flat -------------------------------------------------------------------------------------------------------------


def _flat(nest: Nest, b: Builder) -> Dim:
    shape = nest.region.yields[0].shape
    names = [f"i{k}" for k in range(len(shape))]
    space = Space(dict(zip(names, shape, strict=True)))
    _shape_space(nest, space, names)
    width = nest.lanes(max((v.dtype for v in nest.region.yields), key=lambda d: d.itemsize))

    def body(p: Pull) -> None:
        index = space.index(names)
        values = [_value(p, v, index) for v in nest.region.yields]
        for v, x in zip(nest.region.yields, values, strict=True):  # a result may overwrite an operand: read all first
            p.store(v, index, x)

    return _loops(nest, b, space, width, body)


def _value(p: Pull, v: Value, index: tuple[Dim, ...]) -> Value:
    """The value of a result itself, not what memory holds."""
    memory = p.memory.pop(v)
    try:
        return p.value(v, index)
    finally:
        p.memory[v] = memory


def _dry(nest: Nest, space: Space, names: list[str], values: tuple[Value, ...]) -> Pull:
    """Evaluate without writing, to see which addresses are read."""
    p = nest.pull(dict(space.extents))
    p.messages = list(nest.messages)
    p.loops = {n: Value(INDEX) for n in space.extents}
    for v in values:
        index = space.index(names)
        p.reads.append((v, index, p.address(v, index)))
        _value(p, v, index)
    return p


def _shape_space(nest: Nest, space: Space, names: list[str]) -> None:
    """Split and merge loops so that addresses are linear and loops are long."""
    space.drop_units()
    p = _dry(nest, space, names, nest.region.yields)
    space.refine([a for _, _, a in p.reads] + p.exact)
    p = _dry(nest, space, names, nest.region.yields)
    exact = {s for e in p.exact for s in _symbols(e) if s in space.extents}
    linear = [a for _, _, a in p.reads]
    if not exact or _is_linear_index(p.exact, space):
        space.merge([*linear, *p.exact])
    else:
        space.merge(linear, exact)


def _is_linear_index(exact: list[Dim], space: Space) -> bool:
    from treadle.passes.nests.index import coefficients

    return all(all(a.op == "sym" for a in coefficients(e, space.extents)[0]) for e in exact)


def _symbols(e: Dim) -> tuple[str, ...]:
    from treadle.ir.dims import symbols_of

    return symbols_of(e)


def _loops(nest: Nest, b: Builder, space: Space, width: int, body: Callable[[Pull], None]) -> Dim:
    """parallel (blocks of) outer loops, vector inner loop."""
    names = _ordered(list(space.extents), space, width)
    zero = const(b, 0)
    if not names:
        p = nest.pull({})
        p.s = ScalarBuilder()

        def once(s: ScalarBuilder, iv: Value) -> None:
            p.s = s
            body(p)

        loop(b, zero, const(b, 1), For("parallel"), once)
        return 1
    inner, outer = names[-1], names[:-1]
    n = space.extents[inner]
    if not outer:
        return _blocked(nest, b, space, inner, n, width, body)
    rows = product(space.extents[k] for k in outer)

    def row(s: ScalarBuilder, p: Pull) -> None:
        _vector(p, inner, const(s, 0), const(s, n), width, body)

    return _row_tasks(nest, b, space, outer, rows, n, row)


def _ordered(names: list[str], space: Space, width: int) -> list[str]:
    """Loop order: a last loop too short for lanes changes places with a long one before it."""
    if (
        len(names) > 1
        and likely(space.extents[names[-1]]) < min(4, width)
        and likely(space.extents[names[-2]]) >= width
    ):
        names[-2:] = [names[-1], names[-2]]
    return names


def _blocked(nest: Nest, b: Builder, space: Space, name: str, n: Dim, width: int, body: Callable[[Pull], None]) -> Dim:
    tasks = ceildiv(n, BLOCK)

    def task(s: ScalarBuilder, iv: Value) -> None:
        lo = s.emit(Affine((BLOCK,)), iv)
        hi = s.emit(IndexMin(), s.emit(Affine((BLOCK,), BLOCK), iv), const(s, n))
        p = nest.pull(dict(space.extents))
        p.s = s
        _vector(p, name, lo, hi, width, body)

    loop(b, const(b, 0), const(b, tasks), For("parallel"), task)
    return tasks


def _vector(
    p: Pull, name: str, lo: Value, hi: Value, width: int, body: Callable[[Pull], None], unroll: int = 1
) -> None:
    iv = Value(INDEX)
    q = p.inner(**{name: iv})
    body(q)
    p.s.emit(For("vector" if width > 1 else "serial", width, unroll), lo, hi, regions=(q.s.block((iv,), ()),))


def _row_tasks(
    nest: Nest,
    b: Builder,
    space: Space,
    outer: list[str],
    rows: Dim,
    row_size: Dim,
    row: Callable[[ScalarBuilder, Pull], None],
) -> Dim:
    """Tasks of whole rows, several a task where rows are short."""
    per_task = max(1, ROW_BLOCK // max(1, likely(row_size)))
    tasks = ceildiv(rows, per_task) if per_task > 1 else rows

    def one(s: ScalarBuilder, r: Value) -> None:
        p = nest.pull(dict(space.extents))
        p.s = s
        rest = r
        for k in range(len(outer) - 1, -1, -1):
            extent = space.extents[outer[k]]
            p.loops[outer[k]] = rest if k == 0 else s.emit(IndexMod(extent), rest)
            if k:
                rest = s.emit(IndexDiv(extent), rest)
        row(s, p)

    def task(s: ScalarBuilder, iv: Value) -> None:
        if per_task == 1:
            one(s, iv)
            return
        lo = s.emit(Affine((per_task,)), iv)
        hi = s.emit(IndexMin(), s.emit(Affine((per_task,), per_task), iv), const(s, rows))
        loop(s, lo, hi, For("serial"), one)

    loop(b, const(b, 0), const(b, tasks), For("parallel"), task)
    return tasks


# ---- rows -------------------------------------------------------------------------------------------------------------


def _rows(nest: Nest, b: Builder) -> Dim:
    outer_shape = nest.reductions[0].result.shape
    outer = [f"o{k}" for k in range(len(outer_shape))]
    space = Space({n: d for n, d in zip(outer, outer_shape, strict=True)})
    stages = _stages(nest, outer_shape)
    size = max(
        (likely(product(op.operands[0].shape)) // max(1, likely(product(outer_shape))) for op in nest.reductions),
        default=1,
    )

    def row(s: ScalarBuilder, p: Pull) -> None:
        index = tuple(symbol(n) for n in outer)
        for v in stages:
            _stage(nest, p, v, index, len(outer))

    if not outer:
        p = nest.pull({})

        def once(s: ScalarBuilder, iv: Value) -> None:
            p.s = s
            row(s, p)

        loop(b, const(b, 0), const(b, 1), For("parallel"), once)
        return 1
    return _row_tasks(nest, b, space, outer, product(outer_shape), size, row)


def _stages(nest: Nest, outer: tuple[Dim, ...]) -> list[Value]:
    """Values to compute in order: reductions, results, and dear values that several of these read."""
    wanted = set(nest.region.yields) | {op.results[0] for op in nest.reductions}
    readers: dict[Value, set[Value]] = {}
    for v in [r for op in nest.region.ops for r in op.results if r in wanted]:
        for x in _inlined(nest, v, wanted):
            readers.setdefault(x, set()).add(v)
    shared = {
        x for x, by in readers.items()
        if len(by) > 1 and is_dear(nest.producers, x) and x.shape[: len(outer)] == outer and x.rank > len(outer)
        and isinstance(nest.producers[x].operation, Elementwise)
    }  # fmt: skip
    order = [r for op in nest.region.ops for r in op.results if r in wanted or r in shared]
    # A shared value whose every reader goes through another shared value need not be kept itself.
    kept = []
    for v in order:
        if v in shared and v not in wanted:
            direct = {t for t in order if t is not v and v in _inlined(nest, t, wanted | (shared - {v}))}
            if len(direct) < 2:
                shared.discard(v)
                continue
        kept.append(v)
    return kept


def _inlined(nest: Nest, v: Value, stops: set[Value]) -> set[Value]:
    """Values computed inside the stage `v` (not at or behind other stages)."""
    found: set[Value] = set()
    op = nest.producers.get(v)
    pending = list(op.operands) if op else []
    while pending:
        x = pending.pop()
        if x in found or x in stops or x not in nest.producers or x in nest.memory:
            continue
        found.add(x)
        pending.extend(nest.producers[x].operands)
    return found


def _stage(nest: Nest, p: Pull, v: Value, outer: tuple[Dim, ...], depth: int) -> None:
    op = nest.producers[v]
    if isinstance(op.operation, REDUCTIONS):
        result = _reduce(nest, p, op, outer)
        _keep(nest, p, v, outer, result)
        return
    extra = v.shape[depth:]
    if not extra:
        _keep(nest, p, v, outer, _value(p, v, outer) if v in p.memory else p.value(v, outer))
        return
    if v not in p.memory:
        p.memory[v] = Memory(p.s.emit(Alloc(v.dtype, product(extra))), depth)
    names = [f"j{k}_{len(p.found)}" for k in range(len(extra))]
    space = Space(dict(zip(names, extra, strict=True)))
    _row_space(p, space, names, outer, v)

    def body(q: Pull) -> None:
        index = (*outer, *space.index(names))
        q.store(v, index, _value(q, v, index))

    _inner_loops(nest, p, space, nest.lanes(v.dtype), body)


def _keep(nest: Nest, p: Pull, v: Value, index: tuple[Dim, ...], result: Value) -> None:
    """A value of one element at this outer point: in a register, and in memory where it is a result."""

    def ready(at: tuple[Dim, ...]) -> Value | None:
        return result if at == index else None

    p.stages = {**p.stages, v: ready}
    if v in p.memory:
        p.store(v, index, result)


def _row_space(
    p: Pull, space: Space, names: list[str], outer: tuple[Dim, ...], v: Value, index_of: Callable | None = None
) -> None:
    """Split and merge the loops of one stage."""
    space.drop_units()

    def dry() -> Pull:
        q = p.inner(**{n: Value(INDEX) for n in space.extents})
        q.ranges = {**p.ranges, **space.extents}
        q.reads, q.exact, q.messages = [], [], list(p.messages)
        if index_of is not None:
            index_of(q)
        else:
            index = (*outer, *space.index(names))
            q.reads.append((v, index, q.address(v, index)))
            _value(q, v, index)
        return q

    q = dry()
    space.refine([a for _, _, a in q.reads] + q.exact)
    q = dry()
    exact = {s for e in q.exact for s in _symbols(e) if s in space.extents}
    space.merge([a for _, _, a in q.reads], exact)
    p.ranges = {**p.ranges, **space.extents}


def _inner_loops(nest: Nest, p: Pull, space: Space, width: int, body: Callable[[Pull], None]) -> None:
    """Serial loops around a vector loop."""
    names = list(space.extents)
    if not names:
        body(p)
        return

    def level(q: Pull, k: int) -> None:
        lo, hi = const(q.s, 0), const(q.s, space.extents[names[k]])
        if k == len(names) - 1:
            _vector(q, names[k], lo, hi, width, body)
            return
        iv = Value(INDEX)
        r = q.inner(**{names[k]: iv})
        level(r, k + 1)
        q.s.emit(For("serial"), lo, hi, regions=(r.s.block((iv,), ()),))

    level(p, 0)


# ---- reductions -------------------------------------------------------------------------------------------------------


def _reduce(nest: Nest, p: Pull, op: Op, outer: tuple[Dim, ...]) -> Value:
    """The value of a reduction at outer point `outer`, in its dtype."""
    if isinstance(op.operation, ArgMax | ArgMin):
        return _arg_reduce(nest, p, op, outer)
    o = op.operation
    (x,) = op.operands
    acc = o.accumulate_dtype(x.dtype)  # type: ignore[attr-defined]

    def element(q: Pull, at: tuple[Dim, ...]) -> Value:
        if isinstance(o, Fold):
            where, conditions = o.index_map(outer, at, x.shape)
            value, inside = q.place(x, where, conditions, None)
            value = q.s.cast(value, acc)
            return value if inside is None else q.s.select(inside, value, q.s.const(o.identity(acc), acc))
        return q.s.cast(q.value(x, _operand_index(op, outer, at)), acc)

    total = _accumulate(nest, p, _reduction_extents(op), acc, o.combiner, o.identity(acc), element)  # type: ignore[attr-defined]
    return p.s.cast(total, op.result.dtype)


def _reduction_extents(op: Op) -> tuple[Dim, ...]:
    x = op.operands[0]
    if isinstance(op.operation, Fold):
        return x.shape[x.rank - len(op.operation.shape) :]
    return tuple(x.shape[d] for d in _reduced_dims(op))


def _operand_index(op: Op, outer: tuple[Dim, ...], at: tuple[Dim, ...]) -> tuple[Dim, ...]:
    dims = _reduced_dims(op)
    kept, inner = iter(outer), iter(at)
    return tuple(next(inner) if d in dims else next(kept) for d in range(op.operands[0].rank))


def _accumulate(
    nest: Nest, p: Pull, extents: tuple[Dim, ...], acc: DType, combiner: str, identity: float | int | bool,
    element: Callable[[Pull, tuple[Dim, ...]], Value],
) -> Value:  # fmt: skip
    names = [f"r{k}_{len(p.found)}_{len(p.stages)}" for k in range(len(extents))]
    space = Space(dict(zip(names, extents, strict=True)))
    _row_space(p, space, names, (), p_value_placeholder, lambda q: element(q, space.index(names)))
    order = list(space.extents)
    start = p.s.const(identity, acc)
    if not order:
        return p.s.call(combiner, start, element(p, space.index(names)))
    width = nest.lanes(acc) if p.lane is None else 1

    def level(q: Pull, k: int, carried: Value) -> Value:
        lo, hi = const(q.s, 0), const(q.s, space.extents[order[k]])
        iv, c = Value(INDEX), Value(ScalarType(acc))
        r = q.inner(**{order[k]: iv})
        last = k == len(order) - 1
        out = r.s.call(combiner, c, element(r, space.index(names))) if last else level(r, k + 1, c)
        n = likely(space.extents[order[k]])
        vector = last and width > 1 and n >= width
        kind = For(
            "vector" if vector else "serial",
            width if vector else 1,
            (4 if n >= 8 * width else 1) if vector else 1,
            1,
            (combiner,),
        )
        return q.s.emit(kind, lo, hi, carried, regions=(r.s.block((iv, c), (out,)),))

    return level(p, 0, start)


p_value_placeholder: Value = Value(INDEX)


def _arg_reduce(nest: Nest, p: Pull, op: Op, outer: tuple[Dim, ...]) -> Value:
    """Two passes: the extremum, then the first index that has it (or is NaN where it is)."""
    o = op.operation
    (x,) = op.operands
    combiner: str = o.arg_of  # type: ignore[attr-defined]
    kind = x.dtype if x.dtype.kind != "b" else dtypes.uint8
    low = combiner == "maximum"
    if kind.kind == "f":
        identity: float | int = float("-inf") if low else float("inf")
    else:
        bits = kind.bits
        extremes = (0, 2**bits - 1) if kind.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        identity = extremes[0 if low else 1]

    def element(q: Pull, at: tuple[Dim, ...]) -> Value:
        return q.s.cast(q.value(x, _operand_index(op, outer, at)), kind)

    best = _accumulate(nest, p, _reduction_extents(op), kind, combiner, identity, element)

    def place(q: Pull, at: tuple[Dim, ...]) -> Value:
        v = element(q, at)
        hit = q.s.eq(v, best)
        if kind.kind == "f":
            hit = q.s.or_(hit, q.s.and_(q.s.isnan(v), q.s.isnan(best)))
        return q.s.select(hit, q.number(at[0]), q.s.const(2**62, dtypes.int64))

    return _accumulate(nest, p, _reduction_extents(op), dtypes.int64, "minimum", 2**62, place)


# ---- columns ----------------------------------------------------------------------------------------------------------


def _columns(nest: Nest, b: Builder) -> Dim:
    """Reductions of leading dims: lanes along the last kept dim, each with its own accumulators."""
    shape = nest.reductions[0].result.shape
    outer = [f"o{k}" for k in range(len(shape))]
    space = Space({n: d for n, d in zip(outer, shape, strict=True)})
    stages = _stages(nest, shape)
    lanes = nest.lanes(nest.reductions[0].operands[0].dtype)
    width = lanes * 4 if likely(shape[-1]) >= 4 * lanes else lanes
    block = width if likely(shape[-1]) >= width else max(1, likely(shape[-1]))
    across = ceildiv(shape[-1], block)
    rows = product(shape[:-1])
    index = tuple(symbol(n) for n in outer)

    def task(s: ScalarBuilder, iv: Value) -> None:
        p = nest.pull(dict(space.extents))
        p.s = s
        rest = s.emit(IndexDiv(across), iv)
        for k in range(len(outer) - 2, -1, -1):
            p.loops[outer[k]] = rest if k == 0 else s.emit(IndexMod(shape[k]), rest)
            if k:
                rest = s.emit(IndexDiv(shape[k]), rest)
        column = s.emit(IndexMod(across), iv)
        lo = s.emit(Affine((block,)), column)
        hi = s.emit(IndexMin(), s.emit(Affine((block,), block), column), const(s, shape[-1]))

        def body(q: Pull) -> None:
            q.lane = outer[-1]
            for v in stages:
                _stage(nest, q, v, index, len(outer))

        _vector(p, outer[-1], lo, hi, width if block >= lanes else 1, body)

    tasks = rows * across
    loop(b, const(b, 0), const(b, tasks), For("parallel"), task)
    return tasks
