"""The base of all schedules of the learning rate."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import treadle
from treadle.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LRScheduler"]


def group_values(optimizer: Optimizer, key: str) -> list[Any]:
    """The option `key` of every group; tensors are copied, so that a later change in place does not show."""
    return [copied(group[key]) for group in optimizer.param_groups]


def copied(value: Any) -> Any:
    """`value`, cloned if it is a tensor."""
    return value.clone() if isinstance(value, treadle.Tensor) else value


def set_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option; one that is a tensor is filled, for others may hold it."""
    if isinstance(group[key], treadle.Tensor):
        group[key].fill_(value.item() if isinstance(value, treadle.Tensor) else value)
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value a parameter group: `value` itself for all, or the elements of a list of matching length."""
    groups = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != groups:
            raise ValueError(f"{name} must have one value per parameter group: expected {groups}, got {len(value)}")
        return [copied(v) for v in value]
    return [copied(value) for _ in range(groups)]


def check_optimizer(optimizer: Any) -> None:
    """Raise TypeError unless `optimizer` is an Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def function_states(functions: list[Callable[..., Any]]) -> list[dict[str, Any] | None]:
    """What can be saved of functions: the attributes of callable objects, nothing of plain functions."""
    return [None if isinstance(f, types.FunctionType) else dict(vars(f)) for f in functions]


class LRScheduler:
    """Base class of schedules: `get_lr()` gives the rates of epoch `last_epoch`, `step()` moves on and applies them.

    `last_epoch=-1` starts afresh; otherwise the schedule resumes after that epoch, and every group has to have
    `initial_lr`, as restored optimizers do (KeyError if not). `base_lrs` are the initial rates.
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Any]
    last_epoch: int

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{number}] when resuming a schedule with "
                    f"last_epoch={last_epoch}: load the optimizer's state first, or start with last_epoch=-1"
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, which has a state_dict of its own."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates in force, one a group."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of epoch `last_epoch`, one a group. Many schedules compute them from the rates in force."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or, deprecated, to `epoch`) and set the rates of all groups."""
        if self._step_count == 1 and not self.optimizer._stepped:
            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(): the first value of the schedule is skipped",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn("the epoch argument of scheduler.step() is deprecated", UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._stepping():
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
                values = closed_form()
        self._apply(values)

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _apply(self, values: list[Any]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_value(group, "lr", value)
        self._last_lr = group_values(self.optimizer, "lr")

    def _warn_outside_step(self) -> None:
        """`get_lr()` called by a user gives what the next step would, which is seldom what is wanted."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "to get the last learning rate computed by the schedule, use get_last_lr()", UserWarning, stacklevel=3
            )

    def _scaled(self, factor: float) -> list[Any]:
        """The rates in force times `factor`."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _unchanged(self) -> list[Any]:
        return group_values(self.optimizer, "lr")


class FunctionSchedule(LRScheduler):
    """A schedule by user functions of the epoch, one for all groups or one a group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != len(optimizer.param_groups):
                raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas: list[Callable[[int], float]] = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state; of `lr_lambdas` the attributes of callable objects, and None for plain functions."""
        return {**super().state_dict(), "lr_lambdas": function_states(self.lr_lambdas)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; the functions stay those of this schedule, callable objects get back their attributes."""
        functions = self.lr_lambdas
        super().load_state_dict(state_dict)
        self.lr_lambdas = functions
        for function, saved in zip(functions, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                vars(function).update(saved)
