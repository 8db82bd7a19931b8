"""Loads and stores of the kernel emitter: scalar, rows of contiguous elements, or lane by lane.

Elements are only as aligned as their type: rows of a tensor begin anywhere. In a masked vector loop (`Emitter.mask`)
dead lanes are never read: rows are loaded under the mask, and other lanes read what the first, living lane reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.codegen.emit import Emitter, Lanes, lowers
from treadle.codegen.emit_cast import mangled
from treadle.codegen.emit_scalar import memory_type
from treadle.ir.core import Op
from treadle.ir.dtypes import DType, bool_
from treadle.ir.loops import Load, Store

__all__: list[str] = []


def _address(e: Emitter, op: Op, first: int) -> Lanes:
    o: Any = op.operation
    indices = op.operands[first : first + len(o.strides)]
    return e.index_sum([(e.env[v], s) for v, s in zip(indices, o.strides, strict=True)], o.offset)


def _mask(e: Emitter, op: Op) -> Lanes | None:
    return e.env[op.operands[-1]] if op.operation.masked else None  # type: ignore[attr-defined]


def _zero(m: str) -> str:
    return "0" if m[0] == "i" else "0.0"


# ---- loads -----------------------------------------------------------------------------------------------------------


@lowers(Load)
def _load(e: Emitter, op: Op) -> Lanes:
    buffer, dtype = e.env[op.operands[0]].text, op.operands[0].dtype
    mask, at = _mask(e, op), _address(e, op, 1)
    if not at.varies and (mask is None or not mask.vector):
        return Lanes(_load_one(e, buffer, dtype, at.text, mask))
    if not at.vector and at.step == 1:
        row = _load_row(e, buffer, dtype, at, mask)
        if row is not None:
            return Lanes(row, True)
    return Lanes(_load_lanes(e, buffer, dtype, at, mask), True)


def _load_one(e: Emitter, buffer: str, dtype: DType, index: str, mask: Lanes | None) -> str:
    m = memory_type(dtype)
    p = e.code.at(m, buffer, index)

    def read() -> list[str]:
        return [e.code.let(f"load {m}, ptr {p}, align {dtype.itemsize}")]

    (raw,) = read() if mask is None else e.code.branch(mask.text, read, lambda: [_zero(m)], [m])
    return e.scalars.from_memory(raw, dtype, 1)


def _load_row(e: Emitter, buffer: str, dtype: DType, at: Lanes, mask: Lanes | None) -> str | None:
    """Contiguous elements; None where the target has no masked load of them."""
    m, w = memory_type(dtype), e.width
    alive = _both(e, mask)
    if alive is not None and dtype.itemsize not in e.target.masked_sizes:
        return None
    p = e.code.at(m, buffer, at.text)
    v = f"<{w} x {m}>"
    if alive is None:
        raw = e.code.let(f"load {v}, ptr {p}, align {dtype.itemsize}")
    else:
        call = f"call {v} @llvm.masked.load.{mangled(v)}.p0(ptr align {dtype.itemsize} {p}, <{w} x i1> {alive}, "
        raw = e.code.let(f"{call}{v} zeroinitializer)")
    return e.scalars.from_memory(raw, dtype, w)


def _both(e: Emitter, mask: Lanes | None) -> str | None:
    """The lanes that are alive and that an op's own mask admits."""
    if mask is None:
        return e.mask
    own = e.widened(mask, bool_)
    return own if e.mask is None else e.code.let(f"and <{e.width} x i1> {own}, {e.mask}")


def _load_lanes(e: Emitter, buffer: str, dtype: DType, at: Lanes, mask: Lanes | None) -> str:
    """One load for each lane. Lanes that a mask shuts out read nothing, and are 0."""
    m, w = memory_type(dtype), e.width
    index = _lane_indices(e, at)
    own = None if mask is None else _both(e, mask)
    raw = "poison" if own is None else "zeroinitializer"
    for k in range(w):

        def read(k: int = k) -> list[str]:
            p = e.code.at(m, buffer, index(k))
            return [e.code.let(f"load {m}, ptr {p}, align {dtype.itemsize}")]

        if own is None:
            (one,) = read()
        else:
            (one,) = e.code.branch(_extract(e, f"<{w} x i1>", own, k), read, lambda: [_zero(m)], [m])
        raw = e.code.let(f"insertelement <{w} x {m}> {raw}, {m} {one}, i64 {k}")
    return e.scalars.from_memory(raw, dtype, w)


def _lane_indices(e: Emitter, at: Lanes) -> Callable[[int], str]:
    """The index of lane k; in a masked loop, of lane 0 where lane k is dead."""
    t = f"<{e.width} x i64>"
    if not at.vector and e.mask is None:
        return lambda k: e.code.add(at.text, e.code.mul(str(at.step), str(k)))
    vector = e.vector_index(at)
    if e.mask is not None:
        first = e.splat_text("i64", _extract(e, t, vector, 0))
        vector = e.code.let(f"select <{e.width} x i1> {e.mask}, {t} {vector}, {t} {first}")
    return lambda k: _extract(e, t, vector, k)


def _extract(e: Emitter, t: str, vector: str, k: int) -> str:
    return e.code.let(f"extractelement {t} {vector}, i64 {k}")


# ---- stores ----------------------------------------------------------------------------------------------------------


@lowers(Store)
def _store(e: Emitter, op: Op) -> None:
    buffer, dtype, value = e.env[op.operands[0]].text, op.operands[0].dtype, e.env[op.operands[1]]
    mask, at = _mask(e, op), _address(e, op, 2)
    if e.width == 1 or not (at.varies or value.vector or (mask is not None and mask.vector)):
        _store_one(
            e, buffer, dtype, e.scalars.to_memory(value.text, dtype, 1), at.text, None if mask is None else mask.text
        )
        return
    raw = e.scalars.to_memory(e.widened(value, dtype), dtype, e.width)
    alive = _both(e, mask)
    if not at.vector and at.step == 1 and (alive is None or dtype.itemsize in e.target.masked_sizes):
        _store_row(e, buffer, dtype, raw, at.text, alive)
        return
    t, w = f"<{e.width} x {memory_type(dtype)}>", e.width
    indices = e.vector_index(at) if at.vector else ""
    for k in range(w):
        i = _extract(e, f"<{w} x i64>", indices, k) if at.vector else e.code.add(at.text, _times(e, at.step, k))
        lane = None if alive is None else _extract(e, f"<{w} x i1>", alive, k)
        _store_one(e, buffer, dtype, _extract(e, t, raw, k), i, lane)


def _times(e: Emitter, step: int | str, k: int) -> str:
    return e.code.mul(str(step), str(k))


def _store_one(e: Emitter, buffer: str, dtype: DType, raw: str, index: str, mask: str | None) -> None:
    m = memory_type(dtype)

    def write() -> None:
        e.line(f"store {m} {raw}, ptr {e.code.at(m, buffer, index)}, align {dtype.itemsize}")

    if mask is None:
        write()
    else:
        e.code.branch(mask, write)


def _store_row(e: Emitter, buffer: str, dtype: DType, raw: str, index: str, alive: str | None) -> None:
    m, w = memory_type(dtype), e.width
    p = e.code.at(m, buffer, index)
    v = f"<{w} x {m}>"
    if alive is None:
        e.line(f"store {v} {raw}, ptr {p}, align {dtype.itemsize}")
    else:
        if dtype.itemsize < 4:
            alive = _opaque(e, alive)
        call = f"call void @llvm.masked.store.{mangled(v)}.p0({v} {raw}, ptr align {dtype.itemsize} {p}, "
        e.line(f"{call}<{w} x i1> {alive})")


def _opaque(e: Emitter, mask: str) -> str:
    """A mask that LLVM cannot see to be constant: of a truncated vector with one live lane it stores 32 bits (22.1)."""
    w = e.width
    bits = e.code.let(f"bitcast <{w} x i1> {mask} to i{w}")
    number = e.code.let(f"zext i{w} {bits} to i64")
    hidden = e.code.let(f'call i64 asm "", "=r,0"(i64 {number})')
    narrow = e.code.let(f"trunc i64 {hidden} to i{w}")
    return e.code.let(f"bitcast i{w} {narrow} to <{w} x i1>")
