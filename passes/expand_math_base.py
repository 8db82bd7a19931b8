"""A ScalarBuilder for mathematical functions: formats, polynomials, exponents, Cody-Waite reduction.

Comparisons and selects are written so that NaN flows through the arithmetic: `clamp` keeps a NaN, and the selects that
mend special values are false on one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.ir.core import Builder, Value
from treadle.ir.dtypes import DType, float32, float64, int32, int64
from treadle.ir.scalar import ScalarBuilder

__all__ = ["F32", "F64", "Format", "Math", "format_of"]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `mantissa` stored bits, integers of the same width."""

    dtype: DType
    integer: DType
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds a float to an integer, whose bits are then the low ones."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def epsilon(self) -> float:
        return 2.0**-self.mantissa

    @property
    def largest(self) -> float:
        return (2 - 2.0**-self.mantissa) * 2.0**self.bias


F32 = Format(float32, int32, 23, 127)
F64 = Format(float64, int64, 52, 1023)


def format_of(x: Value) -> Format:
    return F32 if x.dtype is float32 else F64


class Math(ScalarBuilder):
    """Scalar ops on values of one of the formats, with numbers wherever a value may stand."""

    def __init__(self) -> None:
        Builder.__init__(self, numbering={})

    def c(self, value: float | int, like: DType | Value) -> Value:
        return self.const(value, like)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme; coefficients from the constant one upwards."""
        total = self.const(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.const(c, x))
        return total

    def plus(self, x: Value, value: float | int) -> Value:
        return self.add(x, self.const(value, x))

    def times(self, x: Value, value: float | int) -> Value:
        return self.mul(x, self.const(value, x))

    def fmac(self, x: Value, factor: float, addend: float | Value) -> Value:
        """x * factor + addend, rounded once."""
        end = addend if isinstance(addend, Value) else self.const(addend, x)
        return self.fma(x, self.const(factor, x), end)

    def below(self, x: Value, value: float | int) -> Value:
        return self.lt(x, self.const(value, x))

    def above(self, x: Value, value: float | int) -> Value:
        return self.gt(x, self.const(value, x))

    def equals(self, x: Value, value: float | int) -> Value:
        return self.eq(x, self.const(value, x))

    def pick(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """select with numbers."""
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value)
        yes, no = (v if isinstance(v, Value) else self.const(v, like) for v in (a, b))
        return self.select(condition, yes, no)

    def at_most(self, x: Value, value: float) -> Value:
        """The smaller; a NaN stays (the form that is one instruction on x86)."""
        bound = self.const(value, x)
        return self.select(self.lt(bound, x), bound, x)

    def at_least(self, x: Value, value: float) -> Value:
        """The larger; a NaN stays."""
        bound = self.const(value, x)
        return self.select(self.gt(bound, x), bound, x)

    def bits(self, x: Value) -> Value:
        return self.bitcast(x, format_of(x).integer)

    def floating(self, bits: Value, f: Format) -> Value:
        return self.bitcast(bits, f.dtype)

    def nearest(self, x: Value, factor: float, bias: int = 0) -> tuple[Value, Value]:
        """n = rint(x * factor) as a float, and an integer whose low bits are those of n + bias."""
        f = format_of(x)
        shifted = self.fmac(x, factor, f.magic + bias)
        return self.plus(shifted, -(f.magic + bias)), self.bits(shifted)

    def power_of_two(self, biased: Value, f: Format) -> Value:
        """The float whose biased exponent is the low bits of an integer."""
        return self.floating(self.shl(biased, self.const(f.mantissa, biased)), f)

    def scaled(self, x: Value, twice_biased: Value) -> Value:
        """x * 2**n in two factors: subnormal results round once. The integer is n + 2 * bias in its low bits."""
        f = format_of(x)
        half = self.lshr(twice_biased, self.const(1, twice_biased))
        rest = self.sub(twice_biased, half)
        return self.mul(self.mul(x, self.power_of_two(half, f)), self.power_of_two(rest, f))

    def signed(self, magnitude: Value, x: Value) -> Value:
        return self.copysign(magnitude, x)

    def two_product(self, a: Value, b: Value) -> tuple[Value, Value]:
        """a * b as an unevaluated sum (Dekker; with fma)."""
        p = self.mul(a, b)
        return p, self.fma(a, b, self.neg(p))

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """a + b as an unevaluated sum (Knuth)."""
        s = self.add(a, b)
        bb = self.sub(s, a)
        return s, self.add(self.sub(a, self.sub(s, bb)), self.sub(b, bb))

    def fast_two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """a + b as an unevaluated sum, for |a| >= |b| (Dekker)."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def is_negative(self, x: Value) -> Value:
        """The sign bit, also of -0."""
        bits = self.bits(x)
        return self.lt(bits, self.const(0, bits))

    def nan_unless(self, condition: Value, x: Value) -> Value:
        return self.pick(condition, x, math.nan)
