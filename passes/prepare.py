"""Rewrites that make a graph fit the kernels: small contractions as sums, long sums in two steps, sorts along the last dim."""

from __future__ import annotations

from treadle.ir import dtypes
from treadle.ir.core import Block, Function, Op, Rewriter, Value
from treadle.ir.dims import Dim, product
from treadle.ir.ops.arithmetic import Mul
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.logic import Cast, LogicalAnd
from treadle.ir.ops.reductions import Any, Reduction, Sum
from treadle.ir.ops.sorting import Sort
from treadle.ir.ops.views import Expand, Permute, Reshape
from treadle.passes.nests.index import likely

__all__ = ["prepare"]

SMALL = 4096  # products of extents below which a contraction is not worth packing
LONG = 65536  # elements of a reduction to one that are summed in two steps


def prepare(fn: Function) -> Function:
    """The same function in terms that the kernels have."""
    rw = Rewriter()
    b = rw.builder
    for op in fn.ops:
        b.loc = op.loc
        o = op.operation
        new: tuple[Value, ...] | None = None
        operands = tuple(map(rw.value, op.operands))
        if isinstance(o, Contract) and _is_small(o, op):
            new = (_as_sum(b, o, operands, op.result),)
        elif isinstance(o, Reduction) and _is_long(o, op):
            new = (_two_steps(b, o, operands[0]),)
        elif isinstance(o, Sort) and (o.dim != op.operands[0].rank - 1 or op.operands[0].dtype.kind == "b"):
            new = _sort_last(b, o, operands[0])
        if new is None:
            rw.copy(op)
        else:
            rw.mapping.update(zip(op.results, new, strict=True))
    b.loc = None
    body = Block(fn.params, tuple(b.ops), tuple(map(rw.value, fn.returns)))
    return Function(fn.name, body, fn.level, fn.symbols)


def _extents(o: Contract, op: Op) -> dict[str, Dim]:
    a, b = op.operands
    return dict(zip([*o.lhs, *o.rhs], [*a.shape, *b.shape], strict=True))


def _is_small(o: Contract, op: Op) -> bool:
    extents = _extents(o, op)
    m = likely(product(extents[k] for k in o.lhs if k not in o.rhs))
    n = likely(product(extents[k] for k in o.rhs if k not in o.lhs))
    k = likely(product(extents[c] for c in o.lhs if c in o.rhs and c not in o.out))
    return m == 1 or n == 1 or m * n * k <= SMALL or any(d == 0 for d in extents.values()) or not op.result.dtype.is_floating


def _as_sum(b, o: Contract, operands: tuple[Value, ...], result: Value) -> Value:  # type: ignore[no-untyped-def]
    """Products over all letters, summed over the contracted ones."""
    acc = o.accumulate_dtype(result.dtype)
    inner = [c for c in o.lhs if c in o.rhs and c not in o.out]
    order = [*o.out, *inner]
    extents: dict[str, Dim] = {}
    for letters, v in ((o.lhs, operands[0]), (o.rhs, operands[1])):
        extents.update(zip(letters, v.shape, strict=True))
    sides = []
    for letters, v in ((o.lhs, operands[0]), (o.rhs, operands[1])):
        mine = [c for c in order if c in letters]
        dims = tuple(letters.index(c) for c in mine)
        if dims != tuple(range(len(dims))):
            v = b.emit(Permute(dims), v)
        if v.dtype is not acc:
            v = b.emit(Cast(acc), v)
        shape = tuple(extents[c] if c in letters else 1 for c in order)
        if shape != v.shape:
            v = b.emit(Reshape(shape), v)
        full = tuple(extents[c] for c in order)
        sides.append(v if v.shape == full else b.emit(Expand(full), v))
    dims = tuple(range(len(o.out), len(order)))
    if acc.kind == "b":
        both = b.emit(LogicalAnd(), *sides)
        return b.emit(Any(dims), both) if dims else both
    out = b.emit(Mul(), *sides)
    if dims:
        out = b.emit(Sum(dims), out)
    return out if out.dtype is result.dtype else b.emit(Cast(result.dtype), out)


def _is_long(o: Reduction, op: Op) -> bool:
    x = op.operands[0]
    size = product(x.shape)
    return isinstance(size, int) and len(o.dims) == x.rank and size >= LONG and _chunks(size) > 1


def _chunks(size: int) -> int:
    """A number of equal chunks, at most 64, that does not depend on the machine."""
    return next((n for n in range(64, 1, -1) if size % n == 0), 1)


def _two_steps(b, o: Reduction, x: Value) -> Value:  # type: ignore[no-untyped-def]
    size: int = product(x.shape)  # type: ignore[assignment]
    n = _chunks(size)
    flat = b.emit(Reshape((n, size // n)), x)
    acc = o.accumulate_dtype(x.dtype)
    if acc is not x.dtype:
        flat = b.emit(Cast(acc), flat)
    out = b.emit(type(o)((0,)), b.emit(type(o)((1,)), flat))
    return out if acc is x.dtype else b.emit(Cast(x.dtype), out)


def _sort_last(b, o: Sort, x: Value) -> tuple[Value, ...]:  # type: ignore[no-untyped-def]
    """Along the last dim; bools as bytes."""
    if x.dtype.kind == "b":
        values, indices = _sort_last(b, o, b.emit(Cast(dtypes.uint8), x))
        return b.emit(Cast(x.dtype), values), indices
    if o.dim == x.rank - 1:
        return b.emit(o, x)
    order = (*(d for d in range(x.rank) if d != o.dim), o.dim)
    back = tuple(order.index(d) for d in range(x.rank))
    values, indices = b.emit(Sort(x.rank - 1, o.descending, o.stable), b.emit(Permute(order), x))
    return b.emit(Permute(back), values), b.emit(Permute(back), indices)
