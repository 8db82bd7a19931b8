"""Resampling of images: interpolation, grids, and shuffles of channels and pixels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import treadle
from treadle import Tensor

from .adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .common import is_half

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
_AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}


def _positions(out: int, size: int, scale: float | None, align_corners: bool, x: Tensor) -> Tensor:
    """Where each output element lies in the input, a fractional index."""
    dtype = treadle.float64 if x.dtype == treadle.float64 else treadle.float32
    at = treadle.arange(out, dtype=dtype, device=x.device)
    if align_corners:
        return at * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (at + 0.5) * (1.0 / scale if scale else size / out) - 0.5


def _column(values: Tensor, x: Tensor, dim: int) -> Tensor:
    """A vector shaped to broadcast along `dim` of x."""
    return values.reshape((-1,) + (1,) * (x.dim() - dim - 1)).to(x.dtype)


def _resize_linear(x: Tensor, dim: int, out: int, scale: float | None, align_corners: bool) -> Tensor:
    size = x.shape[dim]
    at = _positions(out, size, scale, align_corners, x).clamp(min=0)
    low = at.to(treadle.int64).clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = _column((at - low).clamp(0, 1), x, dim)
    return x.index_select(dim, low) * (1 - share) + x.index_select(dim, high) * share


def _resize_cubic(x: Tensor, dim: int, out: int, scale: float | None, align_corners: bool) -> Tensor:
    """Keys' cubic convolution with a = -0.75 over four neighbours."""
    size = x.shape[dim]
    at = _positions(out, size, scale, align_corners, x)
    low = at.floor()
    weights = _cubic_weights(at - low, -0.75)
    low = low.to(treadle.int64)
    total = None
    for i, weight in enumerate(weights):
        term = x.index_select(dim, (low + (i - 1)).clamp(0, size - 1)) * _column(weight, x, dim)
        total = term if total is None else total + term
    return total


def _cubic_weights(t: Tensor, a: float) -> list[Tensor]:
    """Weights of the neighbours at distances 1 + t, t, 1 - t and 2 - t."""

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((d - 5) * d + 8) * (d * a) - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _resize_nearest(x: Tensor, dim: int, out: int, scale: float | None, exact: bool) -> Tensor:
    size = x.shape[dim]
    if out % size == 0 and (scale is None or scale == out // size):
        # A whole number of copies is a view, whose gradient is a sum.
        shape = tuple(x.shape)
        spread = x.unsqueeze(dim + 1).expand(shape[: dim + 1] + (out // size,) + shape[dim + 1 :])
        return spread.reshape(shape[:dim] + (out,) + shape[dim + 1 :])
    step = 1.0 / scale if scale else size / out
    at = treadle.arange(out, dtype=treadle.float32, device=x.device)
    at = (at + 0.5) * step if exact else at * step
    return x.index_select(dim, at.floor().to(treadle.int64).clamp(max=size - 1))


def _resize_smooth(x: Tensor, dim: int, out: int, scale: float | None, align_corners: bool, cubic: bool) -> Tensor:
    """Antialiased resizing: the filter is widened by the shrinking factor and applied as a matrix."""
    size = x.shape[dim]
    step = ((size - 1) / (out - 1) if out > 1 else 0.0) if align_corners else (1.0 / scale if scale else size / out)
    widen = max(step, 1.0)
    dtype = treadle.float64 if x.dtype == treadle.float64 else treadle.float32
    # torch places the centres by the plain rule whatever align_corners is.
    centers = ((treadle.arange(out, dtype=dtype, device=x.device) + 0.5) * step).unsqueeze(1)
    cells = treadle.arange(size, dtype=dtype, device=x.device)
    reach = (2 if cubic else 1) * widen
    first = (centers - reach + 0.5).to(treadle.int64).clamp(min=0)
    last = (centers + reach + 0.5).to(treadle.int64).clamp(max=size)
    d = ((cells - centers + 0.5) * (1.0 / widen)).abs()
    if cubic:
        a = -0.5
        kernel = treadle.where(
            d < 1, ((a + 2) * d - (a + 3)) * d * d + 1, treadle.where(d < 2, (((d - 5) * d + 8) * d - 4) * a, 0.0)
        )
    else:
        kernel = (1 - d).clamp(min=0)
    kernel = treadle.where((cells >= first) & (cells < last), kernel, 0.0)
    kernel = kernel / kernel.sum(1, keepdim=True)
    return (x.transpose(dim, -1) @ kernel.to(x.dtype).transpose(0, 1)).transpose(dim, -1)


def _output_size(
    x: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """(output sizes, scales to compute with) from the two ways to say them."""
    n = x.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        sizes = list(size) if isinstance(size, (tuple, list)) else [size] * n
        if len(sizes) != n:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with "
                f"spatial dimensions of {list(x.shape[2:])} and output size of {size}."
            )
        return sizes, [None] * n
    scales = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * n
    if len(scales) != n:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {list(x.shape[2:])} and scale_factor of shape {scale_factor}."
        )
    sizes = [math.floor(float(x.shape[i + 2]) * scale) for i, scale in enumerate(scales)]
    return sizes, ([None] * n if recompute else [float(s) for s in scales])


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize (N, C, *spatial), with one to three spatial dims, to `size` or by `scale_factor`.

    Modes nearest, nearest-exact, area; linear, bilinear, trilinear by number of spatial dims; bicubic for two.
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | "
                "bicubic | trilinear"
            )
    elif mode not in ("linear", "bilinear", "trilinear", "bicubic"):
        raise NotImplementedError(f"interpolate: unknown mode {mode!r}")
    if input.dim() not in (3, 4, 5):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported "
            f"(got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | "
            f"trilinear | area | nearest-exact (got {mode})"
        )
    if antialias and not (mode in ("bilinear", "bicubic") and input.dim() == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    sizes, scales = _output_size(input, size, scale_factor, recompute_scale_factor)
    spatial = list(input.shape[2:])
    if min(sizes) <= 0 or min(spatial) <= 0 or input.shape[1] == 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input (C: {input.shape[1]}, "
            f"{spatial}) output {sizes}"
        )
    if mode == "area":
        return _AREA[input.dim()](input, sizes)
    if mode in ("nearest", "nearest-exact"):
        for i, out in enumerate(sizes):
            if out != spatial[i] or (scales[i] or 1.0) != 1.0:
                input = _resize_nearest(input, i + 2, out, scales[i], mode == "nearest-exact")
        return input
    if mode != "bicubic" and mode != _LINEAR[input.dim()] or mode == "bicubic" and input.dim() != 4:
        raise NotImplementedError(
            f"Got {input.dim()}D input, but {mode} mode needs { {'linear': 3, 'trilinear': 5}.get(mode, 4) }D input"
        )
    return _resize_all(input, sizes, scales, bool(align_corners), mode == "bicubic", antialias)


def _resize_all(
    input: Tensor, sizes: list[int], scales: list[float | None], align_corners: bool, cubic: bool, antialias: bool
) -> Tensor:
    """Resize every spatial axis in turn; 16-bit and integer images in float32."""
    x = input.float() if is_half(input) or not input.is_floating_point() else input
    # The last axis first: its reads are contiguous while the image is still small.
    for i in reversed(range(len(sizes))):
        dim = i + 2
        if sizes[i] == x.shape[dim] and (align_corners or (scales[i] or 1.0) == 1.0):
            continue
        if antialias:
            x = _resize_smooth(x, dim, sizes[i], scales[i], align_corners, cubic)
        elif cubic:
            x = _resize_cubic(x, dim, sizes[i], scales[i], align_corners)
        else:
            x = _resize_linear(x, dim, sizes[i], scales[i], align_corners)
    if not input.is_floating_point():
        x = (x + 0.5).floor().clamp(0, 255)
    return x.to(input.dtype)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The old name of `interpolate`."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode nearest."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode bilinear and aligned corners."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C * r^2, H, W) -> (*, C, H * r, W * r)."""
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)"
        )
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    lead, (c, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(lead)
    x = input.reshape(lead + (c // (r * r), r, r, h, w))
    x = x.permute(tuple(range(n)) + (n, n + 3, n + 1, n + 4, n + 2))
    return x.reshape(lead + (c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H * r, W * r) -> (*, C * r^2, H, W)."""
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with "
            f"{input.dim()} dimension(s)"
        )
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    lead, (c, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"{h} x {w} is not divisible by {r}"
        )
    n = len(lead)
    x = input.reshape(lead + (c, h // r, r, w // r, r))
    x = x.permute(tuple(range(n)) + (n, n + 2, n + 4, n + 1, n + 3))
    return x.reshape(lead + (c * r * r, h // r, w // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave `groups` groups of channels of (N, C, *)."""
    if input.dim() < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, c = input.shape[:2]
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    shape = tuple(input.shape)
    return input.reshape((n, groups, c // groups) + shape[2:]).transpose(1, 2).reshape(shape)


native_channel_shuffle = channel_shuffle
