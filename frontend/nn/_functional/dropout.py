"""Dropout in its variants."""

from __future__ import annotations

import warnings

import treadle
from treadle import Tensor, _ops

from .common import write_back

_ALPHA_PRIME = -1.7580993408473766  # the value selu tends to at minus infinity


def _check_p(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p), in training only."""
    _check_p(p)
    return write_back(input, _ops.dropout(input, p, training), inplace)


def _keep_channels(x: Tensor, p: float, channels_at: int) -> Tensor:
    """1 or 0 for every channel, shaped to broadcast over the dims after `channels_at`."""
    shape = tuple(x.shape[: channels_at + 1]) + (1,) * (x.dim() - channels_at - 1)
    return (treadle.rand(shape, device=x.device) >= p).to(x.dtype)


def _feature_dropout(x: Tensor, p: float, training: bool, channels_at: int) -> Tensor:
    if not training or p == 0:
        return x
    keep = _keep_channels(x, p, channels_at)
    return x * keep if p == 1 else x * (keep / (1 - p))


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, L) or (C, L)."""
    _check_p(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. "
            "Note that dropout1d exists to provide channel-wise dropout on inputs with 1 "
            "spatial dimension, a channel dimension, and an optional batch dimension."
        )
    return write_back(input, _feature_dropout(input, p, training, 1 if input.dim() == 3 else 0), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, H, W)."""
    _check_p(p)
    if input.dim() not in (3, 4):
        warnings.warn(f"dropout2d: Received a {input.dim()}-D input to dropout2d: use dropout instead", stacklevel=2)
    # A 3-d input is taken as (N, C, L), as in torch.
    return write_back(input, _feature_dropout(input, p, training, 1 if input.dim() > 1 else 0), inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check_p(p)
    if input.dim() not in (4, 5):
        warnings.warn(f"dropout3d: Received a {input.dim()}-D input to dropout3d: use dropout instead", stacklevel=2)
    # Of a 4-d input the first dim is the channel.
    return write_back(input, _feature_dropout(input, p, training, 0 if input.dim() in (1, 4) else 1), inplace)


def _alpha_affine(x: Tensor, keep: Tensor, p: float) -> Tensor:
    """Dropped elements take selu's floor, and an affine map restores mean 0 and variance 1."""
    a = ((1 - p) * (1 + p * _ALPHA_PRIME**2)) ** -0.5
    b = -a * _ALPHA_PRIME * p
    return (x * keep + (1 - keep) * _ALPHA_PRIME) * a + b


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of a selu network."""
    _check_p(p)
    if not training or p == 0:
        return input
    if p == 1:
        return write_back(input, input * 0, inplace)
    keep = (treadle.rand(tuple(input.shape), device=input.device) >= p).to(input.dtype)
    return write_back(input, _alpha_affine(input, keep, p), inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels."""
    _check_p(p)
    if not training or p == 0:
        return input
    if p == 1:
        return write_back(input, input * 0, inplace)
    return write_back(input, _alpha_affine(input, _keep_channels(input, p, 1 if input.dim() > 1 else 0), p), inplace)
