"""Shape facts and small in-place methods: size, numel, copy_, fill_, zero_, roll, repeat_interleave, diag ..."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.backward.modes import is_grad_enabled
from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, number, where
from treadle.ops.registration import PUBLIC, assign, public
from treadle.ops.views import cat, flip
from treadle.storage import check_writable, version_of
from treadle.tensor import Tensor, force, tensor_method

__all__ = ["roll"]


@tensor_method
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or its entry `dim`."""
    return self.shape if dim is None else self.shape[axis(dim, self.ndim)]


@tensor_method
def dim(self: Tensor) -> int:
    """Number of dimensions."""
    return self.ndim


Tensor.ndimension = dim  # type: ignore[attr-defined]


@tensor_method
def numel(self: Tensor) -> int:
    """Number of elements."""
    return math.prod(self.shape)


Tensor.nelement = numel  # type: ignore[attr-defined]
Tensor.itemsize = property(lambda self: self.dtype.itemsize)  # type: ignore[attr-defined]
Tensor.nbytes = property(lambda self: self.dtype.itemsize * math.prod(self.shape))  # type: ignore[attr-defined]
Tensor.element_size = lambda self: self.dtype.itemsize  # type: ignore[attr-defined]
Tensor.is_floating_point = lambda self: self.dtype.is_floating  # type: ignore[attr-defined]
Tensor.is_complex = lambda self: False  # type: ignore[attr-defined]
Tensor.is_signed = lambda self: self.dtype.kind in "if"  # type: ignore[attr-defined]
Tensor.is_cuda = property(lambda self: False)  # type: ignore[attr-defined]
Tensor.is_sparse = property(lambda self: False)  # type: ignore[attr-defined]
Tensor.is_quantized = property(lambda self: False)  # type: ignore[attr-defined]
Tensor.is_meta = property(lambda self: False)  # type: ignore[attr-defined]
Tensor.layout = property(lambda self: "strided")  # type: ignore[attr-defined]
Tensor.is_inference = lambda self: False  # type: ignore[attr-defined]
Tensor.get_device = lambda self: -1  # type: ignore[attr-defined]
Tensor.real = property(lambda self: self)  # type: ignore[attr-defined]
PUBLIC["is_floating_point"] = lambda input: input.dtype.is_floating
PUBLIC["is_complex"] = lambda input: False
PUBLIC["is_nonzero"] = Tensor.is_nonzero = lambda input: bool(input)  # type: ignore[attr-defined]
Tensor._version = property(lambda self: version_of(self))  # type: ignore[attr-defined]


@tensor_method
def data_ptr(self: Tensor) -> int:
    """Address of the first element. Waits for the value."""
    return force(self).data_ptr


@tensor_method
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor as `dtype`; without it the name of its type, as `torch.FloatTensor`."""
    names = {
        "float32": "Float",
        "float64": "Double",
        "float16": "Half",
        "bfloat16": "BFloat16",
        "int64": "Long",
        "int32": "Int",
        "int16": "Short",
        "int8": "Char",
        "uint8": "Byte",
        "bool": "Bool",
    }
    if dtype is None:
        return f"torch.{names[self.dtype.name]}Tensor"
    if isinstance(dtype, str):
        short = dtype.rsplit(".", 1)[-1].removesuffix("Tensor")
        dtype = next(dtypes.DTYPES[k] for k, v in names.items() if v == short)
    return cast(self, dtype)


@tensor_method
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """The elements of src (broadcast, cast), in place."""
    check_writable(self)
    if not isinstance(src, Tensor):
        src = PUBLIC["tensor"](src)
    new = cast(src, self.dtype)
    return assign(self, new if new.shape == self.shape else new.expand(self.shape))


@tensor_method
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element `value`, in place."""
    check_writable(self)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
        return assign(self, cast(value, self.dtype).expand(self.shape))
    new = self.new_full(self.shape, number(value))
    if self.requires_grad and is_grad_enabled():  # what was there still counts, with slope 0
        new = where(PUBLIC["ones"](self.shape, dtype=dtypes.bool_), new, self)
    return assign(self, new)


@tensor_method
def zero_(self: Tensor) -> Tensor:
    """Every element 0, in place."""
    return fill_(self, 0)


PUBLIC["fill"] = lambda input, value: input.clone().fill_(value)


def _detached_in_place(name: str, f: Any) -> None:
    def form(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        new = f(self, *args, **kwargs)
        self._h, self._alias = new._h, new._alias
        return self

    form.__name__ = name
    form.__doc__ = f"In place: this tensor becomes the view that `{name[:-1]}` gives."
    tensor_method(form)


for _name in ("squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "as_strided_"):
    _detached_in_place(_name, getattr(Tensor, _name[:-1]))


@tensor_method
def set_(self: Tensor, source: Tensor) -> Tensor:
    """Share the storage and shape of `source` from now on."""
    self.data = source
    return self


@public()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted cyclically along dims (or in the flattened tensor)."""
    if dims is None or (isinstance(dims, Sequence) and not len(dims)):
        if not isinstance(shifts, int) and len(shifts) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        n = shifts if isinstance(shifts, int) else shifts[0]
        return roll(input.reshape(-1), n, 0).reshape(input.shape)
    shift_list = [shifts] if isinstance(shifts, int) else list(shifts)
    dim_list = [dims] if isinstance(dims, int) else list(dims)
    if len(shift_list) != len(dim_list):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shift_list)}, dims:{len(dim_list)}")
    if not input.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    for s, d in zip(shift_list, dim_list, strict=True):
        d = axis(d, input.ndim)
        size = input.shape[d] if input.ndim else 1
        k = s % size if size else 0
        if k:
            input = cat([input.narrow(d, size - k, k), input.narrow(d, 0, size - k)], d)
    return input.clone() if not shift_list else input


@public(out=False)
def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element (along dim, or of the flattened tensor) repeated. Tensor counts wait for their values."""
    t = input.reshape(-1) if dim is None else input
    d = axis(0 if dim is None else dim, t.ndim)
    if isinstance(repeats, Tensor) and repeats.numel() != 1:
        index = np.repeat(np.arange(t.shape[d]), repeats.detach().numpy())
        return t.index_select(d, PUBLIC["tensor"](index.astype(np.int64)))
    n = int(repeats)
    if n < 0:
        raise RuntimeError("repeats has to be non-negative")
    wide = t.unsqueeze(d + 1).expand(*t.shape[: d + 1], n, *t.shape[d + 1 :])
    return wide.reshape(*t.shape[:d], t.shape[d] * n, *t.shape[d + 1 :])


@public()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated by k quarter turns in the plane of two dims."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = dims
    if axis(a, input.ndim) == axis(b, input.ndim):
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {a} and dim1 = {b}")
    k %= 4
    if k == 0:
        return input.clone()
    if k == 2:
        return flip(flip(input, a), b)
    return flip(input, b).transpose(a, b) if k == 1 else flip(input.transpose(a, b), b)


@public()
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with a vector on its diagonal."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return input.diagonal(diagonal).clone()


@public(out=False)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices (in dims dim1, dim2) with the last dimension of input on their diagonals."""
    n = input.shape[-1] + abs(offset)
    row = PUBLIC["arange"](n).unsqueeze(1)
    col = PUBLIC["arange"](n).unsqueeze(0)
    left = max(offset, 0)
    pick = (col - left).clamp(0, max(input.shape[-1] - 1, 0))
    spread = input.index_select(input.ndim - 1, pick.reshape(-1)).unsqueeze(-2).expand(*input.shape[:-1], n, n)
    out = where(col - row == offset, spread, False if input.dtype is dtypes.bool_ else 0)
    a, b = axis(dim1, out.ndim), axis(dim2, out.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return out.movedim((-2, -1), (a, b))


@public(out=False)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the flattened input on its diagonal."""
    return diag_embed(input.reshape(-1), offset)


@public(method=False, out=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one a row."""
    grids = PUBLIC["meshgrid"](*tensors, indexing="ij")
    return grids[0].reshape(-1) if len(tensors) == 1 else PUBLIC["stack"]([g.reshape(-1) for g in grids], 1)


@public(method=False, out=False)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Indices of the lower triangle, [2, n]."""
    return PUBLIC["tensor"](np.stack(np.tril_indices(row, offset, col)), dtype=dtype)


@public(method=False, out=False)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Indices of the upper triangle, [2, n]."""
    return PUBLIC["tensor"](np.stack(np.triu_indices(row, offset, col)), dtype=dtype)


@public(method=False, out=False)
def can_cast(from_: DType, to: DType) -> bool:
    """Whether in-place results of one dtype may be stored in another."""
    return dtypes.category(from_) <= dtypes.category(to)


@public(method=False, out=False)
def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of tensor1 + tensor2."""
    return (
        (tensor1 + tensor2).dtype
        if isinstance(tensor1, Tensor) or isinstance(tensor2, Tensor)
        else PUBLIC["tensor"](tensor1 + tensor2).dtype
    )
