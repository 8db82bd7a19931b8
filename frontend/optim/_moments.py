"""The running moments that NAdam and RAdam share."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle.optim._elementwise import number, scalar
from treadle.optim.optimizer import Group

__all__ = ["Moments", "average", "moments"]


class Moments(NamedTuple):
    """What both rules share: decay rates and weight decay."""

    beta1: float
    beta2: float
    eps: float
    decay: float
    shrink: Any  # runtime scalar or None


def moments(group: Group) -> Moments:
    decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
    return Moments(
        beta1=number(group["betas"][0]),
        beta2=number(group["betas"][1]),
        eps=group["eps"],
        decay=0 if decoupled else decay,
        shrink=scalar(1 - number(group["lr"]) * decay) if decoupled and decay else None,
    )


def average(p: Any, grad: Any, state: dict[str, Any], c: Moments) -> Any:
    """Decay the weights and update both averages in place; returns the gradient with coupled decay."""
    if c.shrink is not None:
        p.mul_(c.shrink)
    if c.decay:
        grad = grad.add(p, alpha=c.decay)
    state["exp_avg"].lerp_(grad, 1 - c.beta1)
    state["exp_avg_sq"].mul_(c.beta2).addcmul_(grad, grad, value=1 - c.beta2)
    return grad
