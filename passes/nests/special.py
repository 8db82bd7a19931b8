"""Kernels that are not maps or reductions: scatters and scans."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir import dtypes
from treadle.ir.core import Block, Builder, Op, Value
from treadle.ir.dims import Dim, ceildiv, product, symbol
from treadle.ir.dtypes import DType
from treadle.ir.loops import Affine, Check, For, IndexCast, IndexDiv, IndexMin, IndexMod
from treadle.ir.ops.indexing import Put, Scatter
from treadle.ir.ops.scans import Scan
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX, ScalarType
from treadle.passes.nests.nests import const, loop
from treadle.passes.nests.scalars import Memory, Pull

__all__ = ["lower_special"]


def lower_special(b: Builder, region: Block, memory: dict[Value, Memory], lanes: Callable[[DType], int], messages: list[str]) -> Dim:
    """Append the loops of a region whose last op is a scatter or a scan; the number of tasks."""
    op = region.ops[-1]
    producers = {r: o for o in region.ops for r in o.results}

    def pull(ranges: dict[str, Dim]) -> Pull:
        return Pull(producers, dict(memory), ranges, messages=messages)

    if isinstance(op.operation, Put | Scatter):
        return _scatter(b, op, pull, lanes, messages)
    return _scan(b, op, pull)


# ---- scatter ------------------------------------------------------------------------------------------------------------


def _scatter(b: Builder, op: Op, pull: Callable[[dict[str, Dim]], Pull], lanes: Callable[[DType], int], messages: list[str]) -> Dim:
    """Tasks own disjoint parts of the result (dims the index does not touch), copy the base and apply updates in order."""
    o = op.operation
    base, where, src = op.operands
    dim: int = o.dim  # type: ignore[attr-defined]
    out = op.result
    free = [d for d in range(out.rank) if d != dim]
    if isinstance(o, Put):
        lanes_dim = free[-1] if free and free[-1] == out.rank - 1 else None
    else:
        lanes_dim = free[-1] if free and where.shape[free[-1]] == out.shape[free[-1]] else None
    outer = [d for d in free if d != lanes_dim]
    extents = {f"o{d}": out.shape[d] for d in outer}
    width = lanes(out.dtype) if lanes_dim is not None else 1
    chunk = width * 8
    blocks = ceildiv(out.shape[lanes_dim], chunk) if lanes_dim is not None else 1
    tasks = product(extents.values()) * blocks

    def task(s: ScalarBuilder, iv: Value) -> None:
        p = pull({**extents, **({"c": out.shape[lanes_dim]} if lanes_dim is not None else {})})
        p.s = s
        rest = iv
        if lanes_dim is not None:
            block = s.emit(IndexMod(blocks), iv)
            rest = s.emit(IndexDiv(blocks), iv)
            lo = s.emit(Affine((chunk,)), block)
            hi = s.emit(IndexMin(), s.emit(Affine((chunk,), chunk), block), const(s, out.shape[lanes_dim]))
        for d in reversed(outer):
            p.loops[f"o{d}"] = s.emit(IndexMod(out.shape[d]), rest)
            rest = s.emit(IndexDiv(out.shape[d]), rest)
        index = {d: symbol(f"o{d}") for d in outer}

        def lanes_loop(q: Pull, body: Callable[[Pull, dict[int, Dim]], None]) -> None:
            if lanes_dim is None:
                body(q, index)
                return
            c = Value(INDEX)
            r = q.inner(c=c)
            body(r, {**index, lanes_dim: symbol("c")})
            q.s.emit(For("vector" if width > 1 else "serial", width), lo, hi, regions=(r.s.block((c,), ()),))

        _copy_base(p, out, base, dim, lanes_loop)
        _updates(p, op, dim, lanes_loop, messages)

    loop(b, const(b, 0), const(b, tasks), For("parallel"), task)
    return tasks


def _full(index: dict[int, Dim], dim: int, at: Dim, rank: int) -> tuple[Dim, ...]:
    return tuple(at if d == dim else index[d] for d in range(rank))


def _copy_base(p: Pull, out: Value, base: Value, dim: int, lanes_loop: Callable) -> None:
    def row(s: ScalarBuilder, r: Value) -> None:
        q = p.inner(r=r)
        q.ranges = {**p.ranges, "r": out.shape[dim]}
        q.s = s

        def body(t: Pull, index: dict[int, Dim]) -> None:
            at = _full(index, dim, symbol("r"), out.rank)
            t.store(out, at, t.value(base, at))

        lanes_loop(q, body)

    loop(p.s, const(p.s, 0), const(p.s, out.shape[dim]), For("serial"), row)


def _updates(p: Pull, op: Op, dim: int, lanes_loop: Callable, messages: list[str]) -> None:
    o = op.operation
    base, where, src = op.operands
    out = op.result
    put = isinstance(o, Put)
    names = [f"u{k}" for k in range(where.rank)] if put else ["u0"]
    sizes = list(where.shape) if put else [where.shape[dim]]
    message = f"IndexError: index out of range in a tensor of shape {list(out.shape)} along dim {dim}"
    messages.append(message)
    number = len(messages)

    def one(q: Pull) -> None:
        def apply(t: Pull, index: dict[int, Dim], position: Value, inside: Value | None) -> None:
            t.loops = {**t.loops, "at": t.s.emit(IndexCast(), position)}
            t.ranges = {**t.ranges, "at": out.shape[dim]}
            at = _full(index, dim, symbol("at"), out.rank)
            if put:
                source = (*(index[d] for d in range(dim)), *(symbol(n) for n in names), *(index[d] for d in range(dim + 1, out.rank)))
            else:
                source = _full(index, dim, symbol("u0"), out.rank)
            new = t.value(src, source, inside)
            if o.mode != "set":  # type: ignore[attr-defined]
                old = t.load(out, at, inside)
                fn = {"add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}[o.mode]  # type: ignore[attr-defined]
                new = t.s.call(fn, old, new)
            if inside is None:
                t.store(out, at, new)
            else:
                t.masked_store(out, at, new, inside)

        def checked(t: Pull, position: Value, inside: Value | None = None) -> None:
            zero, size = t.s.const(0, dtypes.int64), t.number(out.shape[dim])
            ok = t.s.and_(t.s.ge(position, zero), t.s.lt(position, size))
            t.s.emit(Check(number, message), ok if inside is None else t.s.or_(ok, t.s.not_(inside)))

        if put:
            position = q.value(where, tuple(symbol(n) for n in names))
            checked(q, position)
            lanes_loop(q, lambda t, index: apply(t, index, position, None))
        else:

            def body(t: Pull, index: dict[int, Dim]) -> None:
                conditions = [(index[d], "lt", where.shape[d]) for d in index if where.shape[d] != out.shape[d]]
                inside = t.condition(conditions, None)
                position = t.value(where, _full(index, dim, symbol("u0"), out.rank), inside)
                checked(t, position, inside)
                apply(t, index, position, inside)

            lanes_loop(q, body)

    def level(q: Pull, k: int) -> None:
        if k == len(names):
            one(q)
            return

        def step(s: ScalarBuilder, iv: Value) -> None:
            r = q.inner(**{names[k]: iv})
            r.ranges = {**q.ranges, names[k]: sizes[k]}
            r.s = s
            level(r, k + 1)

        loop(q.s, const(q.s, 0), const(q.s, sizes[k]), For("serial"), step)

    level(p, 0)


# ---- scans --------------------------------------------------------------------------------------------------------------


def _scan(b: Builder, op: Op, pull: Callable[[dict[str, Dim]], Pull]) -> Dim:
    """One task a line: a serial loop that carries what the scan's `step` passes on."""
    o: Scan = op.operation  # type: ignore[assignment]
    x = op.operands[0]
    outer = [d for d in range(x.rank) if d != o.dim]
    extents = {f"o{d}": x.shape[d] for d in outer}
    tasks = product(extents.values())

    def task(s: ScalarBuilder, iv: Value) -> None:
        p = pull(dict(extents))
        p.s = s
        rest = iv
        for d in reversed(outer):
            p.loops[f"o{d}"] = s.emit(IndexMod(x.shape[d]), rest)
            rest = s.emit(IndexDiv(x.shape[d]), rest)
        _line(p, op)

    loop(b, const(b, 0), const(b, tasks), For("parallel"), task)
    return tasks


def _line(p: Pull, op: Op) -> None:
    """The loop over the positions of one line."""
    o: Scan = op.operation  # type: ignore[assignment]
    x = op.operands[0]
    iv = Value(INDEX)
    q = p.inner(t=iv)
    q.ranges = {**p.ranges, "t": x.shape[o.dim]}
    index = tuple(symbol("t") if d == o.dim else symbol(f"o{d}") for d in range(x.rank))
    starts = o.start(x.dtype)
    carried = tuple(Value(ScalarType(dtype)) for dtype, _ in starts)
    elements = tuple(q.value(v, index) for v in op.operands)
    after, results = o.step(q.s, q.number(symbol("t")), carried, elements)
    for v, result in zip(op.results, results, strict=True):
        q.store(v, index, result)
    p.s.emit(
        For(combiners=("last",) * len(carried)), const(p.s, 0), const(p.s, x.shape[o.dim]),
        *(p.s.const(value, dtype) for dtype, value in starts), regions=(q.s.block((iv, *carried), after),),
    )  # fmt: skip
