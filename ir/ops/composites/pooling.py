"""Pooling over windows of the last dims."""

from __future__ import annotations

import math

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim, product
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, emit, full, reshape, shape_text, window_size
from treadle.ir.ops.composites.common import count, need_floating, wide, widen
from treadle.ir.ops.composites.convolution import pad_spatial
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["AvgPool", "MaxPool"]

Pads = tuple[tuple[Dim, Dim], ...]


def _sides(padding: Pads) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    return tuple(low for low, _ in padding), tuple(high for _, high in padding)


def _pooled(
    name: str, x: TensorType, kernel: tuple[int, ...], stride: tuple[int, ...], padding: Pads, dilation: tuple[int, ...]
) -> tuple[Dim, ...]:
    """The shape of the result. Raises RuntimeError where a kernel is larger than its padded dim."""
    n = len(kernel)
    if x.rank < n:
        raise RuntimeError(f"{name}: {n} dims to pool in a tensor of shape {shape_text(x.shape)}")
    sizes: list[Dim] = []
    for d, k, s, (low, high), dilation_ in zip(x.shape[x.rank - n :], kernel, stride, padding, dilation, strict=True):
        padded = d + low + high
        if isinstance(padded, int) and dilation_ * (k - 1) + 1 > padded:
            raise RuntimeError(
                f"{name}: a kernel of {list(kernel)} on an input of shape {shape_text(x.shape)} has no window"
            )
        sizes.append(window_size(padded, k, s, dilation_))
    return (*x.shape[: x.rank - n], *sizes)


def _index(b: Builder, shape: tuple[Dim, ...], dim: int, device: str) -> Term:
    return Term(b, emit(b, "iota", shape=shape, dim=dim, dtype=dtypes.int64, device=device))


@operation("graph.max_pool")
class MaxPool(Composite):
    """Operand x [..., *S], one dim of S for each of `kernel` -> (maxima, i64 flat indices into *S) of windows, [...,
    *S'].

    `padding` holds (low, high) for each dim; padding never wins, not even over minus infinity. NaN wins. The first of
    ties gets the index and the gradient.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pads
    dilation: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        out = x.with_shape(_pooled("max_pool", x, self.kernel, self.stride, self.padding, self.dilation))
        return (out, out.with_dtype(dtypes.int64))

    def _worst(self, dtype: DType) -> float | int:
        return -math.inf if dtype.is_floating else False if dtype.kind == "b" else int(np.iinfo(dtype.numpy).min)

    def _offsets(self, b: Builder, x: TensorType, shape: tuple[Dim, ...]) -> tuple[Term, Term | None]:
        """Of each window element, in `shape` [..., *S', *K]: its flat index in *S, and whether it is not padding (None:
        always)."""
        n = len(self.kernel)
        lead = x.rank - n
        spatial = x.shape[lead:]
        flat: Term | None = None
        inside: Term | None = None
        for i in range(n):
            low, high = self.padding[i]
            place = _index(b, shape, lead + i, x.device) * self.stride[i]
            place = place + _index(b, shape, lead + n + i, x.device) * self.dilation[i]
            if not (isinstance(low, int) and low == 0):
                place = place - count(b, (low,), dtypes.int64, x.device).expand(shape)
            size = count(b, spatial[i : i + 1], dtypes.int64, x.device).expand(shape)
            tests = []
            if not (isinstance(low, int) and low <= 0):
                tests.append(place.ge(0))
            if not (isinstance(high, int) and high <= 0):
                tests.append(place.lt(size))
            for test in tests:
                inside = test if inside is None else inside.logical_and(test)
            flat = place if flat is None else flat * size + place
        assert flat is not None
        return flat, inside

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        n = len(self.kernel)
        low, high = _sides(self.padding)
        padded = pad_spatial(b, x, low, high, value=self._worst(x.dtype))
        windows = Term(b, emit(b, "window", padded, kernel=self.kernel, stride=self.stride, dilation=self.dilation))
        shape = windows.v.shape
        dims = tuple(range(len(shape) - n, len(shape)))
        values = windows.max(dims=dims)
        flat, inside = self._offsets(b, x.tensor, shape)
        wins = windows.eq(values.unreduce(shape, dims))
        if x.dtype.is_floating:
            wins = wins.logical_or(windows.isnan())
        if inside is not None:
            wins = wins.logical_and(inside)
        # Flat indices grow along a window: the first winner has the smallest.
        last = count(b, x.shape[x.rank - n :], dtypes.int64, x.tensor.device).expand(shape)
        return values.v, wins.where(flat, last).min(dims=dims).v

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        if t is None:
            return (None, None)
        n = len(self.kernel)
        out = op.results[1]
        merged = reshape(b, t, (*t.shape[: t.rank - n], product(t.shape[t.rank - n :])))
        index = reshape(b, out, (*out.shape[: out.rank - n], product(out.shape[out.rank - n :])))
        return (reshape(b, emit(b, "gather", merged, index, dim=merged.rank - 1), out.shape), None)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        """Each window's cotangent stays at the element that won; folding adds up what overlapping windows say."""
        ct = cotangents[0]
        if ct is None or not needs[0]:
            return (None,)
        (x,) = op.operands
        n = len(self.kernel)
        shape = (*ct.shape, *self.kernel)
        dims = tuple(range(len(shape) - n, len(shape)))
        flat, _ = self._offsets(b, x.tensor, shape)
        won = flat.eq(Term(b, op.results[1]).unreduce(shape, dims))
        routed = won.where(Term(b, ct).unreduce(shape, dims), 0)
        low, high = _sides(self.padding)
        padded = tuple(d + p + q for d, p, q in zip(x.shape[x.rank - n :], low, high, strict=True))
        folded = emit(b, "fold", routed.v, shape=padded, stride=self.stride, dilation=self.dilation)
        return (pad_spatial(b, folded, tuple(-p for p in low), tuple(-q for q in high)),)

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = arrays
        n = len(self.kernel)
        lead, spatial = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
        padded = tuple(d + low + high for d, (low, high) in zip(spatial, self.padding, strict=True))
        counts = tuple(map(window_size, padded, self.kernel, self.stride, self.dilation))
        values, indices = np.empty((*lead, *counts), x.dtype), np.zeros((*lead, *counts), np.int64)
        for where in np.ndindex(*counts):
            candidates = []
            for element in np.ndindex(*self.kernel):
                place = tuple(
                    w * s + k * d - low
                    for w, k, s, d, (low, _) in zip(
                        where, element, self.stride, self.dilation, self.padding, strict=True
                    )
                )
                if all(0 <= p < d for p, d in zip(place, spatial, strict=True)):
                    candidates.append(place)
            columns = np.stack([x[(..., *p)] for p in candidates], -1)  # type: ignore[index]
            best = np.argmax(columns, -1)
            flat = np.array([np.ravel_multi_index(p, spatial) for p in candidates])
            values[(..., *where)] = np.take_along_axis(columns, best[..., None], -1)[..., 0]  # type: ignore[index]
            indices[(..., *where)] = flat[best]  # type: ignore[index]
        return values, indices

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((2, 3, 6), (2,), (2,), ((0, 0),), (1,)),
            ((2, 7), (3,), (2,), ((1, 1),), (1,)),
            ((1, 2, 5, 6), (3, 2), (2, 2), ((1, 1), (0, 1)), (1, 1)),
            ((2, 6, 7), (2, 3), (1, 2), ((0, -1), (1, 1)), (2, 1)),
            ((0, 2, 4), (2,), (2,), ((0, 0),), (1,)),
            ((1, 3, 1), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
        )
        found = [
            Sample(cls(*how), (array(rng, shape, name),)) for name in ("f8", "f4", "f2", "i4") for shape, *how in cases
        ]
        edges = np.array([[-np.inf, -np.inf, -np.inf, 1.0, 1.0, np.nan, 2.0]])
        return [*found, Sample(cls((2,), (2,), ((1, 0),), (1,)), (edges,))]


@operation("graph.avg_pool")
class AvgPool(Composite):
    """Operand x [..., *S], one dim of S for each of `kernel` -> means of windows, [..., *S'].

    `pads` holds the (low, high) zeros put around each dim, `padding` those that the user asked for on both sides. A
    window's sum is divided by `divisor`, or else by its elements inside S and, where `count_include_pad`, inside the
    asked-for padding.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: Pads
    padding: tuple[int, ...]
    count_include_pad: bool = True
    divisor: int | None = None

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        need_floating(self.name, x)
        return (x.with_shape(_pooled("avg_pool", x, self.kernel, self.stride, self.pads, (1,) * len(self.kernel))),)

    def _is_uniform(self) -> bool:
        """Does every window have the same divisor, whatever the sizes?"""
        if self.divisor is not None:
            return True
        allowed = self.padding if self.count_include_pad else (0,) * len(self.padding)
        sides = [v for pair in self.pads for v in pair]
        if not all(isinstance(v, int) for v in sides):
            return False
        return all(low <= p and high <= p for (low, high), p in zip(self.pads, allowed, strict=True))

    def _divisors(self, b: Builder, x: Value, shape: tuple[Dim, ...], dtype: DType) -> Term:
        """The number by which each window's sum is divided, in `shape`."""
        device = x.tensor.device
        n = len(self.kernel)
        if self._is_uniform():
            return Term(b, full(b, self.divisor or math.prod(self.kernel), dtype, shape, device))
        lead = x.rank - n
        total: Term | None = None
        for i, (k, s, p) in enumerate(zip(self.kernel, self.stride, self.padding, strict=True)):
            outer = p if self.count_include_pad else 0
            start = _index(b, shape, lead + i, device) * s
            low = self.pads[i][0]
            if not (isinstance(low, int) and low == 0):
                start = start - count(b, (low,), dtypes.int64, device).expand(shape)
            size = count(b, (x.shape[lead + i] + outer,), dtypes.int64, device).expand(shape)
            length = (start + k).minimum(size) - start.maximum(-outer)
            total = length if total is None else total * length
        assert total is not None
        return total.cast(dtype)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        n = len(self.kernel)
        padded = pad_spatial(b, widen(b, x).v, *_sides(self.pads))
        windows = Term(b, emit(b, "window", padded, kernel=self.kernel, stride=self.stride, dilation=(1,) * n))
        total = windows.sum(dims=tuple(range(x.rank, x.rank + n)))
        return ((total / self._divisors(b, x, total.v.shape, total.v.dtype)).cast(x.dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        n = len(self.kernel)
        spatial = x.shape[x.ndim - n :]
        padded = tuple(d + low + high for d, (low, high) in zip(spatial, self.pads, strict=True))
        counts = tuple(map(window_size, padded, self.kernel, self.stride, (1,) * n))
        out = np.empty((*x.shape[: x.ndim - n], *counts))
        for where in np.ndindex(*counts):
            starts = [w * s - low for w, s, (low, _) in zip(where, self.stride, self.pads, strict=True)]
            inside = tuple(
                slice(max(a, 0), max(min(a + k, d), 0)) for a, k, d in zip(starts, self.kernel, spatial, strict=True)
            )
            outer = self.padding if self.count_include_pad else (0,) * n
            lengths = [
                min(a + k, d + p) - max(a, -p) for a, k, d, p in zip(starts, self.kernel, spatial, outer, strict=True)
            ]
            total = x[(..., *inside)].sum(tuple(range(x.ndim - n, x.ndim)))  # type: ignore[index]
            out[(..., *where)] = total / np.float64(self.divisor or math.prod(lengths))  # type: ignore[index]
        return out.astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((2, 3, 6), (2,), (2,), ((0, 0),), (0,)),
            ((2, 7), (3,), (2,), ((1, 1),), (1,)),
            ((2, 6), (3,), (2,), ((1, 2),), (1,)),
            ((1, 2, 5, 6), (3, 2), (2, 2), ((1, 1), (0, 1)), (1, 0)),
            ((2, 6, 7), (2, 3), (1, 2), ((0, -1), (1, 1)), (0, 1)),
            ((0, 2, 4), (2,), (2,), ((0, 0),), (0,)),
        )
        return [
            Sample(cls(*how, include, divisor), (array(rng, shape, name),))
            for name in ("f8", "f4", "f2")
            for shape, *how in cases
            for include, divisor in ((True, None), (False, None), (True, 3))
        ]
