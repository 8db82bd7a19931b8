"""log, log2, log10, log1p in basic operations.

x = 2**k (1 + f) with 1 + f in sqrt(1/2)..sqrt(2); log(1 + f) is f - f**2 / 2 + f**3 P(f) with a minimax P (Muller,
Elementary Functions, ch. 5 and 11).
"""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.passes.expand_math_base import F32, Math, format_of
from treadle.passes.expand_math_exp import constants

__all__ = ["log"]

_SINGLE = (0.33333316445350647, -0.25000810623168945, 0.2000228613615036, -0.16624554991722107, 0.14181193709373474,
           -0.13128747045993805, 0.12881632149219513, -0.0785960927605629)  # fmt: skip


def split(m: Math, x: Value) -> tuple[Value, Value]:
    """f and k (a float) of a positive finite x."""
    f = format_of(x)
    tiny = m.below(x, f.smallest_normal)
    grown = m.pick(tiny, m.times(x, 2.0 ** (f.mantissa + 2)), x)
    root = 0x3F3504F3 if f is F32 else 0x3FE6A09E667F3BCD
    bits = m.bits(grown)
    above = m.plus(bits, -root)
    exponent = m.shr(above, m.const(f.mantissa, bits))
    significand = m.plus(m.and_(above, m.const((1 << f.mantissa) - 1, bits)), root)
    k = m.add(m.cast(exponent, f.dtype), m.pick(tiny, m.const(-(f.mantissa + 2.0), x), 0.0))
    return m.plus(m.floating(significand, f), -1.0), k


def mended(m: Math, x: Value, y: Value) -> Value:
    """The logarithm's special values: x itself for inf and NaN, -inf at 0, NaN below."""
    y = m.pick(m.below(x, math.inf), y, x)
    y = m.pick(m.below(x, 0.0), math.nan, y)
    return m.pick(m.equals(x, 0.0), -math.inf, y)


def log(m: Math, x: Value) -> Value:
    f, k = split(m, x)
    c = constants(format_of(x))
    square = m.mul(f, f)
    rest = m.mul(m.mul(square, f), m.polynomial(f, _SINGLE))
    low = m.fmac(k, c.low, m.fmac(square, -0.5, rest))
    return mended(m, x, m.fmac(k, c.high, m.add(f, low)))
