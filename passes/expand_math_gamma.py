"""lgamma and digamma in basic operations, in f64 (f32 is computed in f64: the zeros need the digits).

Arguments below 8 are brought into an interval of unit length by the recurrences, which there add terms of one sign;
above, the asymptotic series (Abramowitz & Stegun 6.1.41, 6.3.18). Negative arguments are reflected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from treadle.ir.core import Value
from treadle.ir.dtypes import float32, float64
from treadle.passes.expand_math_base import Math
from treadle.passes.expand_math_log import log

__all__ = ["digamma", "lgamma"]

# lgamma(2 + t) / t on -1/2..1/2, minimax.
_LGAMMA = (0.42278433509846713, 0.32246703342411326, -0.0673523010531956, 0.020580808427777212, -0.0073855510289379984,
           0.0028905103312116234, -0.0011927539009198187, 0.0005096695109526464, -0.00022315497869605542,
           9.945773301224303e-05, -4.492371703737425e-05, 2.0505141056736456e-05, -9.456338323783606e-06,
           4.386641541764142e-06, -1.9741879316874414e-06, 9.156252732374001e-07, -5.812507069492447e-07,
           2.8290754636414976e-07)  # fmt: skip
# digamma(x) / (x - zero) in x - 3/2 on 1..2, minimax, and its zero as high + low.
_DIGAMMA = (0.951055876031833, -0.4236274212814572, 0.24054248424076238, -0.1484049230548796, 0.09498872445650246,
            -0.061922133189208965, 0.04076083373247663, -0.026975800078059612, 0.017907254518698224,
            -0.011908145664342758, 0.007926913583653071, -0.005280911748401592, 0.003519288905207028,
            -0.002337499057107412, 0.0015550416728881303, -0.001077882869424872, 0.0007287347360342433,
            -0.00035436976110658595, 0.00021705008038847584, -0.00037872295647069064,
            0.00026783350721373584)  # fmt: skip
_ZERO = (1.4616321449683622, 9.549995429965697e-17)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# sin(pi x) / x in x**2 and cos(pi x) from sin: to 1/4, minimax.
_SIN_PI = (3.141592653589793, -5.16771278004997, 2.5501640398773455, -0.5992645293207869, 0.08214588661099369,
           -0.0073704309437037105, 0.00046630278747001637, -2.1915250344134687e-05, 7.948539939357833e-07,
           -2.228379233259951e-08)  # fmt: skip


def _in_double(rule: Callable[[Math, Value], Value]) -> Callable[..., Value]:
    def run(m: Math, x: Value) -> Value:
        return m.cast(rule(m, m.cast(x, float64)), float32) if x.dtype is float32 else rule(m, x)

    run.__name__ = rule.__name__
    return run


def _sin_pi(m: Math, f: Value) -> Value:
    """sin(pi f) for |f| <= 1/2."""
    return m.mul(f, m.polynomial(m.mul(f, f), _SIN_PI))


def _lgamma_positive(m: Math, x: Value) -> Value:
    one = m.const(1.0, x)
    # Up by one or two below 3/2, down by up to six above 5/2: y in 3/2..5/2.
    # t = y - 2 is kept apart: near 1, adding 1 would round.
    below, lowest = m.below(x, 1.5), m.below(x, 0.5)
    factors = m.select(lowest, m.mul(x, m.add(x, one)), m.select(below, x, one))
    t = m.select(lowest, x, m.select(below, m.sub(x, one), m.plus(x, -2.0)))
    y = x
    for limit in range(6):
        step = m.gt(x, m.const(2.5 + limit, x))
        y = m.select(step, m.sub(y, one), y)
        t = m.select(step, m.sub(t, one), t)
        factors = m.select(step, m.mul(factors, y), factors)
    large = m.above(x, 8.0)
    logarithm = log(m, m.select(large, x, factors))
    near = m.add(m.select(below, m.neg(logarithm), logarithm), m.mul(t, m.polynomial(t, _LGAMMA)))
    r = m.fdiv(one, x)
    series = [b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1)]
    tail = m.mul(r, m.polynomial(m.mul(r, r), series))
    far = m.fma(m.plus(x, -0.5), m.plus(logarithm, -1.0), m.plus(tail, math.log(2 * math.pi) / 2 - 0.5))
    return m.select(large, far, near)


@_in_double
def lgamma(m: Math, x: Value) -> Value:
    """log|Gamma|; for negative x = -a, log(pi / (a |sin(pi a)|)) - lgamma(a)."""
    a = m.abs(x)
    positive = _lgamma_positive(m, a)
    sine = m.abs(_sin_pi(m, m.sub(a, m.rint(a))))
    tiny = m.below(a, 2.0**-60)  # where the product underflows, and lgamma is -log(a)
    product = m.select(tiny, a, m.mul(m.times(a, 1 / math.pi), sine))
    reflected = m.sub(m.neg(log(m, product)), m.pick(tiny, m.const(0.0, x), positive))
    reflected = m.pick(m.equals(sine, 0.0), math.inf, reflected)
    y = m.select(m.below(x, 0.0), reflected, positive)
    return m.pick(m.equals(a, math.inf), math.inf, y)


def _digamma_positive(m: Math, x: Value) -> Value:
    one, zero = m.const(1.0, x), m.const(0.0, x)
    # The sum of 1 / (x - j) as a fraction; below 1 it is -1 / x. A huge x takes no part: it would overflow.
    below, large = m.below(x, 1.0), m.above(x, 8.0)
    y = m.select(below, m.add(x, one), x)
    top, bottom = m.pick(below, m.const(-1.0, x), 0.0), m.select(below, x, one)
    for limit in range(6):
        step = m.gt(x, m.const(2.0 + limit, x))
        y = m.select(step, m.sub(y, one), y)
        top = m.select(step, m.fma(top, y, bottom), top)
        bottom = m.select(step, m.mul(bottom, y), bottom)
    distance = m.plus(m.plus(y, -_ZERO[0]), -_ZERO[1])
    near = m.fma(distance, m.polynomial(m.plus(y, -1.5), _DIGAMMA), m.select(large, zero, m.fdiv(top, bottom)))
    r = m.fdiv(one, x)
    series = [-b / (2 * n) for n, b in enumerate(_BERNOULLI, 1)]
    square = m.mul(r, r)
    far = m.add(log(m, x), m.fma(square, m.polynomial(square, series), m.times(r, -0.5)))
    return m.select(large, far, near)


@_in_double
def digamma(m: Math, x: Value) -> Value:
    """For negative x = -a, digamma(a) + 1 / a + pi cot(pi a)."""
    a = m.abs(x)
    positive = _digamma_positive(m, a)
    f = m.sub(a, m.rint(a))
    # cos(pi f) = sin(pi (1/2 - |f|)), which is exact enough where it matters.
    ratio: Any = m.fdiv(_sin_pi(m, m.sub(m.const(0.5, f), m.abs(f))), m.abs(_sin_pi(m, f)))
    cot = m.copysign(m.times(ratio, math.pi), f)
    inverse = m.fdiv(m.const(1.0, x), a)
    reflected = m.select(m.below(a, 2.0**-60), inverse, m.add(m.add(inverse, cot), positive))
    y = m.select(m.below(x, 0.0), m.pick(m.equals(f, 0.0), math.nan, reflected), positive)
    return m.pick(m.equals(x, 0.0), m.copysign(m.const(math.inf, x), m.neg(x)), y)
