"""erf, erfc and erfinv in basic operations.

Near zero erf is an odd polynomial. Further out erfc(x) = e**(-x**2) G(t) / (1 + 2 x) with the square kept in two parts
and t = (x - K) / (x + K), in which G is smooth on the whole range (Shepherd & Laframboise, 1981). erfinv is a
polynomial in w = -log(1 - x**2), in its root for the tails (the variables of M. Giles, Approximating the erfinv
function, 2010); f64 adds one step of Halley's. All coefficients are minimax (Remez).
"""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.passes.expand_math_base import F32, Math, format_of
from treadle.passes.expand_math_exp import exp, exp_sum
from treadle.passes.expand_math_log import log

__all__ = ["erf", "erfc", "erfinv"]

# erf(x) / x - 1 in x**2, to 1: further out the terms alternate, and their rounding shows.
_NEAR = {
    "f32": (0.12837916612625122, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923, 0.005189535673707724,
            -0.0008020845125429332, 7.889132393756881e-05),
    "f64": (0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787, 0.0052239776248283985,
            -0.0008548326981424113, 0.00012055331132916607, -1.4925595771510586e-05, 1.6461008470897275e-06,
            -1.6350396185651638e-07, 1.4660328685329812e-08, -1.1374956310600045e-09, 5.960687365487138e-11),
}  # fmt: skip
# erf(2.5 + 1.5 t) on -1..1.
_FAR = (0.9995930194854736, 0.0032672833185642958, -0.012252772226929665, 0.028187040239572525, -0.04365234822034836,
        0.046392519026994705, -0.03186354041099548, 0.009569224901497364, 0.006624544970691204, -0.010395015589892864,
        0.004685712046921253, 0.0015294284094125032, -0.002045871689915657, 9.912571840686724e-05,
        0.0002616169804241508)  # fmt: skip
# e**(x**2) erfc(x) (1 + 2 x) in (x - K) / (x + K), from 1/2 on; K is 3 (f64) and 2 (f32).
_TAIL = {
    "f32": (1.2769783735275269, -0.09276376664638519, -0.1660308539867401, 0.16404889523983002, -0.05421074479818344,
            -0.008007221855223179, 0.008656613528728485, 0.0011525038862600923, -0.0012616741005331278,
            -0.00023340381449088454),
    "f64": (1.2530080582697296, -0.1356211061245813, -0.04756229435344994, 0.12964515870277962, -0.11927366341536497,
            0.06830802734321545, -0.02377051491703714, 0.002529391830151951, 0.001888690334180751,
            -0.0007798324151877129, -0.00010515956375619293, 0.00012510022506868405, 4.948070405908452e-06,
            -2.010388865450912e-05, -7.26034339984074e-07, 3.4802996633964378e-06, 3.43165111113986e-07,
            -6.278034818032379e-07, -1.2020427884712131e-07, 1.0996292770621535e-07, 2.2356591788538078e-08,
            -1.473829187088008e-08),
}  # fmt: skip
# erfinv(x) / x in w - 5/2 up to w = 5, and in sqrt(w) - c from there on.
_INVERSE = (1.5014094114303589, 0.24664072692394257, -0.004177707713097334, -0.0012537078000605106,
            0.00021860220294911414, -4.396722033561673e-06, -3.5288737763039535e-06, 3.4372243362668087e-07,
            2.8536550900071234e-08)  # fmt: skip
_INVERSE_TAIL = {
    "f32": (3.2, (3.0336363315582275, 1.0046895742416382, 0.005979175213724375, -0.004253528080880642,
                  0.002911926247179508, -0.002147332299500704, 0.0011747837997972965, -0.00014348661352414638,
                  -0.00012162885104771703)),
    "f64": (4.0, (3.839784167073357, 1.009502700401503, 0.0012558504584504985, -0.0009188667673639339,
                  0.0003323456692362746, -4.5169244235031593e-05, 3.780403714380618e-05, -7.39818157232403e-05,
                  3.237082255739286e-05, -4.888266780323734e-07, -1.3726382460472558e-06)),
}  # fmt: skip


def _near(m: Math, x: Value) -> Value:
    return m.fma(x, m.polynomial(m.mul(x, x), _NEAR[x.dtype.short]), x)


def _tail(m: Math, a: Value) -> Value:
    """erfc(a) for a of at least 1/2."""
    single = format_of(a) is F32
    k = 2.0 if single else 3.0
    a = m.at_most(a, 10.2 if single else 27.5)
    square, low = m.two_product(a, m.neg(a))
    t = m.fdiv(m.plus(a, -k), m.plus(a, k))
    g = m.fdiv(m.polynomial(t, _TAIL[a.dtype.short]), m.fmac(a, 2.0, 1.0))
    return m.mul(exp_sum(m, square, low), g)


def erf(m: Math, x: Value) -> Value:
    a = m.abs(x)
    if format_of(x) is F32:
        far = m.polynomial(m.fmac(m.at_most(a, 4.0), 1 / 1.5, -2.5 / 1.5), _FAR)
    else:
        far = m.sub(m.const(1.0, x), _tail(m, a))
    return m.pick(m.above(a, 1.0), m.copysign(far, x), _near(m, x))


def erfc(m: Math, x: Value) -> Value:
    a = m.abs(x)
    tail = _tail(m, m.at_least(a, 0.5))
    tail = m.pick(m.below(x, 0.0), m.sub(m.const(2.0, x), tail), tail)
    return m.pick(m.above(a, 0.5), tail, m.sub(m.const(1.0, x), _near(m, x)))


def erfinv(m: Math, x: Value) -> Value:
    w = m.neg(log(m, m.mul(m.sub(m.const(1.0, x), x), m.plus(x, 1.0))))
    center, tail = _INVERSE_TAIL[x.dtype.short]
    near = m.polynomial(m.plus(m.at_most(w, 5.0), -2.5), _INVERSE)
    far = m.polynomial(m.plus(m.sqrt(m.at_most(w, 40.0)), -center), tail)
    y = m.mul(m.pick(m.above(w, 5.0), far, near), x)
    if format_of(x) is not F32:
        y = _halley(m, x, y)
    return m.pick(m.equals(m.abs(x), 1.0), m.copysign(m.const(math.inf, x), x), y)


def _halley(m: Math, x: Value, y: Value) -> Value:
    """One step towards erf(y) = x: three times the digits. Far out, erfc keeps the digits that 1 - erf loses."""
    a, b = m.abs(x), m.abs(y)
    inner = m.sub(_near(m, b), a)
    outer = m.sub(m.sub(m.const(1.0, x), a), _tail(m, m.at_least(b, 0.5)))
    error = m.pick(m.above(b, 0.5), outer, inner)
    slope = m.times(exp(m, m.neg(m.mul(b, b))), 2 / math.sqrt(math.pi))
    step = m.fdiv(error, slope)
    return m.copysign(m.sub(b, m.fdiv(step, m.fma(b, step, m.const(1.0, x)))), x)
