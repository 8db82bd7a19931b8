"""Reductions: sums, means, extrema, variances, norms, counts; cumulative ones are in scans.py."""

from __future__ import annotations

import math
from typing import Any

from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ir.ops import reductions as red
from treadle.ir.ops.base import Rule
from treadle.ir.ops.composites import LogSumExp, Mean
from treadle.ops.arguments import axes, axis
from treadle.ops.elementwise import cast, need_tensor, where
from treadle.ops.registration import PUBLIC, public
from treadle.recorder.trace import record
from treadle.recorder.tree import interned
from treadle.results import named_result
from treadle.tensor import Tensor

__all__ = ["mean", "reduce", "sum"]

_Extremum = {name: named_result(name, "values", "indices") for name in ("max", "min", "mode", "median", "aminmax")}
_MinMax = named_result("aminmax", "min", "max")


def reduce(cls: type[Rule], t: Tensor, dim: Any, keepdim: bool, *args: Any) -> Tensor:
    """Record reduction `cls` over `dim` (int, sequence, None for all)."""
    dims = axes(dim, t.ndim)
    out = record(interned(cls, dims, *args), t)
    return _keep(out, t, dims) if keepdim else out


def _keep(out: Tensor, t: Tensor, dims: tuple[int, ...]) -> Tensor:
    return out.reshape(tuple(1 if k in dims else d for k, d in enumerate(t.shape)))


def _arguments(dim: Any, keepdim: bool, kwargs: dict) -> tuple[Any, bool]:
    """NumPy's names `axis` and `keepdims` are accepted, as torch does."""
    if "axis" in kwargs:
        dim = kwargs.pop("axis")
    if "keepdims" in kwargs:
        keepdim = kwargs.pop("keepdims")
    if kwargs:
        raise TypeError(f"unexpected keyword argument '{next(iter(kwargs))}'")
    return dim, keepdim


def _sum_input(t: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None:
        return cast(t, dtype)
    return t if t.dtype.is_floating else cast(t, dtypes.int64)


@public()
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None, **kw: Any) -> Tensor:
    """Sum over `dim`. Integers and bools are summed in int64."""
    need_tensor("sum", input)
    dim, keepdim = _arguments(dim, keepdim, kw)
    if dtype is dtypes.bool_:
        return any(input, dim, keepdim)
    return reduce(red.Sum, _sum_input(input, dtype), dim, keepdim)


@public()
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over `dim` with NaN taken as 0."""
    t = where(input.isnan(), 0.0, input) if input.dtype.is_floating else input
    return sum(t, dim, keepdim, dtype=dtype)


@public()
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None, **kw: Any) -> Tensor:
    """Mean over `dim`. Raises RuntimeError for integers without `dtype`."""
    need_tensor("mean", input)
    dim, keepdim = _arguments(dim, keepdim, kw)
    t = input if dtype is None else cast(input, dtype)
    if not t.dtype.is_floating:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {_long_name(t)}"
        )
    return reduce(Mean, t, dim, keepdim)


def _long_name(t: Tensor) -> str:
    from treadle.ops.registration import type_name

    return type_name(t.dtype)


@public()
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean over `dim` of the elements that are not NaN."""
    if not input.dtype.is_floating:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {_long_name(input)}"
        )
    count = (~input.isnan()).sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


@public()
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over `dim` (one dimension or all). Integers and bools are multiplied in int64."""
    if dtype is dtypes.bool_:
        return all(input, dim, keepdim)
    return reduce(red.Prod, _sum_input(input, dtype), dim, keepdim)


def _nonempty(name: str, t: Tensor, dim: Any) -> None:
    """Extrema of nothing do not exist. Raises IndexError (RuntimeError for a full reduction)."""
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        if math.prod(t.shape) == 0:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                "dim with the 'dim' argument."
            )
        return
    for d in axes(dim, t.ndim):
        if t.shape and t.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


@public()
def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """Maximum over `dim`; ties share the gradient evenly."""
    _nonempty("amax", input, dim)
    return reduce(red.Max, input, dim, keepdim)


@public()
def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """Minimum over `dim`; ties share the gradient evenly."""
    _nonempty("amin", input, dim)
    return reduce(red.Min, input, dim, keepdim)


@public()
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """(minimum, maximum) over `dim` or all."""
    _nonempty("aminmax", input, dim)
    return _MinMax(amin(input, () if dim is None else dim, keepdim), amax(input, () if dim is None else dim, keepdim))


@public()
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, **kw: Any) -> Tensor:
    """Index of the first maximum along `dim`, or in the flattened tensor."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    return _arg(red.ArgMax, "argmax", input, dim, keepdim)


@public()
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, **kw: Any) -> Tensor:
    """Index of the first minimum along `dim`, or in the flattened tensor."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    return _arg(red.ArgMin, "argmin", input, dim, keepdim)


def _arg(cls: type, name: str, t: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if t.dtype is dtypes.bool_:
        raise RuntimeError(f"\"{name}_cpu\" not implemented for 'Bool'")
    if dim is None:
        if math.prod(t.shape) == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                "dim with the 'dim' argument."
            )
        out = record(cls(0), t.reshape(-1))
        return out.reshape((1,) * t.ndim) if keepdim else out
    d = axis(dim, t.ndim)
    _nonempty(name, t, d)
    if not t.ndim:
        return record(cls(0), t.reshape(1))
    out = record(cls(d), t)
    return _keep(out, t, (d,)) if keepdim else out


def _extremum(name: str, full: type, arg: type, binary: str) -> Any:
    def f(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, **kw: Any) -> Any:
        need_tensor(name, input)
        dim, keepdim = _arguments(dim, keepdim, kw)
        other = dim if isinstance(dim, Tensor) else other
        if other is not None:
            return PUBLIC[binary](input, other)
        if dim is None:
            _nonempty(name, input, None)
            return reduce(full, input, None, False)
        d = axis(dim, input.ndim)
        _nonempty(name, input, d)
        t = input if input.ndim else input.reshape(1)
        source = t if t.dtype is not dtypes.bool_ else t.to(dtypes.uint8)
        indices = record(arg(d), source)
        values = t.gather(d, indices.unsqueeze(d))
        if input.ndim and keepdim:
            return _Extremum[name](values, indices.unsqueeze(d))
        return _Extremum[name](values.squeeze(d), indices)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`{name}(t)` of all elements; `{name}(t, dim)` gives (values, indices); `{name}(a, b)` is elementwise."
    return public()(f)


max = _extremum("max", red.Max, red.ArgMax, "maximum")
min = _extremum("min", red.Min, red.ArgMin, "minimum")


def _boolean(cls: type, t: Tensor, dim: Any, keepdim: bool) -> Tensor:
    out = reduce(cls, t if t.dtype is dtypes.bool_ else t != 0, dim, keepdim)
    return cast(out, dtypes.uint8) if t.dtype is dtypes.uint8 else out


@public()
def any(input: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Tensor:
    """True where any element along `dim` is not zero."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    return _boolean(red.Any, input, dim, keepdim)


@public()
def all(input: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Tensor:
    """True where all elements along `dim` are not zero."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    return _boolean(red.All, input, dim, keepdim)


def _variance(name: str, t: Tensor, dim: Any, keepdim: bool, correction: float) -> tuple[Tensor, Tensor]:
    """(variance, mean), two passes."""
    if not t.dtype.is_floating:
        raise RuntimeError(f"{name}: only support floating point and complex dtypes")
    dims = axes(dim, t.ndim)
    n = math.prod(t.shape[d] for d in dims)
    m = reduce(Mean, t, dims or None, True)
    centred = t - m
    total = reduce(red.Sum, centred * centred, dims or None, keepdim)
    freedom = n - correction if n - correction > 0 else 0.0
    variance = total / freedom if freedom else total * float("nan" if n <= correction else "inf")
    return variance, (m if keepdim else m.reshape(total.shape))


def _correction(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    if isinstance(dim, bool):  # var(t, unbiased)
        dim, unbiased = None, dim
    if correction is not None:
        return dim, correction
    return dim, 1 if unbiased is None else int(unbiased)


@public()
def var(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, **kw: Any
) -> Tensor:
    """Variance over `dim`, divided by n - correction (1 by default)."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    dim, c = _correction(dim, unbiased, correction)
    return _variance("var", input, dim, keepdim, c)[0]


@public()
def std(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, **kw: Any
) -> Tensor:
    """Standard deviation over `dim`."""
    dim, keepdim = _arguments(dim, keepdim, kw)
    dim, c = _correction(dim, unbiased, correction)
    return _root(_variance("std", input, dim, keepdim, c)[0])


def _root(v: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0 * inf = NaN, as torch's std has it."""
    return v.sqrt()


@public()
def var_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Any:
    """(variance, mean)."""
    dim, c = _correction(dim, unbiased, correction)
    return _variance("var_mean", input, dim, keepdim, c)


@public()
def std_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Any:
    """(standard deviation, mean)."""
    dim, c = _correction(dim, unbiased, correction)
    v, m = _variance("std_mean", input, dim, keepdim, c)
    return _root(v), m


@public()
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow; -inf where all are."""
    t = input if input.dtype.is_floating else input.float()
    return reduce(LogSumExp, t, dim, keepdim)


@public(out=False)
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """Number of elements that are not zero."""
    return sum(input != 0, dim)


@public()
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    """Vector p-norm over `dim` (all elements by default); "fro" is 2, "nuc" is not implemented."""
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise NotImplementedError(f"norm with p={p!r} is not implemented")
    t = input if dtype is None else cast(input, dtype)
    if not t.dtype.is_floating:
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {_long_name(t)}"
        )
    return vector_norm(t, float(p), dim, keepdim)


def vector_norm(t: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    """(sum |x|^p)^(1/p); the gradient at 0 is 0."""
    if p == math.inf:
        return amax(t.abs(), () if dim is None else dim, keepdim)
    if p == -math.inf:
        return amin(t.abs(), () if dim is None else dim, keepdim)
    if p == 0:
        return sum(where(t != 0, 1.0, t * 0.0), dim, keepdim)  # differentiable: the slope is 0
    if p == 1:
        return sum(t.abs(), dim, keepdim)
    if p == 2:
        total = sum(t * t, dim, keepdim)
        zero = total == 0
        return where(zero, total.detach(), where(zero, 1.0, total).sqrt())
    total = sum(t.abs() ** p, dim, keepdim)
    zero = total == 0
    return where(zero, total.detach(), where(zero, 1.0, total) ** (1.0 / p))


@public(out=False)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """p-norm of the difference."""
    return norm(input - other, p)
