"""Loops, loads and stores of the kernel emitter."""

from __future__ import annotations

from typing import Any

from treadle.codegen.cpu.contract_code import known
from treadle.codegen.emit import _RULES, Emitter, Lanes
from treadle.codegen.emit_scalar import literal, llvm_type, memory_type
from treadle.ir import loops as lp
from treadle.ir.core import Op, Value
from treadle.ir.dtypes import DType, bool_
from treadle.ir.types import INDEX

__all__: list[str] = []

UNROLL_LIMIT = 16  # trip counts up to this are written out


# ---- for --------------------------------------------------------------------------------------------------------------


def loop(e: Emitter, op: Op) -> list[Lanes]:
    """A loop with carried values; vector loops widen where they are the innermost lanes."""
    if op.operation.kind == "vector" and e.width == 1 and op.operation.width > 1:  # type: ignore[attr-defined]
        return _vector(e, op)
    return _serial(e, op, [e.env[v] for v in op.operands[2:]], e.env[op.operands[0]].text, e.env[op.operands[1]].text)


def _kind(e: Emitter, v: Value, varies: bool) -> str:
    if v.type is INDEX:
        return "i64"
    return llvm_type(v.type.dtype, e.width if varies else 1)  # type: ignore[attr-defined]


def _serial(e: Emitter, op: Op, inits: list[Lanes], lo: str, hi: str) -> list[Lanes]:
    region = op.regions[0]
    varies = e.width > 1
    carried = region.params[1:]
    lanes = [varies and v.type is not INDEX for v in carried]
    starts = [e.widened(x, v.type.dtype) if w else x.text for x, v, w in zip(inits, carried, lanes, strict=True)]  # type: ignore[attr-defined]
    kinds = [_kind(e, v, w) for v, w in zip(carried, lanes, strict=True)]
    step = str(op.operation.step)  # type: ignore[attr-defined]

    def body(iv: str, *values: str) -> list[str]:
        e.env[region.params[0]] = Lanes(iv)
        for v, text, w in zip(carried, values, lanes, strict=True):
            e.env[v] = Lanes(text, w)
        out = e.block(region)
        return [e.widened(x, v.type.dtype) if w else x.text for x, v, w in zip(out, carried, lanes, strict=True)]  # type: ignore[attr-defined]

    first, last = known(lo), known(hi)
    if first is not None and last is not None and not carried and (last - first) // int(step) <= 4 and len(region.ops) < 30:
        for k in range(first, last, int(step)):
            body(str(k))
        return []
    done = e.code.loop(lo, hi, body, list(zip(kinds, starts, strict=True)), step)
    return [Lanes(text, w) for text, w in zip(done, lanes, strict=True)]


IDENTITY: dict[str, Any] = {"add": 0, "mul": 1, "and": True, "or": False}


def _identity(combiner: str, dtype: DType) -> str:
    if combiner in ("maximum", "minimum"):
        low = combiner == "maximum"
        if dtype.kind == "f":
            return literal(float("-inf") if low else float("inf"), dtype)
        if dtype.kind == "b":
            return literal(not low, dtype)
        bits = dtype.bits
        extremes = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return literal(extremes[0 if low else 1], dtype)
    value = IDENTITY[combiner]
    if combiner == "and" and dtype.kind in "ui":
        value = -1
    return literal(value, dtype)


def _vector(e: Emitter, op: Op) -> list[Lanes]:
    o: Any = op.operation
    code = e.code
    lo, hi = (e.env[v].text for v in op.operands[:2])
    inits = [e.env[v] for v in op.operands[2:]]
    carried = op.regions[0].params[1:]
    if "last" in o.combiners:
        return _serial(e, op, inits, lo, hi)
    width, unroll = o.width, max(1, o.unroll)
    count = code.sub(hi, lo)
    n = known(count)
    partials: list[str] = [f"splat ({llvm_type(v.type.dtype)} {_identity(c, v.type.dtype)})" for v, c in zip(carried, o.combiners, strict=True)]  # type: ignore[attr-defined]
    at = lo
    ran = False
    for u in (unroll, 1) if unroll > 1 else (1,):
        block = width * u
        if n is not None and n < block:
            continue
        stop = code.add(at, code.mul(code.div(code.sub(hi, at), str(block)), str(block)))
        partials = _blocks(e, op, at, stop, width, u, partials)
        at, ran = stop, True
        if n is not None:
            n = n % block
            if n == 0:
                break
    values = inits
    if ran and carried:
        values = [
            Lanes(_join(e, c, v.type.dtype, init.text, _horizontal(e, c, v.type.dtype, width, p)))  # type: ignore[attr-defined]
            for c, v, init, p in zip(o.combiners, carried, inits, partials, strict=True)
        ]
    if n == 0:
        return values
    return _serial(e, op, values, at, hi)


def _blocks(e: Emitter, op: Op, lo: str, hi: str, width: int, unroll: int, partials: list[str]) -> list[str]:
    """Main loop in steps of width * unroll; the combined partial vectors."""
    region, o = op.regions[0], op.operation
    carried = region.params[1:]
    kinds = [llvm_type(v.type.dtype, width) for v in carried]  # type: ignore[attr-defined]
    fresh = [f"splat ({llvm_type(v.type.dtype)} {_identity(c, v.type.dtype)})" for v, c in zip(carried, o.combiners, strict=True)]  # type: ignore[attr-defined]
    starts = [*partials, *(fresh * (unroll - 1))]

    def body(iv: str, *values: str) -> list[str]:
        e.width = width
        out: list[str] = []
        for u in range(unroll):
            e.env[region.params[0]] = Lanes(e.code.add(iv, str(u * width)), False, 1)
            for v, text in zip(carried, values[u * len(carried) :], strict=False):
                e.env[v] = Lanes(text, True)
            out += [e.widened(x, v.type.dtype) for x, v in zip(e.block(region), carried, strict=True)]  # type: ignore[attr-defined]
        e.width = 1
        return out

    done = e.code.loop(lo, hi, body, list(zip(kinds * unroll, starts, strict=True)), str(width * unroll))
    e.width = width
    out = done[: len(carried)]
    for u in range(1, unroll):
        out = [
            _join(e, c, v.type.dtype, a, b, width)  # type: ignore[attr-defined]
            for c, v, a, b in zip(o.combiners, carried, out, done[u * len(carried) :], strict=False)
        ]
    e.width = 1
    return out


def _join(e: Emitter, combiner: str, dtype: DType, a: str, b: str, width: int = 1) -> str:
    return e.scalars.call(combiner, dtype, width, [a, b])


def _horizontal(e: Emitter, combiner: str, dtype: DType, width: int, vector: str) -> str:
    """All lanes combined, in halves: a fixed order."""
    t = llvm_type(dtype, width)
    while width > 1:
        half = width // 2
        low = ", ".join(f"i32 {k}" for k in range(half))
        high = ", ".join(f"i32 {k + half}" for k in range(half))
        a = e.code.let(f"shufflevector {t} {vector}, {t} poison, <{half} x i32> <{low}>")
        b = e.code.let(f"shufflevector {t} {vector}, {t} poison, <{half} x i32> <{high}>")
        width = half
        t = f"<{half} x {llvm_type(dtype)}>"
        if half == 1:
            a, b = (e.code.let(f"extractelement {t} {x}, i64 0") for x in (a, b))
            return _join(e, combiner, dtype, a, b)
        vector = e.scalars.call(combiner, dtype, half, [a, b])
    return vector


# ---- memory -----------------------------------------------------------------------------------------------------------


def _address(e: Emitter, op: Op, first: int) -> Lanes:
    o: Any = op.operation
    indices = op.operands[first : first + len(o.strides)]
    return e.index_sum([(e.env[v], s) for v, s in zip(indices, o.strides, strict=True)], o.offset)


def load(e: Emitter, op: Op) -> Lanes:
    """A load: scalar, contiguous vector, or lane by lane."""
    buffer, dtype = e.env[op.operands[0]].text, op.operands[0].type.dtype  # type: ignore[attr-defined]
    mask = e.env[op.operands[-1]] if op.operation.masked else None  # type: ignore[attr-defined]
    at = _address(e, op, 1)
    if not at.vector and not at.step and (mask is None or not mask.vector):
        return Lanes(_load_one(e, buffer, dtype, at.text, mask))
    if not at.vector and at.step == 1:
        return Lanes(_load_row(e, buffer, dtype, at.text, mask), True)
    return Lanes(_gather(e, buffer, dtype, at, mask), True)


def _load_one(e: Emitter, buffer: str, dtype: DType, index: str, mask: Lanes | None) -> str:
    m = memory_type(dtype)
    p = e.code.at(m, buffer, index)
    if mask is None:
        return e.scalars.from_memory(e.code.let(f"load {m}, ptr {p}, align {max(1, dtype.itemsize)}"), dtype, 1)

    def yes() -> list[str]:
        return [e.code.let(f"load {m}, ptr {p}, align {max(1, dtype.itemsize)}")]

    zero = "0" if m[0] == "i" else "0.0"
    (raw,) = e.code.branch(mask.text, yes, lambda: [zero], [m])
    return e.scalars.from_memory(raw, dtype, 1)


def _load_row(e: Emitter, buffer: str, dtype: DType, index: str, mask: Lanes | None) -> str:
    m, w = memory_type(dtype), e.width
    p = e.code.at(m, buffer, index)
    size = max(1, dtype.itemsize)
    if mask is None:
        raw = e.code.let(f"load <{w} x {m}>, ptr {p}, align {size}")
    else:
        t = f"<{w} x {m}>"
        suffix = f"v{w}{m.replace('float', 'f32').replace('double', 'f64')}"
        e.declarations.add(f"declare {t} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{w} x i1>, {t})")
        raw = e.code.let(f"call {t} @llvm.masked.load.{suffix}.p0(ptr {p}, i32 {size}, <{w} x i1> {e.widened(mask, bool_)}, {t} zeroinitializer)")
    return e.scalars.from_memory(raw, dtype, w)


def _gather(e: Emitter, buffer: str, dtype: DType, at: Lanes, mask: Lanes | None) -> str:
    m, w = memory_type(dtype), e.width
    raw = "poison" if mask is None else "zeroinitializer"
    index = None if not at.vector else at.text
    mask_text = None if mask is None else e.widened(mask, bool_)
    for k in range(w):
        if index is None:
            i = e.code.add(at.text, e.code.mul(str(at.step), str(k)))
        else:
            i = e.code.let(f"extractelement <{w} x i64> {index}, i64 {k}")
        p = e.code.at(m, buffer, i)
        if mask_text is not None:
            ok = e.code.let(f"extractelement <{w} x i1> {mask_text}, i64 {k}")
            zero = "0" if m[0] == "i" else "0.0"
            (one,) = e.code.branch(ok, lambda p=p: [e.code.let(f"load {m}, ptr {p}, align {max(1, dtype.itemsize)}")], lambda: [zero], [m])
        else:
            one = e.code.let(f"load {m}, ptr {p}, align {max(1, dtype.itemsize)}")
        raw = e.code.let(f"insertelement <{w} x {m}> {raw}, {m} {one}, i64 {k}")
    return e.scalars.from_memory(raw, dtype, w)


def store(e: Emitter, op: Op) -> None:
    """A store: scalar, contiguous vector, or lane by lane."""
    buffer, dtype = e.env[op.operands[0]].text, op.operands[0].type.dtype  # type: ignore[attr-defined]
    mask = e.env[op.operands[-1]] if op.operation.masked else None  # type: ignore[attr-defined]
    value = e.env[op.operands[1]]
    at = _address(e, op, 2)
    m, size = memory_type(dtype), max(1, dtype.itemsize)
    if e.width == 1 or not (at.vector or at.step or value.vector or (mask is not None and mask.vector)):
        raw = e.scalars.to_memory(value.text, dtype, 1)
        p = e.code.at(m, buffer, at.text)
        if mask is None:
            e.line(f"store {m} {raw}, ptr {p}, align {size}")
        else:
            e.code.branch(mask.text, lambda: e.line(f"store {m} {raw}, ptr {p}, align {size}"))
        return
    w = e.width
    raw = e.scalars.to_memory(e.widened(value, dtype), dtype, w)
    if not at.vector and at.step == 1:
        p = e.code.at(m, buffer, at.text)
        if mask is None:
            e.line(f"store <{w} x {m}> {raw}, ptr {p}, align {size}")
        else:
            suffix = f"v{w}{m.replace('float', 'f32').replace('double', 'f64')}"
            e.declarations.add(f"declare void @llvm.masked.store.{suffix}.p0(<{w} x {m}>, ptr, i32 immarg, <{w} x i1>)")
            e.line(f"call void @llvm.masked.store.{suffix}.p0(<{w} x {m}> {raw}, ptr {p}, i32 {size}, <{w} x i1> {e.widened(mask, bool_)})")
        return
    index = e.vector_index(at)
    mask_text = None if mask is None else e.widened(mask, bool_)
    for k in range(w):
        i = e.code.let(f"extractelement <{w} x i64> {index}, i64 {k}")
        one = e.code.let(f"extractelement <{w} x {m}> {raw}, i64 {k}")
        p = e.code.at(m, buffer, i)

        def write(one: str = one, p: str = p) -> None:
            e.line(f"store {m} {one}, ptr {p}, align {size}")

        if mask_text is None:
            write()
        else:
            e.code.branch(e.code.let(f"extractelement <{w} x i1> {mask_text}, i64 {k}"), write)


_RULES.update({lp.For: loop, lp.Load: load, lp.Store: store})
