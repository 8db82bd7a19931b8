"""Adagrad: steps scaled by the sum of all squared gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import treadle
from treadle.optim._elementwise import (
    ElementwiseOptimizer,
    check_flags,
    check_lr,
    check_not_negative,
    number,
    scalar,
)
from treadle.optim.optimizer import Group

__all__ = ["Adagrad"]


class _AdagradCoefficients(NamedTuple):
    eps: float
    decay: float
    down: Any  # runtime scalar: -lr / (1 + (t - 1) lr_decay)


class Adagrad(ElementwiseOptimizer):
    """Gradient over the root of the sum of all its squares (Duchi, Hazan and Singer, JMLR 2011).

    The sum starts at `initial_accumulator_value`; the rate at step t is lr / (1 + (t - 1) lr_decay).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_not_negative(
            lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )  # fmt: skip
        check_flags(foreach, fused, differentiable)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(self._new_state(p, group))

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        return {"step": 0.0, "sum": treadle.full_like(p, group["initial_accumulator_value"])}

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _AdagradCoefficients:
        rate = number(group["lr"]) / (1 + (state["step"] - 1) * group["lr_decay"])
        return _AdagradCoefficients(group["eps"], group["weight_decay"], scalar(-rate))

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _AdagradCoefficients) -> None:
        _update(p, grad, state["sum"], c)

    def share_memory(self) -> None:
        """Accepted for compatibility: state is never shared between processes here."""


def _update(p: Any, grad: Any, total: Any, c: _AdagradCoefficients) -> None:
    """Apply the rule in place to `p` and the sum of squares."""
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    total.addcmul_(grad, grad, value=1)
    p.addcdiv_(grad, total.sqrt().add_(c.eps), value=c.down)
