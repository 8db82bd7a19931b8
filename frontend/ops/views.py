"""Shape functions: views share storage with their source; what must copy says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.ir.dtypes import DType
from treadle.ir.ops import identity
from treadle.ir.ops import views as vw
from treadle.ops.arguments import axes, axis, sizes
from treadle.ops.elementwise import cast, need_tensor
from treadle.ops.registration import PUBLIC, public
from treadle.ops.strides import contiguous_strides, layout, view_strides
from treadle.recorder.trace import record, record1
from treadle.recorder.tree import intern_operation, interned
from treadle.storage import base_of
from treadle.storage import view as view_of
from treadle.tensor import Size, Tensor, as_device, device

__all__ = ["clone", "slice_view"]


def _infer_size(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """`shape` with its -1 replaced. Raises RuntimeError where it does not fit."""
    if math.prod(shape) == numel and (not shape or min(shape) >= 0):
        return shape
    unknown = [k for k, d in enumerate(shape) if d == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    for d in shape:
        if d < -1:
            raise RuntimeError(f"invalid shape dimension {d}")
    known = math.prod(d for d in shape if d != -1)
    if unknown:
        if known == 0:
            raise RuntimeError(
                f"cannot reshape tensor of {numel} elements into shape {list(shape)} because the unspecified "
                "dimension size -1 can be any value and is ambiguous"
            )
        if numel % known:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return tuple(numel // known if d == -1 else d for d in shape)
    if known != numel:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return shape


@public(out=False)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The elements in row-major order with another shape; one size may be -1."""
    need_tensor("reshape", input)
    old = input.shape
    new = _infer_size(sizes(shape, "reshape"), math.prod(old))
    op = interned(vw.Reshape, new)
    return view_of(op, input) if is_viewable(input, new) else record1(op, id(op), input)


def _reshape_method(self: Tensor, *shape: Any, **kw: Any) -> Tensor:
    """The elements in row-major order with another shape; one size may be -1."""
    return reshape(self, kw["shape"]) if "shape" in kw else reshape(self, *shape)


Tensor.reshape = _reshape_method  # type: ignore[attr-defined]


def is_viewable(t: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether torch's strides of `t` allow `shape` without a copy."""
    if t._alias is None or not t._alias.chain or t.is_contiguous():
        return True
    return view_strides(t.shape, t.stride(), shape) is not None


@public(function=False, out=False)
def view(self: Tensor, *shape: Any) -> Tensor:
    """The same memory with another shape (or read as another dtype). Raises RuntimeError where strides forbid it."""
    if len(shape) == 1 and isinstance(shape[0], DType):
        return view_dtype(self, shape[0])
    new = _infer_size(sizes(shape, "view"), math.prod(self.shape))
    if not is_viewable(self, new):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return view_of(vw.Reshape(new), self)


def view_dtype(self: Tensor, dtype: DType) -> Tensor:
    """The bits of the elements as another dtype of the same size."""
    from treadle.ir.ops.logic import Bitcast

    if dtype is self.dtype:
        return view_of(vw.Reshape(tuple(self.shape)), self)
    if dtype.itemsize != self.dtype.itemsize:
        raise NotImplementedError("view(dtype) between element sizes is not implemented")
    return record(Bitcast(dtype), self)


@public(function=False, out=False)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """view(other.shape)."""
    return view(self, other.shape)


@public(function=False, out=False)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape(other.shape)."""
    return reshape(self, other.shape)


@public(out=False)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim..end_dim merged into one."""
    need_tensor("flatten", input)
    a, z = axis(start_dim, input.ndim), axis(end_dim, input.ndim)
    if a > z:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    shape = input.shape
    if not shape:
        return reshape(input, (1,))
    return input if a == z else reshape(input, (*shape[:a], math.prod(shape[a : z + 1]), *shape[z + 1 :]))


@public(out=False)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape(input, (-1,))


@public(out=False)
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into `sizes` (one may be -1)."""
    d = axis(dim, input.ndim)
    try:
        split = _infer_size(tuple(sizes), input.shape[d])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({input.shape[d]}) "
            "in the input tensor"
        ) from None
    return reshape(input, (*input.shape[:d], *split, *input.shape[d + 1 :]))


@public(out=False)
def permute(input: Tensor, *dims: Any) -> Tensor:
    """Dimensions in the order `dims`."""
    need_tensor("permute", input)
    given = sizes(dims, "permute")
    if len(given) != input.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(given)}"
        )
    order = tuple(axis(d, input.ndim) for d in given)
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return view_of(vw.Permute(order), input)


def _permute_method(self: Tensor, *dims: Any, **kw: Any) -> Tensor:
    """Dimensions in the order `dims`."""
    return permute(self, kw["dims"]) if "dims" in kw else permute(self, *dims)


Tensor.permute = _permute_method  # type: ignore[attr-defined]


@public(out=False, aliases=("swapaxes", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dimensions dim0 and dim1 exchanged."""
    need_tensor("transpose", input)
    a, b = axis(dim0, input.ndim), axis(dim1, input.ndim)
    order = list(range(input.ndim))
    if order:
        order[a], order[b] = b, a
    return view_of(vw.Permute(tuple(order)), input)


@public(out=False)
def t(input: Tensor) -> Tensor:
    """Transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return transpose(input, 0, 1) if input.ndim == 2 else view_of(vw.Reshape(tuple(input.shape)), input)


@public(out=False, aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to `destination`, the others in order."""
    src = [axis(d, input.ndim) for d in ((source,) if isinstance(source, int) else source)]
    dst = [axis(d, input.ndim) for d in ((destination,) if isinstance(destination, int) else destination)]
    if len(src) != len(dst):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({src} dims) should contain the same number of "
            f"dims as destination ({dst} dims)"
        )
    if len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise RuntimeError("movedim: repeated dim in `source` or `destination`")
    order = [-1] * input.ndim
    for s, d in zip(src, dst, strict=True):
        order[d] = s
    rest = iter(d for d in range(input.ndim) if d not in src)
    return permute(input, [d if d >= 0 else next(rest) for d in order])


Tensor.T = property(lambda self: permute(self, tuple(reversed(range(self.ndim)))))  # type: ignore[attr-defined]
Tensor.mT = property(lambda self: transpose(self, -2, -1))  # type: ignore[attr-defined]
PUBLIC["adjoint"] = Tensor.adjoint = lambda input: transpose(input, -2, -1)  # type: ignore[attr-defined]


@public(out=False)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without dimensions of size 1 (all, or those of `dim` that have it)."""
    need_tensor("squeeze", input)
    shape = input.shape
    if dim is None:
        drop = {k for k, d in enumerate(shape) if d == 1}
    else:
        drop = {k for k in (axes(dim, input.ndim) if dim != () else ()) if k < len(shape) and shape[k] == 1}
    return view_of(vw.Reshape(tuple(d for k, d in enumerate(shape) if k not in drop)), input)


@public(out=False)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of size 1 at `dim`."""
    need_tensor("unsqueeze", input)
    d = axis(dim, input.ndim + 1)
    shape = input.shape
    return view_of(vw.Reshape((*shape[:d], 1, *shape[d:])), input)


@public(function=False, out=False)
def expand(self: Tensor, *size: Any) -> Tensor:
    """Dimensions of size 1 repeated without copying; -1 keeps a size."""
    given = sizes(size, "expand")
    old = self.shape
    if len(given) < len(old):
        raise RuntimeError(
            f"expand({list(old)}, size={list(given)}): the number of sizes provided ({len(given)}) must be greater "
            f"or equal to the number of dimensions in the tensor ({len(old)})"
        )
    lead = len(given) - len(old)
    new = []
    for k, d in enumerate(given):
        have = old[k - lead] if k >= lead else None
        if d == -1:
            if have is None:
                raise RuntimeError(
                    f"expand({list(old)}, size={list(given)}): The expanded size of the tensor (-1) isn't allowed "
                    f"in a leading, non-existing dimension {k}"
                )
            d = have
        elif have is not None and have not in (1, d):
            raise RuntimeError(
                f"The expanded size of the tensor ({d}) must match the existing size ({have}) at non-singleton "
                f"dimension {k}.  Target sizes: {list(given)}.  Tensor sizes: {list(old)}"
            )
        elif d < 0:
            raise RuntimeError(f"expand: invalid size {d}")
        new.append(d)
    return view_of(vw.Expand(tuple(new)), self)


@public(out=False)
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """expand(size)."""
    return expand(input, size)


@public(function=False, out=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand(other.shape)."""
    return expand(self, other.shape)


@public(method=False, out=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all broadcast. Raises RuntimeError where there is none."""
    from treadle.recorder.build import broadcast

    return Size(broadcast([tuple(s) if isinstance(s, Sequence) else (s,) for s in shapes] or [()]))


@public(method=False, out=False)
def broadcast_tensors(*tensors: Any) -> list[Tensor]:
    """The tensors expanded to their common shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    shape = broadcast_shapes(*(x.shape for x in given))
    return [expand(x, shape) for x in given]


def slice_view(t: Tensor, starts: tuple, limits: tuple, steps: tuple) -> Tensor:
    """t[start:limit:step] in every dimension, non-negative and in bounds."""
    return view_of(vw.Slice(starts, limits, steps), t)


@public(out=False)
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements of dimension `dim` from `start`."""
    need_tensor("narrow", input)
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = axis(dim, input.ndim)
    size = input.shape[d]
    if isinstance(start, Tensor) and (start.ndim or start.dtype.kind not in "ui"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = int(start)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size}], but got {start})")
    if start < 0:
        start += size
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _along(input, d, start, start + length, 1)


def _along(t: Tensor, d: int, start: int, limit: int, step: int) -> Tensor:
    shape = tuple(t.shape)
    starts, steps = [0] * len(shape), [1] * len(shape)
    starts[d], steps[d] = start, step
    limits = list(shape)
    limits[d] = limit
    return slice_view(t, tuple(starts), tuple(limits), tuple(steps))


@public(out=False)
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The slice at `index` of dimension `dim`, which disappears."""
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = axis(dim, input.ndim)
    size = input.shape[d]
    i = int(index)
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    part = _along(input, d, i % size, i % size + 1, 1)
    shape = part.shape
    return view_of(vw.Reshape((*shape[:d], *shape[d + 1 :])), part)


@public(out=False)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along `dim`."""
    if not input.ndim:
        raise RuntimeError("Dimension specified as 0 but tensor has no dimensions")
    d = axis(dim, input.ndim)
    return tuple(select(input, d, i) for i in range(input.shape[d]))


@public(out=False)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `split_size` (the last may be smaller) or of the given sizes along `dim`."""
    need_tensor("split", tensor)
    d = axis(dim, tensor.ndim)
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = tensor.shape[d]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step < 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
        if step == 0 and size:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        count = max(1, -(-size // step)) if step else 1
        parts = [min(step, size - k * step) if step else 0 for k in range(count)]
    else:
        parts = [int(p) for p in split_size_or_sections]
        if sum(parts) != size or min(parts, default=0) < 0:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension "
                f"{d}), but got split_sizes={parts}"
            )
    out, at = [], 0
    for p in parts:
        out.append(_along(tensor, d, at, at + p, 1))
        at += p
    return tuple(out)


PUBLIC["split_with_sizes"] = Tensor.split_with_sizes = lambda input, split_sizes, dim=0: split(
    input, list(split_sizes), dim
)  # type: ignore[attr-defined]


@public(out=False)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be smaller)."""
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input.shape[axis(dim, input.ndim)]
    return split(input, max(1, -(-size // chunks)), dim) if size else split(input, [0] * chunks, dim)


@public(out=False)
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of nearly equal size, or between the given indices."""
    d = axis(dim, input.ndim)
    size = input.shape[d]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}")
        return split(input, [size // n + (k < size % n) for k in range(n)], d)
    cuts = [0, *(min(max(i + size if i < 0 else i, 0), size) for i in indices_or_sections), size]
    return tuple(_along(input, d, a, max(a, b), 1) for a, b in zip(cuts, cuts[1:], strict=False))


@public()
def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """A copy with the elements of `dims` in reverse order."""
    order = sizes(order if dims is None else (dims,), "flip")
    found = tuple(sorted(axis(d, input.ndim) for d in order))
    if len(set(found)) != len(found):
        raise RuntimeError("dim appears multiple times in the list of dims")
    return record(vw.Flip(found if input.ndim else ()), input)


PUBLIC["fliplr"] = Tensor.fliplr = lambda input: flip(input, 1)  # type: ignore[attr-defined]
PUBLIC["flipud"] = Tensor.flipud = lambda input: flip(input, 0)  # type: ignore[attr-defined]


@public(function=True, method=False, aliases=("concat", "concatenate"))
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`."""
    parts = list(tensors)
    if not parts:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    for k, x in enumerate(parts):
        need_tensor("cat", x, f"tensors[{k}]")
        if not x.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    dtype = parts[0].dtype
    from treadle.ir.dtypes import promote

    for x in parts[1:]:
        dtype = promote(dtype, x.dtype)
    kept = [x for x in parts if tuple(x.shape) != (0,)] or parts[:1]  # torch skips legacy empty tensors
    d = axis(dim, kept[0].ndim)
    shape = kept[0].shape
    for k, x in enumerate(kept):
        if x.ndim != len(shape):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(shape)} and {x.ndim}")
        if any(a != b for j, (a, b) in enumerate(zip(x.shape, shape, strict=True)) if j != d):
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {d}. Expected size "
                f"{shape[1 - d] if len(shape) == 2 else list(shape)} but got size {list(x.shape)} for tensor "
                f"number {k} in the list."
            )
    kept = [cast(x, dtype) for x in kept]
    return clone(kept[0]) if len(kept) == 1 else record(vw.Concat(d), *kept)


@public(function=True, method=False)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors along a new dimension."""
    parts = list(tensors)
    if not parts:
        raise RuntimeError("stack expects a non-empty TensorList")
    d = axis(dim, parts[0].ndim + 1)
    for k, x in enumerate(parts):
        if x.shape != parts[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at entry 0 and "
                f"{list(x.shape)} at entry {k}"
            )
    return cat([unsqueeze(x, d) for x in parts], d)


@public(function=False, out=False)
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """A copy tiled `repeats` times in each dimension."""
    times = sizes(repeats, "repeat")
    if len(times) < self.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if min(times, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(times)}")
    shape = (1,) * (len(times) - self.ndim) + tuple(self.shape)
    spread = [x for n, d in zip(times, shape, strict=True) for x in (n, d)]
    split_shape = [x for d in shape for x in (1, d)]
    out = expand(reshape(self, split_shape), spread)
    return record(vw.Reshape(tuple(n * d for n, d in zip(times, shape, strict=True))), out)


@public()
def tile(input: Tensor, *dims: Any) -> Tensor:
    """repeat, with missing leading dims of `dims` taken as 1."""
    times = sizes(dims, "tile")
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


_BARRIER_COPY = intern_operation(identity.Copy())


@public(out=False)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own storage; gradients flow through."""
    need_tensor("clone", input)
    return record1(_BARRIER_COPY, id(_BARRIER_COPY), input)


@public(function=False, out=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor if its strides are row-major, else a copy."""
    return self if self.is_contiguous() else clone(self)


@public(out=False)
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Any strided window on the storage of `input`. Raises RuntimeError where it leaves the storage."""
    base = base_of(input)
    offset = layout(input)[1] if storage_offset is None else storage_offset
    reach = offset + sum((d - 1) * s for d, s in zip(size, stride, strict=True)) + 1 if math.prod(size) else 0
    if reach > math.prod(base.shape):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{base.dtype.itemsize} requiring a storage size of {reach * base.dtype.itemsize} are out of bounds "
            f"for storage of size {math.prod(base.shape) * base.dtype.itemsize}"
        )
    return view_of(vw.AsStrided(tuple(size), tuple(stride), offset), base)


@public(function=False, out=False)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Sliding windows of `size` with `step` along a dimension; the window is the last dimension."""
    if not self.ndim:
        return unfold(reshape(self, 1), 0, size, step).reshape(size)
    d = axis(dimension, self.ndim)
    n = self.shape[d]
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    last = self if d == self.ndim - 1 else movedim(self, d, -1)
    out = view_of(vw.Window((size,), (step,), (1,)), last)
    return out if d == self.ndim - 1 else movedim(out, -2, d)


@public(out=False)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dims (dim1, dim2), as the last dimension: a view."""
    a, b = axis(dim1, input.ndim), axis(dim2, input.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, cols = input.shape[a], input.shape[b]
    top, left = (0, offset) if offset >= 0 else (-offset, 0)
    n = max(0, min(rows - top, cols - left))
    x = movedim(input, (a, b), (-2, -1))
    if n == 0:
        return slice_view(x, (0,) * x.ndim, (*x.shape[:-2], 0, 0), (1,) * x.ndim).reshape(*x.shape[:-2], 0)
    x = _along(_along(x, x.ndim - 2, top, top + n, 1), x.ndim - 1, left, left + n, 1)
    lead = contiguous_strides(x.shape)[:-2]
    return view_of(vw.AsStrided((*x.shape[:-2], n), (*lead, n + 1), 0), x)


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`to(dtype)`, `to(device)`, `to(other)`, with copy=True a copy in any case."""
    dtype, copy = kwargs.get("dtype"), kwargs.get("copy", False)
    place = kwargs.get("device")
    for k, a in enumerate(args):
        if isinstance(a, Tensor):
            dtype = a.dtype
        elif isinstance(a, DType):
            dtype = a
        elif isinstance(a, str | device | int) and not isinstance(a, bool):
            place = a
        elif isinstance(a, bool) and k >= 2:
            copy = copy or (a and k == len(args) - 1 and k >= (3 if place is not None and dtype is not None else 2))
    if place is not None:
        as_device(place)
    out = self if dtype is None else cast(self, dtype)
    return clone(out) if copy and out is self else out


Tensor.to = _to  # type: ignore[attr-defined]
Tensor.cpu = lambda self, memory_format=None: self  # type: ignore[attr-defined]
Tensor.cuda = lambda self, device=None, non_blocking=False, memory_format=None: _to(
    self, "cuda" if device is None else device
)  # type: ignore[attr-defined]
Tensor.type_as = lambda self, other: cast(self, other.dtype)  # type: ignore[attr-defined]
Tensor.pin_memory = lambda self: self  # type: ignore[attr-defined]
Tensor.is_pinned = lambda self: False  # type: ignore[attr-defined]
