"""Schedules that rise and fall: cycles, one cycle, and warm restarts."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from treadle.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group, set_value
from treadle.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


def _start_momentum(optimizer: Optimizer, base: Any, largest: Any, fresh: bool) -> tuple[bool, list[Any], list[Any]]:
    """Check that the optimizer has a momentum to cycle, and set it to its largest value at a fresh start.

    Returns whether it is beta1, and the base and largest values of each group.
    """
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    use_beta1 = "betas" in optimizer.defaults
    bases = per_group("base_momentum", optimizer, base)
    tops = per_group("max_momentum", optimizer, largest)
    if fresh:
        for group, low, top in zip(optimizer.param_groups, bases, tops, strict=True):
            _set_momentum(group, top, use_beta1)
            group["max_momentum"] = top
            group["base_momentum"] = low
    return use_beta1, bases, tops


def _set_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """lr between `base_lr` and `max_lr` and back, over and over (Smith, WACV 2017), usually stepped every batch.

    A cycle rises for `step_size_up` steps and falls for `step_size_down`. Its height is constant ("triangular"), halved
    each cycle ("triangular2"), scaled by `gamma` ** step ("exp_range"), or by `scale_fn` of the cycle's number (from 1)
    or of the step, as `scale_mode` ("cycle" or "iterations") says. With `cycle_momentum` the momentum (or beta1) goes
    the other way between `max_momentum` and `base_momentum`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, value in zip(optimizer.param_groups, base_lrs, strict=True):
                set_value(group, "lr", value)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1, self.base_momentums, self.max_momentums = _start_momentum(
                optimizer, base_momentum, max_momentum, last_epoch == -1
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Height of cycle `x`, or at step `x`, relative to the first."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[Any]:
        """Rates of step `last_epoch`; sets the momentum of the groups as well."""
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, base, top in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, top - (top - base) * height * scale, self.use_beta1)
        return [
            base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs, strict=True)
        ]  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """The state; of a custom `scale_fn` the attributes of a callable object, None for a plain function."""
        state = super().state_dict()
        function = state["_scale_fn_custom"]
        if function is not None:
            plain = isinstance(function, types.FunctionType)
            state["_scale_fn_custom"] = None if plain else dict(vars(function))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; the scale function stays this schedule's."""
        function = self._scale_fn_custom
        super().load_state_dict(state_dict)
        self._scale_fn_custom = function
        if function is not None and state_dict["_scale_fn_custom"] is not None:
            vars(function).update(state_dict["_scale_fn_custom"])


class OneCycleLR(LRScheduler):
    """One rise and one long fall of the lr over the whole training (Smith and Topin, 2019), stepped every batch.

    lr: `max_lr` / `div_factor` -> `max_lr` in the first `pct_start` of the steps, -> that initial rate over
    `final_div_factor` at the end (with `three_phase` down the way it came first, then to the minimum). With
    `cycle_momentum` the momentum (or beta1) goes the other way. The number of steps is `total_steps`, or `epochs`
    times `steps_per_epoch`; ValueError on stepping further.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self._schedule_phases = _phases(pct_start, self.total_steps, three_phase)
        self._anneal_func_type = anneal_strategy
        fresh = last_epoch == -1
        for group, top in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
            if fresh:
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1, _, _ = _start_momentum(optimizer, base_momentum, max_momentum, fresh)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, done: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        """Rates of step `last_epoch`; sets the momentum of the groups as well."""
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        begin = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            begin = end
        done = (step - begin) / (end - begin)
        lrs = []
        for group in self.optimizer.param_groups:
            lrs.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], done))
            if self.cycle_momentum:
                momentum = self._anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], done)
                _set_momentum(group, momentum, self.use_beta1)
        return lrs


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if total_steps is None:
        given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    else:
        given = {"total_steps": total_steps}
    total = 1
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
        total *= value
    return total


def _phases(pct_start: float, total: int, three: bool) -> list[dict[str, Any]]:
    """Last step of each phase, and the group options at its ends."""

    def phase(end: float, lrs: str, momenta: str) -> dict[str, Any]:
        (start_lr, end_lr), (start_momentum, end_momentum) = lrs.split(), momenta.split()
        return {
            "end_step": end, "start_lr": start_lr, "end_lr": end_lr,
            "start_momentum": start_momentum, "end_momentum": end_momentum,
        }  # fmt: skip

    rise = phase(float(pct_start * total) - 1, "initial_lr max_lr", "max_momentum base_momentum")
    if three:
        return [
            rise,
            phase(float(2 * pct_start * total) - 2, "max_lr initial_lr", "base_momentum max_momentum"),
            phase(total - 1, "initial_lr min_lr", "max_momentum max_momentum"),
        ]
    return [rise, phase(total - 1, "max_lr min_lr", "base_momentum max_momentum")]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the initial lr down to `eta_min`, over and over (Loshchilov and Hutter, ICLR 2017).

    The first takes `T_0` epochs, each further one `T_mult` times the one before. `step(epoch)` takes a fractional
    epoch, for stepping within epochs.
    """

    last_epoch: int

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Rates `T_cur` epochs after the last restart."""
        self._warn_outside_step()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]
        """Go to the next epoch, or to `epoch`, which may be fractional (ValueError if negative)."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with self._stepping():
            values = self.get_lr()
        self._apply(values)

    def _go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        while self.T_mult > 1 and self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
