"""Pooling with fixed windows. Inputs are (N, C, *spatial) or, without a batch, (C, *spatial)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import treadle
from treadle import Tensor, _ops

from .common import IntOrInts, ntuple

_Windows = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _windows(
    name: str,
    n: int,
    x: Tensor,
    kernel: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    dilation: IntOrInts,
    ceil_mode: bool,
) -> _Windows:
    """(kernel, stride, padding, dilation) as tuples, checked against the input."""
    if x.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor for input, but got: {list(x.shape)}"
        )
    k = ntuple(kernel, n, f"{name}: kernel_size")
    s = k if stride is None or stride == () or stride == [] else ntuple(stride, n, f"{name}: stride")
    p, d = ntuple(padding, n, f"{name}: padding"), ntuple(dilation, n, f"{name}: dilation")
    if min(k) < 1:
        raise RuntimeError(f"{name}: kernel size should be greater than zero, but got {list(k)}")
    if min(s) < 1:
        raise RuntimeError(f"{name}: stride should be greater than zero, but got {list(s)}")
    if min(d) < 1:
        raise RuntimeError(f"{name}: dilation should be greater than zero, but got {list(d)}")
    if any(pad < 0 or 2 * pad > (size - 1) * step + 1 for pad, size, step in zip(p, k, d)):
        raise RuntimeError(
            f"{name}: pad should be non-negative and at most half of effective kernel size, "
            f"but got pad={list(p)}, kernel_size={list(k)} and dilation={list(d)}"
        )
    spatial = tuple(x.shape[x.dim() - n :])
    if any(size == 0 for size in x.shape[1:]) or (x.dim() == n + 1 and x.shape[0] == 0):
        raise RuntimeError(f"{name}: Expected non-zero sizes for all dims but the batch, got {list(x.shape)}")
    for i in range(n):
        if pooled_size(spatial[i], k[i], s[i], p[i], d[i], ceil_mode) < 1:
            raise RuntimeError(f"{name}: Given input size {list(x.shape)}, the calculated output size is too small")
    return k, s, p, d


def pooled_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows fit; with `ceil_mode` the last may hang over the end but must start inside."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def _max_pool(
    n: int,
    x: Tensor,
    kernel: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    dilation: IntOrInts,
    ceil_mode: bool,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    windows = _windows(f"max_pool{n}d", n, x, kernel, stride, padding, dilation, ceil_mode)
    if x.dim() == n + 2:
        return _ops.max_pool(x, *windows, ceil_mode, return_indices)
    out = _ops.max_pool(x.unsqueeze(0), *windows, ceil_mode, return_indices)
    return tuple(t.squeeze(0) for t in out) if return_indices else out.squeeze(0)


def max_pool1d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window; with `return_indices` also its place, counted in the unpadded plane."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window; with `return_indices` also its place, counted in the unpadded plane."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window; with `return_indices` also its place, counted in the unpadded volume."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool1d` with `return_indices`."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool2d` with `return_indices`."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool3d` with `return_indices`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _avg_pool(
    n: int,
    x: Tensor,
    kernel: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    k, s, p, _ = _windows(f"avg_pool{n}d", n, x, kernel, stride, padding, 1, ceil_mode)
    options = (ceil_mode, count_include_pad, divisor_override)
    if x.dim() == n + 2:
        return mean_pool(x, k, s, p, *options)
    return mean_pool(x.unsqueeze(0), k, s, p, *options).squeeze(0)


def mean_pool(x: Tensor, kernel: tuple, stride: tuple, padding: tuple, *options: Any) -> Tensor:
    """`_ops.avg_pool`, and for integers the quotients rounded towards 0."""
    if x.is_floating_point():
        return _ops.avg_pool(x, kernel, stride, padding, *options)
    mean = _ops.avg_pool(x.to(treadle.float64), kernel, stride, padding, *options)
    # A quotient that is no integer is farther than this from one; one that is may come out a little short.
    slack = 0.25 / abs(options[2] or math.prod(kernel))
    return (mean + mean.sign() * slack).trunc().to(x.dtype)


def avg_pool1d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window; padding counts as zeros, or with `count_include_pad=False` not at all."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, or its sum over `divisor_override`; padding counts as zeros unless told not to."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, or its sum over `divisor_override`; padding counts as zeros unless told not to."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(
    n: int, x: Tensor, norm_type: float, kernel: IntOrInts, stride: IntOrInts | None, ceil_mode: bool
) -> Tensor:
    mean = _avg_pool(n, x**norm_type, kernel, stride, 0, ceil_mode, True, None)
    area = math.prod(ntuple(kernel, n, "kernel_size"))
    # An odd power can make the sum negative, of which no root is taken.
    return (mean.sign() * mean.abs().relu() * area) ** (1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(
    n: int,
    x: Tensor,
    indices: Tensor,
    kernel: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    output_size: Sequence[int] | None,
) -> Tensor:
    if indices.dtype != treadle.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if x.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"Input to max_unpool{n}d should be a {n + 1}d or {n + 2}d Tensor, but got {x.dim()}")
    if tuple(x.shape) != tuple(indices.shape):
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(x.shape)}) "
            f"but got indices tensor with shape: {list(indices.shape)}"
        )
    k = ntuple(kernel, n, "kernel_size")
    s = k if stride is None else ntuple(stride, n, "stride")
    p = ntuple(padding, n, "padding")
    lead = tuple(x.shape[: x.dim() - n])
    spatial = tuple(x.shape[x.dim() - n :])
    default = tuple((size - 1) * step - 2 * pad + width for size, step, pad, width in zip(spatial, s, p, k))
    size = default if output_size is None else tuple(output_size)[-n:]
    if output_size is not None:
        if len(output_size) not in (n, n + 2):
            raise ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, "
                f"but it has a length of '{len(output_size)}'"
            )
        if not all(d - step < got < d + step for d, step, got in zip(default, s, size)):
            raise ValueError(f"invalid output_size {size}: it must be within one stride of {default}")
    if min(size) < 1 or min(s) < 1:
        raise RuntimeError(f"max_unpool{n}d: strides {list(s)} and output sizes {list(size)} should be positive")
    flat = x.new_zeros(lead + (math.prod(size),))
    return flat.scatter(-1, indices.reshape(lead + (-1,)), x.reshape(lead + (-1,))).reshape(lead + size)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put the values of `max_pool1d` back in the places that it returned, with zeros elsewhere."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put the values of `max_pool2d` back in the places that it returned, with zeros elsewhere."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put the values of `max_pool3d` back in the places that it returned, with zeros elsewhere."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
