"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from treadle.optim._elementwise import ElementwiseOptimizer, check_flags, check_lr, check_not_negative, number, scalar
from treadle.optim.optimizer import Group

__all__ = ["SGD"]


class SGD(ElementwiseOptimizer):
    """Gradient descent with heavy-ball momentum (Polyak 1964) or Nesterov's (Sutskever et al., ICML 2013).

    With g the gradient plus `weight_decay` times p:  b <- momentum b + (1 - dampening) g  (b = g at first), then
    p <- p - lr b, or with `nesterov`  p <- p - lr (g + momentum b). `lr` is applied after the momentum, so that a
    change of it acts at once.

    Raises ValueError for negative options, or `nesterov` without momentum or with dampening.
    """

    # b starts as the first gradient, not as zeros, so there is no count of steps in the state.
    _tensor_scalars: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr, foreach)
        check_not_negative(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_flags(foreach, fused, differentiable)
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable,
            "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("nesterov", False)
            group.setdefault("maximize", False)

    def _step_group(self, group: Group) -> None:
        down = scalar(-number(group["lr"]))
        momentum = group["momentum"]
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            old = self.state[p].get("momentum_buffer") if momentum else None
            new = _update(
                p, grad, old, down, momentum, group["dampening"], number(group["weight_decay"]),
                group["nesterov"], group["maximize"],
            )  # fmt: skip
            if new is not old:
                self.state[p]["momentum_buffer"] = new


def _update(
    p: Any, grad: Any, buf: Any, down: Any, momentum: float, dampening: float, decay: float, nesterov: bool, up: bool
) -> Any:
    """Apply the rule in place to `p`; `down` is -lr. Returns the momentum buffer, made if it was None."""
    if up:
        grad = -grad
    if decay:
        grad = grad.add(p, alpha=decay)
    if momentum:
        if buf is None:
            buf = grad.clone()
        else:
            buf.mul_(momentum).add_(grad, alpha=1 - dampening)
        grad = grad.add(buf, alpha=momentum) if nesterov else buf
    p.add_(grad, alpha=down)
    return buf
