"""Values from nothing: constants, sizes, index patterns, random bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Value, operation
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.evaluate_scalars import inside, round_bfloat16
from treadle.ir.ops.base import Absent, Opaque, Sample
from treadle.ir.ops.build import check_dim
from treadle.ir.types import TensorType

__all__ = ["Constant", "DimValue", "Iota", "RandomBits"]

_NO_OPERANDS = Absent("it has no operands to differentiate by")


@operation("graph.constant")
class Constant(Opaque):
    """The 0-d tensor `value` of `dtype`; integers wrap to it."""

    value: float | int | bool
    dtype: DType
    device: str = "cpu"
    jvp = _NO_OPERANDS
    vjp = _NO_OPERANDS

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, (), self.device),)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        if self.dtype.is_integral:
            wrapped = np.array(int(self.value) & ((1 << self.dtype.bits) - 1), np.uint64)
            return wrapped.astype(self.dtype.numpy)
        value = np.array(self.value, inside(self.dtype))
        return round_bfloat16(value) if self.dtype is dtypes.bfloat16 else value

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases: tuple[tuple[Any, DType], ...] = (
            (True, dtypes.bool_), (-1, dtypes.uint8), (2**40, dtypes.int64), (0.1, dtypes.float16),
            (0.1, dtypes.bfloat16),
            (-0.0, dtypes.float32), (float("inf"), dtypes.float64),
        )  # fmt: skip
        return [Sample(cls(value, dtype), ()) for value, dtype in cases]


@operation("graph.dim")
class DimValue(Opaque):
    """The value of a dim as a 0-d i64: symbolic sizes as numbers."""

    value: Dim
    device: str = "cpu"
    jvp = _NO_OPERANDS
    vjp = _NO_OPERANDS

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(dtypes.int64, (), self.device),)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.array(self.value, np.int64)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [Sample(cls(7), ())]


@operation("graph.iota")
class Iota(Opaque):
    """The index along `dim`, at every element of `shape`, as `dtype`."""

    shape: tuple[Dim, ...]
    dim: int
    dtype: DType
    device: str = "cpu"
    jvp = _NO_OPERANDS
    vjp = _NO_OPERANDS

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        check_dim(self.dim, len(self.shape))
        return (TensorType(self.dtype, self.shape, self.device),)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        steps = np.arange(self.shape[self.dim], dtype=np.int64)
        column = steps.reshape([-1 if i == self.dim else 1 for i in range(len(self.shape))])
        return np.broadcast_to(column, self.shape).astype(inside(self.dtype))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((4,), 0, dtypes.int64),
            ((2, 3), 1, dtypes.float32),
            ((2, 3), 0, dtypes.uint8),
            ((0, 3), 1, dtypes.float64),
        )
        return [Sample(cls(*case), ()) for case in cases]


# Philox4x32-10: the multipliers and the additive key schedule of the published generator.
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(counter: tuple[np.ndarray, ...], key: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The four output words of Philox4x32-10, on arrays of u32."""
    c = [np.asarray(w).astype(np.uint64) for w in counter]
    k0, k1 = (np.asarray(w).astype(np.uint64) for w in key)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(_ROUNDS):
        p0, p1 = c[0] * np.uint64(_M0), c[2] * np.uint64(_M1)
        c = [(p1 >> half) ^ c[1] ^ k0, p1 & mask, (p0 >> half) ^ c[3] ^ k1, p0 & mask]
        k0, k1 = (k0 + np.uint64(_W0)) & mask, (k1 + np.uint64(_W1)) & mask
    return tuple(w.astype(np.uint32) for w in c)


def philox_scalar(s: Any, counter: list[Value], key: list[Value]) -> list[Value]:
    """The four output words of Philox4x32-10, on loop-level i32 scalars (wrapping, with the bits of u32)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1, w0, w1 = (s.const(w, dtypes.int32) for w in (_M0, _M1, _W0, _W1))
    for step in range(_ROUNDS):
        if step:
            k0, k1 = s.add(k0, w0), s.add(k1, w1)
        high0, low0 = s.mulhi(c0, m0), s.mul(c0, m0)
        high1, low1 = s.mulhi(c2, m1), s.mul(c2, m1)
        c0, c1, c2, c3 = s.xor(s.xor(high1, c1), k0), low1, s.xor(s.xor(high0, c3), k1), low0
    return [c0, c1, c2, c3]


@operation("graph.random_bits")
class RandomBits(Opaque):
    """Operands (seed, offset), 0-d i64 -> i32 random bits of `shape`, by Philox4x32-10.

    The counter is (element index low, high, offset low, high), the key (seed low, high), the result the first output
    word: an element's bits depend on its linear index, the seed and the offset only, whatever the device or the
    schedule.
    """

    shape: tuple[Dim, ...]
    device: str = "cpu"
    jvp = Absent("random bits do not depend on floating operands")
    vjp = Absent("random bits do not depend on floating operands")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if len(types) != 2 or any(t.dtype is not dtypes.int64 or t.shape != () for t in types):
            raise RuntimeError(
                f"random_bits takes a seed and an offset, both 0-d i64, not {', '.join(map(str, types))}"
            )
        return (TensorType(dtypes.int32, self.shape, self.device),)

    def index_scalar(self, s: Any, index: Value, seed: Value, offset: Value) -> Value:
        """The bits (i32) of the element with linear `index`, on loop-level i64 scalars."""

        def halves(x: Value) -> list[Value]:
            # A cast to a narrower integer keeps the low bits.
            return [s.cast(x, dtypes.int32), s.cast(s.lshr(x, s.const(32, dtypes.int64)), dtypes.int32)]

        return philox_scalar(s, [*halves(index), *halves(offset)], halves(seed))[0]

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        seed, offset = (int(a) & 0xFFFFFFFFFFFFFFFF for a in arrays)
        index = np.arange(int(np.prod(self.shape, dtype=np.int64)), dtype=np.uint64)
        low = np.uint64(0xFFFFFFFF)

        def halves(x: Any) -> list[np.ndarray]:
            x = np.asarray(x, np.uint64)
            return [x & low, x >> np.uint64(32)]

        words = philox((*halves(index), *halves(offset)), (halves(seed)[0], halves(seed)[1]))
        return words[0].view(np.int32).reshape(self.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        seeds = ((0, 0), (1234, 5), (-1, 2**40), (2**63 - 1, -7))
        return [
            Sample(cls(shape), (np.array(seed, np.int64), np.array(offset, np.int64)))
            for shape in ((3, 4), (), (0, 2))
            for seed, offset in seeds
        ]
