"""sin, cos, tan and their inverses in basic operations.

Reduction by multiples of pi / 2 in the manner of Cody & Waite, with fused multiply-add: exact to below an ulp while the
multiple fits 2**51 (f32: reduced in f64; f64: pi / 2 in three parts). Beyond that the reduced argument is only bounded.
The inverses use polynomials on a reduced range and the usual identities (Muller, Elementary Functions, ch. 11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.ir.core import Value
from treadle.ir.dtypes import float64, int32
from treadle.passes.expand_math_base import F32, Math, format_of

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

# (sin(x) / x - 1) / x**2 and (cos(x) - 1 + x**2 / 2) / x**4 in x**2 on 0..(pi / 4)**2.
_SIN = {
    "f32": (-0.16666655242443085, 0.008332177996635437, -0.00019517273176461458),
    "f64": (-0.16666666666666632, 0.00833333333332242, -0.0001984126982981324, 2.755731369389163e-06,
            -2.505075843700848e-08, 1.58968149880155e-10),
}  # fmt: skip
_COS = {
    "f32": (0.04166664555668831, -0.001388736767694354, 2.4438422769890167e-05),
    "f64": (0.0416666666666666, -0.0013888888888874133, 2.4801587289488107e-05, -2.755731435411253e-07,
            2.087572352414915e-09, -1.1359661243029824e-11),
}  # fmt: skip
# (asin(x) / x - 1) / x**2 in x**2 on 0..1/4.
_ASIN = {
    "f32": (0.16666659712791443, 0.07500510662794113, 0.04451572149991989, 0.03181761875748634, 0.014402572065591812,
            0.037565261125564575),
    "f64": (0.16666666666666763, 0.07499999999970268, 0.044642857175115555, 0.030381942683846183, 0.02237221565430579,
            0.01735160019347333, 0.013980960291699806, 0.011397785062879534, 0.010786480285034405,
            0.003683218828530331, 0.021763085680645597, -0.021076729523524806, 0.03267655108167376),
}  # fmt: skip
# (atan(x) / x - 1) / x**2 in x**2: to 1 in f32, to (sqrt(2) - 1)**2 in f64.
_ATAN = {
    "f32": (-0.33333301544189453, 0.19998638331890106, -0.1426524519920349, 0.10957574099302292, -0.08419456332921982,
            0.05823454260826111, -0.03145572170615196, 0.011064461432397366, -0.0018272192683070898),
    "f64": (-0.33333333333333326, 0.1999999999999767, -0.14285714285388063, 0.11111111088180593, -0.09090908144611733,
            0.07692282760217727, -0.06666226776388642, 0.05877021950750075, -0.0521840517735674, 0.045035518918390936,
            -0.03347449766968673, 0.015195178072232265),
}  # fmt: skip
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
# pi / 2 as high + low.
_HALF_PI_PARTS = {"f32": (1.5707963705062866, -4.371138828673793e-08), "f64": _HALF_PI[:2]}


@dataclass(frozen=True)
class _Reduced:
    """x = n pi / 2 + r + low (no `low` in f32); `quadrant`: an integer whose low bits are those of n + shift."""

    r: Value
    low: Value | None
    quadrant: Value


def _reduce(m: Math, x: Value, shift: int) -> _Reduced:
    if format_of(x) is F32:
        d = m.cast(x, float64)
        n, bits = m.nearest(d, 2 / math.pi, shift)
        wide = m.fmac(n, -_HALF_PI[1], m.fmac(n, -_HALF_PI[0], d))
        return _Reduced(_bounded(m, m.cast(wide, x.dtype)), None, m.cast(bits, int32))
    n, bits = m.nearest(x, 2 / math.pi, shift)
    first = m.fmac(n, -_HALF_PI[0], x)  # exact
    product = m.times(n, -_HALF_PI[1])
    error = m.fmac(n, -_HALF_PI[1], m.neg(product))
    r, low = m.two_sum(first, product)
    low = m.add(low, m.fmac(n, -_HALF_PI[2], error))
    return _Reduced(_bounded(m, r), _bounded(m, low, 2.0**-40), bits)


def _bounded(m: Math, r: Value, limit: float = 0.8) -> Value:
    """Keeps polynomials from running away where the reduction has no digits left."""
    return m.at_least(m.at_most(r, limit), -limit)


def _sin(m: Math, a: _Reduced) -> Value:
    u = m.mul(a.r, a.r)
    p = m.mul(u, m.polynomial(u, _SIN[u.dtype.short]))
    return m.fma(p, a.r, a.r) if a.low is None else m.add(m.fma(p, a.r, a.low), a.r)


def _cos(m: Math, a: _Reduced) -> Value:
    u = m.mul(a.r, a.r)
    p = m.mul(u, m.polynomial(u, _COS[u.dtype.short]))
    if a.low is None:
        return m.fma(p, u, m.fmac(u, -0.5, 1.0))
    half = m.times(u, 0.5)
    top = m.sub(m.const(1.0, u), half)
    rest = m.sub(m.sub(m.const(1.0, u), top), half)
    return m.add(top, m.fma(p, u, m.fma(m.neg(a.r), a.low, rest)))


def _wave(m: Math, x: Value, shift: int) -> Value:
    """sin(x + shift * pi / 2)."""
    f = format_of(x)
    a = _reduce(m, x, shift)
    q = a.quadrant
    odd = m.ne(m.and_(q, m.const(1, q)), m.const(0, q))
    value = m.select(odd, _cos(m, a), _sin(m, a))
    sign = m.shl(m.and_(q, m.const(2, q)), m.const(f.dtype.bits - 2, q))
    return m.floating(m.xor(m.bits(value), sign), f)


def sin(m: Math, x: Value) -> Value:
    return _wave(m, x, 0)


def cos(m: Math, x: Value) -> Value:
    return _wave(m, x, 1)


def tan(m: Math, x: Value) -> Value:
    """sin / cos in even quadrants, -cos / sin in odd ones."""
    a = _reduce(m, x, 0)
    q = a.quadrant
    odd = m.ne(m.and_(q, m.const(1, q)), m.const(0, q))
    s, c = _sin(m, a), _cos(m, a)
    return m.fdiv(m.select(odd, m.neg(c), s), m.select(odd, s, c))


# ---- inverses ----------------------------------------------------------------------------------------------------


def _plus_parts(m: Math, parts: Sequence[float], y: Value) -> Value:
    """high + low + y, for |y| up to high."""
    return m.plus(m.plus(y, parts[1]), parts[0])


def _asin_parts(m: Math, x: Value) -> tuple[Value, Value, Value]:
    """(a > 1/2, s, t) with asin(a) = s + t for small a = |x|, and pi / 2 - 2 (s + t) for large."""
    a = m.abs(x)
    large = m.above(a, 0.5)
    z = m.select(large, m.fmac(a, -0.5, 0.5), m.mul(a, a))
    s = m.select(large, m.sqrt(z), a)
    return large, s, m.mul(m.mul(s, z), m.polynomial(z, _ASIN[x.dtype.short]))


def asin(m: Math, x: Value) -> Value:
    high, low = _HALF_PI_PARTS[x.dtype.short]
    large, s, t = _asin_parts(m, x)
    far = m.plus(m.fmac(s, -2.0, m.fmac(t, -2.0, low)), high)
    return m.copysign(m.select(large, far, m.add(s, t)), x)


def acos(m: Math, x: Value) -> Value:
    high, low = _HALF_PI_PARTS[x.dtype.short]
    large, s, t = _asin_parts(m, x)
    negative = m.below(x, 0.0)
    around = m.add(s, t)
    outer = m.select(negative, _plus_parts(m, (2 * high, 2 * low), m.times(around, -2.0)), m.add(around, around))
    signed = m.copysign(t, x)
    inner = m.sub(m.const(high, x), m.sub(x, m.sub(m.const(low, x), signed)))
    return m.select(large, outer, inner)


def _atan_fraction(m: Math, top: Value, bottom: Value) -> Value:
    """atan(top / bottom) for 0 <= top <= bottom."""
    if format_of(top) is F32:
        q = m.fdiv(top, bottom)
        u = m.mul(q, q)
        return m.fma(m.mul(u, q), m.polynomial(u, _ATAN["f32"]), q)
    far = m.gt(top, m.times(bottom, math.sqrt(2) - 1))
    q = m.fdiv(m.select(far, m.sub(top, bottom), top), m.select(far, m.add(top, bottom), bottom))
    u = m.mul(q, q)
    bend = m.mul(m.mul(u, q), m.polynomial(u, _ATAN["f64"]))
    high, low = (v / 2 for v in _HALF_PI_PARTS["f64"])
    return m.add(m.add(m.add(bend, m.pick(far, m.const(low, q), 0.0)), q), m.pick(far, m.const(high, q), 0.0))


def atan(m: Math, x: Value) -> Value:
    a, one = m.abs(x), m.const(1.0, x)
    steep = m.above(a, 1.0)
    r = _atan_fraction(m, m.select(steep, one, a), m.select(steep, a, one))
    return m.copysign(m.select(steep, _plus_parts(m, _HALF_PI_PARTS[x.dtype.short], m.neg(r)), r), x)


def atan2(m: Math, y: Value, x: Value) -> Value:
    """The angle of the point (x, y): atan of the smaller over the larger, then by octant; C99's special cases."""
    f = format_of(x)
    scale = m.pick(m.above(m.maximum(m.abs(x), m.abs(y)), f.largest / 4), m.const(0.25, x), 1.0)
    ax, ay = m.mul(m.abs(x), scale), m.mul(m.abs(y), scale)
    steep = m.gt(ay, ax)
    top, bottom = m.select(steep, ax, ay), m.select(steep, ay, ax)
    # Both infinite count as equal, both zero as 0 / 1.
    infinite, zero = m.equals(top, math.inf), m.equals(bottom, 0.0)
    top, bottom = m.pick(infinite, m.const(1.0, x), top), m.pick(m.or_(infinite, zero), m.const(1.0, x), bottom)
    r = _atan_fraction(m, top, bottom)
    high, low = _HALF_PI_PARTS[x.dtype.short]
    r = m.select(steep, _plus_parts(m, (high, low), m.neg(r)), r)
    r = m.select(m.is_negative(x), _plus_parts(m, (2 * high, 2 * low), m.neg(r)), r)
    r = m.pick(m.or_(m.isnan(x), m.isnan(y)), math.nan, r)
    return m.copysign(r, y)
