"""Sorting along a dim."""

from __future__ import annotations

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, operation
from treadle.ir.ops.base import Cotangents, Opaque, Sample
from treadle.ir.ops.build import check_dim, emit, zeros_like
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Sort"]


@operation("graph.sort")
class Sort(Opaque):
    """(values, i64 indices) in order along `dim`. NaN counts as largest: last, or first when `descending`.

    Equal elements keep their order when `stable` (and may do so anyway). Gradients go back to where the values came
    from.
    """

    dim: int
    descending: bool = False
    stable: bool = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        check_dim(self.dim, x.rank)
        return (x, x.with_dtype(dtypes.int64))

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        return (emit(b, "gather", t, op.results[1], dim=self.dim) if t is not None else None, None)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        ct = cotangents[0]
        if ct is None or not needs[0]:
            return (None,)
        zeros = zeros_like(b, op.operands[0])
        return (emit(b, "scatter", zeros, op.results[1], ct, dim=self.dim, mode="set"),)

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = arrays
        if self.descending:
            # Backwards twice, so that equal elements keep their order.
            order = np.argsort(np.flip(x, self.dim), self.dim, kind="stable")
            order = x.shape[self.dim] - 1 - np.flip(order, self.dim)
        else:
            order = np.argsort(x, self.dim, kind="stable")
        return np.take_along_axis(x, order, self.dim), order.astype(np.int64)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        edges = np.array(
            [[2.0, np.nan, 1.0, -np.inf, 2.0, np.nan, 0.0, -0.0], [1.0, 1.0, 3.0, np.inf, 3.0, -1.0, 0.0, 2.0]]
        )
        found = []
        for descending in (False, True):
            for shape, dim in (((3, 4), 1), ((4, 3), 0), ((6,), 0), ((2, 0), 1), ((1, 3), 0)):
                found += [
                    Sample(cls(dim, descending), (array(rng, shape, name),)) for name in ("f8", "f4", "i8", "u1", "?")
                ]
            found += [
                Sample(cls(1, descending), (edges,)),
                Sample(cls(1, descending, False), (edges.astype(np.float16),)),
            ]
        return found
