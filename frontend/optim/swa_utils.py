"""Averages of a model's weights over training, and the schedule that goes with them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import treadle
from treadle.nn import Module
from treadle.optim._elementwise import scalar
from treadle.optim.lr_scheduler.base import LRScheduler, per_group
from treadle.optim.optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """An in-place exponential moving average of lists of tensors: a <- decay a + (1 - decay) p."""
    _check_decay(decay)

    def ema_update(averages: list[Any], currents: list[Any], count: Any = None) -> None:
        with treadle.no_grad():
            for average, current in zip(averages, currents, strict=True):
                if average.is_floating_point():
                    average.lerp_(current, 1 - decay)
                else:
                    average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """An in-place arithmetic mean of lists of tensors: a <- a + (p - a) / (count + 1)."""

    def swa_update(averages: list[Any], currents: list[Any], count: Any) -> None:
        weight = scalar(1.0 / (int(count) + 1))
        with treadle.no_grad():
            for average, current in zip(averages, currents, strict=True):
                if average.is_floating_point():
                    average.lerp_(current, weight)
                else:
                    average.add_((current - average).div(int(count) + 1, rounding_mode="trunc"))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """An exponential moving average of one tensor: returns decay a + (1 - decay) p."""
    _check_decay(decay)

    def ema_update(average: Any, current: Any, count: Any = None) -> Any:
        with treadle.no_grad():
            return decay * average + (1 - decay) * current

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """An arithmetic mean of one tensor: returns a + (p - a) / (count + 1)."""

    def swa_update(average: Any, current: Any, count: Any) -> Any:
        with treadle.no_grad():
            return average + (current - average) / (count + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose weights are averages (SWA: Izmailov et al., UAI 2018; EMA: Polyak averaging).

    `update_parameters(model)` takes in the weights of `model`. The rule is the arithmetic mean, or
    `avg_fn(average, current, count)` -> tensor, or `multi_avg_fn(averages, currents, count)` in place; ValueError for
    both. Buffers are copied from the model, or averaged too with `use_buffers`. `n_averaged` counts the models.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", treadle.tensor(0, dtype=treadle.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers
        self._known: tuple[Any, Any, int] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    def _count(self) -> int:
        """`n_averaged` on the host, read from the tensor only if someone else has changed it since."""
        known = self._known
        version = getattr(self.n_averaged, "_version", None)
        if known is not None and known[0] is self.n_averaged and version is not None and known[1] == version:
            return known[2]
        return int(self.n_averaged)

    def update_parameters(self, model: Module) -> None:
        """Take the weights of `model`, of the same architecture, into the average."""
        with treadle.no_grad():
            count = self._count()
            averages, currents = self._pairs(model)
            if count == 0:
                for average, current in zip(averages, currents, strict=True):
                    average.copy_(current)
            elif self.avg_fn is not None:
                for average, current in zip(averages, currents, strict=True):
                    average.copy_(self.avg_fn(average, current, self.n_averaged))
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(averages, currents, self.n_averaged)
            else:
                get_swa_multi_avg_fn()(averages, currents, count)
            if not self.use_buffers:
                for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                    mine.copy_(theirs.to(mine.device))
            self.n_averaged.add_(1)
            self._known = (self.n_averaged, getattr(self.n_averaged, "_version", None), count + 1)

    def _pairs(self, model: Module) -> tuple[list[Any], list[Any]]:
        mine, theirs = list(self.module.parameters()), list(model.parameters())
        if self.use_buffers:
            mine, theirs = list(chain(mine, self.module.buffers())), list(chain(theirs, model.buffers()))
        return mine, [p.to(a.device) for p, a in zip(theirs, mine, strict=True)]


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute anew the running statistics of all batch-norm layers of `model`, over the batches of `loader`.

    A batch is a tensor, or a tuple or list whose first element is the model's input. The statistics become plain means
    over the batches. Training mode is restored at the end.
    """
    kinds = (treadle.nn.BatchNorm1d, treadle.nn.BatchNorm2d, treadle.nn.BatchNorm3d)
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, kinds)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    with treadle.no_grad():
        for module in momenta:
            module.reset_running_stats()
            module.momentum = None
        for batch in loader:
            inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(inputs if device is None else inputs.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the lr to `swa_lr` (one for all or a list of one a group) over `anneal_epochs`, then keeps it.

    Works on the rates in force, so it may follow another schedule. `anneal_strategy` is "cos" or "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, value in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = value
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _progress(self, step: int) -> float:
        """How far along, from 0 to 1, after `step` steps."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """Rates of this epoch from those of the one before."""
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._progress(step - 1), self._progress(step)
        lrs = []
        for group in self.optimizer.param_groups:
            target = group["swa_lr"]
            start = target if before == 1 else (group["lr"] - before * target) / (1 - before)
            lrs.append(target * now + start * (1 - now))
        return lrs
