"""L-BFGS, a quasi-Newton method, with an optional strong-Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import treadle
from treadle.optim._elementwise import check_lr, number
from treadle.optim._line_search import Point, strong_wolfe
from treadle.optim.optimizer import Group, Optimizer

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal, Math. Comp. 1980; Liu and Nocedal, Math. Programming 1989).

    `step(closure)` runs up to `max_iter` iterations; `closure` clears the gradients, evaluates the loss, calls
    `backward` and returns the loss. The last `history_size` pairs of moves and gradient changes stand for the Hessian.
    Without `line_search_fn="strong_wolfe"` each move has length `lr` (the first: lr * min(1, 1 / |g|_1)).
    An iteration ends the step early when the largest gradient is at most `tolerance_grad`, when the loss or the
    parameters move by less than `tolerance_change`, or after `max_eval` evaluations (default 1.25 max_iter).

    All parameters are in one group; raises ValueError otherwise, RuntimeError for another line search. Every
    iteration looks at numbers on the host, unlike the other optimizers.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Run up to `max_iter` iterations; returns the loss at the point where the step began."""
        with treadle.no_grad():
            return _Iterations(self, self.param_groups[0], closure).run()


class _Iterations:
    """The iterations of one step; what outlives the step is written to `state` of the first parameter."""

    def __init__(self, optimizer: LBFGS, group: Group, closure: Callable[[], Any]) -> None:
        self.group = group
        self.params = group["params"]
        self.closure = closure
        self.state = optimizer.state[self.params[0]]
        self.state.setdefault("func_evals", 0)
        self.state.setdefault("n_iter", 0)
        self.evaluations = 0

    def run(self) -> Any:
        group, state = self.group, self.state
        original = self.evaluate()
        loss = float(original)
        grad = self.flat_grad()
        if _largest(grad) <= group["tolerance_grad"]:
            return original
        direction, length = state.get("d"), state.get("t")
        previous_grad, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = -grad
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            else:
                self.remember(grad - previous_grad, direction * length)
                direction = self.newton_direction(grad)
            previous_grad, previous_loss = grad.clone(), loss
            length = number(group["lr"])
            if state["n_iter"] == 1:
                length *= min(1.0, 1.0 / float(grad.abs().sum()))
            slope = float(grad.dot(direction))
            if slope > -group["tolerance_change"]:
                break
            last = iteration == group["max_iter"]
            if group["line_search_fn"] is not None:
                found = self.search(direction, Point(length, loss, grad, slope))
                loss, grad, length = found.value, found.grad, found.t
                self.move(length, direction)
            else:
                self.move(length, direction)
                if not last:  # a stochastic loss will be another one at the next step anyway
                    loss, grad = float(self.evaluate()), self.flat_grad()
            if last or self.converged(grad, direction, length, loss - previous_loss):
                break
        state.update(d=direction, t=length, prev_flat_grad=previous_grad, prev_loss=previous_loss)
        return original

    def evaluate(self) -> Any:
        self.evaluations += 1
        self.state["func_evals"] += 1
        with treadle.enable_grad():
            return self.closure()

    def flat_grad(self) -> Any:
        """All gradients in one vector; zeros for parameters without one."""
        return treadle.cat(
            [
                (treadle.zeros_like(p) if p.grad is None else p.grad).reshape(-1)
                for p in self.params
            ]
        )  # fmt: skip

    def move(self, length: float, direction: Any) -> None:
        offset = 0
        for p in self.params:
            p.add_(direction[offset : offset + p.numel()].reshape(p.shape), alpha=length)
            offset += p.numel()

    def remember(self, change: Any, moved: Any) -> None:
        """Store how the gradient changed over the last move, unless the curvature is not positive enough."""
        state = self.state
        curvature = change.dot(moved)
        if not float(curvature) > 1e-10:
            return
        if len(state["old_dirs"]) == self.group["history_size"]:
            for name in ("old_dirs", "old_stps", "ro"):
                state[name].pop(0)
        state["old_dirs"].append(change)
        state["old_stps"].append(moved)
        state["ro"].append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)

    def newton_direction(self, grad: Any) -> Any:
        """Minus the inverse Hessian times the gradient, by the two-loop recursion."""
        state = self.state
        pairs = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        direction, weights = -grad, []
        for change, moved, ro in reversed(pairs):
            weight = moved.dot(direction) * ro
            direction = direction - change * weight
            weights.append(weight)
        direction = direction * state["H_diag"]
        for (change, moved, ro), weight in zip(pairs, reversed(weights), strict=True):
            direction = direction + moved * (weight - change.dot(direction) * ro)
        return direction

    def search(self, direction: Any, start: Point) -> Point:
        if self.group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        origin = [p.clone() for p in self.params]

        def value_and_grad(length: float) -> Point:
            self.move(length, direction)
            loss, grad = float(self.evaluate()), self.flat_grad()
            for p, saved in zip(self.params, origin, strict=True):
                p.copy_(saved)
            return Point(length, loss, grad, float(grad.dot(direction)))

        return strong_wolfe(
            value_and_grad, start, _largest(direction), self.group["tolerance_change"],
            max_evaluations=self.group["max_eval"] - self.evaluations,
        )  # fmt: skip

    def converged(self, grad: Any, direction: Any, length: float, change: float) -> bool:
        group = self.group
        return (
            self.evaluations >= group["max_eval"]
            or _largest(grad) <= group["tolerance_grad"]
            or _largest(direction) * length <= group["tolerance_change"]
            or abs(change) < group["tolerance_change"]
        )


def _largest(vector: Any) -> float:
    return float(vector.abs().max())
