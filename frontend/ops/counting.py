"""Counting and searching: histograms, unique values, sorted look-ups, quantiles, modes.

Where the number of results depends on the values, the function waits for them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, need_tensor, number, where
from treadle.ops.registration import PUBLIC, public
from treadle.results import named_result
from treadle.tensor import Tensor

__all__ = ["quantile", "searchsorted", "unique"]


# ---- histograms -------------------------------------------------------------------------------------------------------


@public(out=False)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs in a vector (or the sum of its weights). Waits for the largest."""
    if input.ndim != 1 or input.dtype.is_floating:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    n = minlength
    if input.shape[0]:
        low, high = int(input.min()), int(input.max())
        if low < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        n = max(n, high + 1)
    if weights is None:
        values = input.new_ones(input.shape, dtype=dtypes.int64)
    else:
        values = weights if weights.dtype is dtypes.float32 else cast(weights, dtypes.float64)
    return values.new_zeros(n).index_add(0, cast(input, dtypes.int64), values)


@public()
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Counts of `bins` equal intervals of [min, max] (of the data's range where both are equal)."""
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    low, high = float(min), float(max)
    if low == high and math.prod(input.shape):
        low, high = float(input.min()), float(input.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")
    x = input.reshape(-1)
    place = cast(((x - low) * (bins / (high - low))).floor(), dtypes.int64).clamp(0, bins - 1)
    inside = (x >= low) & (x <= high)
    counts = x.new_zeros(bins + 1).index_add(0, where(inside, place, bins), x.new_ones(x.shape))
    return counts.narrow(0, 0, bins)


# ---- unique values ----------------------------------------------------------------------------------------------------


def _wrap(a: np.ndarray, dtype: Any = None) -> Tensor:
    return PUBLIC["tensor"](np.asarray(a, order="C"), dtype=dtype)


@public(out=False)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (or slices along `dim`) in order; with where each input is among them, and how often."""
    a = input.detach().numpy()
    d = None if dim is None else axis(dim, input.ndim)
    found, inverse, counts = np.unique(a, return_inverse=True, return_counts=True, axis=d, equal_nan=False)
    inverse = inverse.reshape(a.shape if d is None else (a.shape[d],))
    return _chosen(found, inverse, counts, return_inverse, return_counts, input.dtype)


@public(out=False)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices along `dim`) that differ from the one before."""
    a = input.detach().numpy()
    d = 0 if dim is None else axis(dim, input.ndim)
    lines = np.moveaxis(a, d, 0) if dim is not None else a.reshape(-1)
    rows = lines.reshape(len(lines), -1)
    new = np.concatenate([np.ones(min(len(rows), 1), bool), (rows[1:] != rows[:-1]).any(1)])
    inverse = np.cumsum(new) - 1
    counts = np.bincount(inverse, minlength=int(new.sum()))
    found = np.moveaxis(lines[new], 0, d) if dim is not None else lines[new]
    return _chosen(
        found, inverse.reshape(a.shape) if dim is None else inverse, counts, return_inverse, return_counts, input.dtype
    )


def _chosen(
    found: np.ndarray, inverse: np.ndarray, counts: np.ndarray, with_inverse: bool, with_counts: bool, dtype: Any
) -> Any:
    out = [_wrap(found, dtype)]
    if with_inverse:
        out.append(_wrap(inverse, dtypes.int64))
    if with_counts:
        out.append(_wrap(counts, dtypes.int64))
    return out[0] if len(out) == 1 else tuple(out)


@public(method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True where an element is one of `test_elements`."""
    x, tests = (t if isinstance(t, Tensor) else PUBLIC["tensor"](t) for t in (elements, test_elements))
    found = (x.unsqueeze(-1) == tests.reshape(-1)).any(-1)
    return ~found if invert else found


# ---- sorted look-ups --------------------------------------------------------------------------------------------------


@public(method=False)
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where in the last dimension of a sorted sequence values would be inserted: before equals, or after (`right`)."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    need_tensor("searchsorted", sorted_sequence, "sorted_sequence")
    values = input if isinstance(input, Tensor) else PUBLIC["tensor"](number(input), dtype=sorted_sequence.dtype)
    sequence = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    if sequence.ndim != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(sequence.shape)} and input "
            f"value tensor {list(values.shape)}"
        )
    found = _bisect(sequence, values, right or side == "right")
    return cast(found, dtypes.int32) if out_int32 else found


def _bisect(sequence: Tensor, values: Tensor, right: bool) -> Tensor:
    """Binary search for all values at once."""
    n = sequence.shape[-1]
    low = values.new_zeros(values.shape, dtype=dtypes.int64)
    high = low + n
    for _ in range(n.bit_length()):
        middle = PUBLIC["div"](low + high, 2, rounding_mode="floor")
        at = middle.clamp(max=n - 1)
        seen = sequence[at] if sequence.ndim == 1 else sequence.gather(-1, at)
        after = ~(seen > values if right else seen >= values) & (low < high)
        low, high = where(after, middle + 1, low), where(after, high, middle)
    return low


@public(method=False)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket between sorted boundaries that each value falls in."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# ---- quantiles --------------------------------------------------------------------------------------------------------


def _quantile(
    name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = PUBLIC["tensor"](q, dtype=input.dtype)
    if math.prod(input.shape) == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    x = input.reshape(-1) if dim is None or not input.ndim else input.movedim(axis(dim, input.ndim), -1)
    ordered = x.sort(-1)[0]
    nan = x.isnan()
    last = (~nan).sum(-1, keepdim=True).clamp(min=1) - 1 if skip_nan else x.shape[-1] - 1
    rank = (q.reshape(-1) * last).expand(*x.shape[:-1], max(q.numel(), 0))
    out = _between(ordered, rank, interpolation)
    spoiled = nan.all(-1, keepdim=True) if skip_nan else nan.any(-1, keepdim=True)
    out = where(spoiled, float("nan"), out).movedim(-1, 0)
    if keepdim:
        d = None if dim is None else axis(dim, input.ndim)
        kept = [1 if d is None or k == d else n for k, n in enumerate(input.shape)]
        out = out.reshape(out.shape[0], *kept)
    return out if q.ndim else out.squeeze(0)


def _between(ordered: Tensor, rank: Tensor, interpolation: str) -> Tensor:
    """Elements of sorted lines at fractional ranks."""
    if interpolation == "nearest":
        return ordered.gather(-1, cast(rank.round(), dtypes.int64))
    low = rank.floor() if interpolation != "higher" else rank.ceil()
    below = ordered.gather(-1, cast(low, dtypes.int64))
    if interpolation in ("lower", "higher"):
        return below
    above = ordered.gather(-1, cast(rank.ceil(), dtypes.int64))
    weight = rank - low if interpolation == "linear" else PUBLIC["full_like"](rank, 0.5)
    return below.lerp(above, weight)


@public()
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantiles along `dim`; NaN where a line has one."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@public()
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantiles along `dim` of what is not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


_Mode = named_result("mode", "values", "indices")


@public()
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """(values, indices): the most frequent value along `dim`, the smallest of several, and its last index."""
    d = axis(dim, input.ndim)
    if not input.ndim:
        return _Mode(input.clone(), input.new_zeros((), dtype=dtypes.int64))
    x = input.movedim(d, -1)
    ordered, places = x.sort(-1, stable=True)
    counts = (ordered.unsqueeze(-1) == ordered.unsqueeze(-2)).sum(-1)
    at = counts.argmax(-1, keepdim=True)
    values = ordered.gather(-1, at)
    indices = places.gather(-1, at + counts.gather(-1, at) - 1)
    if keepdim:
        return _Mode(values.movedim(-1, d), indices.movedim(-1, d))
    return _Mode(values.squeeze(-1), indices.squeeze(-1))
