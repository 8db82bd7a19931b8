"""Sorting, selection and scans: sort, argsort, topk, cumsum and its family."""

from __future__ import annotations

import math
from typing import Any

from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ir.ops import scans as sc
from treadle.ir.ops.sorting import Sort
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, where
from treadle.ops.registration import public
from treadle.ops.views import cat
from treadle.recorder.trace import record
from treadle.results import named_result
from treadle.tensor import Tensor

__all__ = ["sort", "topk"]

_RESULT = {
    name: named_result(name, "values", "indices") for name in ("sort", "topk", "kthvalue", "median", "cummax", "cummin")
}


@public()
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """(values, indices) in order along `dim`; NaN is the largest. Always stable."""
    return _RESULT["sort"](*_sorted(input, dim, descending))


def _sorted(t: Tensor, dim: int, descending: bool, first: int = -1) -> tuple[Tensor, Tensor]:
    """All, or the `first` elements in order."""
    d = axis(dim, t.ndim)
    if not t.ndim:
        return t.clone(), t.new_zeros((), dtype=dtypes.int64)
    values, indices = record(Sort(d, bool(descending), True, first), t)
    return values, indices


@public(out=False)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Indices that sort along `dim`."""
    return _sorted(input, dim, descending)[1]


@public()
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return _sorted(input, 0, False)[0]


@public()
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """(values, indices) of the k largest (or smallest) along `dim`, in order."""
    d = axis(dim, input.ndim)
    size = input.shape[d] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    return _RESULT["topk"](*_sorted(input, d, largest, int(k)))


@public()
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """(value, index) of the k-th smallest along `dim`."""
    d = axis(dim, input.ndim)
    if not 1 <= k <= (input.shape[d] if input.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
    values, indices = _sorted(input, d, False, int(k))
    if not input.ndim:
        return _RESULT["kthvalue"](values, indices)
    pick = (x.narrow(d, k - 1, 1) for x in (values, indices))
    return _RESULT["kthvalue"](*(x if keepdim else x.squeeze(d) for x in pick))


@public()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, or (values, indices) along `dim`. NaN wins."""
    if dim is None:
        flat = input.reshape(-1)
        n = math.prod(input.shape)
        if not n:
            return input.new_full((), float("nan"))
        middle = _sorted(flat, 0, False)[0][(n - 1) // 2]
        return middle if not input.dtype.is_floating else _nan_or(flat.isnan().any(), middle)
    d = axis(dim, input.ndim)
    if not input.ndim:
        return _RESULT["median"](input.clone(), input.new_zeros((), dtype=dtypes.int64))
    n = input.shape[d]
    values, indices = _sorted(input, d, False)
    v, i = (x.narrow(d, (n - 1) // 2, 1) for x in (values, indices))
    if input.dtype.is_floating:
        nan = input.isnan()
        first = nan.to(dtypes.int32).argmax(d, keepdim=True)
        has = nan.any(d, keepdim=True)
        v, i = where(has, float("nan"), v), where(has, first, i)
    return _RESULT["median"](*(x if keepdim else x.squeeze(d) for x in (v, i)))


def _nan_or(nan: Tensor, value: Tensor) -> Tensor:
    return where(nan, float("nan"), value)


# ---- scans ------------------------------------------------------------------------------------------------------------


def _scan_input(t: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None:
        return cast(t, dtype)
    return t if t.dtype.is_floating else cast(t, dtypes.int64)


def _scan(cls: type, t: Tensor, dim: int) -> Any:
    d = axis(dim, t.ndim)
    if t.ndim:
        return record(cls(d), t)
    out = record(cls(0), t.reshape(1))
    return tuple(x.reshape(()) for x in out) if isinstance(out, tuple) else out.reshape(())


@public(inplace=True)
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sums along `dim`."""
    return _scan(sc.CumSum, _scan_input(input, dtype), dim)


@public(inplace=True)
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running products along `dim`."""
    return _scan(sc.CumProd, _scan_input(input, dtype), dim)


@public()
def cummax(input: Tensor, dim: int) -> Any:
    """(running maxima, their last indices) along `dim`."""
    return _RESULT["cummax"](*_scan(sc.CumMax, input, dim))


@public()
def cummin(input: Tensor, dim: int) -> Any:
    """(running minima, their last indices) along `dim`."""
    return _RESULT["cummin"](*_scan(sc.CumMin, input, dim))


@public()
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the running sums of exponentials, relative to the running maximum of all."""
    d = axis(dim, input.ndim)
    if not input.ndim:
        return input.clone()
    top = input.amax(d, keepdim=True).detach()
    top = where(top.isfinite(), top, 0.0)
    return cumsum((input - top).exp(), d).log() + top


@public(out=False)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """n-th differences of neighbours along `dim`."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    d = axis(dim, input.ndim)
    if n == 0:
        return input.clone()
    parts = [x for x in (prepend, input, append) if x is not None]
    t = cat(parts, d) if len(parts) > 1 else input
    for _ in range(n):
        size = t.shape[d]
        if size == 0:
            break
        high, low = t.narrow(d, 1, size - 1), t.narrow(d, 0, size - 1)
        t = high ^ low if t.dtype is dtypes.bool_ else high - low
    return t
