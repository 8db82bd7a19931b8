"""Adam with a rectified start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_betas,
    check_lr,
    check_not_negative,
    number,
    scalar,
    zeros_like,
)
from treadle.optim._moments import Moments, average, moments
from treadle.optim.optimizer import Group

__all__ = ["RAdam"]


class _RAdamCoefficients(NamedTuple):
    moments: Moments
    correction: Any  # runtime scalar: 1 - beta1^t
    lr: Any  # runtime scalar
    root: Any  # runtime scalar: sqrt(1 - beta2^t); None while the variance is not tractable
    rectification: Any  # runtime scalar


class RAdam(ElementwiseOptimizer):
    """Adam whose adaptive step is rectified (Liu et al., ICLR 2020).

    While rho_t = rho_inf - 2 t beta2^t / (1 - beta2^t), with rho_inf = 2 / (1 - beta2) - 1, is at most 5, the step is
    that of momentum alone; afterwards Adam's, scaled by
    sqrt((rho_t - 4) (rho_t - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho_t)).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _RAdamCoefficients:
        step = state["step"]
        beta1, beta2 = (number(beta) for beta in group["betas"])
        correction2 = 1 - beta2**step
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * step * beta2**step / correction2
        root = rectification = None
        if rho > 5.0:
            root = scalar(correction2**0.5)
            ratio = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
            rectification = scalar(ratio**0.5)
        return _RAdamCoefficients(
            moments=moments(group),
            correction=scalar(1 - beta1**step),
            lr=scalar(number(group["lr"])),
            root=root,
            rectification=rectification,
        )

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _RAdamCoefficients) -> None:
        _update(p, grad, state, c)


def _update(p: Any, grad: Any, state: dict[str, Any], c: _RAdamCoefficients) -> None:
    """Apply the rule in place to `p` and its averages."""
    average(p, grad, state, c.moments)
    move = state["exp_avg"] / c.correction * c.lr
    if c.root is not None:
        move = move * (c.root / state["exp_avg_sq"].sqrt().add_(c.moments.eps)) * c.rectification
    p.sub_(move)
