"""Elementwise functions composed of others: floating-point tests, log-sums, special functions, closeness."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ops.elementwise import (
    MUL,
    copysign,
    isnan,
    maximum,
    minimum,
    need_tensor,
    number,
    to_floating,
    where,
)  # fmt: skip
from treadle.ops.registration import PUBLIC, public, type_name
from treadle.recorder.build import RuntimeScalar
from treadle.recorder.trace import record
from treadle.tensor import Tensor

__all__ = ["isclose"]


@public()
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other)), without overflow."""
    need_tensor("logaddexp", input)
    need_tensor("logaddexp", other, "other", 2)
    top = maximum(input, other)
    low = minimum(input, other)
    infinite = (top == low) & input.isinf()
    return where(infinite, top, top + (where(infinite, 0.0, low - top)).exp().log1p())


@public()
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other), without overflow."""
    ln2 = 0.6931471805599453
    return logaddexp(input * ln2, other * ln2) / ln2


@public(inplace=True)
def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other), 0 where input is 0 (NaN where other is NaN)."""
    y = other if isinstance(other, Tensor) else PUBLIC["tensor"](float(other))
    logs = to_floating(y).log()
    zero = input == 0 if isinstance(input, Tensor) else PUBLIC["tensor"](input == 0)
    return where(zero & ~y.isnan(), _times_zero(input, logs), input * logs)


def _times_zero(input: Any, logs: Tensor) -> Tensor:
    """0, with the slope of x * log(y) in x."""
    finite = where(logs.isfinite(), logs, 0.0)
    return input * finite


@public(inplace=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(p / (1 - p)), with p clamped to [eps, 1 - eps] if eps is given."""
    p = to_floating(input)
    if eps is not None:
        p = p.clamp(eps, 1 - eps)
    return (p / (1 - p)).log()


@public(inplace=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero."""
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return where(input == 0, values, (input > 0).to(input.dtype))


@public(inplace=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    return to_floating(input) * 57.29577951308232


@public(inplace=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    return to_floating(input) * 0.017453292519943295


@public(inplace=True)
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    x = to_floating(input) * 3.141592653589793
    zero = x == 0
    safe = where(zero, 1.0, x)
    return where(zero, 1.0, safe.sin() / safe)


@public(out=False)
def signbit(input: Tensor) -> Tensor:
    """True for negative numbers and -0."""
    return (
        copysign(to_floating(input).new_ones(input.shape), to_floating(input)) < 0
        if input.dtype.is_floating
        else input < 0
    )


@public(out=False)
def isposinf(input: Tensor) -> Tensor:
    return input == float("inf") if input.dtype.is_floating else isnan(input)


@public(out=False)
def isneginf(input: Tensor) -> Tensor:
    return input == float("-inf") if input.dtype.is_floating else isnan(input)


@public(out=False)
def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex dtypes."""
    return input.new_ones(input.shape, dtype=dtypes.bool_)


@public(out=False)
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """|input - other| <= atol + rtol * |other|, elementwise."""
    need_tensor("isclose", input)
    need_tensor("isclose", other, "other", 2)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{type_name(input.dtype)} did not match {type_name(other.dtype)}")
    if rtol < 0 or atol < 0:
        raise RuntimeError("rtol and atol must be greater than or equal to zero")
    close = input == other
    if equal_nan and input.dtype.is_floating:
        close = close | (input.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    a, b = (input, other) if input.dtype.is_floating else (input.double(), other.double())
    gap = (a - b).abs()
    return close | (gap.isfinite() & (gap <= atol + (rtol * b).abs()))


@public(out=False)
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """True if all elements are close. Waits for the value."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(out=False)
def equal(input: Tensor, other: Tensor) -> bool:
    """True if shapes and all elements are equal. Waits for the value."""
    return input.shape == other.shape and bool((input == other).all())


@public(inplace=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    product = tensor1 * tensor2
    return input + (product if type(value) is not RuntimeScalar and value == 1 else record(MUL, product, number(value)))


@public(inplace=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2. Raises RuntimeError for integers."""
    if not tensor1.dtype.is_floating and not tensor2.dtype.is_floating:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform a "
            "true division of tensor1 and tensor2."
        )
    scaled = tensor1 if type(value) is not RuntimeScalar and value == 1 else record(MUL, tensor1, number(value))
    return input + scaled / tensor2


@public(inplace=True)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input), from the nearer end."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"expected dtype {input.dtype!r} for `end` but got dtype {end.dtype!r}")
    if isinstance(weight, Tensor):
        if weight.dtype is not input.dtype:
            raise RuntimeError(f"expected dtype {input.dtype!r} for `weight` but got dtype {weight.dtype!r}")
        difference = end - input
        return where(weight.abs() < 0.5, input + weight * difference, end - difference * (1 - weight))
    w = weight.value if type(weight) is RuntimeScalar else weight
    if -0.5 < w < 0.5:
        return input + record(MUL, end - input, number(weight))
    return end - record(MUL, end - input, RuntimeScalar(1 - w) if type(weight) is RuntimeScalar else 1 - w)


@public(inplace=True)
def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinities replaced by numbers (0 and the extremes of the dtype by default)."""
    if not input.dtype.is_floating:
        return input.clone()
    limits = {
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
        "float32": float(np.finfo("f4").max),
        "float64": float(np.finfo("f8").max),
    }
    top = limits[input.dtype.name]
    out = where(input.isnan(), 0.0 if nan is None else float(nan), input)
    out = where(input == float("inf"), top if posinf is None else float(posinf), out)
    return where(input == float("-inf"), -top if neginf is None else float(neginf), out)
