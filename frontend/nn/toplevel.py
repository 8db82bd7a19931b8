"""Layers and losses under torch's top-level names (`torch.conv2d`), with its argument order where that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.nn import functional as F
from treadle.tensor import Tensor

__all__ = ["NAMES"]

SAME = (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "avg_pool1d", "bilinear", "celu", "celu_", "channel_shuffle", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "hardshrink",
    "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu",
    "rms_norm", "rrelu", "rrelu_", "selu", "selu_", "threshold", "threshold_",
)  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-05, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """nn.functional.layer_norm."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """nn.functional.group_norm."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """nn.functional.batch_norm, the parameters first."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """nn.functional.instance_norm, the parameters first."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """nn.functional.embedding, the weight first; padding_idx -1 means none."""
    return F.embedding(indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq)


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.dropout."""
    return F.dropout(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.alpha_dropout."""
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.feature_alpha_dropout."""
    return F.feature_alpha_dropout(input, p, train)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """nn.functional.binary_cross_entropy_with_logits; reductions are numbers: none, mean, sum."""
    how = _REDUCTIONS[reduction]
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=how, pos_weight=pos_weight)


def kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """nn.functional.kl_div; reductions are numbers: none, mean, sum."""
    return F.kl_div(input, target, reduction=_REDUCTIONS[reduction], log_target=log_target)


OWN = (
    layer_norm, group_norm, batch_norm, instance_norm, embedding, dropout, alpha_dropout, feature_alpha_dropout,
    binary_cross_entropy_with_logits, kl_div,
)  # fmt: skip
NAMES: dict[str, Any] = {
    **{name: getattr(F, name) for name in SAME if hasattr(F, name)},
    **{f.__name__: f for f in OWN},
}
Tensor.prelu = F.prelu  # type: ignore[attr-defined]
Tensor.hardshrink = F.hardshrink  # type: ignore[attr-defined]
