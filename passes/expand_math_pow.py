"""pow, fmod and nextafter in basic operations, floats and integers.

pow(x, y) = e**(y log|x|) with a logarithm of many more digits than the result: f32 in f64 arithmetic, f64 with sums of
two doubles (Dekker, 1971), so results that are exact come out exact in f32. C99's special cases by selects at the end.
"""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.ir.dtypes import float64, int16
from treadle.passes.expand_math_base import F32, F64, Math, format_of
from treadle.passes.expand_math_exp import exp_sum
from treadle.passes.expand_math_log import split

__all__ = ["fmod", "nextafter", "pow_"]

# (log((1 + s) / (1 - s)) / s - 2) / s**2 and (e**r - 1 - r) / r**2 to 2**-37.
_LOG_SHORT = (0.6666666564364027, 0.4000033563844265, 0.2853727801805506, 0.23582767163768956)
_EXP_SHORT = (0.5000000078325779, 0.1666666686165147, 0.041666268507496024, 0.008333264125898254,
              0.0013946176693256597, 0.00019918514638863366)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2 - 2 s**2 / 3) / s**4 in s**2.
_LOG_LONG = (0.3999999999999998, 0.28571428571445145, 0.22222222217527826, 0.18181818871389654, 0.15384556796806528,
             0.1333632030136045, 0.11674759504263924, 0.11989508178821788)  # fmt: skip
_LN2 = (0.6931471805601177, -1.7239444525614835e-13)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def _short_power(m: Math, x: Value, y: Value) -> Value:
    """x**y for x > 0 of f32, in f64."""
    f, k = split(m, x)
    f, k, y = (m.cast(v, float64) for v in (f, k, y))
    s = m.fdiv(f, m.plus(f, 2.0))
    z = m.mul(s, s)
    fraction = m.fma(m.mul(s, z), m.polynomial(z, _LOG_SHORT), m.add(s, s))
    exponent = m.mul(m.fmac(k, math.log(2), fraction), y)
    exponent = m.at_least(m.at_most(exponent, 90.0), -110.0)
    n, bits = m.nearest(exponent, 1 / math.log(2), F64.bias)
    r = m.fmac(n, -math.log(2), exponent)
    e = m.plus(m.fma(m.mul(r, r), m.polynomial(r, _EXP_SHORT), r), 1.0)
    return m.cast(m.mul(e, m.power_of_two(bits, F64)), F32.dtype)


def _long_log(m: Math, x: Value) -> tuple[Value, Value]:
    """log(x) for x > 0 of f64 as high + low, to about 2**-66 of its size."""
    f, k = split(m, x)
    # s = f / (2 + f), with 2 + f and the quotient in two parts.
    below, below_low = m.fast_two_sum(m.const(2.0, x), f)
    s = m.fdiv(f, below)
    rest = m.fma(m.neg(s), below_low, m.fma(m.neg(s), below, f))
    s_low = m.fdiv(rest, below)
    z, z_low = m.two_product(s, s)
    z_low = m.fma(m.add(s, s), s_low, z_low)
    # 2/3 + z Q(z), times z, times s.
    head, head_low = m.fast_two_sum(m.const(_TWO_THIRDS[0], x), m.mul(z, m.polynomial(z, _LOG_LONG)))
    head_low = m.plus(head_low, _TWO_THIRDS[1])
    p, p_low = m.two_product(head, z)
    p_low = m.add(p_low, m.fma(head, z_low, m.mul(head_low, z)))
    q, q_low = m.two_product(p, s)
    q_low = m.add(q_low, m.fma(p, s_low, m.mul(p_low, s)))
    high, low = m.fast_two_sum(m.add(s, s), q)
    low = m.add(low, m.add(q_low, m.add(s_low, s_low)))
    whole, error = m.two_sum(m.times(k, _LN2[0]), high)  # k has 11 bits, _LN2[0] 41: exact
    return m.fast_two_sum(whole, m.add(error, m.fmac(k, _LN2[1], low)))


def _long_power(m: Math, x: Value, y: Value) -> Value:
    """x**y for x > 0 of f64."""
    high, low = _long_log(m, x)
    p, p_low = m.two_product(y, high)
    p_low = m.fma(y, low, p_low)
    beyond = m.lt(m.const(1000.0, x), m.abs(p))  # where low parts may be infinite, and do not matter
    return exp_sum(m, p, m.pick(beyond, m.const(0.0, x), p_low))


def pow_(m: Math, x: Value, y: Value) -> Value:
    if not x.dtype.is_floating:
        return _integer_power(m, x, y)
    f = format_of(x)
    one, zero = m.const(1.0, x), m.const(0.0, x)
    a = m.abs(x)
    # |x| of 0 and inf are replaced by numbers with the same fate under a power that matters.
    ordinary = m.and_(m.above(a, 0.0), m.below(a, math.inf))
    inside = m.at_least(m.at_most(y, f.largest / 4), -f.largest / 4)
    power = _short_power if f is F32 else _long_power
    r = power(m, m.select(ordinary, a, one), inside)
    grows = m.xor(m.above(a, 1.0), m.below(y, 0.0))
    r = m.select(ordinary, r, m.pick(grows, m.const(math.inf, x), 0.0))
    whole = m.eq(m.rint(y), y)
    half = m.times(y, 0.5)
    odd = m.and_(whole, m.ne(m.rint(half), half))
    r = m.select(odd, m.copysign(r, x), r)
    r = m.pick(m.and_(m.and_(m.below(x, 0.0), m.below(a, math.inf)), m.not_(whole)), math.nan, r)
    r = m.pick(m.or_(m.isnan(x), m.isnan(y)), math.nan, r)
    r = m.select(m.and_(m.eq(a, one), m.equals(m.abs(y), math.inf)), one, r)
    return m.select(m.or_(m.eq(x, one), m.eq(y, zero)), one, r)


def _integer_power(m: Math, x: Value, y: Value) -> Value:
    """Square and multiply, modulo 2**bits; a negative exponent leaves 1 and -1 only."""
    dtype = x.dtype
    one, zero = m.const(1, x), m.const(0, x)
    result, base = one, x
    for bit in range(dtype.bits):
        mask = m.const(1 << bit if bit < dtype.bits - 1 or dtype.kind == "u" else -(1 << bit), x)
        result = m.select(m.ne(m.and_(y, mask), zero), m.mul(result, base), result)
        base = m.mul(base, base)
    if dtype.kind == "u":
        return result
    odd = m.ne(m.and_(y, one), zero)
    minus = m.const(-1, x)
    reciprocal = m.select(m.eq(x, minus), m.select(odd, minus, one), m.select(m.eq(x, one), one, zero))
    return m.select(m.lt(y, zero), reciprocal, result)


def fmod(m: Math, x: Value, y: Value) -> Value:
    """The remainder with the sign of x, exact. r - n y with n = rint(r / y) is exact for any n rounded to 53 bits, and
    shrinks |r / y| by 2**52 each time."""
    if format_of(x) is F32:
        r = _remainder(m, m.cast(m.abs(x), float64), m.cast(m.abs(y), float64), 6)
        r = m.cast(r, x.dtype)
    else:
        r = _scaled_remainder(m, m.abs(x), m.abs(y))
    r = m.select(m.lt(m.abs(x), m.abs(y)), m.abs(x), r)
    return m.copysign(r, x)


def _remainder(m: Math, r: Value, y: Value, steps: int) -> Value:
    for _ in range(steps):
        r = m.fma(m.neg(m.rint(m.fdiv(r, y))), y, r)
    return m.select(m.lt(r, m.const(0.0, r)), m.add(r, y), r)


def _scaled_remainder(m: Math, x: Value, y: Value) -> Value:
    """f64, where quotients reach 2**2098: first by y * 2**1400, then by y * 2**700, where these are less than x."""
    for parts in ((2.0**700, 2.0**700), (2.0**700,)):
        divisor = y
        for factor in parts:
            divisor = m.times(divisor, factor)
        x = m.select(m.lt(divisor, x), _remainder(m, x, divisor, 14), x)
    return _remainder(m, x, y, 14)


def nextafter(m: Math, x: Value, y: Value) -> Value:
    """Steps the bit pattern, whose order is that of magnitudes. In the format itself, also of 16 bits."""
    bits = m.bitcast(x, int16 if x.dtype.bits == 16 else format_of(x).integer)
    away = m.eq(m.gt(x, m.const(0.0, x)), m.gt(y, x))
    one = m.const(1, bits)
    stepped = m.bitcast(m.select(away, m.add(bits, one), m.sub(bits, one)), x.dtype)
    tiny = m.bitcast(one, x.dtype)
    r = m.select(m.eq(x, m.const(0.0, x)), m.copysign(tiny, y), stepped)
    r = m.select(m.eq(x, y), y, r)
    return m.pick(m.or_(m.isnan(x), m.isnan(y)), math.nan, r)
