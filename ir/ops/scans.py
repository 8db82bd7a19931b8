"""Running reductions along a dim, whose size stays.

A scan states its loop: `start(dtype)`, what is carried into the first position, and `step`, a scalar body that takes
what is carried and the elements of one position to what is carried on and the results there. Lowering needs nothing
else.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Cotangents, Sample, Structured
from treadle.ir.ops.build import Term, check_dim, emit, zeros_like
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["CumMax", "CumMin", "CumProd", "CumSum", "LinearScan", "Scan"]


class Scan(Structured):
    """Base: positions of `dim` in order, from the first to the last."""

    dim: int
    kinds: ClassVar[str] = "uif"

    def accumulate_dtype(self, dtype: DType) -> DType:
        """The dtype of carried values; each result is rounded to the operand's."""
        return dtype.compute

    def start(self, dtype: DType) -> tuple[tuple[DType, float | int | bool], ...]:
        """(dtype, value) of each carried scalar before the first position, for operands of `dtype`."""
        raise NotImplementedError

    def step(
        self, s: Any, position: Value, carried: tuple[Value, ...], xs: tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """(what is carried on, results) of one position: `position` is its i64 index, `xs` the operands' elements
        there."""
        raise NotImplementedError

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x = types[0]
        check_dim(self.dim, x.rank)
        name = self.name.split(".")[1]
        if x.dtype.kind not in self.kinds:
            raise RuntimeError(f'"{name}" not implemented for {x.dtype!r}')
        if any(t is not x for t in types):
            raise RuntimeError(f"{name}: operands have types {', '.join(map(str, types))}")
        return (x,)

    def _reversed(self, x: Term) -> Term:
        return x.flip(dims=(self.dim,))

    def _wide(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64) if x.dtype.kind == "f" else x

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = [
            Sample(cls(dim), (array(rng, shape, name),))
            for name in ("f8", "f4", "f2", "i8", "u1")
            for shape, dim in (((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 0), 1), ((0, 2), 1), ((2, 1, 3), 1))
        ]
        edges = np.array([[2.0, 0.0, 3.0, 0.0, 4.0], [1.0, 1.0, -0.0, 5.0, 5.0], [3.0, np.nan, 1.0, np.nan, np.inf]])
        return [*found, Sample(cls(1), (edges,)), Sample(cls(1), (edges.astype(np.float32),))]


def shifted(x: Term, dim: int, by: int, fill: float) -> Term:
    """`x` moved by `by` (1 or -1) along `dim`; `fill` comes in at the end that is left free."""
    rank = x.v.rank
    low = tuple(by if i == dim else 0 for i in range(rank))
    return x.pad(low=low, high=tuple(-v for v in low), interior=(0,) * rank, value=fill)


@operation("graph.cumsum")
class CumSum(Scan):
    """Sums of the elements up to each position of `dim`; integers wrap, 16-bit floats are added in float32."""

    dim: int
    combiner = "add"

    def start(self, dtype: DType) -> tuple[tuple[DType, float | int | bool], ...]:
        return ((self.accumulate_dtype(dtype), 0),)

    def step(
        self, s: Any, position: Value, carried: tuple[Value, ...], xs: tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        total = s.add(carried[0], s.cast(xs[0], carried[0].dtype))
        return (total,), (s.cast(total, xs[0].dtype),)

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        return self._reversed(self._reversed(Term(b, ct)).cumsum(dim=self.dim)).v

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = self._wide(x)
        return np.cumsum(wide, self.dim, dtype=wide.dtype).astype(x.dtype)


@operation("graph.cumprod")
class CumProd(Scan):
    """Products of the elements up to each position of `dim`; integers wrap, 16-bit floats are multiplied in float32."""

    dim: int
    combiner = "mul"

    def start(self, dtype: DType) -> tuple[tuple[DType, float | int | bool], ...]:
        return ((self.accumulate_dtype(dtype), 1),)

    def step(
        self, s: Any, position: Value, carried: tuple[Value, ...], xs: tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        total = s.mul(carried[0], s.cast(xs[0], carried[0].dtype))
        return (total,), (s.cast(total, xs[0].dtype),)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        if t is None or op.result.shape[self.dim] == 0:
            return (t,)
        # y[k] = x[k] y[k-1]: the tangent is a linear recurrence too.
        before = shifted(Term(b, op.result), self.dim, 1, 1.0)
        return (b.emit(LinearScan(self.dim), op.operands[0], (before * t).v),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        """No division, so that zeros are as good as any number: the products before k times a recurrence from the
        end."""
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        if op.result.shape[self.dim] == 0:
            return (ct,)
        before = shifted(Term(b, op.result), self.dim, 1, 1.0)
        after = self._reversed(shifted(Term(b, op.operands[0]), self.dim, -1, 0.0))
        return ((before * self._reversed(after.linear_scan(self._reversed(Term(b, ct)), dim=self.dim))).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = self._wide(x)
        return np.cumprod(wide, self.dim, dtype=wide.dtype).astype(x.dtype)


@operation("graph.linear_scan")
class LinearScan(Scan):
    """Operands (a, x), alike: the recurrence y[k] = a[k] * y[k-1] + x[k] along `dim`, with y[-1] = 0."""

    dim: int
    kinds = "f"
    linear_in = (1,)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if len(types) != 2:
            raise TypeError(f"linear_scan takes 2 operands, not {len(types)}")
        return super().infer(*types)

    def start(self, dtype: DType) -> tuple[tuple[DType, float | int | bool], ...]:
        return ((self.accumulate_dtype(dtype), 0),)

    def step(
        self, s: Any, position: Value, carried: tuple[Value, ...], xs: tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        a, x = (s.cast(v, carried[0].dtype) for v in xs)
        total = s.fma(a, carried[0], x)
        return (total,), (s.cast(total, xs[0].dtype),)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        ta, tx = tangents
        moved = None if ta is None else shifted(Term(b, op.result), self.dim, 1, 0.0) * ta
        forcing = tx if moved is None else moved.v if tx is None else (moved + tx).v
        return (b.emit(self, op.operands[0], forcing) if forcing is not None else None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None, None)
        if op.result.shape[self.dim] == 0:
            return (ct, ct)
        # What reaches y[k] comes from its own cotangent and, by a[k+1], from y[k+1].
        factors = self._reversed(shifted(Term(b, op.operands[0]), self.dim, -1, 0.0))
        total = self._reversed(factors.linear_scan(self._reversed(Term(b, ct)), dim=self.dim))
        of_a = (total * shifted(Term(b, op.result), self.dim, 1, 0.0)).v if needs[0] else None
        return (of_a, total.v if needs[1] else None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        a, x = (np.moveaxis(self._wide(v), self.dim, 0) for v in arrays)
        out = np.empty_like(x)
        total = np.zeros(x.shape[1:])
        for k in range(len(x)):
            total = a[k] * total + x[k]
            out[k] = total
        return np.moveaxis(out, 0, self.dim).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [
            Sample(cls(dim), (array(rng, shape, name), array(rng, shape, name)))
            for name in ("f8", "f4", "f2")
            for shape, dim in (((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 0), 1))
        ]


class _CumExtreme(Scan):
    """Running extreme and the i64 index of its last occurrence; from the first NaN on it is NaN, at the last NaN so
    far."""

    kinds = "buif"
    greater: ClassVar[bool]

    def accumulate_dtype(self, dtype: DType) -> DType:
        return dtype

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = super().infer(*types)
        return (x, x.with_dtype(dtypes.int64))

    def start(self, dtype: DType) -> tuple[tuple[DType, float | int | bool], ...]:
        if dtype.kind == "b":
            worst: float | int | bool = not self.greater
        elif dtype.kind == "f":
            worst = -math.inf if self.greater else math.inf
        else:
            info = np.iinfo(dtype.numpy)
            worst = int(info.min if self.greater else info.max)
        return ((dtype, worst), (dtypes.int64, 0))

    def step(
        self, s: Any, position: Value, carried: tuple[Value, ...], xs: tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        best, at = carried
        (x,) = xs
        if x.dtype.kind == "b":
            better = s.or_(x, s.not_(best)) if self.greater else s.or_(s.not_(x), best)
        else:
            better = s.ge(x, best) if self.greater else s.le(x, best)
        if x.dtype.kind == "f":
            # A comparison with a carried NaN is false, so that NaN stays.
            better = s.or_(better, s.isnan(x))
        best, at = s.select(better, x, best), s.select(better, position, at)
        return (best, at), (best, at)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        return (emit(b, "gather", t, op.results[1], dim=self.dim) if t is not None else None, None)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        ct = cotangents[0]
        if ct is None or not needs[0]:
            return (None,)
        zeros = zeros_like(b, op.operands[0])
        return (emit(b, "scatter", zeros, op.results[1], ct, dim=self.dim, mode="add"),)

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x = np.moveaxis(arrays[0], self.dim, 0)
        values, indices = np.empty_like(x), np.zeros(x.shape, np.int64)
        for k in range(len(x)):
            if k == 0:
                values[0] = x[0]
                continue
            better = (x[k] >= values[k - 1]) if self.greater else (x[k] <= values[k - 1])
            if x.dtype.kind == "f":
                better = better | np.isnan(x[k])
            values[k] = np.where(better, x[k], values[k - 1])
            indices[k] = np.where(better, k, indices[k - 1])
        return np.moveaxis(values, 0, self.dim), np.moveaxis(indices, 0, self.dim)


@operation("graph.cummax")
class CumMax(_CumExtreme):
    """(values, i64 indices): the largest element up to each position of `dim`, and where it was last; NaN counts as
    largest."""

    dim: int
    greater = True


@operation("graph.cummin")
class CumMin(_CumExtreme):
    """(values, i64 indices): the smallest element up to each position of `dim`, and where it was last; NaN counts as
    smallest."""

    dim: int
    greater = False
