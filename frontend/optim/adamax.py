"""Adam in the infinity norm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import treadle
from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_betas,
    check_lr,
    check_not_negative,
    number,
    scalar,
    zeros_like,
)
from treadle.optim.optimizer import Group

__all__ = ["Adamax"]


class _AdamaxCoefficients(NamedTuple):
    beta1: float
    beta2: float
    eps: float
    decay: float
    down: Any  # runtime scalar: -lr / (1 - beta1^t)


class Adamax(ElementwiseOptimizer):
    """Adam with the infinity norm in place of the second moment (Kingma and Ba, ICLR 2015, section 7.1).

    u <- max(beta2 u, |g| + eps),  p <- p - lr / (1 - beta1^t) m / u. State: `step`, `exp_avg` (m), `exp_inf` (u).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "exp_avg": zeros_like(p), "exp_inf": zeros_like(p)}

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _AdamaxCoefficients:
        beta1, beta2 = (number(beta) for beta in group["betas"])
        down = scalar(-number(group["lr"]) / (1 - beta1 ** state["step"]))
        return _AdamaxCoefficients(beta1, beta2, group["eps"], group["weight_decay"], down)

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _AdamaxCoefficients) -> None:
        _update(p, grad, state["exp_avg"], state["exp_inf"], c)


def _update(p: Any, grad: Any, mean: Any, norm: Any, c: _AdamaxCoefficients) -> None:
    """Apply the rule in place to `p`, its mean gradient and its norm."""
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    mean.lerp_(grad, 1 - c.beta1)
    norm.copy_(treadle.maximum(norm.mul(c.beta2), grad.abs().add_(c.eps)))
    p.addcdiv_(mean, norm, value=c.down)
