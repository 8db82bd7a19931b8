"""Reductions that leave too little to share are made in two steps over chunks of fixed size.

How a reduction is cut depends on its sizes only, never on the number of threads: the bits are the same for any. Sorts
are turned so that rows lie in order, which is what the runtime sorts, and bools into bytes.
"""

from __future__ import annotations

import string
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Block, Builder, Function, Op, Rewriter, Value, users
from treadle.ir.dims import Dim, ceildiv, product
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.padding import Pad
from treadle.ir.ops.reductions import Reduction, Sum
from treadle.ir.ops.sorting import Sort
from treadle.ir.ops.views import Permute, Reshape
from treadle.passes.lower.cost import likely
from treadle.passes.schedule import STRIP

__all__ = ["split_reductions"]

LONG = 1 << 17  # elements of one reduction that are worth cutting
CHUNK = 1 << 13  # elements of a part of a sum to one element
TASKS = 16  # parts of a reduction to a row: independent of the number of threads
LEAST = 64  # rows of a part
FEW, PART = 1 << 13, 1 << 11  # elements of a contraction's result, and the length of its parts
LOOK = 20  # values behind a reduction that are looked at


def split_reductions(fn: Function) -> Function:
    """The same function with long reductions in two steps, and sorts along the last dim."""
    rw = Rewriter()
    b = rw.builder
    readers = users(fn.body)
    for op in fn.ops:
        b.loc = op.loc
        operands = tuple(map(rw.value, op.operands))
        new = _split(b, op, operands, readers)
        if new is None:
            rw.copy(op)
        else:
            rw.mapping.update(zip(op.results, new, strict=True))
    b.loc = None
    body = Block(fn.params, tuple(b.ops), tuple(map(rw.value, fn.returns)))
    return Function(fn.name, body, fn.level, fn.symbols)


def _split(b: Builder, op: Op, operands: tuple[Value, ...], readers: dict[Value, list[Op]]) -> tuple[Value, ...] | None:
    o = op.operation
    if isinstance(o, Sort):
        return _sort(b, o, operands[0])
    if isinstance(o, Contract):
        return _contract(b, o, operands)
    if isinstance(o, Reduction) and o.dims:
        chunk = _chunk(o, operands[0])
        if chunk and (len(o.dims) == operands[0].rank or not _comes_back(op, readers)):
            return (_two_steps(b, o, operands[0], chunk),)
    return None


def _comes_back(op: Op, readers: dict[Value, list[Op]]) -> bool:
    """Is a reduction expanded to its operand's size again, as in a normalisation, which is one kernel?"""
    size = likely(op.operands[0].tensor.numel)
    pending, seen = [op.result], {op.result}
    while pending and len(seen) < LOOK:
        for reader in readers.get(pending.pop(), ()):
            for r in reader.results:
                if likely(r.tensor.numel) >= size:
                    return True
                if r not in seen:
                    seen.add(r)
                    pending.append(r)
    return False


def _chunk(o: Reduction, x: Value) -> int:
    """Elements of the outermost reduced dims that one partial sum takes; 0 where one step will do."""
    if any(isinstance(d, int) and d == 0 for d in x.shape):
        return 0
    if o.dims != tuple(range(len(o.dims))):
        return 0
    reduced = likely(product(x.shape[d] for d in o.dims))
    sums = likely(product(x.shape[len(o.dims) :]))
    if reduced * sums < LONG:
        return 0
    if sums == 1:
        return CHUNK
    strips = -(-sums // STRIP)
    chunk = LEAST
    while chunk * TASKS < reduced * strips:
        chunk *= 2
    return chunk if reduced >= 2 * chunk and strips < TASKS // 2 else 0


def _two_steps(b: Builder, o: Any, x: Value, chunk: int) -> Value:
    """Partial results of `chunk` elements, then their reduction. A last short chunk is filled with the identity."""
    n: Dim = product(x.shape[d] for d in o.dims)
    kept = x.shape[len(o.dims) :]
    flat = b.emit(Reshape((n, *kept)), x) if len(o.dims) > 1 else x
    acc = o.accumulate_dtype(x.dtype)
    if acc is not x.dtype:
        flat = b.emit(Cast(acc), flat)
    chunks = ceildiv(n, chunk)
    missing = chunks * chunk - n
    if not (isinstance(missing, int) and missing == 0):
        zeros = (0,) * flat.rank
        flat = b.emit(Pad(zeros, (missing, *zeros[1:]), zeros, o.identity(acc)), flat)
    parts = b.emit(type(o)((1,)), b.emit(Reshape((chunks, chunk, *kept)), flat))
    out = b.emit(type(o)((0,)), parts)
    return out if acc is x.dtype else b.emit(Cast(x.dtype), out)


def _contract(b: Builder, o: Contract, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """A long contraction to few elements as a batch of parts, cut along one of the summed dims, and their sum."""
    x, y = operands
    extents: dict[str, Dim] = {**dict(zip(o.lhs, x.shape, strict=True)), **dict(zip(o.rhs, y.shape, strict=True))}
    few = product(extents[c] for c in o.out)
    long = product(extents[c] for c in o.summed)
    if x.dtype not in (dtypes.float32, dtypes.float64) or not isinstance(few, int) or not isinstance(long, int):
        return None
    if not 0 < few <= FEW or long < 2 * PART:
        return None
    parts = min(TASKS, 1 << (long // PART).bit_length() - 1)
    cut = next((c for c in o.summed if extents[c] % parts == 0), None)  # type: ignore[operator]
    if cut is None:
        return None
    part = next(c for c in string.ascii_letters if c not in extents)

    def divided(v: Value, letters: str) -> tuple[Value, str]:
        at = letters.index(cut)
        shape = (*v.shape[:at], parts, v.shape[at] // parts, *v.shape[at + 1 :])
        return b.emit(Reshape(shape), v), letters[:at] + part + letters[at:]

    (x, lhs), (y, rhs) = divided(x, o.lhs), divided(y, o.rhs)
    return (b.emit(Sum((0,)), b.emit(Contract(lhs, rhs, part + o.out), x, y)),)


def _sort(b: Builder, o: Sort, x: Value) -> tuple[Value, ...] | None:
    """A sort that the runtime has no function for, by one that it has."""
    if x.dtype.kind == "b":
        bytes_ = b.emit(Cast(dtypes.uint8), x)
        values, indices = _sort(b, o, bytes_) or b.emit(o, bytes_)
        return b.emit(Cast(x.dtype), values), indices
    if o.dim == x.rank - 1 or x.rank == 0:
        return None
    order = (*(d for d in range(x.rank) if d != o.dim), o.dim)
    back = tuple(order.index(d) for d in range(x.rank))
    values, indices = b.emit(Sort(x.rank - 1, o.descending, o.stable, o.first), b.emit(Permute(order), x))
    return b.emit(Permute(back), values), b.emit(Permute(back), indices)
