"""The larger and the smaller of two, at every index: with NaN propagated or ignored, and as clamps."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.ops.base import Cotangents, Elementwise
from treadle.ir.ops.build import Term, full_like

__all__ = ["ClampMax", "ClampMin", "Fmax", "Fmin", "Maximum", "Minimum"]


class _Extremum(Elementwise):
    """The larger or smaller of two; `fn` is the loop-level function, `logic` the one on bools."""

    arity = 2
    kinds = "buif"
    greater: bool
    fn: str

    def scalar(self, s: Any, *xs: Value) -> Value:
        if xs[0].dtype.kind == "b":
            return (s.or_ if self.greater else s.and_)(*xs)
        return s.call(self.fn if xs[0].dtype.kind == "f" else "maximum" if self.greater else "minimum", *xs)


class _PropagatesNan(_Extremum):
    """The slope is shared by operands that tie; it goes to both where one is NaN."""

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        less, more = x.lt(y), x.gt(y)
        tie, one = Term(b, full_like(b, op.result, 0.5)), Term(b, full_like(b, op.result, 1))
        x_loses, y_loses = (less, more) if self.greater else (more, less)
        equal = x.eq(y)
        return (equal.where(tie, x_loses.where(0, one)).v, equal.where(tie, y_loses.where(0, one)).v)


@operation("graph.maximum")
class Maximum(_PropagatesNan):
    """The larger of x and y, NaN where one is NaN; of bools it is `or`."""

    greater = True
    fn = "maximum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.maximum(*arrays)


@operation("graph.minimum")
class Minimum(_PropagatesNan):
    """The smaller of x and y, NaN where one is NaN; of bools it is `and`."""

    greater = False
    fn = "minimum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.minimum(*arrays)


class _Clamp(_Extremum):
    """An extremum whose slope goes to x alone where both tie, and to neither where one is NaN."""

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, bound = (Term(b, v) for v in op.operands)
        kept = x.ge(bound) if self.greater else x.le(bound)
        replaced = x.lt(bound) if self.greater else x.gt(bound)
        return (kept.cast(op.result.dtype).v, replaced.cast(op.result.dtype).v)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        if cotangents[0] is None:
            return (None, None)
        ct = Term(b, cotangents[0])
        x, bound = (Term(b, v) for v in op.operands)
        kept = (x.ge(bound) if self.greater else x.le(bound)) if needs[0] else None
        replaced = (x.lt(bound) if self.greater else x.gt(bound)) if needs[1] else None
        return tuple(mask.where(ct, 0).v if mask is not None else None for mask in (kept, replaced))


@operation("graph.clamp_min")
class ClampMin(_Clamp):
    """x, or the bound where x is below it; NaN where one is NaN. At the bound the slope in x is 1."""

    greater = True
    fn = "maximum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.maximum(*arrays)


@operation("graph.clamp_max")
class ClampMax(_Clamp):
    """x, or the bound where x is above it; NaN where one is NaN. At the bound the slope in x is 1."""

    greater = False
    fn = "minimum"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.minimum(*arrays)


class _IgnoresNan(_Extremum):
    """The slope goes to x where both tie, and to the operand that is a number."""

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        first = (x.ge(y) if self.greater else x.le(y)).logical_or(y.isnan())
        dtype = op.result.dtype
        return (first.cast(dtype).v, first.logical_not().cast(dtype).v)


@operation("graph.fmax")
class Fmax(_IgnoresNan):
    """The larger of x and y; the other one where one is NaN."""

    greater = True
    fn = "fmax"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.fmax(*arrays)


@operation("graph.fmin")
class Fmin(_IgnoresNan):
    """The smaller of x and y; the other one where one is NaN."""

    greater = False
    fn = "fmin"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.fmin(*arrays)
