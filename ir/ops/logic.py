"""Comparisons, logic, bits, selection and conversions, at every index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dtypes import DType
from treadle.ir.evaluate_scalars import bits_from_float32, convert, float32_from_bits, inside
from treadle.ir.ops.base import Absent, Cotangents, Elementwise, Sample
from treadle.ir.ops.build import Term, cast, full_like, zeros_like
from treadle.ir.ops.elementwise import Predicate
from treadle.ir.ops.sampling import array, arrays_of
from treadle.ir.types import TensorType

__all__ = [
    "Bitcast", "BitsToUniform", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Copysign", "Eq", "Ge",
    "Gt", "Isfinite", "Isinf", "Isnan", "Le", "LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor", "Lt", "Ne",
    "Nextafter", "Select", "ShiftLeft", "ShiftRight",
]  # fmt: skip


# Comparisons ----------------------------------------------------------------------------------------------------------


class _Comparison(Predicate):
    """Two operands of one dtype -> bool; false where one is NaN (but for `ne`). False orders below true."""

    arity = 2
    kinds = "buif"


@operation("graph.eq")
class Eq(_Comparison):
    """x == y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.eq(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.equal(*arrays)


@operation("graph.ne")
class Ne(_Comparison):
    """x != y; true where one is NaN."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.ne(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.not_equal(*arrays)


@operation("graph.lt")
class Lt(_Comparison):
    """x < y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        return s.and_(s.not_(x), y) if x.dtype.kind == "b" else s.lt(x, y)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.less(*arrays)


@operation("graph.le")
class Le(_Comparison):
    """x <= y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        return s.or_(s.not_(x), y) if x.dtype.kind == "b" else s.le(x, y)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.less_equal(*arrays)


@operation("graph.gt")
class Gt(_Comparison):
    """x > y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        return s.and_(x, s.not_(y)) if x.dtype.kind == "b" else s.gt(x, y)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.greater(*arrays)


@operation("graph.ge")
class Ge(_Comparison):
    """x >= y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        return s.or_(x, s.not_(y)) if x.dtype.kind == "b" else s.ge(x, y)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.greater_equal(*arrays)


@operation("graph.isnan")
class Isnan(Predicate):
    """Is x NaN?"""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.isnan(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.isnan(*arrays)


@operation("graph.isinf")
class Isinf(Predicate):
    """Is x infinite?"""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.eq(s.abs(*xs), s.const(math.inf, xs[0]))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.isinf(*arrays)


@operation("graph.isfinite")
class Isfinite(Predicate):
    """Is x neither infinite nor NaN?"""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.lt(s.abs(*xs), s.const(math.inf, xs[0]))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.isfinite(*arrays)


# Logic and bits -------------------------------------------------------------------------------------------------------


class _Logical(Predicate):
    """bool operands, bool result."""

    arity = 2
    kinds = "b"
    promotes = "bool"


@operation("graph.logical_and")
class LogicalAnd(_Logical):
    """x and y, of bools."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.and_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.logical_and(*arrays)


@operation("graph.logical_or")
class LogicalOr(_Logical):
    """x or y, of bools."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.or_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.logical_or(*arrays)


@operation("graph.logical_xor")
class LogicalXor(_Logical):
    """Exactly one of x and y, of bools."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.xor(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.logical_xor(*arrays)


@operation("graph.logical_not")
class LogicalNot(_Logical):
    """not x, of a bool."""

    arity = 1

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.not_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.logical_not(*arrays)


class _Bits(Elementwise):
    """Bitwise on integers, logic on bools; no derivative."""

    arity = 2
    kinds = "bui"

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,) * self.arity


@operation("graph.bitwise_and")
class BitwiseAnd(_Bits):
    """x & y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.and_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.bitwise_and(*arrays)


@operation("graph.bitwise_or")
class BitwiseOr(_Bits):
    """x | y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.or_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.bitwise_or(*arrays)


@operation("graph.bitwise_xor")
class BitwiseXor(_Bits):
    """x ^ y."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.xor(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.bitwise_xor(*arrays)


@operation("graph.bitwise_not")
class BitwiseNot(_Bits):
    """~x."""

    arity = 1

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.not_(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.invert(*arrays)


def _clipped_count(count: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(count made safe, is it outside 0..bits-1)."""
    outside = (count < 0) | (count >= bits)
    return np.where(outside, 0, count).astype(count.dtype), outside


@operation("graph.shift_left")
class ShiftLeft(_Bits):
    """x shifted left by y bits; 0 where y is negative or not below the width."""

    kinds = "ui"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.shl(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, y = arrays
        count, outside = _clipped_count(y, x.dtype.itemsize * 8)
        return np.where(outside, 0, np.left_shift(x, count)).astype(x.dtype)


@operation("graph.shift_right")
class ShiftRight(_Bits):
    """x shifted right by y bits, keeping the sign; only the sign is left (0 or -1) where y is negative or too large."""

    kinds = "ui"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.lshr(*xs) if xs[0].dtype.kind == "u" else s.shr(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, y = arrays
        count, outside = _clipped_count(y, x.dtype.itemsize * 8)
        return np.where(outside, np.where(x < 0, -1, 0), np.right_shift(x, count)).astype(x.dtype)


# Selection ------------------------------------------------------------------------------------------------------------


@operation("graph.select")
class Select(Elementwise):
    """Operands (condition: bool, x, y): x where the condition holds, else y. x and y have one dtype.

    The cotangent goes to the operand that was chosen; the other gets exact zeros, so that no NaN leaks.
    """

    arity = 3
    mixed = True
    kinds = "buif"

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        out = super().infer(*types)
        condition, x, y = (t.dtype for t in types)
        if condition is not dtypes.bool_:
            raise RuntimeError(
                f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition!r}"
            )
        if x is not y:
            raise RuntimeError(f"select: operands have dtypes {x.short} and {y.short}")
        return out

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.select(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        chosen = Term(b, op.operands[0])
        dtype = op.result.dtype
        return (None, chosen.cast(dtype).v, chosen.logical_not().cast(dtype).v)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        _, x, y = tangents
        if x is None and y is None:
            return (None,)
        zero = zeros_like(b, op.result)
        return (b.emit(self, op.operands[0], zero if x is None else x, zero if y is None else y),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None, None, None)
        chosen, zero = op.operands[0], zeros_like(b, ct)
        return (
            None,
            b.emit(self, chosen, ct, zero) if needs[1] else None,
            b.emit(self, chosen, zero, ct) if needs[2] else None,
        )

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.where(*arrays)


# Conversion -----------------------------------------------------------------------------------------------------------


@operation("graph.cast")
class Cast(Elementwise):
    """x converted to `dtype`. Floats become integers by truncation, saturating, NaN as 0; bool is `x != 0`."""

    dtype: DType
    kinds = "buif"
    promotes = "none"

    def result_dtype(self, *operands: DType) -> DType:
        return self.dtype

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.cast(xs[0], self.dtype)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        differentiable = op.operands[0].dtype.is_floating and self.dtype.is_floating
        return (full_like(b, op.result, 1) if differentiable else None,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        return (cast(b, t, self.dtype) if t is not None and self.dtype.is_floating else None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        source = op.operands[0].dtype
        if ct is None or not needs[0] or not source.is_floating or not self.dtype.is_floating:
            return (None,)
        return (cast(b, ct, source),)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        return np.asarray(convert(x, dtypes.from_numpy(x.dtype), self.dtype), inside(self.dtype))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        targets = (
            dtypes.bool_,
            dtypes.uint8,
            dtypes.int16,
            dtypes.int64,
            dtypes.float16,
            dtypes.bfloat16,
            dtypes.float64,
        )
        return [Sample(cls(t), (a,)) for t in targets for kind in "buif" for a in arrays_of(kind, rng)]


@operation("graph.bitcast")
class Bitcast(Elementwise):
    """The same bits read as `dtype`, which has the same width. Raises RuntimeError on another width."""

    dtype: DType
    kinds = "uif"
    promotes = "none"
    vjp = Absent("bits have no derivative")
    jvp = Absent("bits have no derivative")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (out,) = super().infer(*types)
        if types[0].dtype.bits != self.dtype.bits or self.dtype.kind == "b":
            raise RuntimeError(f"bitcast from {types[0].dtype.short} to {self.dtype.short}: the widths differ")
        return (out,)

    def result_dtype(self, *operands: DType) -> DType:
        return self.dtype

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.bitcast(xs[0], self.dtype)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        if x.dtype == np.float32 and self.dtype.bits == 16:  # a bfloat16
            x = bits_from_float32(x)
        bits = np.ascontiguousarray(x).view(self.dtype.numpy).reshape(x.shape)
        return float32_from_bits(bits) if self.dtype is dtypes.bfloat16 else bits

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        pairs = (
            (np.float32, dtypes.int32),
            (np.int64, dtypes.float64),
            (np.float16, dtypes.int16),
            (np.uint8, dtypes.int8),
        )
        return [Sample(cls(to), (array(rng, (2, 3), np.dtype(source)),)) for source, to in pairs]


@operation("graph.bits_to_uniform")
class BitsToUniform(Elementwise):
    """i32 random bits -> floats of `dtype`, uniform in [0, 1): the highest bits that the dtype holds exactly,
    scaled."""

    dtype: DType
    kinds = "i"
    promotes = "none"
    vjp = Absent("random bits have no derivative")
    jvp = Absent("random bits have no derivative")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (out,) = super().infer(*types)
        if types[0].dtype is not dtypes.int32 or not self.dtype.is_floating:
            raise RuntimeError(
                f"bits_to_uniform takes i32 to a floating dtype, not {types[0].dtype.short} to {self.dtype.short}"
            )
        return (out,)

    def result_dtype(self, *operands: DType) -> DType:
        return self.dtype

    def _bits(self) -> int:
        return {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 32}[self.dtype.name]

    def scalar(self, s: Any, *xs: Value) -> Value:
        (x,) = xs
        kept = self._bits()
        if kept == 32:
            x = s.and_(s.cast(x, dtypes.int64), s.const(0xFFFFFFFF, dtypes.int64))
        else:
            x = s.lshr(x, s.const(32 - kept, x))
        return s.mul(s.cast(x, self.dtype), s.const(2.0**-kept, self.dtype))

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        kept = self._bits()
        bits = np.asarray(arrays[0]).astype(np.int64) & 0xFFFFFFFF
        return np.asarray((bits >> (32 - kept)) * 2.0**-kept, inside(self.dtype))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        bits = np.array([[0, -1, 1], [2**31 - 1, -(2**31), 12345]], np.int32)
        floats = (d for d in dtypes.DTYPES.values() if d.is_floating)
        return [Sample(cls(d), (a,)) for d in floats for a in (bits, bits[:, :0], bits[0, 1])]


@operation("graph.copysign")
class Copysign(Elementwise):
    """The magnitude of x with the sign of y. The slope in x at 0 is 0."""

    arity = 2
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.copysign(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, result = Term(b, op.operands[0]), Term(b, op.result)
        return (x.eq(0).where(0, result / x).v, None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.copysign(*arrays)


@operation("graph.nextafter")
class Nextafter(Elementwise):
    """The next float after x in the direction of y."""

    arity = 2
    vjp = Absent("nextafter has no derivative")
    jvp = Absent("nextafter has no derivative")

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.nextafter(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None, None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.nextafter(*arrays)
