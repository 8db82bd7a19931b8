"""Connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle
from treadle import Tensor

from .common import check_reduction

# Stands for log 0 in the recursion: minus infinity would make NaN of the gradient of logsumexp.
_NEVER = -1e30


def _lengths(value: Any, what: str, batch: int, x: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            raise RuntimeError(f"{what}_lengths must be integral")
        value = value.to(treadle.int64).reshape(-1)
    else:
        value = treadle.tensor(
            list(value) if isinstance(value, Sequence) else [value], dtype=treadle.int64, device=x.device
        )
    if value.shape[0] != batch:
        raise RuntimeError(f"{what}_lengths must be of size batch_size")
    return value


def _padded_targets(targets: Tensor, lengths: Tensor, batch: int) -> Tensor:
    """Targets as (N, S). Those given end to end are spread out, for which the lengths have to be read."""
    targets = targets.to(treadle.int64)
    if targets.dim() == 2:
        return targets
    if targets.dim() != 1:
        raise RuntimeError(f"targets must be 1-d or 2-d, got {targets.dim()}-d")
    longest = int(lengths.max()) if batch else 0
    starts = (lengths.cumsum(0) - lengths).unsqueeze(1)
    places = starts + treadle.arange(longest, device=targets.device)
    if targets.shape[0] == 0:
        return treadle.zeros((batch, longest), dtype=treadle.int64, device=targets.device)
    flat = places.clamp(max=targets.shape[0] - 1).reshape(-1)
    return targets.index_select(0, flat).reshape(batch, longest)


def _shift(alpha: Tensor, by: int) -> Tensor:
    """alpha (N, L) moved to the right."""
    lost = alpha.new_full((alpha.shape[0], by), _NEVER)
    return treadle.cat([lost, alpha[:, : alpha.shape[1] - by]], 1) if alpha.shape[1] > by else alpha * 0 + _NEVER


def _negative_log_likelihood(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """The forward recursion over labels with blanks between them: (N,)."""
    steps, batch, _ = log_probs.shape
    width = 2 * targets.shape[1] + 1
    labels = treadle.full((batch, width), blank, dtype=treadle.int64, device=log_probs.device)
    labels[:, 1::2] = targets
    emit = log_probs.gather(2, labels.unsqueeze(0).expand(steps, batch, width)).clamp(min=_NEVER)
    place = treadle.arange(width, device=log_probs.device)
    # A label may follow the last one directly unless they are equal.
    before = treadle.cat([labels[:, :2] * 0 + blank, labels[:, : max(width - 2, 0)]], 1)[:, :width]
    may_skip = (labels != blank) & (labels != before)
    alpha = treadle.where(place < 2, emit[0], _NEVER)
    for t in range(1, steps):
        paths = treadle.stack([alpha, _shift(alpha, 1), treadle.where(may_skip, _shift(alpha, 2), _NEVER)])
        alpha = treadle.where((t < input_lengths).unsqueeze(1), treadle.logsumexp(paths, 0) + emit[t], alpha)
    last = (2 * target_lengths).unsqueeze(1)
    ends = (place == last) | (place == last - 1)
    return -treadle.logsumexp(treadle.where(ends, alpha, _NEVER), 1)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that log_probs (T, N, C), or (T, C), spell the targets (N, S), or all in one (sum,).

    The mean is over the batch, of losses divided by the target's length. An impossible target costs infinity, or
    nothing with `zero_infinity`.
    """
    check_reduction(reduction)
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(f"log_probs must be 2-d or 3-d, got {log_probs.dim()}-d")
    if not log_probs.is_floating_point():
        raise RuntimeError(f"log_probs must be of a floating point type, got {log_probs.dtype}")
    if targets.is_floating_point():
        raise RuntimeError("targets must be of an integer type")
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets if targets.dim() == 2 else targets.reshape(1, -1)
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    input_lengths = _lengths(input_lengths, "input", batch, log_probs)
    target_lengths = _lengths(target_lengths, "target", batch, log_probs)
    if steps == 0:
        raise RuntimeError("ctc_loss: log_probs must have at least one step")
    padded = _padded_targets(targets, target_lengths, batch)
    loss = _negative_log_likelihood(log_probs, padded, input_lengths, target_lengths, blank)
    loss = treadle.where(loss > -0.5 * _NEVER, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "none":
        return loss.squeeze(0) if single else loss
    if reduction == "sum":
        return loss.sum()
    return (loss / target_lengths.clamp(min=1).to(loss.dtype)).mean()
