"""exp, exp2, expm1, sigmoid, tanh, sinh, cosh in basic operations.

Method: Cody & Waite, Software Manual for the Elementary Functions (1980), ch. 6: x = n ln2 + r with ln2 in two parts,
a minimax polynomial (Remez) on |r| <= ln2 / 2, then scaling by 2**n in two factors: subnormal results round once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from treadle.ir.core import Value
from treadle.passes.expand_math_base import F32, Format, Math, format_of

__all__ = ["constants", "cosh", "exp", "exp2", "exp_sum", "expm1", "sigmoid", "sinh", "tanh"]


@dataclass(frozen=True)
class _Constants:
    """ln2 = high + low; `series`: (e**r - 1 - r) / r**2; exp saturates outside lowest..highest."""

    high: float
    low: float
    series: tuple[float, ...]
    lowest: float
    highest: float


_SINGLE = _Constants(
    0.693145751953125,
    1.42860682030941723212e-6,
    (0.5, 0.166665181517601, 0.04166620597243309, 0.008368953131139278, 0.0013950596330687404),
    -104.0,
    89.0,
)
_DOUBLE = _Constants(
    0.6931471803691238,
    1.9082149292705877e-10,
    (0.5000000000000013, 0.166666666666667, 0.04166666666651432, 0.00833333333330703, 0.0013888888947331977,
     0.00019841269917770594, 2.4801489589754594e-05, 2.7557215948254373e-06, 2.763141408414928e-07,
     2.5117974886990544e-08),
    -746.0,
    710.0,
)  # fmt: skip
LOG2E = 1 / math.log(2)
# (tanh(x) / x - 1) / x**2 in x**2 on 0..0.6.
_TANH = (-0.33333298563957214, 0.13331958651542664, -0.053786683827638626, 0.02080538123846054, -0.005905862897634506)


def constants(f: Format) -> _Constants:
    """ln2 in two parts and the series of exp."""
    return _SINGLE if f is F32 else _DOUBLE


def _less_one(m: Math, r: Value) -> Value:
    """e**r - 1 for |r| <= ln2 / 2."""
    return m.fma(m.mul(r, r), m.polynomial(r, constants(format_of(r)).series), r)


def _reduced(m: Math, x: Value, bias: int) -> tuple[Value, Value]:
    """e**r - 1 and the integer n + bias (in low bits) of x = n ln2 + r."""
    k = constants(format_of(x))
    n, bits = m.nearest(x, LOG2E, bias)
    return _less_one(m, m.fmac(n, -k.low, m.fmac(n, -k.high, x))), bits


def exp(m: Math, x: Value) -> Value:
    f = format_of(x)
    k = constants(f)
    p, bits = _reduced(m, m.at_least(m.at_most(x, k.highest), k.lowest), 2 * f.bias)
    return m.scaled(m.plus(p, 1.0), bits)


def exp_sum(m: Math, x: Value, low: Value) -> Value:
    """e**(x + low) for |low| of the order of an ulp of x, within little more than half an ulp."""
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, k.highest), k.lowest)
    n, bits = m.nearest(x, LOG2E, 2 * f.bias)
    head = m.fmac(n, -k.high, x)  # exact
    r, rest = m.fast_two_sum(head, m.fmac(n, -k.low, low))
    high, tail = m.fast_two_sum(m.const(1.0, x), r)
    tail = m.add(m.add(tail, rest), m.mul(m.mul(r, r), m.polynomial(r, k.series)))
    return m.scaled(m.add(high, tail), bits)


def exp2(m: Math, x: Value) -> Value:
    """2**n * e**(ln2 (x - n)); the difference is exact."""
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, f.bias + 1.0), -f.bias - f.mantissa - 1.0)
    n, bits = m.nearest(x, 1.0, 2 * f.bias)
    d = m.sub(x, n)
    p = _less_one(m, m.fmac(d, k.high, m.times(d, k.low)))
    return m.scaled(m.plus(p, 1.0), bits)


def expm1(m: Math, x: Value) -> Value:
    """2**n (e**r - 1) + (2**n - 1), of which half is computed: 2**n may overflow where the result does not."""
    f = format_of(x)
    k = constants(f)
    near = m.at_least(m.at_most(x, k.highest), -float(f.mantissa + 3))
    p, bits = _reduced(m, near, f.bias - 1)
    scale = m.power_of_two(bits, f)
    half = m.fma(p, scale, m.plus(scale, -0.5))
    return m.pick(m.below(m.abs(x), f.epsilon / 4), x, m.add(half, half))


def sigmoid(m: Math, x: Value) -> Value:
    """e = e**-|x| neither overflows nor loses the small results; q = e / (1 + e), then 1 - q or e - e q."""
    e = exp(m, m.neg(m.abs(x)))
    q = m.fdiv(e, m.plus(e, 1.0))
    top = m.pick(m.below(x, 0.0), e, 1.0)
    return m.fma(m.neg(top), q, top)


def tanh(m: Math, x: Value) -> Value:
    """An odd polynomial near zero and 1 - 2 / (e**2x + 1) (f32); expm1(2x) / (expm1(2x) + 2) (f64)."""
    f = format_of(x)
    a = m.abs(x)
    doubled = m.at_most(m.add(a, a), 20.0 if f is F32 else 40.0)
    p, bits = _reduced(m, doubled, f.bias)
    scale = m.power_of_two(bits, f)
    if f is not F32:
        e = m.fma(p, scale, m.plus(scale, -1.0))
        return m.copysign(m.fdiv(e, m.plus(e, 2.0)), x)
    far = m.sub(m.const(1.0, x), m.fdiv(m.const(2.0, x), m.fma(p, scale, m.plus(scale, 1.0))))
    square = m.mul(x, x)
    near = m.fma(m.mul(square, a), m.polynomial(square, _TANH), a)
    return m.copysign(m.pick(m.below(a, 0.6), near, far), x)


def sinh(m: Math, x: Value) -> Value:
    """(E + E / (E + 1)) / 2 with E = expm1|x|; far out, e**(|x| - ln2)."""
    k = constants(format_of(x))
    a = m.abs(x)
    e = expm1(m, m.at_most(a, 30.0))
    near = m.times(m.add(e, m.fdiv(e, m.plus(e, 1.0))), 0.5)
    far = exp_sum(m, m.plus(a, -k.high), m.const(-k.low, x))
    return m.copysign(m.pick(m.above(a, 20.0), far, near), x)


def cosh(m: Math, x: Value) -> Value:
    """(e + 1 / e) / 2 with e = e**|x|; far out, e**(|x| - ln2)."""
    k = constants(format_of(x))
    a = m.abs(x)
    e = exp(m, m.at_most(a, 30.0))
    near = m.fmac(e, 0.5, m.fdiv(m.const(0.5, x), e))
    far = exp_sum(m, m.plus(a, -k.high), m.const(-k.low, x))
    return m.pick(m.above(a, 20.0), far, near)
