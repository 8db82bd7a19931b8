"""Fractional max pooling: windows of one size at places drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence

import treadle
from treadle import Tensor

from .common import IntOrInts, ntuple


def _starts(size: int, kernel: int, out: int, sample: Tensor) -> Tensor:
    """Where the windows of one axis begin, for each (sample, channel): (N, C, out)."""
    if out == 1:
        return (sample.unsqueeze(2) * 0).to(treadle.int64) + (size - kernel)
    step = (size - kernel) / (out - 1)
    at = treadle.arange(out, dtype=sample.dtype, device=sample.device)
    u = sample.unsqueeze(2)
    starts = ((at + u) * step).to(treadle.int64) - (u * step).to(treadle.int64)
    return treadle.where(at == out - 1, size - kernel, starts)


def _fractional_max_pool(
    n: int,
    x: Tensor,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None,
    output_ratio: float | Sequence[float] | None,
    return_indices: bool,
    samples: Tensor | None,
) -> Tensor | tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if x.dim() == n + 1:
        given = samples if samples is None or samples.dim() == 3 else samples.unsqueeze(0)
        out = _fractional_max_pool(n, x.unsqueeze(0), kernel_size, output_size, output_ratio, return_indices, given)
        return tuple(t.squeeze(0) for t in out) if return_indices else out.squeeze(0)
    if x.dim() != n + 2 or any(size == 0 for size in x.shape[1:]):
        raise RuntimeError(f"{name}: expected {n + 1}D or {n + 2}D input of non-zero sizes, got {list(x.shape)}")
    kernel = ntuple(kernel_size, n, "kernel_size")
    spatial = tuple(x.shape[2:])
    if output_size is None:
        ratios = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        output_size = tuple(int(size * ratio) for size, ratio in zip(spatial, ratios))
    outs = ntuple(output_size, n, "output_size")
    for size, k, out in zip(spatial, kernel, outs):
        if k < 1 or out < 1 or out + k - 1 > size:
            raise RuntimeError(f"{name}: pool size {k} and output size {out} are too large for input size {size}")
    batch, channels = x.shape[:2]
    if samples is None:
        samples = treadle.rand((batch, channels, n), dtype=x.dtype, device=x.device)
    flat = None
    for i, (size, k, out) in enumerate(zip(spatial, kernel, outs)):
        # In two dims the first sample belongs to the last axis.
        starts = _starts(size, k, out, samples[:, :, n - 1 - i if n == 2 else i])
        index = starts.unsqueeze(3) + treadle.arange(k, device=x.device)
        axes = [1] * (2 * n)
        axes[i], axes[n + i] = out, k
        index = index.reshape((batch, channels, *axes))
        flat = index if flat is None else flat * size + index
    flat = flat.expand((batch, channels, *outs, *kernel)).reshape(batch, channels, -1)
    windows = x.reshape(batch, channels, -1).gather(2, flat).reshape((batch, channels, *outs, math.prod(kernel)))
    best, at = windows.max(-1)
    if not return_indices:
        return best
    return best, flat.reshape(tuple(windows.shape)).gather(-1, at.unsqueeze(-1)).squeeze(-1)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima of windows at random places of (N, C, H, W), for an output of any smaller size."""
    return _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima of windows at random places of (N, C, D, H, W), for an output of any smaller size."""
    return _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d` with its indices."""
    return _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, True, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d` with its indices."""
    return _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, True, _random_samples)
