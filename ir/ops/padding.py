"""Ops next to views that fill, combine or join: pad, fold, slice_update, concat.

Their `index_map`s tell, for a result index, which element is read and under which conditions. A condition is a tuple
(lhs, relation, rhs) of dims, relation one of "ge", "lt", "eq"; an element for which one fails is not read (the fill,
the base or nothing takes its place). Under failing conditions the index may be negative or too large: mask before use.
"""

from __future__ import annotations

import itertools

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Cotangents, Sample, Structured
from treadle.ir.ops.build import (
    check_dim,
    emit,
    same_dim,
    same_shape,
    shape_text,
    slice_size,
    window_size,
    zeros_like,
)
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Concat", "Condition", "Fold", "Pad", "SliceUpdate"]

Condition = tuple[Dim, str, Dim]
Place = tuple[tuple[Dim, ...], list[Condition]]  # an operand index, and when it is read


def _strided(t: Dim, step: int, count: Dim) -> tuple[Dim, list[Condition]]:
    """Where offset `t` falls among `count` elements `step` apart: the element's number, and when there is one."""
    conditions: list[Condition] = []
    if not (isinstance(t, int) and t >= 0):
        conditions.append((t, "ge", 0))
    conditions.append((t, "lt", (count - 1) * step + 1))
    if step == 1:
        return t, conditions
    conditions.append((t % step, "eq", 0))
    return t // step, conditions


@operation("graph.pad")
class Pad(Structured):
    """`low[i]` fills before and `high[i]` after dim i, `interior[i]` between its elements, all `value`.

    Negative low or high crop instead. Raises RuntimeError where a size would become negative.
    """

    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    interior: tuple[int, ...]
    value: float | int | bool = 0.0

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if not len(self.low) == len(self.high) == len(self.interior) == x.rank:
            raise RuntimeError(f"pad: {len(self.low)} paddings for a tensor of shape {shape_text(x.shape)}")
        shape: list[Dim] = []
        for low, high, interior, d in zip(self.low, self.high, self.interior, x.shape, strict=True):
            spread = d if interior == 0 or (isinstance(d, int) and d == 0) else d + (d - 1) * interior
            size = spread + low + high
            if isinstance(size, int) and size < 0:
                raise RuntimeError(
                    f"pad: the paddings {shape_text(self.low)}, {shape_text(self.high)} give a negative size on a "
                    f"tensor of shape {shape_text(x.shape)}"
                )
            shape.append(size)
        return (x.with_shape(tuple(shape)),)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Place:
        """(operand index, conditions) for a result index; where a condition fails the element is `value`."""
        place: list[Dim] = []
        conditions: list[Condition] = []
        for r, low, high, interior, d in zip(index, self.low, self.high, self.interior, shape, strict=True):
            if interior == 0 and all(isinstance(v, int) and v <= 0 for v in (low, high)):
                place.append(r - low)  # cropped only: always inside
                continue
            at, needed = _strided(r - low, interior + 1, d)
            if isinstance(low, int) and low <= 0:
                needed = [c for c in needed if c[1] != "ge"]
            place.append(at)
            conditions += needed
        return tuple(place), conditions

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        shape = op.operands[0].shape
        if any(isinstance(d, int) and d == 0 for d in shape):
            return zeros_like(b, op.operands[0])
        steps = tuple(i + 1 for i in self.interior)
        spread = tuple((d - 1) * step + 1 for d, step in zip(shape, steps, strict=True))
        if all(isinstance(v, int) and v >= 0 for v in (*self.low, *self.high)):
            limits = tuple(low + d for low, d in zip(self.low, spread, strict=True))
            return emit(b, "slice", ct, starts=self.low, limits=limits, steps=steps)
        none = (0,) * len(shape)
        back = b.emit(Pad(tuple(-v for v in self.low), tuple(-v for v in self.high), none), ct)
        return back if steps == (1,) * len(steps) else emit(b, "slice", back, starts=none, limits=spread, steps=steps)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        return (b.emit(Pad(self.low, self.high, self.interior), t) if t is not None else None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        spread = [d + max(d - 1, 0) * i for d, i in zip(x.shape, self.interior, strict=True)]
        inner = np.full(spread, self.value, x.dtype)
        inner[tuple(slice(None, None, i + 1) for i in self.interior)] = x
        grow = [(max(low, 0), max(high, 0)) for low, high in zip(self.low, self.high, strict=True)]
        padded = np.pad(inner, grow, constant_values=x.dtype.type(self.value)) if grow else inner
        crop = zip(padded.shape, self.low, self.high, strict=True)
        return padded[tuple(slice(max(-low, 0), d - max(-high, 0)) for d, low, high in crop)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((3,), (1,), (2,), (0,), 0.0), ((2, 3), (0, 1), (1, 0), (0, 2), 0.0), ((5,), (-1,), (-2,), (0,), 0.0),
            ((4,), (-1,), (2,), (1,), 0.0), ((3,), (1,), (0,), (1,), 7.0), ((0,), (2,), (1,), (1,), 1.0), ((), (), (),
            (), 0.0),
            ((2, 2), (1, 1), (1, 1), (0, 0), -np.inf), ((4,), (0,), (-3,), (2,), 0.0),
        )  # fmt: skip
        found = [Sample(cls(*how), (array(rng, shape),)) for shape, *how in cases]
        return [
            *found,
            Sample(cls((1,), (1,), (0,), 3), (np.arange(4),)),
            Sample(cls((1,), (0,), (0,), True), (np.zeros(2, bool),)),
        ]


@operation("graph.fold")
class Fold(Structured):
    """The transpose of Window: [..., S1', ..., Sn', K1, ..., Kn] -> [..., *shape], adding what overlaps.

    Element s, k of a dim goes to s * stride + k * dilation. Raises RuntimeError where the operand is not of windows of
    `shape`.
    """

    shape: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    combiner = "add"

    def identity(self, dtype: DType) -> float | int:
        return 0

    def accumulate_dtype(self, dtype: DType) -> DType:
        return dtype.compute

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        n = len(self.shape)
        if x.rank < 2 * n:
            raise RuntimeError(
                f"fold: a tensor of shape {shape_text(x.shape)} has no {n} dims of windows and {n} of elements"
            )
        lead = x.rank - 2 * n
        counts, kernel = x.shape[lead : lead + n], x.shape[lead + n :]
        expected = tuple(map(window_size, self.shape, kernel, self.stride, self.dilation))
        if not same_shape(counts, expected):
            raise RuntimeError(
                f"fold: expected {shape_text(expected)} windows over a shape of {shape_text(self.shape)}, not "
                f"{shape_text(counts)}"
            )
        return (x.with_shape((*x.shape[:lead], *self.shape)),)

    def index_map(self, index: tuple[Dim, ...], element: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Place:
        """(operand index, conditions) of the term of element `element` (one of K1, ..., Kn each) in a result element's
        sum."""
        n = len(self.shape)
        lead = len(shape) - 2 * n
        place: list[Dim] = list(index[:lead])
        conditions: list[Condition] = []
        for o, k, stride, dilation, count in zip(
            index[lead:], element, self.stride, self.dilation, shape[lead : lead + n], strict=True
        ):
            at, needed = _strided(o - k * dilation, stride, count)
            place.append(at)
            conditions += needed
        return (*place, *element), conditions

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        shape = op.operands[0].shape
        kernel = shape[len(shape) - len(self.shape) :]
        return emit(b, "window", ct, kernel=kernel, stride=self.stride, dilation=self.dilation)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        n = len(self.shape)
        lead = x.shape[: x.ndim - 2 * n]
        counts, kernel = x.shape[x.ndim - 2 * n : x.ndim - n], x.shape[x.ndim - n :]
        out = np.zeros((*lead, *self.shape), np.float64 if x.dtype.kind == "f" else x.dtype)
        for element in itertools.product(*map(range, kernel)):
            starts = [k * dilation for k, dilation in zip(element, self.dilation, strict=True)]
            ranges = [
                slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                for start, stride, count in zip(starts, self.stride, counts, strict=True)
            ]
            source = (..., *element)
            out[(..., *ranges)] += x[source]  # type: ignore[index]
        return out.astype(x.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((5, 3), (7,), (1,), (1,)), ((2, 2, 3), (8,), (2,), (2,)), ((2, 4, 4, 2, 3), (5, 8), (1, 1), (1, 2)),
            ((3, 2), (6,), (2,), (1,)), ((2, 2), (6,), (3,), (1,)), ((0, 3, 2), (4,), (1,), (1,)), ((2, 2), (7,), (4,),
            (1,)),
        )  # fmt: skip
        return [Sample(cls(*how), (array(rng, shape, name),)) for name in ("f8", "f4", "i4") for shape, *how in cases]


@operation("graph.slice_update")
class SliceUpdate(Structured):
    """Operands (base, new): the base with the elements that Slice{starts, limits, steps} shows replaced by `new`.

    Raises RuntimeError where `new` has not the slice's shape and the base's dtype.
    """

    starts: tuple[Dim, ...]
    limits: tuple[Dim, ...]
    steps: tuple[int, ...]
    linear_in = (0, 1)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        base, new = types
        if len(self.starts) != base.rank:
            raise RuntimeError(
                f"slice_update: {len(self.starts)} ranges for a tensor of shape {shape_text(base.shape)}"
            )
        shown = tuple(map(slice_size, self.starts, self.limits, self.steps))
        if not same_shape(new.shape, shown) or new.dtype is not base.dtype:
            raise RuntimeError(
                f"slice_update: a slice of shape {shape_text(shown)} and dtype {base.dtype.short} cannot hold a tensor of "
                f"shape {shape_text(new.shape)} and dtype {new.dtype.short}"
            )
        return (base,)

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Place:
        """(index into `new`, conditions) for a result index; where a condition fails the element is the base's. `shape`
        is that of the base."""
        place: list[Dim] = []
        conditions: list[Condition] = []
        for r, start, limit, step, d in zip(index, self.starts, self.limits, self.steps, shape, strict=True):
            at, needed = _strided(r - start, step, slice_size(start, limit, step))
            if isinstance(start, int) and start == 0:
                needed = [c for c in needed if c[1] != "ge"]
            if step == 1 and limit == d:
                needed = [c for c in needed if c[1] != "lt"]
            place.append(at)
            conditions += needed
        return tuple(place), conditions

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        base, new = tangents
        if base is None and new is None:
            return (None,)
        filled = [zeros_like(b, v) if t is None else t for v, t in zip(op.operands, (base, new), strict=True)]
        return (b.emit(self, *filled),)

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        if operand == 0:
            return b.emit(self, ct, zeros_like(b, op.operands[1]))
        return emit(b, "slice", ct, starts=self.starts, limits=self.limits, steps=self.steps)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        base, new = arrays
        out = base.copy()
        out[tuple(map(slice, self.starts, self.limits, self.steps))] = new
        return out

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((5,), (1,), (4,), (1,)), ((5, 6), (0, 1), (5, 6), (2, 3)), ((5,), (2,), (2,), (1,)), ((), (), (), ()),
            ((3, 4), (0, 0), (3, 4), (1, 1)), ((7,), (1,), (7,), (4,)),
        )  # fmt: skip
        found = []
        for shape, starts, limits, steps in cases:
            new = tuple(map(slice_size, starts, limits, steps))
            found.append(Sample(cls(starts, limits, steps), (array(rng, shape), array(rng, new))))
        return found


@operation("graph.concat")
class Concat(Structured):
    """Operands (x, y, ...), at least one: joined along `dim`. Raises RuntimeError where other sizes or dtypes
    differ."""

    dim: int

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        first = types[0]
        check_dim(self.dim, first.rank)
        total: Dim = 0
        for n, t in enumerate(types):
            if t.rank != first.rank:
                raise RuntimeError(f"Tensors must have same number of dimensions: got {first.rank} and {t.rank}")
            for i, (a, d) in enumerate(zip(first.shape, t.shape, strict=True)):
                if i != self.dim and not same_dim(a, d):
                    raise RuntimeError(
                        f"Sizes of tensors must match except in dimension {self.dim}. Expected size {a} but got size "
                        f"{d} for tensor number {n} in the list."
                    )
            if t.dtype is not first.dtype or t.device != first.device:
                raise RuntimeError(f"concat: tensor number {n} is {t}, which does not go with {first}")
            total = total + t.shape[self.dim]
        return (first.with_shape(tuple(total if i == self.dim else d for i, d in enumerate(first.shape))),)

    def offsets(self, shapes: tuple[tuple[Dim, ...], ...]) -> tuple[Dim, ...]:
        """Where each operand starts along `dim`, and the end."""
        return tuple(itertools.accumulate((s[self.dim] for s in shapes), initial=0))

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        if all(t is None for t in tangents):
            return (None,)
        filled = [zeros_like(b, v) if t is None else t for v, t in zip(op.operands, tangents, strict=True)]
        return (b.emit(self, *filled),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        offsets = self.offsets(tuple(v.shape for v in op.operands))
        found: list[Value | None] = []
        for need, start, limit in zip(needs, offsets, offsets[1:], strict=False):
            starts, limits = [0] * ct.rank, list(ct.shape)
            starts[self.dim], limits[self.dim] = start, limit
            steps = (1,) * ct.rank
            found.append(
                emit(b, "slice", ct, starts=tuple(starts), limits=tuple(limits), steps=steps) if need else None
            )
        return tuple(found)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, self.dim)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...] = (
            (0, ((2,), (3,))), (1, ((2, 1), (2, 3), (2, 0))), (0, ((2, 2),)), (1, ((0, 2), (0, 3))), (2, ((2, 2, 1),
            (2, 2, 2))),
        )  # fmt: skip
        return [
            Sample(cls(dim), tuple(array(rng, s, name) for s in shapes))
            for name in ("f8", "i4")
            for dim, shapes in cases
        ]
