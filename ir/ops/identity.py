"""Ops that pass their operand on: marks for autograd and for the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.ops.base import Cotangents, Elementwise
from treadle.ir.ops.build import full_like

__all__ = ["Barrier", "Copy", "Leaf", "StopGradient"]


class _Identity(Elementwise):
    """The operand as it is; gradients pass."""

    kinds = "buif"
    promotes = "none"

    def scalar(self, s: Any, *xs: Value) -> Value:
        return xs[0]

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (full_like(b, op.result, 1) if op.result.dtype.is_floating else None,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return tangents

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (cotangents[0] if needs[0] else None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0].copy()


@operation("graph.leaf")
class Leaf(_Identity):
    """x; marks a differentiable leaf, where gradients arrive. It cuts nothing."""


@operation("graph.barrier")
class Barrier(_Identity):
    """x; ops before it are not merged with ops after it."""


@operation("graph.stop_gradient")
class StopGradient(_Identity):
    """x, as a constant of autograd: no gradient passes."""

    def partials(self, b: Builder, op: Op) -> Cotangents:
        return (None,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return (None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (None,)


@operation("graph.copy")
class Copy(_Identity):
    """x, in memory of its own where the result is kept; inside a fused kernel it costs nothing."""
