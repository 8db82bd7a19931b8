"""Indexing: `t[...]`, `t[...] = v`, gather and scatter families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.ops import indexing as ix
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, need_tensor, number, where
from treadle.ops.registration import PUBLIC, assign, public, type_name
from treadle.ops.views import cat, expand, movedim, slice_view
from treadle.recorder.trace import record
from treadle.storage import check_writable, view as view_of
from treadle.ir.ops import views as vw
from treadle.tensor import Tensor

__all__ = ["getitem", "setitem"]


# ---- parsing an index -------------------------------------------------------------------------------------------------


def _items(t: Tensor, key: Any) -> list[Any]:
    """The index as a list, one entry a dimension (bool tensors take several), None and slices included."""
    if isinstance(key, list) and any(isinstance(k, slice | type(None) | type(...) | Tensor) for k in key):
        key = tuple(key)
    items = list(key) if isinstance(key, tuple) else [key]
    items = [_entry(k) for k in items]
    used = sum(_dims_used(k) for k in items)
    if used > t.ndim:
        raise IndexError(f"too many indices for tensor of dimension {t.ndim}")
    dots = [n for n, k in enumerate(items) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    fill = [slice(None)] * (t.ndim - used)
    if dots:
        items[dots[0] : dots[0] + 1] = fill
    else:
        items += fill
    return items


def _entry(k: Any) -> Any:
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if isinstance(k, bool | np.bool_):
        return PUBLIC["tensor"](bool(k))
    if isinstance(k, Tensor):
        return k
    if isinstance(k, int | np.integer):
        return int(k)
    if isinstance(k, Sequence | np.ndarray | range) and not isinstance(k, str):
        a = np.asarray([x.item() if isinstance(x, Tensor) else x for x in k] if not isinstance(k, np.ndarray) else k)
        if a.size == 0 and a.dtype.kind == "f":
            a = a.astype(np.int64)
        return PUBLIC["tensor"](a)
    if hasattr(k, "__index__"):
        return int(k.__index__())
    raise IndexError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {type(k).__name__})")


def _dims_used(k: Any) -> int:
    if k is None or k is Ellipsis:
        return 0
    if isinstance(k, Tensor) and k.dtype in (dtypes.bool_, dtypes.uint8):
        return k.ndim
    return 1


def _slice(s: slice, size: int) -> tuple[int, int, int]:
    values = [None if v is None else int(v) for v in (s.start, s.stop, s.step)]
    if values[2] is not None and values[2] <= 0:
        raise ValueError("step must be greater than zero")
    start, stop, step = slice(*values).indices(size)
    return start, max(start, stop), step


class _Parsed:
    """A basic view of the tensor, then tensors to gather with, by dimension of that view (None: untouched)."""

    def __init__(self, t: Tensor, key: Any) -> None:
        items = _items(t, key)
        shape = tuple(t.shape)
        starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
        out: list[int] = []  # shape of the basic view
        self.tensors: list[Tensor | None] = []
        self.ints = [k for k in items if type(k) is int]
        d = 0
        for k in items:
            if k is None:
                out.append(1)
                self.tensors.append(None)
            elif type(k) is int:
                if not -shape[d] <= k < shape[d]:
                    raise IndexError(f"index {k} is out of bounds for dimension {d} with size {shape[d]}")
                starts[d] = k % shape[d]
                limits[d] = starts[d] + 1
                d += 1
            elif isinstance(k, slice):
                starts[d], limits[d], steps[d] = _slice(k, shape[d])
                out.append(max(0, -(-(limits[d] - starts[d]) // steps[d])))
                self.tensors.append(None)
                d += 1
            else:
                d = self._tensor(k, shape, d, out)
        basic = t
        if starts != [0] * len(shape) or limits != list(shape) or steps != [1] * len(shape):
            basic = slice_view(t, tuple(starts), tuple(limits), tuple(steps))
        if tuple(basic.shape) != tuple(out):
            basic = view_of(vw.Reshape(tuple(out)), basic)
        self.basic = basic

    def _tensor(self, k: Tensor, shape: tuple[int, ...], d: int, out: list[int]) -> int:
        if k.dtype in (dtypes.bool_, dtypes.uint8):
            for j in range(k.ndim):
                if k.shape[j] != shape[d + j]:
                    raise IndexError(f"The shape of the mask {list(k.shape)} at index {j} does not match the shape of the indexed tensor {list(shape)} at index {d + j}")
            if not k.ndim:  # True adds a dimension of size 1, False of size 0
                out.append(1)
                self.tensors.append(PUBLIC["zeros"](int(bool(k)), dtype=dtypes.int64))
                return d
            for found in k.nonzero(as_tuple=True):
                out.append(shape[d])
                self.tensors.append(found)
                d += 1
            return d
        if k.dtype.is_floating:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        out.append(shape[d])
        self.tensors.append(cast(k, dtypes.int64))
        return d + 1

    @property
    def advanced(self) -> list[int]:
        return [d for d, k in enumerate(self.tensors) if k is not None]


def _flat_index(p: _Parsed) -> tuple[Tensor, Tensor, list[int], int]:
    """(data with the indexed dims merged in front, flat index, indexed dims, where the result dims go)."""
    dims = p.advanced
    data = p.basic
    tensors = [p.tensors[d] for d in dims]
    try:
        tensors = PUBLIC["broadcast_tensors"](tensors)
    except RuntimeError:
        shapes = ", ".join(str(list(k.shape)) for k in tensors)  # type: ignore[union-attr]
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    together = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if together else 0
    front = data if dims == list(range(len(dims))) else movedim(data, dims, list(range(len(dims))))
    flat: Tensor | None = None
    for d, k in zip(dims, tensors, strict=True):
        size = data.shape[d]
        k = _normalised(k, size)
        flat = k if flat is None else flat * size + k
    n = len(dims)
    merged = front if n == 1 else front.reshape(math.prod(front.shape[:n]), *front.shape[n:])
    assert flat is not None
    return merged, flat, dims, at


def _normalised(k: Tensor, size: int) -> Tensor:
    """Negative indices counted from the end. Out of range ones become -1, which the kernel's check refuses."""
    shifted = where(k < 0, k + size, k)
    return where((k >= size) | (shifted < 0), -1 - abs(size) * 2**40, shifted)


def getitem(self: Tensor, key: Any) -> Tensor:
    """t[key]: a view for ints, slices, None and Ellipsis; a gather where tensors, lists or masks take part."""
    p = _Parsed(self, key)
    if not p.advanced:
        return p.basic if p.basic is not self else view_of(vw.Reshape(tuple(self.shape)), self)
    data, flat, _, at = _flat_index(p)
    out = record(ix.Take(0), data, flat)
    if at:
        k = flat.ndim
        out = movedim(out, list(range(k)), list(range(at, at + k)))
    return out


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """t[key] = value, in place."""
    check_writable(self)
    if not isinstance(value, Tensor):
        value = PUBLIC["tensor"](value, dtype=self.dtype) if number(value) is None else number(value)
    if isinstance(key, Tensor) and key.dtype is dtypes.bool_ and not (isinstance(value, Tensor) and value.ndim):
        assign(self, _masked(self, key, value))  # a constant under a mask is a select: nothing needs to be counted
        return
    p = _Parsed(self, key)
    if not p.advanced:
        _assign_view(p.basic, value)
        return
    _put_advanced(p, value, "set")


def _masked(t: Tensor, mask: Tensor, value: Any) -> Tensor:
    for j in range(mask.ndim):
        if j >= t.ndim or mask.shape[j] != t.shape[j]:
            raise IndexError(f"The shape of the mask {list(mask.shape)} at index {j} does not match the shape of the indexed tensor {list(t.shape)} at index {j}")
    if isinstance(value, Tensor):
        value = cast(value, t.dtype)
    elif isinstance(value, float) and not t.dtype.is_floating:
        value = int(value)
    return where(mask.reshape([*mask.shape, *[1] * (t.ndim - mask.ndim)]), value, t)


def _assign_view(target: Tensor, value: Any) -> None:
    shape = tuple(target.shape)
    if isinstance(value, Tensor):
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = value.squeeze(0)
        new = cast(value, target.dtype)
        if tuple(new.shape) != shape:
            new = expand(new, shape)
    else:
        new = PUBLIC["full"](shape, value, dtype=target.dtype)
    assign(target, new)


def _put_advanced(p: _Parsed, value: Any, mode: str) -> None:
    """Scatter into the basic view, which writes through to the tensor."""
    target = p.basic
    data, flat, dims, at = _flat_index(p)
    rest = tuple(data.shape[1:])
    k = flat.ndim
    result_shape = (*rest[:at], *flat.shape, *rest[at:])
    if not isinstance(value, Tensor):
        value = PUBLIC["full"]((), value, dtype=target.dtype)
    value = cast(value, target.dtype)
    while value.ndim > len(result_shape) and value.shape[0] == 1:
        value = value.squeeze(0)
    try:
        value = expand(value, result_shape)
    except RuntimeError:
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of shape {list(result_shape)}") from None
    if at:
        value = movedim(value, list(range(at, at + k)), list(range(k)))
    new = record(ix.Put(0, mode), data, flat, value)
    order = [*dims, *(d for d in range(target.ndim) if d not in dims)]
    new = new.reshape([target.shape[d] for d in order])
    if order != list(range(target.ndim)):
        new = movedim(new, list(range(len(dims))), dims)
    assign(target, new)


Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]


# ---- gather and scatter -----------------------------------------------------------------------------------------------


def _check_index(name: str, index: Tensor) -> Tensor:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int64 for index")
    return cast(index, dtypes.int64)


@public()
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """input at `index` along `dim`: out[i][j] = input[index[i][j]][j] for dim 0."""
    if index.dtype is not dtypes.int64:
        raise RuntimeError("gather(): Expected dtype int64 for index")
    d = axis(dim, input.ndim)
    if input.ndim != index.ndim and (input.ndim or index.ndim != 1) and (index.ndim or input.ndim != 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    if not input.ndim or not index.ndim:
        return record(ix.Gather(0), input.reshape(-1), index.reshape(-1)).reshape(index.shape)
    for k in range(input.ndim):
        if k != d and index.shape[k] > input.shape[k]:
            raise RuntimeError(f"Size does not match at dimension {k} expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}")
    return record(ix.Gather(d), _cropped(input, index, d), index)


def _cropped(t: Tensor, index: Tensor, d: int) -> Tensor:
    """`t` cut to the size of `index` in all dims but `d`."""
    limits = tuple(t.shape[k] if k == d else index.shape[k] for k in range(t.ndim))
    return t if limits == tuple(t.shape) else slice_view(t, (0,) * t.ndim, limits, (1,) * t.ndim)


_MODES = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "amax", "amin": "amin"}


def _scatter(name: str, input: Tensor, dim: int, index: Tensor, src: Any, mode: str) -> Tensor:
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"{name}(): Expected dtype int64 for index")
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
            raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d} and to be no larger size than src {list(src.shape)}")
    limits = tuple(index.shape)
    if tuple(src.shape) != limits:
        src = slice_view(src, (0,) * src.ndim, limits, (1,) * src.ndim)
    return record(ix.Scatter(d, mode), input, index, src)


@public(inplace=True)
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """A copy of input with src written at `index` along `dim` (or added, multiplied by `reduce`)."""
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _scatter("scatter", input, dim, index, value if src is None else src, "set" if reduce is None else _MODES[reduce])


@public(inplace=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input with src added at `index` along `dim`."""
    return _scatter("scatter_add", input, dim, index, src, "add")


@public(inplace=True)
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """src reduced ("sum", "prod", "mean", "amax", "amin") into input at `index` along `dim`."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError("reduce argument must be either sum, prod, mean, amax or amin.")
    if not include_self:
        start = {"sum": 0, "prod": 1, "mean": 0, "amax": -math.inf, "amin": math.inf}[reduce]
        if not input.dtype.is_floating and math.isinf(start):
            info = np.iinfo(input.dtype.numpy)
            start = info.min if start < 0 else info.max
        base = _scatter("scatter_reduce", input, dim, index, input.new_full(index.shape, start), "set")
    else:
        base = input
    if reduce != "mean":
        return _scatter("scatter_reduce", base, dim, index, src, _MODES[reduce])
    total = _scatter("scatter_reduce", base, dim, index, src, "add")
    ones = src.new_ones(index.shape)
    count = _scatter("scatter_reduce", input.new_ones(input.shape) if include_self else input.new_zeros(input.shape), dim, index, ones, "add")
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
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: {type_name(index.dtype)} and size: {list(index.shape)}")
    if source.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) {type_name(input.dtype)} and (source) {type_name(source.dtype)}")
    index = _check_index(name, index).reshape(-1)
    d = axis(dim, input.ndim)
    if not input.ndim:
        return record(ix.Put(0, mode), input.reshape(1), index, source.reshape(-1)).reshape(())
    wanted = (*input.shape[:d], index.shape[0], *input.shape[d + 1 :])
    if tuple(source.shape) != tuple(wanted):
        raise RuntimeError(f"{name}(): Number of indices ({index.shape[0]}) should be equal to source.size(dim) and shapes must match otherwise: source {list(source.shape)}, self {list(input.shape)}, dim {d}")
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
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
    shape = (*input.shape[:d], index.numel(), *input.shape[d + 1 :]) if input.ndim else (index.numel(),)
    return _index_form("index_fill", input, dim, index, cast(value, input.dtype).expand(shape), "set")


@public(inplace=True)
def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with values put (or added, if accumulate) at the places that `input[indices]` shows."""
    if values.dtype is not input.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {type_name(input.dtype)} for the destination and {type_name(values.dtype)} for the source.")
    out = input.clone()
    p = _Parsed(out, tuple(slice(None) if i is None else i for i in indices))
    _put_advanced(p, values, "add" if accumulate else "set")
    return out


@public(inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where mask is true, input elsewhere; the dtype of input stays."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {type_name(mask.dtype)}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
        value = cast(value, input.dtype)
    else:
        value = number(value)
        if isinstance(value, float) and not input.dtype.is_floating:
            raise RuntimeError(f"value cannot be converted to type {type_name(input.dtype)} without overflow")
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
    m = mask.expand(input.shape)
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
    if indices.dtype is not dtypes.int64:
        raise RuntimeError("torch.take_along_dim(): dtype of indices should be Long")
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices")
    d = axis(dim, input.ndim)
    shape = PUBLIC["broadcast_shapes"]([1 if k == d else n for k, n in enumerate(input.shape)], [1 if k == d else n for k, n in enumerate(indices.shape)])
    a = input.expand([input.shape[d] if k == d else n for k, n in enumerate(shape)])
    i = indices.expand([indices.shape[d] if k == d else n for k, n in enumerate(shape)])
    return gather(a, d, i)


@public()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of elements that are not zero: [n, ndim], or one vector a dimension. Waits for the value: its count is a shape."""
    need_tensor("nonzero", input)
    found = np.nonzero(_truth(input))
    if as_tuple:
        return tuple(PUBLIC["from_numpy"](np.ascontiguousarray(k, dtype=np.int64)) for k in found) if input.ndim else (PUBLIC["from_numpy"](np.ascontiguousarray(np.nonzero(_truth(input).reshape(1))[0])),)
    return PUBLIC["from_numpy"](np.ascontiguousarray(np.stack(found, 1) if input.ndim else np.zeros((int(bool(input)), 0)), dtype=np.int64))


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
