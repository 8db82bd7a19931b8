"""Resilient propagation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import treadle
from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_lr,
    number,
    zeros_like,
)
from treadle.optim.optimizer import Group

__all__ = ["Rprop"]


class _RpropCoefficients(NamedTuple):
    shrink: float
    grow: float
    least: float
    most: float


class Rprop(ElementwiseOptimizer):
    """Resilient propagation (Riedmiller and Braun, ICNN 1993): steps from the signs of the gradient alone.

    Each element has a step size, starting at `lr`, multiplied by `etas[1]` while the sign of its gradient stays and by
    `etas[0]` when it changes (that element then rests for a step), kept within `step_sizes`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _key(self, state: dict[str, Any]) -> Any:
        return None

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        sizes = treadle.full_like(p, number(group["lr"]))
        return {"step": 0.0, "prev": zeros_like(p), "step_size": sizes}

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _RpropCoefficients:
        return _RpropCoefficients(*group["etas"], *group["step_sizes"])

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _RpropCoefficients) -> None:
        _update(p, grad, state["prev"], state["step_size"], c)


def _update(p: Any, grad: Any, previous: Any, size: Any, c: _RpropCoefficients) -> None:
    """Apply the rule in place to `p`, the previous gradient and the step sizes."""
    agreement = grad * previous
    turned = agreement < 0
    factor = treadle.ones_like(agreement).masked_fill(agreement > 0, c.grow).masked_fill(turned, c.shrink)
    size.mul_(factor).clamp_(c.least, c.most)
    grad = grad.masked_fill(turned, 0.0)
    p.addcmul_(grad.sign(), size, value=-1)
    previous.copy_(grad)
