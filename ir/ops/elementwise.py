"""What the families of elementwise ops share: bodies computed in a wider type, comparisons, integer division."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value
from treadle.ir.ops.base import Cotangents, Elementwise
from treadle.ir.types import TensorType

__all__ = ["Predicate", "in_compute_type", "int_divide", "not_for_bool", "reference_in_compute_type"]

Body = Callable[..., Value]


def in_compute_type(body: Body) -> Body:
    """A scalar body of several steps that rounds once: 16-bit floats are computed in float32."""

    @functools.wraps(body)
    def wide(self: Any, s: Any, *xs: Value) -> Value:
        dtype = xs[-1].dtype
        if dtype.compute is dtype:
            return body(self, s, *xs)
        result = body(self, s, *(s.cast(x, dtype.compute) if x.dtype is dtype else x for x in xs))
        return s.cast(result, dtype) if result.dtype is dtype.compute else result

    return wide


def reference_in_compute_type(fn: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The NumPy counterpart of `in_compute_type` (bfloat16 is float32 in a reference already)."""

    @functools.wraps(fn)
    def wide(self: Any, *arrays: np.ndarray) -> np.ndarray:
        dtype = arrays[-1].dtype
        if dtype != np.float16:
            return fn(self, *arrays)
        return fn(self, *(a.astype(np.float32) for a in arrays)).astype(dtype)

    return wide


class Predicate(Elementwise):
    """A question about elements: bool result, no derivative."""

    returns_bool = True

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,) * self.arity


def not_for_bool(types: tuple[TensorType, ...], what: str, instead: str) -> None:
    """Raises RuntimeError where an operand is bool and the op has no meaning for it."""
    if any(t.dtype is dtypes.bool_ for t in types):
        raise RuntimeError(f"{what} is not supported on a bool tensor; use {instead} instead")


def int_divide(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quotient towards zero and remainder of integers; by 0 they are 0 and x. The smallest integer over -1 wraps."""
    safe = np.where(y == 0, 1, y).astype(x.dtype)
    quotient = np.floor_divide(x, safe)
    rest = x - quotient * safe
    quotient = quotient + ((rest != 0) & ((rest < 0) != (x < 0)))
    quotient = np.where(y == 0, 0, quotient).astype(x.dtype)
    return quotient, np.asarray(x - quotient * y, x.dtype)
