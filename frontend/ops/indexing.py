"""Indexing: `t[...]` and `t[...] = v`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.ops import indexing as ix
from treadle.ir.ops import views as vw
from treadle.ops.elementwise import cast, number, where
from treadle.ops.registration import PUBLIC, assign
from treadle.ops.views import expand, movedim, slice_view
from treadle.recorder.trace import record
from treadle.storage import check_writable
from treadle.storage import view as view_of
from treadle.tensor import Tensor

__all__ = ["Parsed", "getitem", "put_advanced", "setitem"]


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
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
        f"{type(k).__name__})"
    )


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


class Parsed:
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
                    raise IndexError(
                        f"The shape of the mask {list(k.shape)} at index {j} does not match the shape of the "
                        f"indexed tensor {list(shape)} at index {d + j}"
                    )
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


def _flat_index(p: Parsed) -> tuple[Tensor, Tensor, list[int], int]:
    """(data with the indexed dims merged in front, flat index, indexed dims, where the result dims go)."""
    dims = p.advanced
    data = p.basic
    tensors = [p.tensors[d] for d in dims]
    try:
        tensors = PUBLIC["broadcast_tensors"](tensors)
    except RuntimeError:
        shapes = ", ".join(str(list(k.shape)) for k in tensors)  # type: ignore[union-attr]
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
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
    p = Parsed(self, key)
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
    p = Parsed(self, key)
    if not p.advanced:
        _assign_view(p.basic, value)
        return
    put_advanced(p, value, "set")


def _masked(t: Tensor, mask: Tensor, value: Any) -> Tensor:
    for j in range(mask.ndim):
        if j >= t.ndim or mask.shape[j] != t.shape[j]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {j} does not match the shape of the indexed "
                f"tensor {list(t.shape)} at index {j}"
            )
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


def put_advanced(p: Parsed, value: Any, mode: str) -> None:
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
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of "
            f"shape {list(result_shape)}"
        ) from None
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
