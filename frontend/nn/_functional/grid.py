"""Sampling at computed places: `grid_sample` and `affine_grid`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import treadle
from treadle import Tensor

from .vision import _cubic_weights

_DEFAULT_CHANGED = "Default {0} and affine_grid behavior has changed to align_corners=False; pass align_corners"


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Grid (N, *spatial, d) of the places that affine maps theta (N, d, d + 1) send an image of `size` to."""
    if align_corners is None:
        warnings.warn(_DEFAULT_CHANGED.format("grid_sample"), stacklevel=2)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    d = len(size) - 2
    if d not in (2, 3) or min(size) <= 0:
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively, of positive extents. Got size {tuple(size)}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (d, d + 1):
        raise ValueError(
            f"Expected a batch of {d}D affine matrices of shape Nx{d}x{d + 1} for size {tuple(size)}. "
            f"Got {tuple(theta.shape)}."
        )
    spatial = tuple(size[2:])
    axes = []
    for i, extent in enumerate(reversed(spatial)):
        at = treadle.arange(extent, dtype=theta.dtype, device=theta.device)
        if align_corners:
            at = at * (2 / (extent - 1)) - 1 if extent > 1 else at * 0
        else:
            at = (at * 2 + 1) / extent - 1
        axes.append(at.reshape((-1,) + (1,) * i).expand(spatial))
    axes.append(treadle.ones(spatial, dtype=theta.dtype, device=theta.device))
    base = treadle.stack(axes, -1).reshape(1, -1, d + 1)
    return (base @ theta.transpose(1, 2)).reshape((theta.shape[0],) + spatial + (d,))


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of (N, C, *spatial) at grid (N, *out, d), places from -1 to 1 with the last axis first: (N, C, *out).

    Modes bilinear, nearest, bicubic (two axes only); padding modes zeros, border, reflection.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
            f"but got: '{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(_DEFAULT_CHANGED.format("grid_sample"), stacklevel=2)
        align_corners = False
    d = input.dim() - 2
    if d not in (2, 3) or grid.dim() != input.dim():
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
            f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0] or grid.shape[-1] != d:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size and grid to have size "
            f"{d} in last dimension, but got input with sizes {list(input.shape)} and grid with sizes "
            f"{list(grid.shape)}"
        )
    if min(input.shape[2:]) == 0:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    if mode == "bicubic" and d != 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    extents = tuple(input.shape[2:])
    places = []
    for i, extent in enumerate(extents):
        g = grid.select(-1, d - 1 - i)
        places.append((g + 1) * (0.5 * (extent - 1)) if align_corners else ((g + 1) * extent - 1) * 0.5)
    if mode == "bicubic":
        return _sample_cubic(input, places, padding_mode, align_corners)
    places = [_bring_inside(p, e, padding_mode, align_corners) for p, e in zip(places, extents)]
    if mode == "nearest":
        return _pick(input, [p.round() for p in places], padding_mode == "zeros")
    return _sample_linear(input, places, padding_mode)


def _bring_inside(at: Tensor, extent: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Clip or reflect places to the image; with zeros they stay, and are masked later."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
        if span == 0:
            return at * 0
        # A triangle wave of period 2 * span.
        away = (at - low).abs() % (2 * span)
        at = span - (away - span).abs() + low
    return at.clamp(0, extent - 1)


def _pick(x: Tensor, places: list[Tensor], mask: bool) -> Tensor:
    """Values of x (N, C, *spatial) at whole-numbered places (N, *out); 0 outside with `mask`."""
    flat = inside = None
    for at, extent in zip(places, x.shape[2:]):
        if mask:
            ok = (at >= 0) & (at <= extent - 1)
            inside = ok if inside is None else inside & ok
        # Clamped as a float: neither infinity nor NaN has an integer.
        index = treadle.nan_to_num(at.detach()).clamp(0, extent - 1).to(treadle.int64)
        flat = index if flat is None else flat * extent + index
    n, c = x.shape[:2]
    out = tuple(flat.shape[1:])
    index = flat.reshape(n, 1, -1).expand(n, c, flat.numel() // max(n, 1))
    values = x.reshape(n, c, -1).gather(2, index).reshape((n, c) + out)
    return treadle.where(inside.unsqueeze(1), values, 0.0) if mask else values


def _sample_linear(x: Tensor, places: list[Tensor], padding_mode: str) -> Tensor:
    lows = [p.detach().floor() for p in places]
    shares = [p - low for p, low in zip(places, lows)]
    total = None
    for corner in range(2 ** len(places)):
        bits = [(corner >> i) & 1 for i in range(len(places))]
        weight = None
        for bit, share in zip(bits, shares):
            part = share if bit else 1 - share
            weight = part if weight is None else weight * part
        # With border padding the upper neighbour of the last place has weight 0, whatever is read for it.
        term = _pick(x, [low + bit for low, bit in zip(lows, bits)], padding_mode == "zeros") * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total


def _sample_cubic(x: Tensor, places: list[Tensor], padding_mode: str, align_corners: bool) -> Tensor:
    lows = [p.detach().floor() for p in places]
    wy, wx = (_cubic_weights(p - low, -0.75) for p, low in zip(places, lows))
    total = None
    for i in range(4):
        row = None
        for j in range(4):
            taps = [
                _bring_inside(low + (k - 1), e, padding_mode, align_corners)
                for low, k, e in zip(lows, (i, j), x.shape[2:])
            ]
            term = _pick(x, taps, padding_mode == "zeros") * wx[j].unsqueeze(1)
            row = term if row is None else row + term
        row = row * wy[i].unsqueeze(1)
        total = row if total is None else total + row
    return total
