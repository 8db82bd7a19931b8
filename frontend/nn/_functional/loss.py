"""Losses that compare values: regression, probabilities and distances. Those of classes are in class_loss.py."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import treadle
from treadle import Tensor

from .activation import logsigmoid
from .common import check_reduction, legacy_reduction, reduce_loss
from .linear import pairwise_distance

_Flag = bool | None


def _paired(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands broadcast to one shape, which is rarely meant when it changes something."""
    if tuple(input.shape) == tuple(target.shape):
        return input, target
    warnings.warn(
        f"Using a target size ({tuple(target.shape)}) that is different to the input size "
        f"({tuple(input.shape)}) in {name}. This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size.",
        stacklevel=3,
    )
    return treadle.broadcast_tensors(input, target)


def _reduce_weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """As `reduce_loss`; a weighted mean divides by the sum of the weights."""
    if weight is None:
        return reduce_loss(loss, reduction)
    if tuple(weight.shape) != tuple(loss.shape):
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduce_loss(loss, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|x - y|."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _paired("l1_loss", input, target)
    return _reduce_weighted((input - target).abs(), weight, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(x - y)^2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _paired("mse_loss", input, target)
    difference = input - target
    return _reduce_weighted(difference * difference, weight, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """|x - y| - beta / 2, rounded off to a parabola where |x - y| < beta."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    input, target = _paired("smooth_l1_loss", input, target)
    distance = (input - target).abs()
    if beta == 0:
        return reduce_loss(distance, reduction)
    near = distance * distance * (0.5 / beta)
    return reduce_loss(treadle.where(distance < beta, near, distance - 0.5 * beta), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """delta * (|x - y| - delta / 2), rounded off to (x - y)^2 / 2 where |x - y| <= delta."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = _paired("huber_loss", input, target)
    distance = (input - target).abs()
    loss = treadle.where(distance <= delta, distance * distance * 0.5, (distance - 0.5 * delta) * delta)
    return _reduce_weighted(loss, weight, reduction)


def _log_at_least_100(p: Tensor) -> Tensor:
    """max(log p, -100), whose gradient at p = 0 is 0 and not NaN."""
    zero = p == 0
    return treadle.where(zero, -100.0, treadle.where(zero, 1.0, p).log()).clamp(min=-100.0)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities p; the logarithms stop at -100."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Using a target size ({tuple(target.shape)}) that is different to the input size "
            f"({tuple(input.shape)}) is deprecated. Please ensure they have the same size."
        )
    if input.dtype != target.dtype:
        raise RuntimeError(f"binary_cross_entropy: found target of type {target.dtype} for input of type {input.dtype}")
    loss = (target - 1) * _log_at_least_100(1 - input) - target * _log_at_least_100(input)
    if weight is not None:
        loss = loss * weight
    return reduce_loss(loss, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(x), stably; `pos_weight` weighs the positive targets."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(f"Target size ({tuple(target.shape)}) must be the same as input size ({tuple(input.shape)})")
    log_p = logsigmoid(input)
    if pos_weight is not None:
        log_p = log_p * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input - log_p
    if weight is not None:
        loss = loss * weight
    return reduce_loss(loss, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """y (log y - x) of log-probabilities x; reduction "batchmean" divides the sum by the batch size."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition.",
            stacklevel=2,
        )
    loss = target.exp() * (target - input) if log_target else treadle.xlogy(target, target) - target * input
    if reduction == "batchmean":
        total = loss.sum()
        return total / input.shape[0] if input.dim() else total
    return reduce_loss(loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: _Flag = None,
    eps: float = 1e-8,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - y x, or x - y log(x + eps) where x is no logarithm; `full` adds Stirling's formula for y > 1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        small = target <= 1
        # log of a harmless value where the term is not used.
        safe = treadle.where(small, 1, target)
        stirling = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        loss = loss + treadle.where(small, 0.0, stirling)
    return reduce_loss(loss, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log v + (x - y)^2 / v) / 2 with v = max(var, eps); `var` may lack the last dim, or have 1 there."""
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = treadle.full_like(input, float(var))
    shape, given = tuple(input.shape), tuple(var.shape)
    if given != shape:
        if given == shape[:-1]:
            var = var.unsqueeze(-1)
        elif not (len(given) == len(shape) and given[:-1] == shape[:-1] and given[-1:] == (1,)):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    # The bound keeps the value finite and lets the gradient through.
    bounded = var + (var.clamp(min=eps) - var).detach()
    difference = input - target
    loss = (bounded.log() + difference * difference / bounded) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: _Flag = None, reduce: _Flag = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-y x)) for targets 1 and -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduce_loss(-logsigmoid(target * input), reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """x for target 1, max(0, margin - x) for target -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    far = treadle.where(target != 1, (margin - input).clamp(min=0), 0.0)
    return reduce_loss(far + treadle.where(target != -1, input, 0.0), reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{tuple(input1.shape)}, input2: {tuple(input2.shape)}, target: {tuple(target.shape)} "
        )
    return reduce_loss((margin - target * (input1 - input2)).clamp(min=0), reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos for target 1, max(0, cos - margin) for target -1; inputs (N, D) with target (N,), or (D,) with ()."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs "
            f"with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    tiny = 1e-12  # keeps the gradient of the root finite
    product = (input1 * input2).sum(-1)
    cos = product / (((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)).sqrt()
    near = treadle.where(target == 1, 1 - cos, 0.0)
    return reduce_loss(near + treadle.where(target == -1, (cos - margin).clamp(min=0), 0.0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |a - p| - |a - n| + margin); `swap` takes the lesser of |a - n| and |p - n|."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative "
            f"{negative.dim()}D inputs"
        )
    return _triplet(lambda a, b: pairwise_distance(a, b, p, eps), anchor, positive, negative, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance of your own."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative "
            f"{negative.dim()}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)


def _triplet(
    distance: Callable, anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, swap: bool, reduction: str
) -> Tensor:
    far = distance(anchor, negative)
    if swap:
        far = treadle.minimum(far, distance(positive, negative))
    return reduce_loss((distance(anchor, positive) - far + margin).clamp(min=0), reduction)
