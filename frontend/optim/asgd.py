"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_lr,
    check_not_negative,
    number,
    scalar,
    zeros_like,
)
from treadle.optim.optimizer import Group

__all__ = ["ASGD"]


class _ASGDCoefficients(NamedTuple):
    decay: float
    shrink: Any  # runtime scalar: 1 - lambd eta
    down: Any  # runtime scalar: -eta
    weight: Any  # runtime scalar: mu, or None where the average is the parameter itself
    eta: float  # of the next step
    mu: float  # of the next step


class ASGD(ElementwiseOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, SIAM J. Control Optim. 1992).

    p <- (1 - lambd eta) p - eta g, with eta = lr / (1 + lambd lr t)^alpha; from step `t0` on, `ax` in the state is the
    running average of p, until then p itself. State: `step`, `eta`, `mu` (weight of the newest in the average), `ax`.
    """

    _tensor_scalars: ClassVar[frozenset[str]] = frozenset({"step", "eta", "mu"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "eta": _round(number(group["lr"])), "mu": 1.0, "ax": zeros_like(p)}

    def _key(self, state: dict[str, Any]) -> Any:
        return state["step"], state["eta"], state["mu"]

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _ASGDCoefficients:
        step, lr, lambd, eta = state["step"], number(group["lr"]), group["lambd"], state["eta"]
        return _ASGDCoefficients(
            decay=group["weight_decay"],
            shrink=scalar(1 - lambd * eta),
            down=scalar(-eta),
            weight=None if state["mu"] == 1 else scalar(state["mu"]),
            eta=_round(lr / (1 + lambd * lr * step) ** group["alpha"]),
            mu=_round(1 / max(1, step - group["t0"])),
        )

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _ASGDCoefficients) -> None:
        _update(p, grad, state["ax"], c)
        state["eta"], state["mu"] = c.eta, c.mu


def _round(value: float) -> float:
    # To float32, as it is in a checkpoint: a resumed run then continues with the same bits.
    return float(np.float32(value))


def _update(p: Any, grad: Any, average: Any, c: _ASGDCoefficients) -> None:
    """Apply the rule in place to `p` and its average."""
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    p.mul_(c.shrink).add_(grad, alpha=c.down)
    if c.weight is None:
        average.copy_(p)
    else:
        average.add_(p.sub(average).mul_(c.weight))
