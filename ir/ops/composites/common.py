"""What composites share: computing in a wider type, counts of elements, functions of one operand with a stated
slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from treadle.ir.core import Builder, Op, Value
from treadle.ir.dims import Dim, product
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, cast, constant, emit
from treadle.ir.ops.sampling import array, edge_values
from treadle.ir.types import TensorType

__all__ = ["UnaryFormula", "count", "need_floating", "wide", "widen"]


def widen(b: Builder, x: Value) -> Term:
    """`x` in its compute type: 16-bit floats as float32."""
    return Term(b, cast(b, x, x.dtype.compute))


def count(b: Builder, sizes: Sequence[Dim], dtype: DType, device: str) -> Term:
    """The product of `sizes` as a 0-d tensor."""
    n = product(sizes)
    if isinstance(n, int):
        return Term(b, constant(b, n, dtype, device))
    return Term(b, cast(b, emit(b, "dim", value=n, device=device), dtype))


def need_floating(name: str, *types: TensorType) -> None:
    """Raises RuntimeError where an operand is not floating."""
    for t in types:
        if not t.dtype.is_floating:
            raise RuntimeError(f'"{name.split(".")[-1]}" not implemented for {t.dtype!r}')


def wide(x: np.ndarray) -> np.ndarray:
    """A reference's operand in float64 (integers stay)."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


class UnaryFormula(Composite):
    """A function of one floating operand, element by element: `formula(x)`, and its `derivative(x, y)` at value y.

    16-bit floats are computed in float32 and rounded once.
    """

    domain: ClassVar[tuple[float, float]] = (-3.0, 3.0)

    def formula(self, x: Term) -> Term:
        raise NotImplementedError

    def derivative(self, x: Term) -> Term:
        raise NotImplementedError

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        need_floating(self.name, x)
        return (x,)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        return (self.formula(widen(b, x)).cast(x.dtype).v,)

    def _scaled(self, b: Builder, op: Op, t: Value | None) -> Value | None:
        if t is None:
            return None
        (x,) = op.operands
        return (widen(b, t) * self.derivative(widen(b, x))).cast(x.dtype).v

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return (self._scaled(b, op, tangents[0]),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (self._scaled(b, op, cotangents[0]) if needs[0] else None,)

    @classmethod
    def variants(cls) -> list[Composite]:
        """Instances to test."""
        return [cls()]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [
            Sample(variant, (a,))
            for variant in cls.variants()
            for name in ("f8", "f4", "f2")
            for a in (array(rng, (3, 4), name, cls.domain), array(rng, (), name, cls.domain), array(rng, (0, 2), name))
        ] + [Sample(variant, (edge_values(name)[:6],)) for variant in cls.variants() for name in ("f8", "f4")]
