"""Scalar functions of the loop level in NumPy, on scalars or on arrays of lanes, in the declared dtype.

bfloat16 is carried as float32 whose value is a bfloat16: every result is rounded. Integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ir.dtypes import DType, bfloat16, float32
from treadle.ir.scalar import PREDICATES, Scalar, ScalarBitcast, ScalarCast, ScalarConst

__all__ = ["bits_from_float32", "float32_from_bits", "round_bfloat16", "run_scalar", "inside"]


def bits_from_float32(a: Any) -> np.ndarray:
    """bfloat16 bit patterns (uint16) of float32 values, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    result = np.where((bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000), quiet, rounded)
    return result.reshape(np.shape(a))


def float32_from_bits(bits: Any) -> np.ndarray:
    """float32 values of bfloat16 bit patterns."""
    wide = np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def round_bfloat16(a: Any) -> np.ndarray:
    """The nearest bfloat16 values, as float32."""
    return float32_from_bits(bits_from_float32(a))


def inside(dtype: DType) -> np.dtype:
    """The NumPy dtype in which values of `dtype` are carried here."""
    return float32.numpy if dtype is bfloat16 else dtype.numpy


def run_scalar(operation: Any, dtypes: tuple[DType, ...], xs: list[Any]) -> Any:
    """The value of a scalar op on values of `dtypes`."""
    if isinstance(operation, Scalar):
        dtype = dtypes[-1]
        result = _TABLE[operation.fn](dtype, *xs)
        return result if operation.fn in PREDICATES or dtype is not bfloat16 else _scalar(round_bfloat16(result))
    if isinstance(operation, ScalarConst):
        return _constant(operation.value, operation.dtype)
    if isinstance(operation, ScalarCast):
        return convert(xs[0], dtypes[0], operation.dtype)
    assert isinstance(operation, ScalarBitcast), operation
    source = bits_from_float32(xs[0]) if dtypes[0] is bfloat16 else np.asarray(xs[0])
    bits = source.view(operation.dtype.numpy)
    return _scalar(float32_from_bits(bits) if operation.dtype is bfloat16 else bits)


def _scalar(a: Any) -> Any:
    """A 0-d array as a NumPy scalar, which is faster to compute with."""
    return a[()] if isinstance(a, np.ndarray) and a.ndim == 0 else a


def _constant(value: Any, dtype: DType) -> Any:
    if dtype.kind in "ui":
        return np.array(int(value) & ((1 << dtype.bits) - 1), np.uint64).astype(dtype.numpy)[()]
    if dtype is bfloat16:
        return round_bfloat16(np.float32(value))[()]
    return dtype.numpy.type(value)


def convert(x: Any, source: DType, target: DType) -> Any:
    """Conversion as `scalar.cast` defines it."""
    x = np.asarray(x)
    if target.kind == "b":
        return _scalar(x != 0)
    if target is bfloat16:
        return _scalar(round_bfloat16(x.astype(np.float32)))
    if source.is_floating and target.is_integral:
        info = np.iinfo(target.numpy)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=math.inf, neginf=-math.inf))
        # The bounds as floats may not be representable: compare first, convert what is inside only.
        low, high = wide <= float(info.min), wide >= float(info.max)
        middle = np.where(low | high, 0.0, wide).astype(target.numpy)
        return _scalar(np.where(low, info.min, np.where(high, info.max, middle)).astype(target.numpy))
    return _scalar(x.astype(target.numpy))


# Functions -----------------------------------------------------------------------------------------------------------


def _idiv(dtype: DType, a: Any, b: Any) -> Any:
    zero = b == 0
    safe = np.where(zero, 1, b).astype(dtype.numpy)
    if dtype.kind == "u":
        quotient = a // safe
    else:
        # Floor division corrected towards zero; INT_MIN / -1 wraps in NumPy as it must.
        quotient = np.floor_divide(a, safe)
        remainder = a - quotient * safe
        quotient = quotient + ((remainder != 0) & ((a < 0) != (safe < 0)))
    return _scalar(np.where(zero, 0, quotient).astype(dtype.numpy))


def _irem(dtype: DType, a: Any, b: Any) -> Any:
    return _scalar(np.asarray(a - _idiv(dtype, a, b) * b, dtype.numpy))


def _shift(left: bool, logical: bool) -> Callable[..., Any]:
    def run(dtype: DType, a: Any, b: Any) -> Any:
        bits = dtype.bits
        count = np.asarray(b).astype(np.int64)
        outside = (count < 0) | (count >= bits)
        safe = np.where(outside, 0, count)
        unsigned = np.dtype(f"u{dtype.itemsize}")
        x = np.asarray(a)
        if left:
            shifted = (x.view(unsigned) << safe.astype(unsigned)).view(dtype.numpy)
        elif logical:
            shifted = (x.view(unsigned) >> safe.astype(unsigned)).view(dtype.numpy)
        else:
            shifted = x >> safe.astype(dtype.numpy)
        fill = np.where(x < 0, -1, 0).astype(dtype.numpy) if not left and not logical and dtype.kind == "i" else 0
        return _scalar(np.where(outside, fill, shifted).astype(dtype.numpy))

    return run


def _mulhi(dtype: DType, a: Any, b: Any) -> Any:
    mask = (1 << dtype.bits) - 1
    high = [((int(x) & mask) * (int(y) & mask)) >> dtype.bits for x, y in np.nditer([a, b])]
    unsigned = np.array(high, np.dtype(f"u{dtype.itemsize}")).reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))
    return _scalar(unsigned.view(dtype.numpy))


def _fma(dtype: DType, a: Any, b: Any, c: Any) -> Any:
    if not dtype.is_floating:
        return a * b + c
    if dtype.bits < 64:  # the product is exact in float64
        wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
        return _scalar(wide.astype(inside(dtype)))
    return _fma_float64(*(np.asarray(x, np.float64) for x in (a, b, c)))


def _fma_float64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    """a * b + c with the rounding error of the product added back (error-free transformations)."""

    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = x * 134217729.0
        high = t - (t - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part)
    exact = total + (error + rest)
    return _scalar(np.where(np.isfinite(exact), exact, total))


def _select(dtype: DType, condition: Any, a: Any, b: Any) -> Any:
    if np.ndim(condition) == 0:
        return a if condition else b
    return np.where(condition, a, b)


def _nextafter(dtype: DType, a: Any, b: Any) -> Any:
    if dtype is not bfloat16:
        return np.nextafter(a, b)
    # The neighbour in bfloat16: step the bit pattern, whose order is that of the magnitudes.
    bits = bits_from_float32(a).astype(np.int32)
    away = (np.asarray(a) > 0) == (np.asarray(b) > np.asarray(a))
    step = float32_from_bits((bits + np.where(away, 1, -1)).astype(np.uint16))
    tiny = np.copysign(float32_from_bits(np.uint16(1)), b)
    result = np.where(a == b, b, np.where(np.asarray(a) == 0, tiny, step))
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), result).astype(np.float32)


def _sigmoid(dtype: DType, x: Any) -> Any:
    e = np.exp(-np.abs(x))
    one = inside(dtype).type(1)
    return _scalar(np.where(np.asarray(x) >= 0, one / (one + e), e / (one + e)))


def _pow(dtype: DType, a: Any, b: Any) -> Any:
    if dtype.is_floating:
        return np.power(a, b)
    negative = np.asarray(b) < 0
    raised = np.power(np.asarray(a), np.where(negative, 0, b).astype(dtype.numpy))
    reciprocal = np.where(np.asarray(a) == 1, 1, np.where(np.asarray(a) == -1, np.where(np.asarray(b) & 1, -1, 1), 0))
    return _scalar(np.where(negative, reciprocal, raised).astype(dtype.numpy))


def _each(fn: Callable[[float], float]) -> Callable[..., Any]:
    """A function of Python floats applied to every lane."""

    def run(dtype: DType, x: Any) -> Any:
        flat = [fn(float(v)) for v in np.ravel(x)]
        return _scalar(np.array(flat, np.float64).reshape(np.shape(x)).astype(inside(dtype)))

    return run


def _lgamma(x: float) -> float:
    if math.isnan(x):
        return x
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _digamma(x: float) -> float:
    """Reflection for negative x, recurrence up to 10, then the asymptotic series."""
    if x == 0:
        return math.copysign(math.inf, -x)
    if math.isinf(x) or math.isnan(x):
        return x if x > 0 else math.nan
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1.0))
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * (691 / 32760 - y / 12))))))
    return total + math.log(x) - 0.5 / x - series


def _erfinv(x: float) -> float:
    """Halley's iterations on erf from a logarithmic first guess."""
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    if x == 0:
        return x
    log = math.log((1 - x) * (1 + x))
    t = 2 / (math.pi * 0.147) + log / 2
    y = math.copysign(math.sqrt(math.sqrt(t * t - log / 0.147) - t), x)
    for _ in range(6):
        # Far out, erfc keeps the digits that 1 - erf loses.
        error = math.erf(y) - x if abs(y) < 1 else ((1 - abs(x)) - math.erfc(abs(y))) * math.copysign(1, x)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= step / (1 + y * step)
    return y


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dtype, *xs: fn(*xs)


_TABLE: dict[str, Callable[..., Any]] = {
    **{
        name: _plain(getattr(np, numpy_name))
        for name, numpy_name in {
            "add": "add", "sub": "subtract", "mul": "multiply", "fdiv": "divide", "frem": "fmod", "neg": "negative",
            "abs": "abs", "minimum": "minimum", "maximum": "maximum", "fmin": "fmin", "fmax": "fmax",
            "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "invert", "eq": "equal",
            "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
            "isnan": "isnan", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc",
            "copysign": "copysign", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
            "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin",
            "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
            "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
        }.items()
    },
    "idiv": _idiv, "irem": _irem, "fma": _fma, "shl": _shift(True, True), "shr": _shift(False, False),
    "lshr": _shift(False, True), "mulhi": _mulhi, "select": _select, "nextafter": _nextafter, "sigmoid": _sigmoid,
    "pow": _pow, "erf": _each(math.erf), "erfc": _each(math.erfc), "erfinv": _each(_erfinv), "lgamma": _each(_lgamma),
    "digamma": _each(_digamma),
}  # fmt: skip
