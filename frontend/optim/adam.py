"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import treadle
from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_betas,
    check_flags,
    check_lr,
    check_not_negative,
    number,
    scalar,
    zeros_like,
)
from treadle.optim.optimizer import Group

__all__ = ["Adam", "AdamW"]


class _Coefficients(NamedTuple):
    beta1: float
    beta2: float
    eps: float
    decay: float  # of the gradient (coupled); 0 for none
    shrink: Any  # runtime scalar: factor on the parameter (decoupled decay), or None
    down: Any  # runtime scalar: -lr / (1 - beta1^step)
    root: Any  # runtime scalar: sqrt(1 - beta2^step)


class Adam(ElementwiseOptimizer):
    """Adam (Kingma and Ba, ICLR 2015), with AMSGrad (Reddi et al., ICLR 2018) as an option.

    m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2,
    p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps).
    `weight_decay` is added to the gradient, or with `decoupled_weight_decay` shrinks the parameter by
    lr * weight_decay. State: `step`, `exp_avg` (m), `exp_avg_sq` (v), `max_exp_avg_sq` (AMSGrad).

    Raises ValueError for options out of range, RuntimeError for flags that exclude each other.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_lr(lr, foreach, capturable)
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        check_flags(foreach, fused, differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "decoupled_weight_decay"):
                group.setdefault(name, False)

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        state = {"step": 0.0, "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _Coefficients:
        step, lr, decay = state["step"], number(group["lr"]), group["weight_decay"]
        beta1, beta2 = (number(beta) for beta in group["betas"])
        decoupled = group["decoupled_weight_decay"]
        return _Coefficients(
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            decay=0 if decoupled else decay,
            shrink=scalar(1 - lr * decay) if decoupled and decay else None,
            down=scalar(-lr / (1 - beta1**step)),
            root=scalar((1 - beta2**step) ** 0.5),
        )

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _Coefficients) -> None:
        _update(p, grad, state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq"), c)


def _update(p: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, c: _Coefficients) -> None:
    """Apply the rule in place to `p` and its averages; `max_exp_avg_sq` is None without AMSGrad."""
    if c.shrink is not None:
        p.mul_(c.shrink)
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    exp_avg.lerp_(grad, 1 - c.beta1)
    exp_avg_sq.mul_(c.beta2).addcmul_(grad, grad, value=1 - c.beta2)
    second = exp_avg_sq
    if max_exp_avg_sq is not None:
        second = max_exp_avg_sq.copy_(treadle.maximum(max_exp_avg_sq, exp_avg_sq))
    p.addcdiv_(exp_avg, (second.sqrt() / c.root).add_(c.eps), value=c.down)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019): p <- (1 - lr weight_decay) p first."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # a checkpoint of Adam loaded here keeps this class's kind of decay
            group["decoupled_weight_decay"] = True
