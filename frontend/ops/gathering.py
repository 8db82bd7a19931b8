"""The gather and scatter families: elements picked and placed by index tensors and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.ops import indexing as ix
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, need_tensor, number, where
from treadle.ops.indexing import Parsed, getitem, put_advanced
from treadle.ops.registration import PUBLIC, public, type_name
from treadle.ops.views import cat, slice_view
from treadle.recorder.trace import record
from treadle.tensor import Tensor

__all__ = ["gather", "nonzero"]


def _check_index(name: str, index: Tensor) -> Tensor:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    return cast(index, dtypes.int64)


@public()
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """input at `index` along `dim`: out[i][j] = input[index[i][j]][j] for dim 0."""
    d = axis(dim, input.ndim)
    if not math.prod(index.shape):  # of whatever shape and dtype
        return input.reshape(-1).narrow(0, 0, 0).reshape(index.shape)
    index = _check_index("gather", index)
    if input.ndim != index.ndim and (input.ndim or index.ndim != 1) and (index.ndim or input.ndim != 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    if not input.ndim or not index.ndim:
        return record(ix.Gather(0), input.reshape(-1), index.reshape(-1)).reshape(index.shape)
    for k in range(input.ndim):
        if k != d and index.shape[k] > input.shape[k]:
            raise RuntimeError(
                f"Size does not match at dimension {k} expected index {list(index.shape)} to be no larger than "
                f"self {list(input.shape)} apart from dimension {d}"
            )
    return record(ix.Gather(d), _cropped(input, index, d), index)


def _cropped(t: Tensor, index: Tensor, d: int) -> Tensor:
    """`t` cut to the size of `index` in all dims but `d`."""
    limits = tuple(t.shape[k] if k == d else index.shape[k] for k in range(t.ndim))
    return t if limits == tuple(t.shape) else slice_view(t, (0,) * t.ndim, limits, (1,) * t.ndim)


_MODES = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "amax", "amin": "amin"}


def _scatter(name: str, input: Tensor, dim: int, index: Tensor, src: Any, mode: str) -> Tensor:
    index = _check_index(name, index)
    d = axis(dim, input.ndim)
    if not isinstance(src, Tensor):
        src = PUBLIC["full"](tuple(index.shape), number(src), dtype=input.dtype)
    elif src.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if math.prod(index.shape) == 0:
        return input.clone()
    if not input.ndim:
        return record(ix.Scatter(0, mode), input.reshape(1), index.reshape(-1), src.reshape(-1)).reshape(())
    if index.ndim != input.ndim or src.ndim != input.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    for k in range(input.ndim):
        if (k != d and index.shape[k] > input.shape[k]) or index.shape[k] > src.shape[k]:
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from "
                f"dimension {d} and to be no larger size than src {list(src.shape)}"
            )
    limits = tuple(index.shape)
    if tuple(src.shape) != limits:
        src = slice_view(src, (0,) * src.ndim, limits, (1,) * src.ndim)
    return record(ix.Scatter(d, mode), input, index, src)


@public(inplace=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy of input with src written at `index` along `dim` (or added, multiplied by `reduce`)."""
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _scatter(
        "scatter", input, dim, index, value if src is None else src, "set" if reduce is None else _MODES[reduce]
    )


@public(inplace=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input with src added at `index` along `dim`."""
    return _scatter("scatter_add", input, dim, index, src, "add")


@public(inplace=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """src reduced ("sum", "prod", "mean", "amax", "amin") into input at `index` along `dim`."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError("reduce argument must be either sum, prod, mean, amax or amin.")
    if not include_self:
        start: Any = {"sum": 0, "prod": 1, "mean": 0, "amax": -math.inf, "amin": math.inf}[reduce]
        if input.dtype is dtypes.bool_:
            start = reduce in ("prod", "amin")
        elif not input.dtype.is_floating and math.isinf(start):
            info = np.iinfo(input.dtype.numpy)
            start = info.min if start < 0 else info.max
        base = _scatter("scatter_reduce", input, dim, index, input.new_full(index.shape, start), "set")
    else:
        base = input
    if reduce != "mean":
        return _scatter("scatter_reduce", base, dim, index, src, _MODES[reduce])
    total = _scatter("scatter_reduce", base, dim, index, src, "add")
    ones = src.new_ones(index.shape)
    count = _scatter(
        "scatter_reduce",
        input.new_ones(input.shape) if include_self else input.new_zeros(input.shape),
        dim,
        index,
        ones,
        "add",
    )
    count = count.clamp(min=1)
    return total / count if input.dtype.is_floating else PUBLIC["div"](total, count, rounding_mode="floor")


@public()
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Rows (along `dim`) at a 1-d index."""
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    d = axis(dim, input.ndim)
    index = cast(index.reshape(-1), dtypes.int64)
    if not input.ndim:
        return record(ix.Take(0), input.reshape(1), index).reshape(())
    return record(ix.Take(d), input, index)


def _index_form(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, mode: str) -> Tensor:
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: "
            f"{type_name(index.dtype)} and size: {list(index.shape)}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got (self) {type_name(input.dtype)} "
            f"and (source) {type_name(source.dtype)}"
        )
    index = _check_index(name, index).reshape(-1)
    d = axis(dim, input.ndim)
    if not input.ndim:
        return record(ix.Put(0, mode), input.reshape(1), index, source.reshape(-1)).reshape(())
    wanted = (*input.shape[:d], index.shape[0], *input.shape[d + 1 :])
    if tuple(source.shape) != tuple(wanted):
        raise RuntimeError(
            f"{name}(): Number of indices ({index.shape[0]}) should be equal to source.size(dim) and shapes must "
            f"match otherwise: source {list(source.shape)}, self {list(input.shape)}, dim {d}"
        )
    return record(ix.Put(d, mode), input, index, source)


@public(inplace=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of input with alpha * source added to the rows at `index`."""
    return _index_form("index_add", input, dim, index, source if alpha == 1 else source * alpha, "add")


@public(inplace=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of input with the rows at `index` replaced by source."""
    return _index_form("index_copy", input, dim, index, source, "set")


@public(inplace=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of input with the rows at `index` filled with a number."""
    d = axis(dim, input.ndim)
    value = value if isinstance(value, Tensor) else input.new_full((), value)
    if value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    size = input.shape[d] if input.ndim else 1
    none, rows = index.new_zeros(size, dtype=dtypes.bool_), index.new_ones(index.numel(), dtype=dtypes.bool_)
    chosen = _index_form("index_fill", none, 0, index, rows, "set")  # a row that is named twice is filled once
    chosen = chosen.reshape([size if k == d else 1 for k in range(input.ndim)])
    return where(chosen, cast(value, input.dtype), input)


@public(inplace=True)
def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with values put (or added, if accumulate) at the places that `input[indices]` shows."""
    if values.dtype is not input.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {type_name(input.dtype)} for the "
            f"destination and {type_name(values.dtype)} for the source."
        )
    out = input.clone()
    p = Parsed(out, tuple(slice(None) if i is None else i for i in indices))
    put_advanced(p, values, "add" if accumulate else "set")
    return out


@public(inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where mask is true, input elsewhere; the dtype of input stays."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {type_name(mask.dtype)}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.ndim} "
                "dimension(s)."
            )
        value = cast(value, input.dtype)
    else:
        value = number(value)
        if isinstance(value, float) and not input.dtype.is_floating:
            raise RuntimeError(f"value cannot be converted to type {type_name(input.dtype)} without overflow")
        value = bool(value) if input.dtype is dtypes.bool_ else value
    return where(mask, value, input)


@public()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask is true, in one dimension. Waits for the mask (its count is the shape)."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor or ByteTensor for mask")
    a, m = PUBLIC["broadcast_tensors"](input, mask)
    return getitem(a.reshape(-1), m.reshape(-1))


@public(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of source, in order, where mask is true."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {type_name(mask.dtype)}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {type_name(input.dtype)} and "
            f"{type_name(source.dtype)}"
        )
    input, m = PUBLIC["broadcast_tensors"](input, mask)
    place = cast(m.reshape(-1), dtypes.int64).cumsum(0) - 1
    picked = record(ix.Take(0), cat([source.reshape(-1), source.new_zeros(1)]), where(m.reshape(-1), place, 0))
    return where(m, picked.reshape(input.shape), input)


@public()
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened input."""
    return getitem(input.reshape(-1), index)


@public()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather, with the other dims broadcast; without dim in the flattened input."""
    if indices.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("torch.take_along_dim(): dtype of indices should be Long or Int")
    if dim is None:
        return gather(input.reshape(-1), 0, _from_start(indices.reshape(-1), math.prod(input.shape)))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    d = axis(dim, input.ndim)
    shape = PUBLIC["broadcast_shapes"](
        [1 if k == d else n for k, n in enumerate(input.shape)],
        [1 if k == d else n for k, n in enumerate(indices.shape)],
    )
    a = input.expand([input.shape[d] if k == d else n for k, n in enumerate(shape)])
    i = indices.expand([indices.shape[d] if k == d else n for k, n in enumerate(shape)])
    return gather(a, d, _from_start(i, input.shape[d] if input.ndim else 1))


def _from_start(index: Tensor, size: int) -> Tensor:
    """Negative indices counted from the end."""
    return where(index < 0, index + size, index)


@public()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of elements that are not zero: [n, ndim], or one vector a dimension. Waits for the value: its count is a shape."""
    need_tensor("nonzero", input)
    found = np.nonzero(np.atleast_1d(_truth(input)))
    if as_tuple:
        return tuple(_positions(k) for k in found)
    return _positions(np.stack(found, 1) if input.ndim else np.zeros((len(found[0]), 0)))


def _positions(a: np.ndarray) -> Tensor:
    return PUBLIC["from_numpy"](np.ascontiguousarray(a, dtype=np.int64))


def _truth(t: Tensor) -> np.ndarray:
    return (t if t.dtype is dtypes.bool_ else t != 0).detach().numpy()


PUBLIC["argwhere"] = Tensor.argwhere = lambda input: nonzero(input)  # type: ignore[attr-defined]


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices; zero above."""
    return _triangle("tril", input, diagonal, True)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices; zero below."""
    return _triangle("triu", input, diagonal, False)


def _triangle(name: str, t: Tensor, diagonal: int, lower: bool) -> Tensor:
    from treadle.ir.ops.sources import Iota

    if t.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    shape = tuple(t.shape[-2:])
    row, col = (record(Iota(shape, d, dtypes.int64, "cpu")) for d in (0, 1))
    keep = col - row <= diagonal if lower else col - row >= diagonal
    return where(keep, t, False if t.dtype is dtypes.bool_ else 0)


tril = public(inplace=True)(tril)
triu = public(inplace=True)(triu)


# ---- views with new elements ------------------------------------------------------------------------------------------


@public()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of input with src in place of the slice start:end:step of `dim`."""
    return _with_view(input, src, (*[slice(None)] * axis(dim, input.ndim), slice(start, end, step)))


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with src in place of the slice at `index` of `dim`."""
    return _with_view(input, src, (*[slice(None)] * axis(dim, input.ndim), index))


@public()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with src on the diagonal of dims (dim1, dim2)."""
    out = input.clone()
    _placed(out.diagonal(offset, dim1, dim2), src)
    return out


def _with_view(input: Tensor, src: Tensor, key: tuple) -> Tensor:
    out = input.clone()
    _placed(getitem(out, key), src)
    return out


def _placed(target: Tensor, src: Tensor) -> None:
    if target.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(target.shape)}"
        )
    target.copy_(src)
