"""Reductions over dims, which are removed. Each class says how it is computed: `combiner`, `identity`,
`accumulate_dtype`."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import product
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Absent, Cotangents, Sample, Structured
from treadle.ir.ops.build import Term, check_dim, permute, reshape, unreduce
from treadle.ir.ops.sampling import array, edge_values
from treadle.ir.types import TensorType

__all__ = ["All", "Any", "ArgMax", "ArgMin", "Max", "Min", "Prod", "Reduction", "Sum"]

Number = float | int | bool


class Reduction(Structured):
    """Base: combines all elements along `dims` (sorted, not negative) by `combiner`, starting from `identity`."""

    dims: tuple[int, ...]
    combiner: ClassVar[str]  # add | mul | maximum | minimum | and | or
    kinds: ClassVar[str] = "uif"

    def identity(self, dtype: DType) -> Number:
        """The value of an empty reduction."""
        raise NotImplementedError

    def accumulate_dtype(self, dtype: DType) -> DType:
        """The dtype in which partial results are kept; the result is rounded once at the end."""
        return dtype.compute

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        name = self.name.split(".")[1]
        for d in self.dims:
            check_dim(d, x.rank)
        if list(self.dims) != sorted(set(self.dims)):
            raise RuntimeError(f"{name}: dims {list(self.dims)} are not distinct and in order")
        if x.dtype.kind not in self.kinds:
            raise RuntimeError(f'"{name}" not implemented for {x.dtype!r}')
        self.check_sizes(x)
        return (x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in self.dims)),)

    def check_sizes(self, x: TensorType) -> None:
        """Raise where the reduction of an empty dim has no value."""

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4", "f2", "i4", "i8", "u1", "?"):
            dtype = np.dtype(name)
            if {"f": "f", "i": "i", "u": "u", "b": "b"}[dtype.kind] not in cls.kinds:
                continue
            for shape, dims in (
                ((3, 4), (1,)),
                ((2, 3, 4), (0, 2)),
                ((5,), (0,)),
                ((2, 3), ()),
                ((), ()),
                ((0, 3), (1,)),
            ):
                found.append(Sample(cls(dims), (array(rng, shape, dtype),)))
            if dtype.kind == "f":
                edges = edge_values(dtype)
                found += [Sample(cls((0,)), (edges,)), Sample(cls((0,)), (edges[:6].reshape(3, 2),))]
        return found + cls.special_samples(rng)

    @classmethod
    def special_samples(cls, rng: np.random.Generator) -> list[Sample]:
        return []


@operation("graph.sum")
class Sum(Reduction):
    """The sum over `dims`, in the operand's dtype; integers wrap, 16-bit floats are added in float32. Empty: 0."""

    dims: tuple[int, ...]
    combiner = "add"

    def identity(self, dtype: DType) -> Number:
        return 0

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        return unreduce(b, ct, op.operands[0].shape, self.dims)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        return np.asarray(np.sum(x, self.dims, dtype=wide)).astype(x.dtype)

    @classmethod
    def special_samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [Sample(cls((0,)), (np.full(3000, 1.0, np.float16),)), Sample(cls((1,)), (np.ones((2, 0), np.float32),))]


@operation("graph.prod")
class Prod(Reduction):
    """The product over `dims`; integers wrap, 16-bit floats are multiplied in float32. Empty: 1."""

    dims: tuple[int, ...]
    combiner = "mul"

    def identity(self, dtype: DType) -> Number:
        return 1

    def _others(self, b: Builder, x: Value) -> Value:
        """For each element the product of the others along `dims`: those before it times those after it."""
        kept = [i for i in range(x.rank) if i not in self.dims]
        order = (*kept, *self.dims)
        moved = permute(b, x, order)
        last = len(kept)
        flat = Term(b, reshape(b, moved, (*moved.shape[:last], product(moved.shape[last:]))))
        before = exclusive_product(flat, last)
        after = exclusive_product(flat.flip(dims=(last,)), last).flip(dims=(last,))
        back = reshape(b, (before * after).v, moved.shape)
        return permute(b, back, tuple(order.index(i) for i in range(x.rank)))

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        if t is None:
            return (None,)
        return ((Term(b, t) * self._others(b, op.operands[0])).sum(dims=self.dims).v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        (x,) = op.operands
        return ((Term(b, unreduce(b, ct, x.shape, self.dims)) * self._others(b, x)).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        return np.asarray(np.prod(x, self.dims, dtype=wide)).astype(x.dtype)

    @classmethod
    def special_samples(cls, rng: np.random.Generator) -> list[Sample]:
        zeros = np.array([[2.0, 0.0, 3.0], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
        return [Sample(cls((1,)), (zeros,)), Sample(cls((0, 1)), (zeros,)), Sample(cls((0,)), (zeros[:0],))]


def exclusive_product(x: Term, dim: int) -> Term:
    """For each element the product of those before it along `dim`, 1 for the first."""
    shape = x.v.shape
    if shape[dim] == 0:
        return x
    low, high = ([0] * len(shape) for _ in range(2))
    low[dim], high[dim] = 1, -1
    shifted = x.pad(low=tuple(low), high=tuple(high), interior=(0,) * len(shape), value=1.0)
    return shifted.cumprod(dim=dim)


class _Extreme(Reduction):
    """The largest or smallest element; elements that tie share the gradient evenly."""

    kinds = "buif"

    def accumulate_dtype(self, dtype: DType) -> DType:
        return dtype

    def check_sizes(self, x: TensorType) -> None:
        for d in self.dims:
            if x.shape[d] == 0:
                name = self.name.split(".")[1]
                raise IndexError(f"a{name}(): Expected reduction dim {d} to have non-zero size.")

    def _shares(self, b: Builder, op: Op) -> Term:
        """The part of each element in the result: 1 / number of ties, else 0."""
        (x,) = (Term(b, v) for v in op.operands)
        same = x.eq(unreduce(b, op.result, x.v.shape, self.dims)).logical_or(x.isnan())
        count = same.cast(op.result.dtype).sum(dims=self.dims)
        return same.where((1.0 / count).unreduce(x.v.shape, self.dims), 0)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        return ((self._shares(b, op) * t).sum(dims=self.dims).v if t is not None else None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        return ((self._shares(b, op) * unreduce(b, ct, op.operands[0].shape, self.dims)).v,)

    @classmethod
    def special_samples(cls, rng: np.random.Generator) -> list[Sample]:
        ties = np.array([[2.0, 2.0, 1.0], [0.0, 4.0, 4.0], [np.nan, 1.0, np.nan]])
        return [Sample(cls((1,)), (ties,)), Sample(cls((0, 1)), (ties[:2],))]


def _lowest(dtype: DType) -> Number:
    return False if dtype.kind == "b" else -math.inf if dtype.kind == "f" else int(np.iinfo(dtype.numpy).min)


def _highest(dtype: DType) -> Number:
    return True if dtype.kind == "b" else math.inf if dtype.kind == "f" else int(np.iinfo(dtype.numpy).max)


@operation("graph.max")
class Max(_Extreme):
    """The largest element over `dims`; NaN where one is NaN. Raises IndexError over an empty dim."""

    dims: tuple[int, ...]
    combiner = "maximum"

    def identity(self, dtype: DType) -> Number:
        return _lowest(dtype)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.max(arrays[0], self.dims))


@operation("graph.min")
class Min(_Extreme):
    """The smallest element over `dims`; NaN where one is NaN. Raises IndexError over an empty dim."""

    dims: tuple[int, ...]
    combiner = "minimum"

    def identity(self, dtype: DType) -> Number:
        return _highest(dtype)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.min(arrays[0], self.dims))


class _Truth(Reduction):
    """Of bools; no derivative."""

    kinds = "b"
    jvp = Absent("bools have no derivative")
    vjp = Absent("bools have no derivative")


@operation("graph.any")
class Any(_Truth):
    """Does one hold, of bools? Empty: false."""

    dims: tuple[int, ...]
    combiner = "or"

    def identity(self, dtype: DType) -> Number:
        return False

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.any(arrays[0], self.dims))


@operation("graph.all")
class All(_Truth):
    """Do all hold, of bools? Empty: true."""

    dims: tuple[int, ...]
    combiner = "and"

    def identity(self, dtype: DType) -> Number:
        return True

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.all(arrays[0], self.dims))


class _ArgExtreme(Structured):
    """The i64 index along `dim` of the first extreme element; NaN counts as the extreme."""

    dim: int
    arg_of: ClassVar[str]
    kinds: ClassVar[str] = "buif"
    linear_in = ()
    jvp = Absent("an index has no derivative")
    vjp = Absent("an index has no derivative")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        check_dim(self.dim, x.rank)
        if x.shape[self.dim] == 0:
            raise IndexError(f"{self.name.split('.')[1]}(): Expected reduction dim {self.dim} to have non-zero size.")
        return (TensorType(dtypes.int64, x.shape[: self.dim] + x.shape[self.dim + 1 :], x.device),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = [
            Sample(cls(dim), (array(rng, shape, name),))
            for name in ("f4", "f8", "i8", "u1", "?")
            for shape, dim in (((3, 4), 1), ((3, 4), 0), ((5,), 0), ((0, 2), 1))
        ]
        ties = np.array(
            [[2.0, 2.0, 1.0, 1.0], [np.nan, 9.0, np.nan, -9.0], [-np.inf, np.inf, np.inf, -np.inf]], np.float32
        )
        return [*found, Sample(cls(1), (ties,))]


@operation("graph.argmax")
class ArgMax(_ArgExtreme):
    """The index along `dim` of the largest element: the first of ties, the first NaN. IndexError over an empty dim."""

    dim: int
    arg_of = "maximum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.argmax(arrays[0], self.dim)).astype(np.int64)


@operation("graph.argmin")
class ArgMin(_ArgExtreme):
    """The index along `dim` of the smallest element: the first of ties, the first NaN. IndexError over an empty dim."""

    dim: int
    arg_of = "minimum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.argmin(arrays[0], self.dim)).astype(np.int64)
