"""exp, exp2, expm1, sigmoid, tanh, sinh, cosh in basic operations.

Method: Cody & Waite, Software Manual for the Elementary Functions (1980), ch. 6: x = n ln2 + r with ln2 in two parts,
a minimax polynomial (Remez) on |r| <= ln2 / 2, then scaling by 2**n in two factors: subnormal results round once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from treadle.ir.core import Value
from treadle.passes.expand_math_base import F32, Format, Math, format_of

__all__ = ["cosh", "exp", "exp2", "expm1", "sigmoid", "sinh", "tanh"]


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
    (0.5, 0.16666666666666685, 0.04166666666666673, 0.00833333333331662, 0.0013888888888858317, 0.00019841269897362176,
     2.480158737396546e-05, 2.7557233929031195e-06, 2.7557233179349444e-07, 2.5112348658474048e-08,
     2.092699659761651e-09),
    -746.0,
    710.0,
)  # fmt: skip
LOG2E = 1 / math.log(2)


def constants(f: Format) -> _Constants:
    return _SINGLE if f is F32 else _DOUBLE


def reduced(m: Math, x: Value, bias: int) -> tuple[Value, Value, Value]:
    """r, e**r - 1 and the integer n + bias (in low bits) of x = n ln2 + r."""
    k = constants(format_of(x))
    n, bits = m.nearest(x, LOG2E, bias)
    r = m.fmac(n, -k.low, m.fmac(n, -k.high, x))
    return r, m.fma(m.mul(r, r), m.polynomial(r, k.series), r), bits


def exp(m: Math, x: Value) -> Value:
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, k.highest), k.lowest)
    _, p, bits = reduced(m, x, 2 * f.bias)
    return m.scaled(m.plus(p, 1.0), bits)


def exp_sum(m: Math, x: Value, low: Value) -> Value:
    """e**(x + low) for |low| of the order of an ulp of x."""
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, k.highest), k.lowest)
    n, bits = m.nearest(x, LOG2E, 2 * f.bias)
    r = m.add(m.fmac(n, -k.low, m.fmac(n, -k.high, x)), low)
    p = m.fma(m.mul(r, r), m.polynomial(r, k.series), r)
    return m.scaled(m.plus(p, 1.0), bits)


def exp2(m: Math, x: Value) -> Value:
    """2**n * e**(ln2 (x - n)); the difference is exact."""
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, f.bias + 1.0), -f.bias - f.mantissa - 1.0)
    n, bits = m.nearest(x, 1.0, 2 * f.bias)
    d = m.sub(x, n)
    r = m.fmac(d, k.high, m.times(d, k.low))
    p = m.fma(m.mul(r, r), m.polynomial(r, k.series), r)
    return m.scaled(m.plus(p, 1.0), bits)


def _expm1(m: Math, x: Value) -> Value:
    """For x below the logarithm of the largest number, where 2**n is in range: 2**n (e**r - 1) + (2**n - 1)."""
    f = format_of(x)
    _, p, bits = reduced(m, x, f.bias)
    scale = m.power_of_two(bits, f)
    return m.fma(p, scale, m.plus(scale, -1.0))


def expm1(m: Math, x: Value) -> Value:
    f = format_of(x)
    k = constants(f)
    x = m.at_least(m.at_most(x, k.highest), -float(f.mantissa + 3))
    # 2**n may overflow where the result does not: half of it, doubled.
    _, p, bits = reduced(m, x, f.bias - 1)
    half = m.power_of_two(bits, f)
    half_result = m.fma(p, half, m.plus(half, -0.5))
    return m.copysign(m.add(half_result, half_result), x)


def sigmoid(m: Math, x: Value) -> Value:
    """1 / (1 + e**-x) from e**-|x|, which neither overflows nor loses the small results."""
    e = exp(m, m.neg(m.abs(x)))
    top = m.pick(m.below(x, 0.0), e, 1.0)
    return m.fdiv(top, m.plus(e, 1.0))


def tanh(m: Math, x: Value) -> Value:
    """expm1(2 |x|) / (expm1(2 |x|) + 2)."""
    limit = 10.0 if format_of(x) is F32 else 20.0
    a = m.at_most(m.abs(x), limit)
    e = _expm1(m, m.add(a, a))
    return m.copysign(m.fdiv(e, m.plus(e, 2.0)), x)


def sinh(m: Math, x: Value) -> Value:
    """(E + E / (E + 1)) / 2 with E = expm1|x|; far out, e**(|x| - ln2)."""
    f = format_of(x)
    k = constants(f)
    a = m.abs(x)
    near = m.at_most(a, math.floor(f.bias * math.log(2)))
    e = _expm1(m, near)
    small = m.times(m.add(e, m.fdiv(e, m.plus(e, 1.0))), 0.5)
    far = exp_sum(m, m.plus(m.at_most(a, k.highest + 1), -k.high), m.const(-k.low, x))
    return m.copysign(m.pick(m.above(a, 20.0), far, small), x)


def cosh(m: Math, x: Value) -> Value:
    """(e + 1 / e) / 2 with e = e**|x|; far out, e**(|x| - ln2)."""
    k = constants(format_of(x))
    a = m.abs(x)
    e = exp(m, a)
    near = m.fmac(e, 0.5, m.fdiv(m.const(0.5, x), e))
    far = exp_sum(m, m.plus(m.at_most(a, k.highest + 1), -k.high), m.const(-k.low, x))
    return m.pick(m.above(a, 20.0), far, near)
