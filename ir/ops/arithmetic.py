"""Arithmetic at every index: signs, roots, rounding, sums and products, division in all its kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.ops.base import Cotangents, Elementwise
from treadle.ir.ops.build import Term, full_like
from treadle.ir.ops.elementwise import in_compute_type, int_divide, not_for_bool, reference_in_compute_type
from treadle.ir.ops.extrema import ClampMax, ClampMin, Fmax, Fmin, Maximum, Minimum
from treadle.ir.types import TensorType

__all__ = [
    "Abs", "Add", "Ceil", "ClampMax", "ClampMin", "Div", "Floor", "FloorDiv", "Fmax", "Fmin", "Fmod", "Maximum",
    "Minimum", "Mul", "Neg", "Pow", "Reciprocal", "Remainder", "Round", "Rsqrt", "Sign", "Sqrt", "Square", "Sub",
    "Trunc", "TruncDiv",
]  # fmt: skip


# One operand ----------------------------------------------------------------------------------------------------------


@operation("graph.neg")
class Neg(Elementwise):
    """-x. Integers wrap. Raises RuntimeError on bool."""

    kinds = "uif"

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        not_for_bool(types, "the `-` operator", "`~` or `logical_not()`")
        return super().infer(*types)

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.neg(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (full_like(b, op.result, -1),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        return (b.emit(self, ct) if ct is not None and needs[0] else None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.negative(*arrays)


@operation("graph.abs")
class Abs(Elementwise):
    """|x|; the slope at 0 is 0. The smallest integer stays itself."""

    kinds = "uif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return xs[0] if xs[0].dtype.kind == "u" else s.abs(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (Term(b, op.operands[0]).sign().v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.abs(*arrays)


@operation("graph.sign")
class Sign(Elementwise):
    """-1, 0 or 1; NaN for NaN; a bool is its own sign."""

    kinds = "buif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        (x,) = xs
        if x.dtype.kind == "b":
            return x
        zero, one = s.const(0, x), s.const(1, x)
        positive = s.select(s.gt(x, zero), one, x if x.dtype.kind == "f" else zero)
        if x.dtype.kind == "u":
            return positive
        # A float that is neither above nor below 0 is kept: NaN and the zeros.
        return s.select(s.lt(x, zero), s.const(-1, x), positive)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        if x.dtype == np.bool_:
            return x.copy()
        return np.where(x == 0, x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)


@operation("graph.square")
class Square(Elementwise):
    """x * x."""

    kinds = "uif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.mul(xs[0], xs[0])

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return ((Term(b, op.operands[0]) * 2).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0] * arrays[0]


@operation("graph.reciprocal")
class Reciprocal(Elementwise):
    """1 / x, of floating x."""

    domain = (0.2, 3.0)
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.fdiv(s.const(1, xs[0]), xs[0])

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return ((-Term(b, op.result).square()).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.divide(arrays[0].dtype.type(1), arrays[0])


@operation("graph.sqrt")
class Sqrt(Elementwise):
    """The square root, NaN below 0; the slope at 0 is infinite."""

    domain = (0.1, 4.0)
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.sqrt(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return ((0.5 / Term(b, op.result)).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.sqrt(*arrays)


@operation("graph.rsqrt")
class Rsqrt(Elementwise):
    """1 / sqrt(x)."""

    domain = (0.1, 4.0)
    promotes = "float"

    @in_compute_type
    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.fdiv(s.const(1, xs[0]), s.sqrt(*xs))

    def partials(self, b: Builder, op: Op) -> Cotangents:
        y = Term(b, op.result)
        return ((y.square() * y * -0.5).v,)

    @reference_in_compute_type
    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.divide(arrays[0].dtype.type(1), np.sqrt(arrays[0]))


class _Step(Elementwise):
    """A step function of floats: its derivative is 0 wherever it exists."""

    kinds = "f"

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,) * self.arity


@operation("graph.floor")
class Floor(_Step):
    """The greatest integer not above x."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.floor(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.floor(*arrays)


@operation("graph.ceil")
class Ceil(_Step):
    """The least integer not below x."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.ceil(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.ceil(*arrays)


@operation("graph.round")
class Round(_Step):
    """The nearest integer, ties to even."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.rint(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.rint(*arrays)


@operation("graph.trunc")
class Trunc(_Step):
    """The integer part, towards zero."""

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.trunc(*xs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.trunc(*arrays)


# Sums, products, quotients --------------------------------------------------------------------------------------------


@operation("graph.add")
class Add(Elementwise):
    """x + y. Integers wrap; of bools it is `or`."""

    arity = 2
    kinds = "buif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.or_(*xs) if xs[0].dtype.kind == "b" else s.add(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        one = full_like(b, op.result, 1)
        return (one, one)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        x, y = tangents
        return (x if y is None else y if x is None else b.emit(self, x, y),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return tuple(cotangents[0] if need else None for need in needs)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.add(*arrays)


@operation("graph.sub")
class Sub(Elementwise):
    """x - y. Integers wrap. Raises RuntimeError on bool."""

    arity = 2
    kinds = "uif"

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        not_for_bool(types, "subtraction, the `-` operator,", "`^` or `logical_xor()`")
        return super().infer(*types)

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.sub(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (full_like(b, op.result, 1), full_like(b, op.result, -1))

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None, None)
        return (ct if needs[0] else None, (-Term(b, ct)).v if needs[1] else None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.subtract(*arrays)


@operation("graph.mul")
class Mul(Elementwise):
    """x * y. Integers wrap; of bools it is `and`."""

    arity = 2
    kinds = "buif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.and_(*xs) if xs[0].dtype.kind == "b" else s.mul(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = op.operands
        return (y, x)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.multiply(*arrays)


@operation("graph.div")
class Div(Elementwise):
    """x / y of floats, IEEE."""

    arity = 2
    domain = (0.3, 3.0)
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.fdiv(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        y, quotient = Term(b, op.operands[1]), Term(b, op.result)
        return ((1.0 / y).v, (-(quotient / y)).v)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        if cotangents[0] is None:
            return (None, None)
        ct, y = Term(b, cotangents[0]), Term(b, op.operands[1])
        return ((ct / y).v if needs[0] else None, (-ct * (Term(b, op.result) / y)).v if needs[1] else None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.divide(*arrays)


def _sign_differs(s: Any, x: Value, y: Value) -> Value:
    zero = s.const(0, x)
    return s.ne(s.lt(x, zero), s.lt(y, zero))


@operation("graph.floor_div")
class FloorDiv(Elementwise):
    """The floor of x / y, exact as in Python: 1.0 // 0.1 is 9. x // 0 is IEEE's x / 0 for floats; for integers it is 0,
    or -1 for a negative x, so that x == (x // y) * y + remainder(x, y) always holds."""

    arity = 2
    kinds = "uif"

    @in_compute_type
    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        zero, one = s.const(0, x), s.const(1, x)
        if x.dtype.kind == "u":
            return s.idiv(x, y)
        if x.dtype.kind == "i":
            rest = s.irem(x, y)
            down = s.and_(s.ne(rest, zero), s.lt(s.xor(rest, y), zero))
            return s.sub(s.idiv(x, y), s.select(down, one, zero))
        rest = s.frem(x, y)
        quotient = s.fdiv(s.sub(x, rest), y)
        down = s.and_(s.ne(rest, zero), _sign_differs(s, rest, y))
        quotient = s.select(down, s.sub(quotient, one), quotient)
        # The quotient is an integer up to rounding.
        low = s.floor(quotient)
        low = s.select(s.gt(s.sub(quotient, low), s.const(0.5, x)), s.add(low, one), low)
        plain = s.fdiv(x, y)
        low = s.select(s.eq(quotient, zero), s.copysign(zero, plain), low)
        return s.select(s.eq(y, zero), plain, low)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None, None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, y = arrays
        if x.dtype.kind == "f":
            return np.where(y == 0, np.divide(x, y), np.floor_divide(x, y))
        quotient, rest = int_divide(x, y)
        return (quotient - ((rest != 0) & ((rest < 0) != (y < 0)))).astype(x.dtype)


@operation("graph.trunc_div")
class TruncDiv(Elementwise):
    """x / y rounded towards zero, as in C; an integer over 0 is 0."""

    arity = 2
    kinds = "uif"

    @in_compute_type
    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.trunc(s.fdiv(*xs)) if xs[0].dtype.kind == "f" else s.idiv(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None, None)

    @reference_in_compute_type
    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.trunc(np.divide(*arrays)) if arrays[0].dtype.kind == "f" else int_divide(*arrays)[0]


@operation("graph.remainder")
class Remainder(Elementwise):
    """x - y * (x // y), exact as Python's %: it has the sign of y. The remainder of an integer by 0 is x."""

    arity = 2
    kinds = "uif"

    @in_compute_type
    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        zero = s.const(0, x)
        if x.dtype.kind == "u":
            return s.irem(x, y)
        if x.dtype.kind == "i":
            rest = s.irem(x, y)
            down = s.and_(s.ne(rest, zero), s.lt(s.xor(rest, y), zero))
            return s.add(rest, s.select(down, y, zero))
        rest = s.frem(x, y)
        fixed = s.select(_sign_differs(s, rest, y), s.add(rest, y), rest)
        return s.select(s.eq(rest, zero), s.copysign(zero, y), fixed)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        return (full_like(b, op.result, 1), (-x.floor_div(y)).v)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, y = arrays
        if x.dtype.kind == "f":
            return np.remainder(x, y)
        _, rest = int_divide(x, y)
        return (rest + np.where((rest != 0) & ((rest < 0) != (y < 0)), y, 0)).astype(x.dtype)


@operation("graph.fmod")
class Fmod(Elementwise):
    """The remainder of TruncDiv, as C's fmod: it has the sign of x. The remainder of an integer by 0 is x."""

    arity = 2
    kinds = "uif"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.frem(*xs) if xs[0].dtype.kind == "f" else s.irem(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        return (full_like(b, op.result, 1), (-x.trunc_div(y)).v)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.fmod(*arrays) if arrays[0].dtype.kind == "f" else int_divide(*arrays)[1]


@operation("graph.pow")
class Pow(Elementwise):
    """x ** y. Integers wrap, and a negative exponent gives the truncated reciprocal: 0 unless x is 1 or -1.

    0 ** 0 is 1. The slope in x is 0 where y is 0, the slope in y is 0 where x is 0 and y is not negative.
    """

    arity = 2
    kinds = "uif"
    domain = (0.3, 2.5)

    def scalar(self, s: Any, *xs: Value) -> Value:
        x, y = xs
        if x.dtype.kind == "f":
            return s.pow(x, y)
        zero, one = s.const(0, x), s.const(1, x)
        signed = x.dtype.kind == "i"
        result, power = one, x
        for bit in range(x.dtype.bits - signed):
            odd = s.ne(s.and_(s.lshr(y, s.const(bit, x)), one), zero)
            result = s.select(odd, s.mul(result, power), result)
            power = s.mul(power, power)
        if not signed:
            return result
        minus = s.const(-1, x)
        of_minus = s.select(s.ne(s.and_(y, one), zero), minus, one)
        inverse = s.select(s.eq(x, one), one, s.select(s.eq(x, minus), of_minus, zero))
        return s.select(s.lt(y, zero), inverse, result)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        in_x = y.eq(0).where(0, y * x.pow(y - 1))
        flat = x.eq(0).logical_and(y.ge(0))
        return (in_x.v, flat.where(0, Term(b, op.result) * x.log()).v)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        if cotangents[0] is None:
            return (None, None)
        ct = Term(b, cotangents[0])
        x, y = (Term(b, v) for v in op.operands)
        in_x = y.eq(0).where(0, ct * (y * x.pow(y - 1))).v if needs[0] else None
        flat = x.eq(0).logical_and(y.ge(0)) if needs[1] else None
        return (in_x, flat.where(0, ct * (Term(b, op.result) * x.log())).v if flat is not None else None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, y = arrays
        if x.dtype.kind == "f":
            wide = np.power(x.astype(np.float64), y)  # NumPy's own float32 power differs from machine to machine
            with np.errstate(over="ignore"):
                return wide.astype(x.dtype)
        raised = np.power(x, np.where(y < 0, 0, y).astype(x.dtype))
        inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0))
        return np.where(y < 0, inverse, raised).astype(x.dtype)
