"""log, log2, log10, log1p, asinh, acosh, atanh in basic operations.

x = 2**k (1 + f) with 1 + f in sqrt(1/2)..sqrt(2). f32: log(1 + f) = f - f**2 / 2 + f**3 P(f) with a minimax P. f64:
with s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - (h - s (h + R(s**2))), h = f**2 / 2 (Muller, Elementary Functions,
ch. 11; the rearrangement keeps f exact).
"""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.passes.expand_math_base import F32, Math, format_of
from treadle.passes.expand_math_exp import constants

__all__ = ["acosh", "asinh", "atanh", "log", "log1p", "log2", "log10", "log_fraction", "split"]

_SINGLE = (0.33333316445350647, -0.25000810623168945, 0.2000228613615036, -0.16624554991722107, 0.14181193709373474,
           -0.13128747045993805, 0.12881632149219513, -0.0785960927605629)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2.
_DOUBLE = (0.6666666666666735, 0.39999999999413105, 0.2857142874277025, 0.22222198530773093, 0.18183566685788838,
           0.1531398637882134, 0.14796628314747348)  # fmt: skip
# 1 / ln 2, 1 / ln 10 and log10(2) as high + low; the last high part times an exponent is exact.
_LOG2E = {"f32": (1.4426950216293335, 1.925963033500011e-08), "f64": (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10E = {"f32": (0.4342944920063019, -1.0103049952192578e-08), "f64": (0.4342944819032518, 1.098319650216765e-17)}
_LOG10_2 = {"f32": (0.301025390625, 4.605039066518657e-06), "f64": (0.3010299956640665, -8.532344317057107e-14)}


def split(m: Math, x: Value) -> tuple[Value, Value]:
    """f and k (a float) of a positive finite x."""
    f = format_of(x)
    tiny = m.below(x, f.smallest_normal)
    grown = m.pick(tiny, m.times(x, 2.0 ** (f.mantissa + 2)), x)
    root = 0x3F3504F3 if f is F32 else 0x3FE6A09E667F3BCD
    bits = m.bits(grown)
    above = m.plus(bits, -root)
    significand = m.plus(m.and_(above, m.const((1 << f.mantissa) - 1, bits)), root)
    if f is F32:
        k = m.cast(m.shr(above, m.const(f.mantissa, bits)), f.dtype)
    else:  # few machines shift or convert vectors of signed 64-bit integers: biased, and by the bits of 2**52 + k
        biased = m.lshr(m.plus(above, f.bias << f.mantissa), m.const(f.mantissa, bits))
        k = m.plus(m.floating(m.or_(biased, m.const(0x4330000000000000, bits)), f), -(2.0**52 + f.bias))
    k = m.add(k, m.pick(tiny, m.const(-(f.mantissa + 2.0), x), 0.0))
    return m.plus(m.floating(significand, f), -1.0), k


def log_fraction(m: Math, f: Value) -> Value:
    """log(1 + f) - f."""
    square = m.mul(f, f)
    if format_of(f) is F32:
        return m.fmac(square, -0.5, m.mul(m.mul(square, f), m.polynomial(f, _SINGLE)))
    s = m.fdiv(f, m.plus(f, 2.0))
    z = m.mul(s, s)
    half = m.times(square, 0.5)
    return m.sub(m.mul(s, m.fma(z, m.polynomial(z, _DOUBLE), half)), half)


def mended(m: Math, x: Value, y: Value, at: float = 0.0) -> Value:
    """The logarithm's special values: x itself for inf and NaN, -inf at the pole, NaN below it."""
    y = m.pick(m.below(x, math.inf), y, x)
    y = m.pick(m.below(x, at), math.nan, y)
    return m.pick(m.equals(x, at), -math.inf, y)


def log(m: Math, x: Value) -> Value:
    f, k = split(m, x)
    c = constants(format_of(x))
    low = m.fmac(k, c.low, log_fraction(m, f))
    return mended(m, x, m.fmac(k, c.high, m.add(f, low)))


def _in_base(m: Math, x: Value, factor: tuple[float, float], exponent: tuple[float, float]) -> Value:
    """k * exponent + log(1 + f) * factor, with little more than one rounding."""
    f, k = split(m, x)
    high, low = m.fast_two_sum(f, log_fraction(m, f))
    product = m.times(high, factor[0])
    rest = m.fmac(high, factor[0], m.neg(product))
    rest = m.add(rest, m.fmac(high, factor[1], m.times(low, factor[0])))
    whole = m.times(k, exponent[0])
    total, error = m.two_sum(whole, product)
    return mended(m, x, m.add(total, m.add(error, m.fmac(k, exponent[1], rest))))


def log2(m: Math, x: Value) -> Value:
    return _in_base(m, x, _LOG2E[x.dtype.short], (1.0, 0.0))


def log10(m: Math, x: Value) -> Value:
    return _in_base(m, x, _LOG10E[x.dtype.short], _LOG10_2[x.dtype.short])


def log1p(m: Math, x: Value) -> Value:
    """log(u) + c / u with 1 + x = u + c exactly."""
    u, rest = m.two_sum(m.const(1.0, x), x)
    f, k = split(m, u)
    c = constants(format_of(x))
    low = m.fmac(k, c.low, m.add(log_fraction(m, f), m.fdiv(rest, u)))
    y = m.fmac(k, c.high, m.add(f, low))
    return m.pick(m.equals(x, 0.0), x, mended(m, x, y, -1.0))


def _far(m: Math, x: Value) -> Value:
    """Is x so large that log(2 x) is all there is?"""
    return m.above(x, 2.0**60 if format_of(x) is F32 else 2.0**500)


def asinh(m: Math, x: Value) -> Value:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|."""
    a = m.abs(x)
    far = _far(m, a)
    square = m.mul(a, a)
    root = m.plus(m.sqrt(m.plus(square, 1.0)), 1.0)
    y = log1p(m, m.pick(far, a, m.add(a, m.fdiv(square, root))))
    return m.copysign(m.add(y, m.pick(far, m.const(math.log(2), x), 0.0)), x)


def acosh(m: Math, x: Value) -> Value:
    """log1p(t + sqrt(2 t + t**2)) with t = x - 1."""
    far = _far(m, x)
    t = m.plus(x, -1.0)
    y = log1p(m, m.pick(far, x, m.add(t, m.sqrt(m.mul(t, m.plus(t, 2.0))))))
    return m.pick(m.below(x, 1.0), math.nan, m.add(y, m.pick(far, m.const(math.log(2), x), 0.0)))


def atanh(m: Math, x: Value) -> Value:
    """log1p(2 a / (1 - a)) / 2 with a = |x|."""
    a = m.abs(x)
    t = m.fdiv(m.add(a, a), m.sub(m.const(1.0, x), a))
    return m.copysign(m.times(log1p(m, t), 0.5), x)
