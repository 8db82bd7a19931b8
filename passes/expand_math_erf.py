"""erf, erfc, erfinv in basic operations.

erf is a polynomial near zero. erfc(x) e**(x**2) (1 + 2x) is smooth enough on all of x >= 1/2 for one polynomial in
(x - 4) / (x + 4) (Shepherd & Laframboise 1981); the coefficients are minimax (Remez).
"""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.ir.dtypes import float32
from treadle.passes.expand_math_base import Math
from treadle.passes.expand_math_exp import exp, exp_sum
from treadle.passes.expand_math_log import log

__all__ = ["erf", "erfc", "erfinv"]

# erf(x) / x - 1 in x**2 on 0..1, and erf(2.5 + 1.5 t) on -1..1.
_NEAR32 = (0.12837916612625122, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923, 0.005189535673707724,
           -0.0008020845125429332, 7.889132393756881e-05)  # fmt: skip
_FAR32 = (0.9995930194854736, 0.0032672833185642958, -0.012252772226929665, 0.028187040239572525,
          -0.04365234822034836, 0.046392519026994705, -0.03186354041099548, 0.009569224901497364,
          0.006624544970691204, -0.010395015589892864, 0.004685712046921253, 0.0015294284094125032,
          -0.002045871689915657, 9.912571840686724e-05, 0.0002616169804241508)  # fmt: skip
_NEAR64 = (0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787, 0.0052239776248283985,
           -0.0008548326981424113, 0.00012055331132916607, -1.4925595771510586e-05, 1.6461008470897275e-06,
           -1.6350396185651638e-07, 1.4660328685329812e-08, -1.1374956310600045e-09,
           5.960687365487138e-11)  # fmt: skip
_COMPLEMENT = (1.2329951186255526, -0.1396211168405625, 0.015379652102618931, 0.06809705425469023,
               -0.10103906603624739, 0.0937328349984565, -0.0663303658137679, 0.03716751553531945,
               -0.016197734036233823, 0.005031970002417774, -0.0007577734632315897, -0.00019925686409354677,
               0.000150622557910444, -2.4398452625363072e-05, -1.1224898412941136e-05, 5.70745890111393e-06,
               2.99821723810897e-07, -8.209400269865228e-07, 6.67940453986237e-08, 1.0443895173239317e-07,
               -1.2138911692907327e-08, -1.0068519796020983e-08)  # fmt: skip


def _near(m: Math, x: Value) -> Value:
    return m.fma(x, m.polynomial(m.mul(x, x), _NEAR32 if x.dtype is float32 else _NEAR64), x)


def _complement(m: Math, a: Value) -> Value:
    """erfc(a) of a f64 from 1/2 on."""
    a = m.at_most(a, 28.0)
    t = m.fdiv(m.plus(a, -4.0), m.plus(a, 4.0))
    square, low = m.two_product(a, a)
    factor = m.fdiv(m.polynomial(t, _COMPLEMENT), m.fmac(a, 2.0, 1.0))
    return m.mul(exp_sum(m, m.neg(square), m.neg(low)), factor)


def erf(m: Math, x: Value) -> Value:
    a = m.abs(x)
    if x.dtype is float32:
        far = m.polynomial(m.fmac(m.at_most(a, 4.0), 1 / 1.5, -2.5 / 1.5), _FAR32)
    else:
        far = m.sub(m.const(1.0, x), _complement(m, a))
    return m.pick(m.above(a, 1.0), m.copysign(far, x), _near(m, x))


def erfc(m: Math, x: Value) -> Value:
    a = m.abs(x)
    far = _complement(m, a)
    far = m.pick(m.below(x, 0.0), m.sub(m.const(2.0, x), far), far)
    return m.pick(m.below(a, 0.5), m.sub(m.const(1.0, x), _near(m, x)), far)


def erfinv(m: Math, x: Value) -> Value:
    """Winitzki's logarithmic approximation, then two of Halley's iterations, on erf or, far out, on erfc."""
    a = m.abs(x)
    rest = m.sub(m.const(1.0, x), a)
    logarithm = log(m, m.mul(rest, m.plus(a, 1.0)))
    t = m.fmac(logarithm, 0.5, 2 / (math.pi * 0.147))
    inner = m.sub(m.sqrt(m.sub(m.mul(t, t), m.times(logarithm, 1 / 0.147))), t)
    y = m.sqrt(m.at_least(inner, 0.0))
    central = m.below(a, 0.5)
    for _ in range(2):
        error = m.select(central, m.sub(_near(m, y), a), m.sub(rest, _complement(m, y)))
        step = m.mul(error, m.times(exp(m, m.mul(y, y)), math.sqrt(math.pi) / 2))
        y = m.sub(y, m.fdiv(step, m.fma(y, step, m.const(1.0, x))))
    y = m.pick(m.below(a, 1e-9), m.times(a, math.sqrt(math.pi) / 2), y)
    y = m.pick(m.equals(a, 1.0), math.inf, y)
    return m.copysign(m.pick(m.above(a, 1.0), math.nan, y), x)
