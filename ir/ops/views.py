"""Views: the operand read at other indices. Ops that also fill or combine are in padding.py; they are views' neighbours
here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim, Undecided, product
from treadle.ir.ops.base import Sample, View
from treadle.ir.ops.build import (
    check_dim,
    emit,
    permute,
    reshape,
    same_dim,
    shape_text,
    slice_size,
    sum_to,
    window_size,
    zeros_like,
)
from treadle.ir.ops.padding import Concat, Fold, Pad, SliceUpdate
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = [
    "AsStrided", "Concat", "Expand", "Flip", "Fold", "Pad", "Permute", "Reshape", "Slice", "SliceUpdate", "Window",
]  # fmt: skip

_OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location; "
    "clone() it before writing"
)


def _numbers(*shape: int) -> np.ndarray:
    return np.arange(float(np.prod(shape))).reshape(shape)


# Reshape --------------------------------------------------------------------------------------------------------------


def match_dims(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]]:
    """Dims of two shapes of one size in the smallest groups of equal size, in order; dims of 1 are left out.

    Where symbols hide which of two sizes is smaller, the rest is one group.
    """
    a = [i for i, d in enumerate(source) if d != 1]
    b = [i for i, d in enumerate(target) if d != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right = a[i : i + 1], b[j : j + 1]
        i, j = i + 1, j + 1
        size_left, size_right = product(source[k] for k in left), product(target[k] for k in right)
        while size_left != size_right:
            more = _is_smaller(size_left, size_right)
            if more is None or (i if more else j) >= len(a if more else b):
                left, right = left + a[i:], right + b[j:]
                i, j = len(a), len(b)
                break
            if more:
                left.append(a[i])
                size_left, i = size_left * source[a[i]], i + 1
            else:
                right.append(b[j])
                size_right, j = size_right * target[b[j]], j + 1
        groups.append((left, right))
    return groups


def _is_smaller(a: Dim, b: Dim) -> bool | None:
    """Is `a` the smaller of two sizes that differ? None where that depends on the symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if (b // a) * a == b:
        return True
    if (a // b) * b == a:
        return False
    try:
        return a < b
    except Undecided:
        return None


@operation("graph.reshape")
class Reshape(View):
    """The elements in row-major order, in another shape. Raises RuntimeError where the number of elements differs."""

    shape: tuple[Dim, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if any(isinstance(d, int) and d < 0 for d in self.shape):
            raise RuntimeError(f"reshape: negative size in {shape_text(self.shape)}")
        if not same_dim(product(self.shape), x.numel):
            raise RuntimeError(f"shape '{shape_text(self.shape)}' is invalid for input of size {x.numel}")
        return (x.with_shape(self.shape),)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Dims that correspond, merge or split cleanly come out without // and %, which only mixed groups need."""
        out: list[Dim] = [0] * len(shape)
        if any(isinstance(d, int) and d == 0 for d in shape):
            return tuple(out)
        for mine, theirs in match_dims(shape, self.shape):
            linear: Dim = 0
            for j in theirs:
                linear = linear * self.shape[j] + index[j]
            stride: Dim = 1
            for i in reversed(mine):
                part = linear // stride if not (isinstance(stride, int) and stride == 1) else linear
                out[i] = part if i == mine[0] else part % shape[i]
                stride = stride * shape[i]
        return tuple(out)

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        return reshape(b, ct, op.operands[0].shape)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        return reshape(b, new, base.shape)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0].reshape(self.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((6,), (2, 3)), ((2, 3), (6,)), ((2, 3, 4), (6, 4)), ((2, 12), (2, 3, 4)), ((4, 6), (6, 4)), ((1, 6, 1),
            (2, 1, 3)),
            ((), (1, 1)), ((1,), ()), ((0, 3), (5, 0)), ((2, 3, 4, 5), (2, 12, 5)), ((8, 3), (2, 4, 3)), ((4, 3, 2),
            (2, 6, 2)),
        )  # fmt: skip
        return [Sample(cls(to), (_numbers(*of),)) for of, to in cases]


# Permute, expand ------------------------------------------------------------------------------------------------------


@operation("graph.permute")
class Permute(View):
    """Dim i of the result is dim `dims[i]` of the operand. Raises RuntimeError where `dims` is not a permutation."""

    dims: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if sorted(self.dims) != list(range(x.rank)):
            raise RuntimeError(
                f"permute: {list(self.dims)} is not an order of the dims of a tensor of shape {shape_text(x.shape)}"
            )
        return (x.with_shape(tuple(x.shape[d] for d in self.dims)),)

    def inverse(self) -> Permute:
        return Permute(tuple(sorted(range(len(self.dims)), key=self.dims.__getitem__)))

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(index[j] for j in self.inverse().dims)

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        return permute(b, ct, self.inverse().dims)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        return permute(b, new, self.inverse().dims)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.transpose(arrays[0], self.dims)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (0, 1, 2)), ((), ()), ((0, 3), (1, 0)))
        return [Sample(cls(order), (_numbers(*shape),)) for shape, order in cases]


@operation("graph.expand")
class Expand(View):
    """Broadcast to `shape`, right aligned: dims of 1 are repeated, new ones come in front. Raises RuntimeError
    otherwise."""

    shape: tuple[Dim, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        extra = len(self.shape) - x.rank
        if extra < 0:
            raise RuntimeError(
                f"expand: the number of sizes in {shape_text(self.shape)} must be greater or equal to the number of "
                f"dims of a tensor of shape {shape_text(x.shape)}"
            )
        for i, d in enumerate(x.shape):
            if d != 1 and not same_dim(d, self.shape[i + extra]):
                raise RuntimeError(
                    f"The expanded size of the tensor ({self.shape[i + extra]}) must match the existing size ({d}) at "
                    f"non-singleton dimension {i + extra}.  Target sizes: {shape_text(self.shape)}.  Tensor sizes: "
                    f"{shape_text(x.shape)}"
                )
        return (x.with_shape(self.shape),)

    def is_injective(self, shape: tuple[Dim, ...] | None = None) -> bool:
        """Does each element of an operand of `shape` appear at most once? False where the shape is not told."""
        return shape is not None and product(shape) == product(self.shape)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        extra = len(self.shape) - len(shape)
        return tuple(0 if isinstance(d, int) and d == 1 else index[i + extra] for i, d in enumerate(shape))

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        return sum_to(b, ct, op.operands[0].shape)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        if product(self.shape) == 0:
            return base
        if not self.is_injective(base.shape):
            raise RuntimeError(_OVERLAP)
        return reshape(b, new, base.shape)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.broadcast_to(arrays[0], self.shape).copy()

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((3,), (2, 3)), ((3, 1), (3, 4)), ((1, 3), (2, 3)), ((), (2, 2)), ((2, 3), (2, 3)), ((1,), (0,)), ((), ()),
            ((2, 1, 3), (4, 2, 5, 3)), ((3,), (1, 3)),
        )  # fmt: skip
        return [Sample(cls(to), (_numbers(*of),)) for of, to in cases]


# Slice, flip ----------------------------------------------------------------------------------------------------------


@operation("graph.slice")
class Slice(View):
    """Indices `starts[i]`, `starts[i] + steps[i]`, ... below `limits[i]` of each dim; 0 <= start <= limit <= size, step
    > 0.

    Raises IndexError on bounds outside the operand.
    """

    starts: tuple[Dim, ...]
    limits: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if not len(self.starts) == len(self.limits) == len(self.steps) == x.rank:
            raise IndexError(f"slice: {len(self.starts)} ranges for a tensor of shape {shape_text(x.shape)}")
        for start, limit, step, d in zip(self.starts, self.limits, self.steps, x.shape, strict=True):
            bad = step < 1 or (isinstance(start, int) and start < 0)
            # Symbolic bounds are the recorder's promise.
            if isinstance(limit, int) and isinstance(start, int):
                bad = bad or limit < start or (isinstance(d, int) and limit > d)
            if bad:
                raise IndexError(
                    f"slice: range {start}:{limit}:{step} of a dim of {d} (tensor of shape {shape_text(x.shape)})"
                )
        return (x.with_shape(tuple(map(slice_size, self.starts, self.limits, self.steps))),)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(i * step + start for i, start, step in zip(index, self.starts, self.steps, strict=True))

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        low, high = [], []
        for start, step, n, d in zip(self.starts, self.steps, ct.shape, op.operands[0].shape, strict=True):
            empty = isinstance(n, int) and n == 0
            low.append(start)
            high.append(d - start if empty else d - start - (n - 1) * step - 1)
        interior = tuple(step - 1 for step in self.steps)
        return emit(b, "pad", ct, low=tuple(low), high=tuple(high), interior=interior, value=0.0)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        return emit(b, "slice_update", base, new, starts=self.starts, limits=self.limits, steps=self.steps)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0][tuple(map(slice, self.starts, self.limits, self.steps))]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((5,), (1,), (4,), (1,)), ((5, 6), (0, 1), (5, 6), (2, 3)), ((5,), (2,), (2,), (1,)), ((), (), (), ()),
            ((7,), (1,), (7,), (4,)), ((3, 4), (0, 0), (3, 4), (1, 1)), ((6,), (0,), (5,), (2,)),
        )  # fmt: skip
        return [Sample(cls(*ranges), (_numbers(*shape),)) for shape, *ranges in cases]


@operation("graph.flip")
class Flip(View):
    """The order of indices reversed along `dims`."""

    dims: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        for d in self.dims:
            check_dim(d, types[0].rank)
        return (types[0],)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(d - 1 - i if k in self.dims else i for k, (i, d) in enumerate(zip(index, shape, strict=True)))

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        return b.emit(self, ct)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        return b.emit(self, new)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.flip(arrays[0], self.dims)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (((4,), (0,)), ((2, 3), (0, 1)), ((2, 3), (1,)), ((2, 3), ()), ((0, 2), (0,)))
        return [Sample(cls(flipped), (_numbers(*shape),)) for shape, flipped in cases]


# Windows, strides -----------------------------------------------------------------------------------------------------


def _put_by_positions(view: View, b: Builder, base: Value, new: Value) -> Value:
    """The base with the elements that `view` shows replaced: a scatter to where the view says they come from."""
    n = base.tensor.numel
    device = base.tensor.device
    numbers = reshape(b, emit(b, "iota", shape=(n,), dim=0, dtype=dtypes.int64, device=device), base.shape)
    at = b.emit(view, numbers)
    m = at.tensor.numel
    flat = emit(b, "put", reshape(b, base, (n,)), reshape(b, at, (m,)), reshape(b, new, (m,)), dim=0, mode="set")
    return reshape(b, flat, base.shape)


@operation("graph.window")
class Window(View):
    """Sliding windows over the last n dims, n the length of `kernel`: [..., S1, ..., Sn] -> [..., S1', ..., Sn', K1,
    ..., Kn].

    Window s of a dim holds elements s * stride + k * dilation; S' = (S - dilation * (K - 1) - 1) // stride + 1. Raises
    RuntimeError where a window does not fit.
    """

    kernel: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        n = len(self.kernel)
        if x.rank < n:
            raise RuntimeError(f"window: {n} window dims on a tensor of shape {shape_text(x.shape)}")
        if any(v < 1 for v in (*self.stride, *self.dilation)) or any(isinstance(k, int) and k < 1 for k in self.kernel):
            raise RuntimeError(
                f"window: kernel {self.kernel}, stride {self.stride} and dilation {self.dilation} must be positive"
            )
        lead, spatial = x.shape[: x.rank - n], x.shape[x.rank - n :]
        for d, k, dilation in zip(spatial, self.kernel, self.dilation, strict=True):
            span = (k - 1) * dilation + 1
            if isinstance(d, int) and isinstance(span, int) and span > d:
                raise RuntimeError(
                    f"window: a kernel of {k} elements {dilation} apart is larger than a dim of {d} (tensor of shape "
                    f"{shape_text(x.shape)})"
                )
        counts = tuple(map(window_size, spatial, self.kernel, self.stride, self.dilation))
        return (x.with_shape((*lead, *counts, *self.kernel)),)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        n = len(self.kernel)
        lead = len(shape) - n
        steps = zip(index[lead : lead + n], index[lead + n :], self.stride, self.dilation, strict=True)
        return (*index[:lead], *(s * stride + k * dilation for s, k, stride, dilation in steps))

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        shape = op.operands[0].shape
        spatial = shape[len(shape) - len(self.kernel) :]
        return emit(b, "fold", ct, shape=spatial, stride=self.stride, dilation=self.dilation)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        sizes = base.shape[base.rank - len(self.kernel) :]
        for d, k, stride, dilation in zip(sizes, self.kernel, self.stride, self.dilation, strict=True):
            # Windows meet where a multiple of the stride is one of the dilation.
            common = math.gcd(stride, dilation)
            if k > stride // common and window_size(d, k, stride, dilation) > dilation // common:
                raise RuntimeError(_OVERLAP)
        return _put_by_positions(self, b, base, new)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        n = len(self.kernel)
        lead, spatial = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
        counts = tuple(map(window_size, spatial, self.kernel, self.stride, self.dilation))
        steps = x.strides[x.ndim - n :]
        strides = (
            *x.strides[: x.ndim - n],
            *(step * stride for step, stride in zip(steps, self.stride, strict=True)),
            *(step * dilation for step, dilation in zip(steps, self.dilation, strict=True)),
        )
        return np.lib.stride_tricks.as_strided(x, (*lead, *counts, *self.kernel), strides).copy()

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((7,), (3,), (1,), (1,)), ((2, 8), (3,), (2,), (2,)), ((2, 5, 6), (2, 3), (2, 1), (1, 2)), ((6,), (2,),
            (2,), (1,)),
            ((5, 5), (5, 1), (1, 3), (1, 1)), ((6,), (2,), (3,), (1,)), ((0, 4), (2,), (1,), (1,)),
        )  # fmt: skip
        return [Sample(cls(*how), (_numbers(*shape),)) for shape, *how in cases]


@operation("graph.as_strided")
class AsStrided(View):
    """Element (i0, i1, ...) is element offset + i0 * strides[0] + i1 * strides[1] + ... of the operand in row-major
    order.

    Raises RuntimeError where that lies outside the operand.
    """

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if len(self.shape) != len(self.strides):
            raise RuntimeError(f"as_strided: {len(self.shape)} sizes and {len(self.strides)} strides")
        numbers = (*self.shape, *self.strides, self.offset, x.numel)
        if all(isinstance(d, int) for d in numbers):
            if any(d < 0 for d in numbers):
                raise RuntimeError(f"as_strided: negative size, stride or offset in {self}")
            last = self.offset + sum((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True))
            if 0 not in self.shape and last >= x.numel:
                raise RuntimeError(
                    f"as_strided: sizes {shape_text(self.shape)}, strides {shape_text(self.strides)} and offset "
                    f"{self.offset} reach element {last} of a tensor of shape {shape_text(x.shape)}"
                )
        return (x.with_shape(self.shape),)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        linear: Dim = self.offset
        for i, stride in zip(index, self.strides, strict=True):
            linear = linear + i * stride
        return Reshape((product(shape),)).index_map((linear,), shape)

    def overlaps(self) -> bool:
        """May two indices show one element? (Exact for strides that nest.)"""
        reach: Dim = 0
        if any(d == 0 for d in self.shape):
            return False
        moving = [(s, d) for s, d in zip(self.strides, self.shape, strict=True) if d != 1]
        for stride, d in sorted(moving, key=_SortKey):
            if stride <= reach:
                return True
            reach = reach + (d - 1) * stride
        return False

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        (x,) = op.operands
        n, m = x.tensor.numel, ct.tensor.numel
        numbers = emit(b, "iota", shape=(n,), dim=0, dtype=dtypes.int64, device=x.tensor.device)
        at = reshape(b, b.emit(self, numbers), (m,))
        zeros = reshape(b, zeros_like(b, x), (n,))
        return reshape(b, emit(b, "put", zeros, at, reshape(b, ct, (m,)), dim=0, mode="add"), x.shape)

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        if self.overlaps():
            raise RuntimeError(_OVERLAP)
        return _put_by_positions(self, b, base, new)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(arrays[0]).reshape(-1)
        at = np.full(self.shape, self.offset, np.int64)
        for i, stride in enumerate(self.strides):
            column = np.arange(self.shape[i]) * stride
            at = at + column.reshape([-1 if k == i else 1 for k in range(len(self.shape))])
        return flat[at]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        x: Any = array(rng, (3, 4))
        cases = (
            ((3, 2), (4, 2), 1),
            ((2, 2), (1, 1), 0),
            ((4, 3), (1, 4), 0),
            ((), (), 5),
            ((2, 3), (0, 1), 2),
            ((0, 2), (3, 1), 0),
        )
        return [Sample(cls(*how), (x,)) for how in cases]


class _SortKey:
    """Orders (stride, size) pairs by comparisons that raise Undecided on symbols."""

    def __init__(self, pair: tuple[Dim, Dim]) -> None:
        self.pair = pair

    def __lt__(self, other: _SortKey) -> bool:
        return self.pair[0] < other.pair[0]
