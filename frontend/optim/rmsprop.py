"""RMSprop: steps scaled by the running mean square of the gradient."""

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

__all__ = ["RMSprop"]


class _RMSpropCoefficients(NamedTuple):
    alpha: float
    eps: float
    decay: float
    momentum: float
    down: Any  # runtime scalar: -lr


class RMSprop(ElementwiseOptimizer):
    """Gradient over the root of its running mean square (Hinton, Coursera lecture 6e, 2012; centred: Graves 2013).

    v <- alpha v + (1 - alpha) g^2; the denominator is sqrt(v) + eps, with `centered` sqrt(v - m^2) + eps where m is the
    running mean of g. With `momentum` the quotients are accumulated in `momentum_buffer` first.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _key(self, state: dict[str, Any]) -> Any:
        return None  # the coefficients do not depend on the count of steps

    def _new_state(self, p: Any, group: Group) -> dict[str, Any]:
        state = {"step": 0.0, "square_avg": zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state

    def _coefficients(self, group: Group, state: dict[str, Any]) -> _RMSpropCoefficients:
        return _RMSpropCoefficients(
            group["alpha"], group["eps"], group["weight_decay"], group["momentum"], scalar(-number(group["lr"]))
        )

    def _update(self, p: Any, grad: Any, state: dict[str, Any], c: _RMSpropCoefficients) -> None:
        _update(
            p, grad, state["square_avg"], state.get("grad_avg"), state.get("momentum_buffer") if c.momentum else None, c
        )


def _update(p: Any, grad: Any, square: Any, mean: Any, buf: Any, c: _RMSpropCoefficients) -> None:
    """Apply the rule in place; `mean` is None unless centred, `buf` is None without momentum."""
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    square.mul_(c.alpha).addcmul_(grad, grad, value=1 - c.alpha)
    if mean is None:
        root = square.sqrt().add_(c.eps)
    else:
        mean.lerp_(grad, 1 - c.alpha)
        root = square.addcmul(mean, mean, value=-1).sqrt_().add_(c.eps)
    if buf is None:
        p.addcdiv_(grad, root, value=c.down)
    else:
        buf.mul_(c.momentum).addcdiv_(grad, root)
        p.add_(buf, alpha=c.down)
