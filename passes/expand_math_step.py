"""nextafter and frem in basic operations."""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.ir.dtypes import float32, float64, int16, int32, int64
from treadle.passes.expand_math_base import Math

__all__ = ["frem", "nextafter"]


def nextafter(m: Math, x: Value, y: Value) -> Value:
    """A step of the bit pattern, whose order is that of the magnitudes."""
    dtype = x.dtype
    integer = {16: int16, 32: int32, 64: int64}[dtype.bits]
    zero = m.const(0.0, x)
    bits = m.bitcast(x, integer)
    away = m.eq(m.gt(x, zero), m.gt(y, x))
    step = m.select(away, m.const(1, bits), m.const(-1, bits))
    tiny = m.copysign(m.bitcast(m.const(1, integer), dtype), y)
    moved = m.select(m.eq(x, zero), tiny, m.bitcast(m.add(bits, step), dtype))
    moved = m.select(m.eq(x, y), y, moved)
    return m.pick(m.or_(m.isnan(x), m.isnan(y)), math.nan, moved)


def frem(m: Math, x: Value, y: Value) -> Value:
    """x - trunc(x / y) y, exactly. Each step subtracts, by fma and without error, a multiple of y that leaves less than
    2**-52 of the quotient: six steps do for every pair of f32 (in f64), eight for quotients below 2**400 in f64."""
    single = x.dtype is float32
    a, b = (m.abs(m.cast(v, float64)) for v in (x, y))
    r = a
    for _ in range(6 if single else 8):
        r = m.fma(m.neg(m.trunc(m.fdiv(r, b))), b, r)
    r = m.pick(m.below(r, 0.0), m.add(r, b), r)
    r = m.select(m.and_(m.equals(b, math.inf), m.below(a, math.inf)), a, r)
    return m.copysign(m.cast(r, x.dtype), x)
