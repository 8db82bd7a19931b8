"""Activation functions, and special functions made of others."""

from __future__ import annotations

import math

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.evaluate_scalars import run_scalar
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, zeros_like
from treadle.ir.ops.composites.common import UnaryFormula, wide
from treadle.ir.ops.sampling import array, edge_values
from treadle.ir.scalar import Scalar
from treadle.ir.types import TensorType

__all__ = ["Elu", "Gelu", "LeakyRelu", "Relu", "Silu", "Softplus", "Trigamma"]


@operation("graph.relu")
class Relu(Composite):
    """max(x, 0), NaN for NaN, of any numbers; the slope at 0 is 0."""

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        if x.dtype.kind == "b":
            raise RuntimeError("Boolean inputs not supported for relu")
        return (x,)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        return (Term(b, operands[0]).clamp_min(0).v,)

    def _masked(self, b: Builder, op: Op, t: Value | None) -> Value | None:
        return Term(b, op.result).le(0).where(zeros_like(b, t), t).v if t is not None else None

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return (self._masked(b, op, tangents[0]),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (self._masked(b, op, cotangents[0]) if needs[0] else None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.maximum(arrays[0], arrays[0].dtype.type(0))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        names = ("f8", "f4", "f2", "i4", "u1")
        return [Sample(cls(), (a,)) for name in names for a in (array(rng, (3, 4), name), edge_values(name))]


@operation("graph.leaky_relu")
class LeakyRelu(UnaryFormula):
    """x above 0, else `slope` * x; at 0 the derivative is `slope`."""

    slope: float = 0.01

    def formula(self, x: Term) -> Term:
        return x.gt(0).where(x, x * self.slope)

    def derivative(self, x: Term) -> Term:
        one = Term(x.b, x.lift(1.0))
        return x.gt(0).where(one, self.slope)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        return np.where(x > 0, x, wide(x) * self.slope).astype(x.dtype)

    @classmethod
    def variants(cls) -> list[Composite]:
        return [cls(), cls(0.3)]


@operation("graph.elu")
class Elu(UnaryFormula):
    """`scale` * x above 0, else `scale` * `alpha` * (exp(`input_scale` * x) - 1): ELU, SELU and CELU."""

    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0

    def formula(self, x: Term) -> Term:
        return x.le(0).where((x * self.input_scale).expm1() * (self.alpha * self.scale), x * self.scale)

    def derivative(self, x: Term) -> Term:
        slope = (x * self.input_scale).exp() * (self.alpha * self.scale * self.input_scale)
        return x.le(0).where(slope, self.scale)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        low = self.alpha * self.scale * np.expm1(np.where(x > 0, 0, x) * self.input_scale)
        return np.where(x <= 0, low, x * self.scale).astype(arrays[0].dtype)

    @classmethod
    def variants(cls) -> list[Composite]:
        return [cls(), cls(1.6732632423543772, 1.0507009873554805), cls(2.0, 1.0, 0.5)]


@operation("graph.gelu")
class Gelu(UnaryFormula):
    """x * Phi(x), Phi the normal distribution function; `approximate` "tanh" uses the usual formula with tanh."""

    approximate: str = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise RuntimeError(f"gelu: approximate must be 'none' or 'tanh', not {self.approximate!r}")

    def _tanh(self, x: Term) -> Term:
        return ((x.square() * x * 0.044715 + x) * math.sqrt(2 / math.pi)).tanh()

    def formula(self, x: Term) -> Term:
        if self.approximate == "tanh":
            return x * 0.5 * (self._tanh(x) + 1)
        return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)

    def derivative(self, x: Term) -> Term:
        if self.approximate == "tanh":
            t = self._tanh(x)
            inner = (x.square() * (3 * 0.044715) + 1) * math.sqrt(2 / math.pi)
            return (t + 1) * 0.5 + x * 0.5 * (1 - t.square()) * inner
        cumulative = ((x * math.sqrt(0.5)).erf() + 1) * 0.5
        density = (x.square() * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        return cumulative + x * density

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        if self.approximate == "tanh":
            t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            t = np.asarray(run_scalar(Scalar("erf"), (dtypes.float64,), [x * math.sqrt(0.5)])).reshape(x.shape)
        return (0.5 * x * (1 + t)).astype(arrays[0].dtype)

    @classmethod
    def variants(cls) -> list[Composite]:
        return [cls(), cls("tanh")]


@operation("graph.silu")
class Silu(UnaryFormula):
    """x * sigmoid(x)."""

    def formula(self, x: Term) -> Term:
        return x * x.sigmoid()

    def derivative(self, x: Term) -> Term:
        s = x.sigmoid()
        return s * (x * (1 - s) + 1)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        return (x / (1 + np.exp(-x))).astype(arrays[0].dtype)


@operation("graph.softplus")
class Softplus(UnaryFormula):
    """log(1 + exp(`beta` * x)) / `beta`; x itself where `beta` * x is above `threshold`."""

    beta: float = 1.0
    threshold: float = 20.0

    def formula(self, x: Term) -> Term:
        scaled = x * self.beta
        return scaled.gt(self.threshold).where(x, scaled.exp().log1p() / self.beta)

    def derivative(self, x: Term) -> Term:
        scaled = x * self.beta
        one = Term(x.b, x.lift(1.0))
        return scaled.gt(self.threshold).where(one, scaled.sigmoid())

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        scaled = x * self.beta
        return np.where(scaled > self.threshold, x, np.log1p(np.exp(scaled)) / self.beta).astype(arrays[0].dtype)

    @classmethod
    def variants(cls) -> list[Composite]:
        return [cls(), cls(2.0, 3.0)]


@operation("graph.trigamma")
class Trigamma(Composite):
    """The derivative of digamma. Reflected to the right half line, shifted up, then the asymptotic series."""

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return types

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x = Term(b, operands[0])
        x = x.cast(x.v.dtype.compute)
        reflected = x.lt(0.5)
        z = reflected.where(1 - x, x)
        total = 1 / z.square()
        for _ in range(6):
            z = z + 1
            total = total + 1 / z.square()
        z = z + 1
        w = 1 / z.square()
        series: Term | None = None
        for coefficient in (5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
            series = w * coefficient if series is None else w * (series + coefficient)
        assert series is not None
        total = total + 1 / z + w * 0.5 + series / z
        # The sine of pi * x loses nothing to the size of x when x is reduced first. Where it is not used it is kept
        # from 0, so that derivatives stay finite.
        x = reflected.where(x, 0.25)
        sine = ((x - x.round()) * math.pi).sin()
        mirrored = math.pi**2 / sine.square() - total
        return (reflected.where(mirrored, total).cast(operands[0].dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        z = np.where(x < 0.5, 1 - x, x)
        total = sum(1 / (z + k) ** 2 for k in range(2000))
        end = z + 2000
        total = total + 1 / end + 0.5 / end**2 + 1 / (6 * end**3)
        return np.where(x < 0.5, np.pi**2 / np.sin(np.pi * (x - np.rint(x))) ** 2 - total, total).astype(
            arrays[0].dtype
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        below = np.array([-0.5, -1.3, -7.75, 0.1, 30.0])
        return [
            Sample(cls(), (a,))
            for name in ("f8", "f4")
            for a in (array(rng, (3, 4), name, (0.3, 4.0)), below.astype(name))
        ]
