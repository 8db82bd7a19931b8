"""lgamma and digamma of f64 in basic operations: Stirling's series from 10 on, recurrence below, reflection below 0."""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.passes.expand_math_base import Math
from treadle.passes.expand_math_log import log
from treadle.passes.expand_math_trig import sin, tan

__all__ = ["digamma", "lgamma"]

SHIFT = 10
# B(2k) / (2k (2k - 1)) and B(2k) / 2k.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_PSI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _rising(m: Math, x: Value) -> tuple[Value, Value]:
    """x (x + 1) ... (x + 9) and its derivative."""
    product, slope = x, m.const(1.0, x)
    for k in range(1, SHIFT):
        factor = m.plus(x, float(k))
        slope = m.fma(slope, factor, product)
        product = m.mul(product, factor)
    return product, slope


def _whole(m: Math, x: Value) -> Value:
    return m.eq(m.floor(x), x)


def lgamma(m: Math, x: Value) -> Value:
    """Absolute error about 1e-14 near the zeros at 1 and 2."""
    a = m.abs(x)
    low = m.below(a, float(SHIFT))
    z = m.select(low, m.plus(a, float(SHIFT)), a)
    product, _ = _rising(m, m.at_most(a, float(SHIFT)))
    inverse = m.fdiv(m.const(1.0, x), z)
    series = m.mul(inverse, m.polynomial(m.mul(inverse, inverse), _STIRLING))
    main = m.fma(m.plus(z, -0.5), m.plus(log(m, z), -1.0), m.plus(series, 0.5 * math.log(2 * math.pi) - 0.5))
    positive = m.sub(main, m.pick(low, log(m, product), 0.0))
    near = m.sub(a, m.rint(a))
    sine = m.abs(sin(m, m.times(near, math.pi)))
    reflected = m.sub(log(m, m.fdiv(m.const(math.pi, x), m.mul(a, sine))), positive)
    negative = m.pick(_whole(m, x), math.inf, reflected)
    return m.pick(m.below(x, 0.0), negative, positive)


def digamma(m: Math, x: Value) -> Value:
    below = m.below(x, 0.0)
    a = m.select(below, m.sub(m.const(1.0, x), x), x)
    low = m.below(a, float(SHIFT))
    z = m.select(low, m.plus(a, float(SHIFT)), a)
    product, slope = _rising(m, m.at_most(a, float(SHIFT)))
    inverse = m.fdiv(m.const(1.0, x), z)
    square = m.mul(inverse, inverse)
    main = m.sub(m.fmac(inverse, -0.5, log(m, z)), m.mul(square, m.polynomial(square, _PSI)))
    positive = m.sub(main, m.pick(low, m.fdiv(slope, product), 0.0))
    near = m.sub(x, m.rint(x))
    reflected = m.sub(positive, m.fdiv(m.const(math.pi, x), tan(m, m.times(near, math.pi))))
    return m.select(below, m.pick(_whole(m, x), math.nan, reflected), positive)
