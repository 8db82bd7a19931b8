"""Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

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

__all__ = ["NAdam"]


class _NAdamCoefficients(NamedTuple):
    moments: Moments
    correction: Any  # runtime scalar: 1 - beta2^t
    down_grad: Any  # runtime scalar: the step along the gradient
    down_avg: Any  # runtime scalar: the step along the average
    product: float  # mu_1 ... mu_t


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov momentum (Dozat, ICLR workshop 2016).

    The momentum of step t is mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2); the parameter moves along the gradient by
    lr (1 - mu_t) / (1 - mu_1 ... mu_t) and along the average by lr mu_(t+1) / (1 - mu_1 ... mu_(t+1)), both over
    sqrt(v / (1 - beta2^t)) + eps. State: `step`, `mu_product`, `exp_avg`, `exp_avg_sq`.
    """

    _tensor_scalars: ClassVar[frozenset[str]] = frozenset({"step", "mu_product"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(epsilon=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "mu_product": 1.0, "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}

    def _key(self, state: dict[str, Any]) -> Any:
        return state["step"], state["mu_product"]

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _NAdamCoefficients:
        step, lr, decay = state["step"], number(group["lr"]), group["momentum_decay"]
        beta1, beta2 = (number(beta) for beta in group["betas"])
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        following = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = _next_product(state["mu_product"], mu)
        return _NAdamCoefficients(
            moments=moments(group),
            correction=scalar(1 - beta2**step),
            down_grad=scalar(-lr * (1.0 - mu) / (1.0 - product)),
            down_avg=scalar(-lr * following / (1.0 - product * following)),
            product=product,
        )

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _NAdamCoefficients) -> None:
        state["mu_product"] = c.product
        _update(p, grad, state, c)


def _next_product(product: float, mu: float) -> float:
    # Rounded to float32, as it is in a checkpoint: a resumed run then continues with the same bits.
    return float(np.float32(product) * np.float32(mu))


def _update(p: Any, grad: Any, state: dict[str, Any], c: _NAdamCoefficients) -> None:
    """Apply the rule in place to `p` and its averages."""
    grad = average(p, grad, state, c.moments)
    denominator = state["exp_avg_sq"].div(c.correction).sqrt().add_(c.moments.eps)
    p.addcdiv_(grad, denominator, value=c.down_grad)
    p.addcdiv_(state["exp_avg"], denominator, value=c.down_avg)
