"""A tensor filled with one number."""

from __future__ import annotations

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.views import Expand
from treadle.ir.types import TensorType

__all__ = ["Fill"]


@operation("graph.fill")
class Fill(Composite):
    """Operand (value: 0-d, any dtype): a tensor of `shape` and `dtype` with that value everywhere."""

    shape: tuple[Dim, ...]
    dtype: DType

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape, types[0].device),)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (value,) = operands
        if value.dtype is not self.dtype:
            value = b.emit(Cast(self.dtype), value)
        return (b.emit(Expand(self.shape), value) if self.shape else value,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        dtype = np.float32 if self.dtype.name == "bfloat16" else self.dtype.numpy
        return np.full([int(d) for d in self.shape], arrays[0], dtype=dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        from treadle.ir import dtypes

        return [
            Sample(cls((2, 3), dtypes.float32), (np.float64(1.5).reshape(()),)),
            Sample(cls((), dtypes.int64), (np.int64(3).reshape(()),)),
            Sample(cls((0, 4), dtypes.bool_), (np.bool_(True).reshape(()),)),
        ]
