"""Schedules made of others, one after another or all together, and the schedule that follows a metric."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from treadle.optim.lr_scheduler.base import LRScheduler, check_optimizer, group_values, set_value
from treadle.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


class _Combined(LRScheduler):
    """Common to schedules of schedules: the check of the parts, and their states."""

    _schedulers: Sequence[Any]

    def _check_parts(self, schedulers: Sequence[Any], optimizer: Optimizer | None) -> Optimizer:
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler, but got none")
        for number, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {number} should have `optimizer` as its attribute.")
            if optimizer is None:
                optimizer = scheduler.optimizer
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support ReduceLROnPlateau (index {number}), whose step() takes a metric"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{name} expects all schedulers to have the same optimizer; index {number} has not")
        assert optimizer is not None
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        """The state, with a list of the parts' states as `_schedulers`."""
        return {**super().state_dict(), "_schedulers": [part.state_dict() for part in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, and let every part take over its own."""
        parts = self._schedulers
        super().load_state_dict(state_dict)
        self._schedulers = parts
        for part, state in zip(parts, state_dict["_schedulers"], strict=True):
            part.load_state_dict(state)


def _rewind(scheduler: Any) -> None:
    """Take back the epoch that a schedule, or each part of one, counted when it was constructed."""
    if hasattr(scheduler, "_schedulers"):
        for part in scheduler._schedulers:
            _rewind(part)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class SequentialLR(_Combined):
    """One schedule after another: number k takes over at epoch `milestones[k - 1]`, starting with its epoch 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[Any], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._check_parts(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects one scheduler more than milestones, but got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Constructing the parts has applied the first value of every one; only that of the first is to count.
        for group in optimizer.param_groups:
            set_value(group, "lr", group["initial_lr"])
        _rewind(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch of the schedule in charge."""
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All schedules at once: each step takes a step of every one, so that their factors multiply."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        self.optimizer = self._check_parts(schedulers, optimizer)
        self._schedulers = schedulers
        self._last_lr = group_values(self.optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Take a step of every schedule, in order."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = group_values(self.optimizer, "lr")


class ReduceLROnPlateau(LRScheduler):
    """lr times `factor` when a metric has not improved for more than `patience` epochs.

    The metric improves when it goes below (mode "min") or above ("max") the best so far by more than `threshold`, as a
    fraction of it ("rel") or in its unit ("abs"). After a reduction `cooldown` epochs are not counted. The rate stays
    at least `min_lr` (one for all or a list of one a group), and changes by more than `eps` or not at all.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        check_optimizer(optimizer)
        groups = len(optimizer.param_groups)
        several = isinstance(min_lr, (list, tuple))
        if several and len(min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = optimizer
        self.factor = factor
        self.default_min_lr = None if several else min_lr
        self.min_lrs = list(min_lr) if several else [min_lr] * groups
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = group_values(optimizer, "lr")
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count an epoch with the metric's value `metrics` (a number or a one-element tensor)."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn("the epoch argument of scheduler.step() is deprecated", UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = group_values(self.optimizer, "lr")

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs are not counted now."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        margin = -self.threshold if self.mode == "min" else self.threshold
        limit = best * (1.0 + margin) if self.threshold_mode == "rel" else best + margin
        return value < limit if self.mode == "min" else value > limit

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"the optimizer has {len(groups)} parameter groups now, but min_lrs is for {len(self.min_lrs)}"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_value(group, "lr", new)
