"""Losses over classes: cross entropy and the margin losses."""

from __future__ import annotations

from typing import Any

import treadle
from treadle import Tensor, _ops

from .activation import logsigmoid
from .common import check_reduction, is_half, legacy_reduction, reduce_loss
from .linear import linear

_Flag = bool | None


def _check_index_target(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The class dim of `input`, for class indices of the shape of `input` without that dim."""
    if input.dim() == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {input.dim()})")
    dim = 0 if input.dim() == 1 else 1
    if target.dtype not in (treadle.int64, treadle.uint8):
        raise RuntimeError(f"expected scalar type Long but found {target.dtype}")
    if target.dim() != input.dim() - 1:
        raise RuntimeError(
            f"Expected target of {input.dim() - 1} dimensions for an input of {input.dim()}, "
            f"got shape {list(target.shape)}"
        )
    if input.dim() > 1 and input.shape[0] != target.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]})."
        )
    if tuple(input.shape[2:]) != tuple(target.shape[1:]):
        raise RuntimeError(f"Expected target size {[input.shape[0], *input.shape[2:]]}, got {list(target.shape)}")
    _check_class_weight(weight, input.shape[dim])
    return dim


def _check_class_weight(weight: Tensor | None, classes: int) -> None:
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != classes):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )


def _mean_over(losses: Tensor, total_weight: Tensor) -> Tensor:
    """The sum over `total_weight`; 0 / 0 is NaN, as the mean of nothing should be."""
    return losses.sum() / total_weight.to(losses.dtype)


def _index_loss(
    logp: Tensor, target: Tensor, dim: int, weight: Tensor | None, ignore_index: int, reduction: str, smoothing: float
) -> Tensor:
    """Loss of log-probabilities against class indices, with a share `smoothing` spread over all classes."""
    check_reduction(reduction)
    dtype = logp.dtype
    valid = target != ignore_index
    index = treadle.where(valid, target, 0).to(treadle.int64)
    losses = -logp.gather(dim, index.unsqueeze(dim)).squeeze(dim)
    if weight is not None:
        at_target = weight.to(dtype).index_select(0, index.reshape(-1)).reshape(tuple(index.shape))
        losses = losses * at_target
    if smoothing > 0:
        spread = logp if weight is None else logp * _class_shape(weight, logp, dim)
        losses = losses * (1 - smoothing) - spread.sum(dim) * (smoothing / logp.shape[dim])
    losses = treadle.where(valid, losses, 0.0)
    if reduction == "none":
        return losses
    if is_half(losses):
        # A count of rows overflows 16 bits before anything else does.
        losses = losses.float()
    if reduction == "sum":
        return losses.sum().to(dtype)
    total = valid.sum() if weight is None else treadle.where(valid, at_target, 0.0).to(losses.dtype).sum()
    return _mean_over(losses, total).to(dtype)


def _reduced_rows(losses: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """Losses of rows, of which the ignored ones are 0, reduced."""
    check_reduction(reduction)
    if reduction == "none":
        return losses
    dtype = losses.dtype
    wide = losses.float() if is_half(losses) else losses
    if reduction == "sum":
        return wide.sum().to(dtype)
    mean = _mean_over(wide, (target != ignore_index).sum())
    return mean if wide is losses else mean.to(dtype)


def _class_shape(weight: Tensor, x: Tensor, dim: int) -> Tensor:
    """`weight` shaped to broadcast over x's dims other than `dim`."""
    return weight.to(x.dtype).reshape((1,) * dim + (-1,) + (1,) * (x.dim() - dim - 1))


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    ignore_index: int = -100,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[y] * x[y] of log-probabilities (N, C, *) or (C,) against indices (N, *) or ().

    Rows with target `ignore_index` give 0 and do not count in the mean, which divides by the sum of the weights.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    dim = _check_index_target(input, target, weight)
    return _index_loss(input, target, dim, weight, ignore_index, reduction, 0.0)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    ignore_index: int = -100,
    reduce: _Flag = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`nll_loss` of log_softmax(x): logits (N, C, *) or (C,).

    The target holds class indices (N, *) or (), or, with the input's shape and a float dtype, probabilities. With
    `label_smoothing` e the target is mixed with e / C for every class.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if tuple(input.shape) == tuple(target.shape) and input.dim():
        return _probability_loss(input, target, weight, ignore_index, reduction, label_smoothing)
    if target.is_floating_point() and target.dim() == input.dim():
        raise RuntimeError(
            f"Expected target of class probabilities of shape {list(input.shape)}, got {list(target.shape)}"
        )
    dim = _check_index_target(input, target, weight)
    if weight is None and input.dim() == 2 and target.dtype is treadle.int64:
        return _reduced_rows(
            _ops.cross_entropy_rows(input, target, ignore_index, label_smoothing), target, ignore_index, reduction
        )
    return _index_loss(_ops.log_softmax(input, dim), target, dim, weight, ignore_index, reduction, label_smoothing)


def _probability_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, smoothing: float
) -> Tensor:
    check_reduction(reduction)
    if not target.is_floating_point():
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {target.dtype}")
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    _check_class_weight(weight, classes)
    logp = _ops.log_softmax(input, dim)
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / classes
    if weight is not None:
        logp = logp * _class_shape(weight, logp, dim)
    losses = -(logp * target).sum(dim)
    if reduction == "mean":
        rows = input.numel() // max(classes, 1)
        return losses.sum() / rows if rows else losses.sum() / 0.0
    return reduce_loss(losses, reduction)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of a linear layer; `options` of chunking are the compiler's to choose."""
    logits = linear(input, linear_weight, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """Sum over the other classes j of weight[y] * max(0, margin - x[y] + x[j])^p / C; input (N, C) or (C,)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    single = input.dim() < 2
    x = input.reshape(1, -1) if single else input
    if x.dim() != 2 or x.shape[1] == 0:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    n, classes = x.shape
    if target.dim() > 1 or target.numel() != n:
        raise RuntimeError(f"inconsistent target size, expected {n} but got {list(target.shape)}")
    if weight is not None and weight.shape[0] != classes:
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    index = target.reshape(-1, 1)
    excess = (margin - x.gather(1, index) + x).clamp(min=0)
    if p == 2:
        excess = excess * excess
    if weight is not None:
        excess = excess * weight.index_select(0, index.reshape(-1)).unsqueeze(1)
    other = treadle.arange(classes, device=x.device) != index
    losses = treadle.where(other, excess, 0.0).sum(1) / classes
    # A target of one element for one vector makes a vector of one loss, as in torch.
    return reduce_loss(losses.reshape(tuple(target.shape)) if single else losses, reduction)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: _Flag = None, reduce: _Flag = None, reduction: str = "mean"
) -> Tensor:
    """Sum over the labels y and the other classes j of max(0, 1 - x[y] + x[j]) / C; a label of -1 ends the list."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.dim() > 2 or tuple(target.shape) != tuple(input.shape) or (input.dim() and input.shape[-1] == 0):
        raise RuntimeError(
            "Expected a vector or matrix and a target of its shape, but got "
            f"{list(input.shape)} and {list(target.shape)}"
        )
    x = input.reshape(1, -1) if input.dim() < 2 else input
    labels = target.reshape(tuple(x.shape))
    listed = (labels >= 0).to(treadle.int64).cumprod(1) > 0
    index = treadle.where(listed, labels, 0)
    classes = treadle.arange(x.shape[1], device=x.device)
    is_label = ((index.unsqueeze(2) == classes) & listed.unsqueeze(2)).any(1)
    excess = (1 - x.gather(1, index).unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    counts = listed.unsqueeze(2) & is_label.logical_not().unsqueeze(1)
    losses = treadle.where(counts, excess, 0.0).sum((1, 2)) / x.shape[1]
    return reduce_loss(losses.reshape(()) if input.dim() < 2 else losses, reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes (the last dim) of the binary cross entropy of sigmoid(x)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduce_loss(losses.sum(-1) / input.shape[-1], reduction)
