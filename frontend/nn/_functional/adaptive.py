"""Pooling to a given output size. Window i of an axis is [floor(i * in / out), ceil((i + 1) * in / out)).

The windows of different axes are independent, so the axes are pooled one after the other. Where `out` divides `in` all
windows are alike and the fixed-window primitives do it in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import treadle
from treadle import Tensor, _ops

_Sizes = int | None | Sequence[int | None]


def _output_sizes(name: str, n: int, x: Tensor, output_size: _Sizes) -> tuple[int, ...]:
    if x.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(x.shape)}")
    if any(size == 0 for size in x.shape[x.dim() - n - 1 :]):
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, "
            f"but input has sizes {list(x.shape)}"
        )
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(sizes) != n:
        raise RuntimeError(f"{name}(): output_size must be {n} sizes, got {list(sizes)}")
    full = tuple(x.shape[x.dim() - n + i] if size is None else size for i, size in enumerate(sizes))
    if min(full) < 0:
        raise RuntimeError(f"{name}(): elements of output_size must be greater than or equal to 0, but got {full}")
    return full


def _uniform_kernel(x: Tensor, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common window, if there is one."""
    spatial = x.shape[x.dim() - len(sizes) :]
    if any(out == 0 or size % out for size, out in zip(spatial, sizes)):
        return None
    return tuple(size // out for size, out in zip(spatial, sizes))


def _gather_windows(x: Tensor, dim: int, out: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(values, valid, places, counts): windows of axis `dim` spread over two axes of sizes `out` and the longest."""
    size = x.shape[dim]
    longest = max((((i + 1) * size + out - 1) // out - i * size // out for i in range(out)), default=0)
    index = treadle.arange(out, device=x.device)
    start = index * size // out
    end = ((index + 1) * size + (out - 1)) // out
    places = start.unsqueeze(1) + treadle.arange(longest, device=x.device)
    valid = places < end.unsqueeze(1)
    places = places.clamp(max=size - 1)
    shape = tuple(x.shape[:dim]) + (out, longest) + tuple(x.shape[dim + 1 :])
    values = x.index_select(dim, places.reshape(-1)).reshape(shape)
    tail = (1,) * (x.dim() - dim - 1)
    grid = (out, longest) + tail
    return values, valid.reshape(grid), places.reshape(grid), (end - start).reshape((out,) + tail)


def _adaptive_avg(n: int, x: Tensor, output_size: _Sizes) -> Tensor:
    sizes = _output_sizes(f"adaptive_avg_pool{n}d", n, x, output_size)
    spatial_at = x.dim() - n
    if all(size == 1 for size in sizes):
        return x.mean(tuple(range(spatial_at, x.dim())), keepdim=True)
    kernel = _uniform_kernel(x, sizes)
    if kernel is not None:
        batched = x if x.dim() == n + 2 else x.unsqueeze(0)
        y = _ops.avg_pool(batched, kernel, kernel, (0,) * n, False, True, None)
        return y if x.dim() == n + 2 else y.squeeze(0)
    for i, out in enumerate(sizes):
        dim = spatial_at + i
        if x.shape[dim] != out:
            values, valid, _, counts = _gather_windows(x, dim, out)
            x = treadle.where(valid, values, 0.0).sum(dim + 1) / counts.to(x.dtype)
    return x


def adaptive_avg_pool1d(input: Tensor, output_size: _Sizes) -> Tensor:
    """Means over windows that give `output_size` values."""
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: _Sizes) -> Tensor:
    """Means over windows that give `output_size` values; None keeps an axis."""
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: _Sizes) -> Tensor:
    """Means over windows that give `output_size` values; None keeps an axis."""
    return _adaptive_avg(3, input, output_size)


def _adaptive_max(n: int, x: Tensor, output_size: _Sizes, return_indices: bool) -> Tensor | tuple[Tensor, Tensor]:
    sizes = _output_sizes(f"adaptive_max_pool{n}d", n, x, output_size)
    kernel = _uniform_kernel(x, sizes)
    if kernel is not None:
        batched = x if x.dim() == n + 2 else x.unsqueeze(0)
        pooled = _ops.max_pool(batched, kernel, kernel, (0,) * n, (1,) * n, False, return_indices)
        if x.dim() == n + 2:
            return pooled
        return tuple(t.squeeze(0) for t in pooled) if return_indices else pooled.squeeze(0)
    place, weight = None, 1
    # From the last axis to the first: the first of equal maxima in row-major order wins, as everywhere.
    for i in reversed(range(n)):
        dim = x.dim() - n + i
        extent = x.shape[dim]
        x, place = _max_over_axis(x, place, dim, sizes[i], weight)
        weight *= extent
    return (x, place) if return_indices else x


def _max_over_axis(x: Tensor, place: Tensor | None, dim: int, out: int, weight: int) -> tuple[Tensor, Tensor]:
    """One axis of adaptive max pooling: `place` holds the flat places of x's values in the axes pooled before, and a
    step along this one counts `weight` places."""
    values, valid, places, _ = _gather_windows(x, dim, out)
    best, at = treadle.where(valid, values, float("-inf")).max(dim + 1, keepdim=True)
    here = (places * weight).expand(tuple(values.shape)).gather(dim + 1, at).squeeze(dim + 1)
    if place is not None:
        here = here + _gather_windows(place, dim, out)[0].gather(dim + 1, at).squeeze(dim + 1)
    return best.squeeze(dim + 1), here


def adaptive_max_pool1d(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that give `output_size` values, optionally with their places."""
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that give `output_size` values, optionally with their flat places."""
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that give `output_size` values, optionally with their flat places."""
    return _adaptive_max(3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with its indices."""
    return _adaptive_max(1, input, output_size, True)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with its indices."""
    return _adaptive_max(2, input, output_size, True)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: _Sizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with its indices."""
    return _adaptive_max(3, input, output_size, True)
