"""Normalisation: by batch, layer, group, instance and neighbourhood.

Statistics of 16-bit inputs are taken in float32 and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import treadle
from treadle import Tensor, _ops

from .common import is_half
from .pooling import mean_pool


def _check_values_per_channel(shape: Sequence[int]) -> None:
    """Training statistics of a single value are meaningless."""
    count = shape[0]
    for size in shape[2:]:
        count *= size
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}")


def _check_channels(channels: int, **tensors: Tensor | None) -> None:
    for name, t in tensors.items():
        if t is not None and (t.dim() != 1 or t.shape[0] != channels):
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")


def _update_running(
    mean: Tensor,
    var: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float | Tensor,
    count: int,
) -> None:
    """Move the running statistics towards those of this batch, in place; the variance is the unbiased one."""
    with treadle.no_grad():
        if running_mean is not None:
            new = mean.detach().reshape(-1) * momentum
            running_mean.mul_(1 - momentum).add_(new.to(running_mean.dtype))
        if running_var is not None:
            new = var.detach().reshape(-1) * (momentum * (count / max(count - 1, 1)))
            running_var.mul_(1 - momentum).add_(new.to(running_var.dtype))


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise (N, C, *) over all dims but C.

    In training the batch's own statistics are used and the running ones updated in place; otherwise the running ones
    are used. `momentum` may be a 0-d tensor.
    """
    if input.dim() == 1 and input.numel() == 0:
        return input.clone()  # torch lets this one pass
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dims, got {input.dim()}")
    if not input.is_floating_point():
        raise RuntimeError(f"batch_norm: expected a floating point input, got {input.dtype}")
    channels = input.shape[1]
    if training:
        _check_values_per_channel(input.shape)
    elif running_mean is None or running_var is None:
        raise RuntimeError("Expected running_mean and running_var to be defined when training is False")
    _check_channels(channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not isinstance(eps, Tensor) and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive, but got {eps}")
    shape = (1, channels) + (1,) * (input.dim() - 2)
    x = input.float() if is_half(input) else input
    if training:
        dims = (0, *range(2, input.dim()))
        mean = x.mean(dims, keepdim=True)
        centered = x - mean
        var = (centered * centered).mean(dims, keepdim=True)
        if running_mean is not None or running_var is not None:
            _update_running(mean, var, running_mean, running_var, momentum, input.numel() // max(channels, 1))
    else:
        centered = x - running_mean.to(x.dtype).reshape(shape)
        var = running_var.to(x.dtype).reshape(shape)
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight.to(x.dtype).reshape(shape)
    y = centered * scale
    if bias is not None:
        y = y + bias.to(x.dtype).reshape(shape)
    return y.to(input.dtype)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dims, whose sizes are `normalized_shape`; weight and bias have that shape.

    Raises RuntimeError for shapes that do not agree.
    """
    return _ops.layer_norm(input, tuple(normalized_shape), weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dims; eps defaults to that of the type it is computed in.

    Raises RuntimeError for shapes that do not agree.
    """
    if eps is None:
        # 16-bit inputs are computed in float32.
        eps = 2.0**-52 if input.dtype == treadle.float64 else 2.0**-23
    return _ops.rms_norm(input, tuple(normalized_shape), weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise (N, C, *) over each of `num_groups` groups of channels; weight and bias are (C,)."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    n, channels = input.shape[:2]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    _check_values_per_channel((n * channels // num_groups, num_groups, *input.shape[2:]))
    _check_channels(channels, weight=weight, bias=bias)
    size = channels // num_groups
    for extent in input.shape[2:]:
        size *= extent
    # Rounded to 16 bits after the affine map only, hence the cast before.
    x = input.float() if is_half(input) and weight is not None else input
    if x.numel() == 0:
        y = x
    else:
        y = _ops.layer_norm(x.reshape(n, num_groups, size), (size,), None, None, eps).reshape(tuple(input.shape))
    return _affine(y, weight, bias).to(input.dtype)


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y * weight + bias for one value a channel (dim 1)."""
    shape = (1, y.shape[1]) + (1,) * (y.dim() - 2)
    if weight is not None:
        y = y * weight.to(y.dtype).reshape(shape)
    return y if bias is None else y + bias.to(y.dtype).reshape(shape)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample of (N, C, *); running statistics are means over the batch."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = 1
    for size in input.shape[2:]:
        count *= size
    if count == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(input.shape)}")
    _check_channels(input.shape[1], running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    dims = tuple(range(2, input.dim()))
    x = input.float() if is_half(input) else input
    mean = x.mean(dims, keepdim=True)
    centered = x - mean
    var = (centered * centered).mean(dims, keepdim=True)
    if running_mean is not None or running_var is not None:
        _update_running(mean.mean(0), var.mean(0), running_mean, running_var, momentum, count)
    return _affine(centered * (var + eps).rsqrt(), weight, bias).to(input.dtype)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta, for (N, C, *) with at least 3 dims."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    n, channels = input.shape[:2]
    squares = (input * input).reshape(n, 1, channels, -1)
    squares = treadle.nn.functional.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = mean_pool(squares, (size, 1), (1, 1), (0, 0), False, True, None).reshape(tuple(input.shape))
    return input / (mean * alpha + k) ** beta
