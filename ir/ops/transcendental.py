"""Exponentials, logarithms, trigonometry and special functions of floats, at every index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.evaluate_scalars import run_scalar
from treadle.ir.ops.base import Cotangents, Elementwise
from treadle.ir.ops.build import Term
from treadle.ir.ops.elementwise import reference_in_compute_type
from treadle.ir.scalar import Scalar

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Digamma", "Erf", "Erfc", "Erfinv",
    "Exp", "Exp2", "Expm1", "Hypot", "Lgamma", "Log", "Log10", "Log1p", "Log2", "Sigmoid", "Sin", "Sinh", "Tan",
    "Tanh",
]  # fmt: skip


class _Function(Elementwise):
    """A loop-level function of the op's own name."""

    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.call(self.name.split(".")[1], *xs)

    @reference_in_compute_type
    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        dtype = dtypes.from_numpy(arrays[0].dtype)
        result = run_scalar(Scalar(self.name.split(".")[1]), (dtype,) * len(arrays), list(arrays))
        return np.asarray(result, arrays[0].dtype).reshape(arrays[0].shape)

    def derivative(self, x: Term, y: Term) -> Term:
        """The slope at x, where the value is y."""
        raise NotImplementedError

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (self.derivative(Term(b, op.operands[0]), Term(b, op.result)).v,)


# Exponentials and logarithms ------------------------------------------------------------------------------------------


@operation("graph.exp")
class Exp(_Function):
    """e ** x."""

    def derivative(self, x: Term, y: Term) -> Term:
        return y


@operation("graph.exp2")
class Exp2(_Function):
    """2 ** x."""

    def derivative(self, x: Term, y: Term) -> Term:
        return y * math.log(2)


@operation("graph.expm1")
class Expm1(_Function):
    """e ** x - 1, exact for small x."""

    def derivative(self, x: Term, y: Term) -> Term:
        return y + 1


@operation("graph.log")
class Log(_Function):
    """The natural logarithm."""

    domain = (0.1, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / x


@operation("graph.log2")
class Log2(_Function):
    """The logarithm to base 2."""

    domain = (0.1, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / (x * math.log(2))


@operation("graph.log10")
class Log10(_Function):
    """The logarithm to base 10."""

    domain = (0.1, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / (x * math.log(10))


@operation("graph.log1p")
class Log1p(_Function):
    """The natural logarithm of 1 + x, exact for small x."""

    domain = (-0.8, 3.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / (x + 1)


@operation("graph.sigmoid")
class Sigmoid(_Function):
    """1 / (1 + e ** -x)."""

    def derivative(self, x: Term, y: Term) -> Term:
        return y * (1 - y)


# Trigonometric and hyperbolic -----------------------------------------------------------------------------------------


@operation("graph.sin")
class Sin(_Function):
    """The sine."""

    def derivative(self, x: Term, y: Term) -> Term:
        return x.cos()


@operation("graph.cos")
class Cos(_Function):
    """The cosine."""

    def derivative(self, x: Term, y: Term) -> Term:
        return -x.sin()


@operation("graph.tan")
class Tan(_Function):
    """The tangent."""

    domain = (-1.2, 1.2)

    def derivative(self, x: Term, y: Term) -> Term:
        return y.square() + 1


@operation("graph.asin")
class Asin(_Function):
    """The arc sine, NaN outside [-1, 1]."""

    domain = (-0.9, 0.9)

    def derivative(self, x: Term, y: Term) -> Term:
        return (1 - x.square()).rsqrt()


@operation("graph.acos")
class Acos(_Function):
    """The arc cosine, NaN outside [-1, 1]."""

    domain = (-0.9, 0.9)

    def derivative(self, x: Term, y: Term) -> Term:
        return -(1 - x.square()).rsqrt()


@operation("graph.atan")
class Atan(_Function):
    """The arc tangent."""

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / (x.square() + 1)


@operation("graph.sinh")
class Sinh(_Function):
    """The hyperbolic sine."""

    def derivative(self, x: Term, y: Term) -> Term:
        return x.cosh()


@operation("graph.cosh")
class Cosh(_Function):
    """The hyperbolic cosine."""

    def derivative(self, x: Term, y: Term) -> Term:
        return x.sinh()


@operation("graph.tanh")
class Tanh(_Function):
    """The hyperbolic tangent."""

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 - y.square()


@operation("graph.asinh")
class Asinh(_Function):
    """The inverse hyperbolic sine."""

    def derivative(self, x: Term, y: Term) -> Term:
        return (x.square() + 1).rsqrt()


@operation("graph.acosh")
class Acosh(_Function):
    """The inverse hyperbolic cosine, NaN below 1."""

    domain = (1.2, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return (x.square() - 1).rsqrt()


@operation("graph.atanh")
class Atanh(_Function):
    """The inverse hyperbolic tangent, NaN outside [-1, 1]."""

    domain = (-0.9, 0.9)

    def derivative(self, x: Term, y: Term) -> Term:
        return 1 / (1 - x.square())


# Special functions ----------------------------------------------------------------------------------------------------


@operation("graph.erf")
class Erf(_Function):
    """The error function."""

    def derivative(self, x: Term, y: Term) -> Term:
        return (-x.square()).exp() * (2 / math.sqrt(math.pi))


@operation("graph.erfc")
class Erfc(_Function):
    """1 - erf(x), exact where that is small."""

    def derivative(self, x: Term, y: Term) -> Term:
        return (-x.square()).exp() * (-2 / math.sqrt(math.pi))


@operation("graph.erfinv")
class Erfinv(_Function):
    """The inverse of erf, NaN outside [-1, 1]."""

    domain = (-0.9, 0.9)

    def derivative(self, x: Term, y: Term) -> Term:
        return y.square().exp() * (math.sqrt(math.pi) / 2)


@operation("graph.lgamma")
class Lgamma(_Function):
    """The logarithm of |gamma(x)|; infinite at 0, -1, -2 ..."""

    domain = (0.3, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return x.digamma()


@operation("graph.digamma")
class Digamma(_Function):
    """The derivative of lgamma; NaN at -1, -2 ... and at minus infinity."""

    domain = (0.3, 4.0)

    def derivative(self, x: Term, y: Term) -> Term:
        return x.trigamma()


# Two operands ---------------------------------------------------------------------------------------------------------


@operation("graph.atan2")
class Atan2(Elementwise):
    """The angle of the point (y, x), operands in that order, in [-pi, pi]; the slopes at the origin are 0."""

    arity = 2
    domain = (0.2, 3.0)
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return s.atan2(*xs)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        y, x = (Term(b, v) for v in op.operands)
        square = y.square() + x.square()
        inverse = square.eq(0).where(0, 1 / square)
        return ((x * inverse).v, (-y * inverse).v)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.arctan2(*arrays)


@operation("graph.hypot")
class Hypot(Elementwise):
    """sqrt(x * x + y * y) without overflow; infinite where one is, even beside NaN."""

    arity = 2
    domain = (0.2, 3.0)
    promotes = "float"

    def scalar(self, s: Any, *xs: Value) -> Value:
        dtype = xs[0].dtype
        x, y = (s.abs(v) for v in xs)
        infinite = s.or_(*(s.eq(v, s.const(math.inf, v)) for v in (x, y)))
        if dtype is not dtypes.float64:
            x, y = (s.cast(v, dtypes.float64) for v in (x, y))
            length = s.cast(s.sqrt(s.add(s.mul(x, x), s.mul(y, y))), dtype)
        else:
            large, small = s.maximum(x, y), s.minimum(x, y)
            zero = s.eq(large, s.const(0, x))
            ratio = s.fdiv(small, s.select(zero, s.const(1, x), large))
            length = s.mul(large, s.sqrt(s.fma(ratio, ratio, s.const(1, x))))
        return s.select(infinite, s.const(math.inf, dtype), length)

    def partials(self, b: Builder, op: Op) -> Cotangents:
        x, y = (Term(b, v) for v in op.operands)
        length = Term(b, op.result)
        return ((x / length).v, (y / length).v)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.hypot(*arrays)
