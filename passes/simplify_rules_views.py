"""Rules of simplify for views and reductions."""

from __future__ import annotations

from treadle.ir.core import Op, Operation, Value
from treadle.ir.dims import Dim, product
from treadle.ir.dtypes import DType
from treadle.ir.ops.arithmetic import Mul
from treadle.ir.ops.padding import Concat, Fold, Pad, SliceUpdate
from treadle.ir.ops.reductions import All, Any, Max, Min, Prod, Sum
from treadle.ir.ops.views import Expand, Flip, Permute, Reshape, Slice, Window
from treadle.passes.simplify_engine import Result, Simplifier, rule


@rule(Reshape, Permute, Slice, Flip)
def view_of_splat(s: Simplifier, op: Op) -> Result:
    """A view of a tensor filled with one value is such a tensor."""
    n = s.splat(op.operands[0])
    if n is not None:
        return s.full(n, op.result.tensor)
    expanded = s.producer(op.operands[0], Expand)
    if expanded is not None and not expanded.operands[0].shape:
        return s.emit(Expand(op.result.shape), expanded.operands[0])
    return None


@rule(Reshape, Permute, Expand, Slice, Flip, Pad)
def view_of_all(s: Simplifier, op: Op) -> Result:
    """A view that changes nothing."""
    operation, (x,) = op.operation, op.operands
    if isinstance(operation, Reshape | Expand):
        same = x.type is op.result.type
    elif isinstance(operation, Permute):
        same = operation.dims == tuple(range(x.rank))
    elif isinstance(operation, Slice):
        same = _whole(operation, x.shape)
    elif isinstance(operation, Flip):
        same = not operation.dims
    else:
        assert isinstance(operation, Pad)
        same = not any((*operation.low, *operation.high, *operation.interior))
    return x if same else None


def _whole(region: Slice | SliceUpdate, shape: tuple[Dim, ...]) -> bool:
    return not any(region.starts) and region.limits == shape and all(step == 1 for step in region.steps)


@rule(Reshape)
def reshape_chain(s: Simplifier, op: Op) -> Result:
    """The last shape counts."""
    inner = s.producer(op.operands[0], Reshape)
    return s.emit(op.operation, inner.operands[0]) if inner is not None else None


@rule(Permute)
def permute_chain(s: Simplifier, op: Op) -> Result:
    """Two permutations are one."""
    inner = s.producer(op.operands[0], Permute)
    if inner is None:
        return None
    outer_dims, inner_dims = op.operation.dims, inner.operation.dims  # type: ignore[attr-defined]
    return s.emit(Permute(tuple(inner_dims[d] for d in outer_dims)), inner.operands[0])


@rule(Expand)
def expand_chain(s: Simplifier, op: Op) -> Result:
    """The last shape counts; sizes of 1 put in front by a reshape come with expand anyway."""
    inner = s.producer(op.operands[0], Expand)
    if inner is not None:
        return s.emit(op.operation, inner.operands[0])
    inner = s.producer(op.operands[0], Reshape)
    if inner is not None:
        source = inner.operands[0]
        lead = inner.result.rank - source.rank
        if lead > 0 and inner.result.shape == (1,) * lead + source.shape:
            return s.emit(op.operation, source)
    return None


@rule(Slice)
def slice_chain(s: Simplifier, op: Op) -> Result:
    """A slice of a slice is one slice."""
    inner = s.producer(op.operands[0], Slice)
    if inner is None or any(d == 0 for d in op.result.shape):
        return None
    a, b = inner.operation, op.operation
    assert isinstance(a, Slice) and isinstance(b, Slice)
    starts = tuple(sa + sb * ta for sa, sb, ta in zip(a.starts, b.starts, a.steps, strict=True))
    steps = tuple(ta * tb for ta, tb in zip(a.steps, b.steps, strict=True))
    limits = tuple(i + (n - 1) * t + 1 for i, n, t in zip(starts, op.result.shape, steps, strict=True))
    return s.emit(Slice(starts, limits, steps), inner.operands[0])


@rule(Slice)
def slice_of_update(s: Simplifier, op: Op) -> Result:
    """What was just written to a region is what is read from it."""
    inner = s.producer(op.operands[0], SliceUpdate)
    return inner.operands[1] if inner is not None and _same_region(op.operation, inner.operation) else None


def _same_region(a: Operation, b: Operation) -> bool:
    return a.attributes == b.attributes


@rule(Slice)
def slice_of_concat(s: Simplifier, op: Op) -> Result:
    """A slice that lies in one piece of a concatenation is a slice of that piece."""
    inner = s.producer(op.operands[0], Concat)
    if inner is None:
        return None
    region, dim = op.operation, inner.operation.dim  # type: ignore[attr-defined]
    assert isinstance(region, Slice)
    start, limit = region.starts[dim], region.limits[dim]
    at: Dim = 0
    for piece in inner.operands:
        size = piece.shape[dim]
        if not all(isinstance(d, int) for d in (start, limit, at, size)):
            return None
        if at <= start and limit <= at + size and start < limit:
            starts, limits = list(region.starts), list(region.limits)
            starts[dim], limits[dim] = start - at, limit - at
            return s.emit(Slice(tuple(starts), tuple(limits), region.steps), piece)
        at = at + size
    return None


@rule(Flip)
def flip_chain(s: Simplifier, op: Op) -> Result:
    """Dims that are flipped twice are not flipped."""
    inner = s.producer(op.operands[0], Flip)
    if inner is None:
        return None
    dims = set(op.operation.dims) ^ set(inner.operation.dims)  # type: ignore[attr-defined]
    return s.emit(Flip(tuple(sorted(dims))), inner.operands[0])


@rule(Concat)
def concat_of_one(s: Simplifier, op: Op) -> Result:
    """Pieces without elements do not matter, and one piece is itself."""
    dim = op.operation.dim  # type: ignore[attr-defined]
    pieces = [v for v in op.operands if v.shape[dim] != 0] or [op.operands[0]]
    if len(pieces) == 1:
        return pieces[0]
    return s.emit(op.operation, *pieces) if len(pieces) < len(op.operands) else None


@rule(SliceUpdate)
def update_of_all(s: Simplifier, op: Op) -> Result:
    """Writing every element replaces the base; writing a region again makes the first write moot."""
    base, new = op.operands
    region = op.operation
    assert isinstance(region, SliceUpdate)
    if _whole(region, base.shape):
        return new
    earlier = s.producer(base, SliceUpdate)
    if earlier is not None and _same_region(region, earlier.operation):
        return s.emit(region, earlier.operands[0], new)
    return None


# Reductions ----------------------------------------------------------------------------------------------------------

REDUCTIONS = (Sum, Prod, Max, Min, Any, All)


@rule(*REDUCTIONS)
def reduce_size_one(s: Simplifier, op: Op) -> Result:
    """Reducing over dims of one element is a reshape."""
    (x,) = op.operands
    dims: tuple[int, ...] = op.operation.dims  # type: ignore[attr-defined]
    ones = [d for d in dims if x.shape[d] == 1]
    if x.dtype is not op.result.dtype or (dims and not ones):
        return None
    rest = tuple(_renumber(d, ones) for d in dims if d not in ones)
    kept = s.emit(Reshape(tuple(n for d, n in enumerate(x.shape) if d not in ones)), x) if ones else x
    return s.emit(type(op.operation)(rest), kept) if rest else kept  # type: ignore[call-arg]


def _renumber(d: int, removed: list[int]) -> int:
    return d - sum(r < d for r in removed)


@rule(Sum, Max, Min, Any, All)
def reduce_expanded(s: Simplifier, op: Op) -> Result:
    """Dims along which all elements are equal are not walked: their sum is a product, their maximum any of them."""
    (x,) = op.operands
    expanded = s.producer(x, Expand)
    if expanded is None or x.dtype is not op.result.dtype:
        return None
    dims: tuple[int, ...] = op.operation.dims  # type: ignore[attr-defined]
    aligned = (1,) * (x.rank - expanded.operands[0].rank) + expanded.operands[0].shape
    repeated = [d for d in dims if aligned[d] == 1 and x.shape[d] != 1]
    count = product(x.shape[d] for d in repeated)
    if not repeated or not isinstance(count, int) or count == 0:
        return None
    if isinstance(op.operation, Sum) and not _holds(x.dtype, count):
        return None
    value = s.emit(Reshape(tuple(n for d, n in enumerate(aligned) if d not in repeated)), expanded.operands[0])
    value = s.emit(Expand(tuple(n for d, n in enumerate(x.shape) if d not in repeated)), value)
    rest = tuple(_renumber(d, repeated) for d in dims if d not in repeated)
    if rest:
        value = s.emit(type(op.operation)(rest), value)  # type: ignore[call-arg]
    return s.emit(Mul(), value, s.full(count, value.tensor)) if isinstance(op.operation, Sum) else value


def _holds(dtype: DType, count: int) -> bool:
    """Is an integer exact in `dtype`?"""
    if dtype.kind == "f":
        return count <= {"float16": 2048, "bfloat16": 256, "float32": 1 << 24, "float64": 1 << 53}[dtype.name]
    return dtype.kind in "ui" and count < 1 << (dtype.bits - 1)


def unexpanded(s: Simplifier, v: Value, drop: list[int]) -> Value | None:
    """`v` without the dims `drop`, where all of them only repeat elements (by an Expand); else None."""
    expanded = s.producer(v, Expand)
    if expanded is None:
        return None
    source = expanded.operands[0]
    aligned = (1,) * (v.rank - source.rank) + source.shape
    if any(aligned[d] != 1 for d in drop):
        return None
    narrow = s.emit(Reshape(tuple(n for d, n in enumerate(aligned) if d not in drop)), source)
    return s.emit(Expand(tuple(n for d, n in enumerate(v.shape) if d not in drop)), narrow)


# ---- windows that do not overlap ------------------------------------------------------------------------------------


def _apart(kernel: tuple[Dim, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> bool:
    return kernel == stride and all(d == 1 for d in dilation)


@rule(Window)
def window_apart(s: Simplifier, op: Op) -> Result:
    """Windows side by side are a reshape, with the windows' own dims moved behind."""
    o: Window = op.operation  # type: ignore[assignment]
    (x,) = op.operands
    n = len(o.kernel)
    lead, space = x.shape[: x.rank - n], x.shape[x.rank - n :]
    counts = op.result.shape[x.rank - n : x.rank]
    if not _apart(o.kernel, o.stride, o.dilation) or any(
        c * k != d for c, k, d in zip(counts, o.kernel, space, strict=True)
    ):
        return None
    split = s.emit(Reshape((*lead, *(d for pair in zip(counts, o.kernel, strict=True) for d in pair))), x)
    at = len(lead)
    return s.emit(Permute((*range(at), *range(at, at + 2 * n, 2), *range(at + 1, at + 2 * n, 2))), split)


@rule(Fold)
def fold_apart(s: Simplifier, op: Op) -> Result:
    """The transpose of windows side by side adds nothing: it puts them back."""
    o: Fold = op.operation  # type: ignore[assignment]
    (x,) = op.operands
    n = len(o.shape)
    at = x.rank - 2 * n
    counts, kernel = x.shape[at : at + n], x.shape[at + n :]
    if not _apart(kernel, o.stride, o.dilation) or any(
        c * k != d for c, k, d in zip(counts, kernel, o.shape, strict=True)
    ):
        return None
    order = (*range(at), *(d for k in range(n) for d in (at + k, at + n + k)))
    return s.emit(Reshape(op.result.shape), s.emit(Permute(order), x))
