"""Sorting along a dim."""

from __future__ import annotations

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, operation
from treadle.ir.dims import Dim
from treadle.ir.ops.base import Cotangents, Opaque, Sample
from treadle.ir.ops.build import check_dim, emit, shape_text, zeros_like
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Sort"]


@operation("graph.sort")
class Sort(Opaque):
    """(values, i64 indices) in order along `dim`, the `first` of them (-1: all). NaN counts as largest: last, or first
    when `descending`.

    Equal elements keep their order when `stable` (and may do so anyway). Gradients go back to where the values came
    from.
    """

    dim: int
    descending: bool = False
    stable: bool = True
    first: Dim = -1

    @property
    def partial(self) -> bool:
        """Are only some of the elements wanted?"""
        return not (isinstance(self.first, int) and self.first == -1)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        check_dim(self.dim, x.rank)
        size = x.shape[self.dim] if x.rank else 1
        if isinstance(self.first, int) and isinstance(size, int) and self.first > size:
            raise RuntimeError(
                f"sort: {self.first} elements of a dim of {size} (tensor of shape {shape_text(x.shape)})"
            )
        if self.partial:
            x = x.with_shape((*x.shape[: self.dim], self.first, *x.shape[self.dim + 1 :]))
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
        if self.partial:
            order = np.take(order, range(self.first), self.dim)  # type: ignore[arg-type]
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
                *(Sample(cls(1, descending, True, k), (edges,)) for k in (0, 1, 3, 8)),
                Sample(cls(0, descending, True, 1), (edges,)),
                Sample(cls(1, descending, True, 2), (array(rng, (3, 5), "?"),)),
            ]
        return found
