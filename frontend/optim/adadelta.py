"""Adadelta: steps in units of past steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_lr,
    check_not_negative,
    number,
    scalar,
    zeros_like,
)
from treadle.optim.optimizer import Group

__all__ = ["Adadelta"]


class _AdadeltaCoefficients(NamedTuple):
    rho: float
    eps: float
    decay: float
    down: Any  # runtime scalar: -lr


class Adadelta(ElementwiseOptimizer):
    """Steps in units of past steps (Zeiler, arXiv:1212.5701).

    v <- rho v + (1 - rho) g^2,  d = sqrt(u + eps) / sqrt(v + eps) g,  u <- rho u + (1 - rho) d^2,  p <- p - lr d.
    State: `step`, `square_avg` (v), `acc_delta` (u).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _key(self, state: dict[str, Any]) -> Any:
        return None  # the coefficients do not depend on the count of steps

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "square_avg": zeros_like(p), "acc_delta": zeros_like(p)}

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _AdadeltaCoefficients:
        return _AdadeltaCoefficients(
            group["rho"], group["eps"], group["weight_decay"], scalar(-number(group["lr"]))
        )  # fmt: skip

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _AdadeltaCoefficients) -> None:
        _update(p, grad, state["square_avg"], state["acc_delta"], c)


def _update(p: Any, grad: Any, square: Any, moved: Any, c: _AdadeltaCoefficients) -> None:
    """Apply the rule in place to `p` and both averages."""
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    square.mul_(c.rho).addcmul_(grad, grad, value=1 - c.rho)
    delta = moved.add(c.eps).sqrt_().div_(square.add(c.eps).sqrt_()).mul_(grad)
    moved.mul_(c.rho).addcmul_(delta, delta, value=1 - c.rho)
    p.add_(delta, alpha=c.down)
