"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, ClassVar

from treadle._ops import rebind_
from treadle.ir.core import Operation
from treadle.ir.ops.composites import SgdUpdate
from treadle.optim._elementwise import (
    ElementwiseOptimizer,
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
        lr, momentum, decay = (
            scalar(number(group["lr"])),
            float(group["momentum"]),
            float(number(group["weight_decay"])),
        )
        dampening, nesterov, maximize = float(group["dampening"]), bool(group["nesterov"]), bool(group["maximize"])
        first, later = (_rule(momentum, dampening, decay, nesterov, maximize, k) for k in (True, False))
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if not momentum:
                rebind_(p, record(first, p, grad, lr))
                continue
            state = self.state[p]
            old = state.get("momentum_buffer")
            if old is None and not dampening:  # 0 * momentum + g is the g that the buffer begins as
                old = state["momentum_buffer"] = zeros_like(p)
            if old is None:
                new, buf = record(first, p, grad, lr)
                state["momentum_buffer"] = buf
            else:
                new, buf = record(later, p, grad, old, lr)
                rebind_(old, buf)
            rebind_(p, new)


@functools.lru_cache(maxsize=256)
def _rule(momentum: float, dampening: float, decay: float, nesterov: bool, maximize: bool, first: bool) -> Operation:
    """The recorded op of one parameter's update (made once: its identity keys the trace)."""
    return intern_operation(SgdUpdate(momentum, dampening, decay, nesterov, maximize, first))
