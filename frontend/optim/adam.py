"""Adam and AdamW."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from treadle._ops import rebind_
from treadle.ir.core import Operation
from treadle.ir.ops.composites import AdamUpdate
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
from treadle.recorder.trace import record
from treadle.recorder.tree import intern_operation

__all__ = ["Adam", "AdamW"]


class _Coefficients(NamedTuple):
    rule: Operation
    lr: Any  # runtime scalars, like the next two
    correction1: Any  # 1 - beta1^step
    correction2_sqrt: Any  # sqrt(1 - beta2^step)


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
        step = state["step"]
        beta1, beta2 = (float(number(beta)) for beta in group["betas"])
        decay, eps = float(number(group["weight_decay"])), float(number(group["eps"]))
        rule = _rule(beta1, beta2, eps, decay, bool(group["decoupled_weight_decay"]), bool(group["amsgrad"]))
        root = (1 - beta2**step) ** 0.5
        return _Coefficients(rule, scalar(number(group["lr"])), scalar(1 - beta1**step), scalar(root))

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _Coefficients) -> None:
        averages = [state[name] for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if name in state]
        new, *news = record(c.rule, p, grad, *averages, c.lr, c.correction1, c.correction2_sqrt)
        for old, value in zip(averages, news, strict=True):
            rebind_(old, value)
        rebind_(p, new)


@functools.lru_cache(maxsize=256)
def _rule(beta1: float, beta2: float, eps: float, decay: float, decoupled: bool, amsgrad: bool) -> Operation:
    """The recorded op of one parameter's update (made once: its identity keys the trace)."""
    return intern_operation(AdamUpdate(beta1, beta2, eps, decay, decoupled, amsgrad, False))


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
