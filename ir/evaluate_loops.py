"""Runs a loop-level Function on NumPy buffers.

The semantics is scalar: `parallel` and `vector` loops run like serial ones. For speed, a loop whose iterations are
independent (or only feed a plain reduction) is run once with its variable an array of lanes; whether that is allowed is
decided here (`_lanes_allowed`), never assumed, but for `vector` loops, which promise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.ir import dims
from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.dtypes import DType, bfloat16
from treadle.ir.evaluate_scalars import bits_from_float32, convert, float32_from_bits, inside, run_scalar
from treadle.ir.loops import (
    Affine,
    Alloc,
    Check,
    For,
    If,
    IndexCast,
    IndexConst,
    IndexDiv,
    IndexMin,
    IndexMod,
    Load,
    LoopContract,
    Store,
)
from treadle.ir.printer import print_op
from treadle.ir.scalar import Scalar
from treadle.ir.types import BufferType

__all__ = ["CheckFailed", "run_kernel"]


class CheckFailed(IndexError):
    """A `loop.check` was false; `number` is what the kernel would return."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def run_kernel(fn: Function, arrays: Sequence[Any], bindings: Mapping[str, int]) -> None:
    """Run the whole parallel domain of a kernel on its buffers, in place."""
    runner = _Runner(bindings)
    rest = list(arrays)
    sizes = iter(fn.symbols)
    for v in fn.params:
        if isinstance(v.type, BufferType):
            if not rest:
                raise TypeError(f"{fn.name}: no array for the buffer {v!r}")
            runner.env[v] = _buffer(rest.pop(0), v.type)
        else:
            runner.env[v] = bindings[next(sizes)]
    if rest:
        raise TypeError(f"{fn.name} takes {len(arrays) - len(rest)} buffers, not {len(arrays)}")
    runner.block(fn.body)


def _buffer(array: Any, t: BufferType) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype != t.dtype.numpy or not array.flags.c_contiguous:
        raise TypeError(f"{t} takes a contiguous array of {t.dtype.numpy}, not {getattr(array, 'dtype', type(array))}")
    return array.reshape(-1)


class _Runner:
    def __init__(self, bindings: Mapping[str, int]) -> None:
        self.bindings = bindings
        self.env: dict[Value, Any] = {}
        self.allowed: dict[int, bool] = {}  # by id of a loop's region: may its iterations be lanes?
        self.rules: dict[type, Callable[[Op], Any]] = {
            For: self.loop, Load: self.load, Store: self.store, Alloc: self.alloc, If: self.branch, Check: self.check,
            LoopContract: self.contract, Affine: self.affine, IndexCast: self.index_cast,
            IndexConst: lambda op: self.dim(op.operation.value),  # type: ignore[attr-defined]
            IndexDiv: lambda op: self.env[op.operands[0]] // self.dim(op.operation.divisor),  # type: ignore[attr-defined]
            IndexMod: lambda op: self.env[op.operands[0]] % self.dim(op.operation.divisor),  # type: ignore[attr-defined]
            IndexMin: lambda op: _smaller(self.env[op.operands[0]], self.env[op.operands[1]]),
        }  # fmt: skip

    def dim(self, d: dims.Dim) -> int:
        return dims.evaluate(d, self.bindings)

    def block(self, block: Block) -> list[Any]:
        env = self.env
        for op in block.ops:
            rule = self.rules.get(type(op.operation))
            if rule is not None:
                value = rule(op)
            else:
                dtypes = tuple(v.dtype for v in op.operands)
                value = run_scalar(op.operation, dtypes, [env[v] for v in op.operands])
            if len(op.results) == 1 and not isinstance(op.operation, For):
                env[op.results[0]] = value
            elif op.results:
                env.update(zip(op.results, value, strict=True))
        return [env[v] for v in block.yields]

    # Indices ---------------------------------------------------------------------------------------------------------

    def affine(self, op: Op) -> Any:
        operation = op.operation
        assert isinstance(operation, Affine)
        total: Any = self.dim(operation.offset)
        for v, coeff in zip(op.operands, operation.coeffs, strict=True):
            total = total + self.env[v] * self.dim(coeff)
        return total

    def index_cast(self, op: Op) -> Any:
        operation = op.operation
        assert isinstance(operation, IndexCast)
        x = self.env[op.operands[0]]
        if operation.dtype is None:
            return x.astype(np.int64) if np.ndim(x) else int(x)
        from treadle.ir.dtypes import int64

        return convert(x, int64, operation.dtype)

    def address(self, op: Op, strides: tuple, offset: dims.Dim, first: int, buffer: np.ndarray, mask: Any) -> Any:
        """The element index of a load or store; raises where an element that is not masked off lies outside."""
        index: Any = self.dim(offset)
        for v, stride in zip(op.operands[first : first + len(strides)], strides, strict=True):
            index = index + self.env[v] * self.dim(stride)
        inside_buffer = (index >= 0) & (index < len(buffer))
        if not np.all(inside_buffer if mask is None else inside_buffer | ~np.asarray(mask)):
            raise IndexError(f"{print_op(op)}: index {index} outside a buffer of {len(buffer)}")
        return index

    # Memory ----------------------------------------------------------------------------------------------------------

    def load(self, op: Op) -> Any:
        operation = op.operation
        assert isinstance(operation, Load)
        buffer, dtype = self.env[op.operands[0]], op.operands[0].dtype
        mask = self.env[op.operands[-1]] if operation.masked else None
        index = self.address(op, operation.strides, operation.offset, 1, buffer, mask)
        if mask is None:
            values = buffer[index]
        elif np.ndim(mask) == 0 and np.ndim(index) == 0:
            values = buffer[index] if mask else buffer.dtype.type(0)
        else:
            values = np.where(mask, buffer[np.where(mask, index, 0)] if len(buffer) else 0, buffer.dtype.type(0))
        if dtype is bfloat16:
            values = float32_from_bits(values)
            return values if values.ndim else values[()]
        return values

    def store(self, op: Op) -> None:
        operation = op.operation
        assert isinstance(operation, Store)
        buffer, value = self.env[op.operands[0]], self.env[op.operands[1]]
        mask = self.env[op.operands[-1]] if operation.masked else None
        index = self.address(op, operation.strides, operation.offset, 2, buffer, mask)
        if op.operands[0].dtype is bfloat16:
            value = bits_from_float32(value)
        if np.ndim(index) == 0 and np.ndim(value) and mask is None:
            value = value[-1]  # every lane writes one element: the last stands
        if mask is not None:
            if np.ndim(index) == 0 and np.ndim(mask) == 0 and np.ndim(value) == 0:
                if mask:
                    buffer[index] = value
                return
            index, value, mask = np.broadcast_arrays(index, value, mask)
            index, value = index[mask], value[mask]
        buffer[index] = value

    def alloc(self, op: Op) -> np.ndarray:
        operation = op.operation
        assert isinstance(operation, Alloc)
        # Uninitialised memory is filled with what shows when read.
        numpy = operation.dtype.numpy
        poison: Any = np.nan if numpy.kind == "f" else 0x7FC0 if operation.dtype is bfloat16 else 0x55
        return np.full(self.dim(operation.size), poison, numpy)

    # Control ---------------------------------------------------------------------------------------------------------

    def branch(self, op: Op) -> None:
        if self.env[op.operands[0]]:
            self.block(op.regions[0])

    def check(self, op: Op) -> None:
        operation = op.operation
        assert isinstance(operation, Check)
        if not np.all(self.env[op.operands[0]]):
            raise CheckFailed(operation.number, operation.message)

    def loop(self, op: Op) -> list[Any]:
        operation = op.operation
        assert isinstance(operation, For)
        lo, hi = (int(self.env[v]) for v in op.operands[:2])
        carried = [self.env[v] for v in op.operands[2:]]
        (region,) = op.regions
        if lo >= hi:
            return carried
        if id(region) not in self.allowed:
            self.allowed[id(region)] = _lanes_allowed(operation, region)
        if self.allowed[id(region)] and not self.aliased(region):
            return self.lanes(region, np.arange(lo, hi, operation.step), carried)
        for i in range(lo, hi, operation.step):
            self.env.update(zip(region.params, (i, *carried), strict=True))
            carried = self.block(region)
        return carried

    def aliased(self, region: Block) -> bool:
        """Does the loop write memory under one name that it reads or writes under another?"""
        written, touched = _memory(region)
        return any(
            a is not b and a in self.env and b in self.env and np.may_share_memory(self.env[a], self.env[b])
            for a in written
            for b in touched
        )

    def lanes(self, region: Block, variable: np.ndarray, carried: list[Any]) -> list[Any]:
        """All iterations at once; a carried value is folded over the lanes of what its iterations contribute."""
        self.env[region.params[0]] = variable
        folds = {_fold(region, i): i for i in range(len(carried))}
        self.env.update(zip(region.params[1:], carried, strict=True))
        self.block(Block(region.params, tuple(op for op in region.ops if op not in folds)))
        for op, i in folds.items():
            assert op is not None
            parts = [self.env[v] for v in op.operands if v is not region.params[1 + i]]
            carried[i] = _reduce(op, carried[i], parts, len(variable))
        return carried

    # Contraction -----------------------------------------------------------------------------------------------------

    def contract(self, op: Op) -> None:
        o = op.operation
        assert isinstance(o, LoopContract)
        groups = {g: tuple(map(self.dim, getattr(o, g))) for g in ("batch", "m", "n", "k")}
        count = {g: int(np.prod(extents, dtype=np.int64)) for g, extents in groups.items()}
        (a_at, b_at) = self.dim(o.a_offset), self.dim(o.b_offset)
        batch, m, n, k = (groups[g] for g in ("batch", "m", "n", "k"))
        a_index = (
            a_at
            + self.grid(batch, o.a_batch)[:, None, None]
            + (self.grid(m, o.a_m)[:, None] + self.grid(k, o.a_k)[None, :])
        )
        b_index = (
            b_at
            + self.grid(batch, o.b_batch)[:, None, None]
            + (self.grid(k, o.b_k)[:, None] + self.grid(n, o.b_n)[None, :])
        )
        a, b = (self.gather(v, i) for v, i in zip(op.operands, (a_index, b_index), strict=True))
        # float32 sums are taken in float64: the reference should be nearer the truth than what it judges.
        wide = np.float64 if o.accumulate.is_floating else o.accumulate.numpy
        total = np.matmul(a.astype(wide), b.astype(wide)).astype(inside(o.accumulate))
        (region,) = op.regions
        index = np.indices((count["batch"], count["m"], count["n"]), np.int64).reshape(3, -1)
        if _straight_line(region):
            if total.size:
                self.env.update(zip(region.params, (total.reshape(-1), *index), strict=True))
                self.block(region)
            return
        for acc, *where in zip(total.reshape(-1), *index.tolist(), strict=True):
            self.env.update(zip(region.params, (acc, *where), strict=True))
            self.block(region)

    def grid(self, extents: tuple[int, ...], strides: tuple[dims.Dim, ...]) -> np.ndarray:
        """Address contributions of an index group, linearised row-major."""
        total = np.zeros((), np.int64)
        for extent, stride in zip(extents, strides, strict=True):
            total = total[..., None] + np.arange(extent, dtype=np.int64) * self.dim(stride)
        return total.reshape(-1)

    def gather(self, buffer: Value, index: np.ndarray) -> np.ndarray:
        array = self.env[buffer]
        if index.size and (index.min() < 0 or index.max() >= len(array)):
            raise IndexError(f"loop.contract reads elements {index.min()}..{index.max()} of {buffer!r}")
        values = array[index]
        return float32_from_bits(values) if buffer.dtype is bfloat16 else values


def _smaller(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if np.ndim(a) or np.ndim(b) else min(a, b)


def _straight_line(region: Block) -> bool:
    return not any(op.regions or isinstance(op.operation, Alloc) for op in region.ops)


def _memory(region: Block) -> tuple[set[Value], set[Value]]:
    """Buffers that a straight-line region writes, and all that it touches."""
    written = {op.operands[0] for op in region.ops if isinstance(op.operation, Store)}
    return written, written | {op.operands[0] for op in region.ops if isinstance(op.operation, Load)}


def _lanes_allowed(operation: For, region: Block) -> bool:
    """May the iterations run at once? Carried values must be plain folds, and memory free of order."""
    if not _straight_line(region):
        return False
    if any(_fold(region, i) is None for i in range(len(region.params) - 1)):
        return False
    if operation.kind in ("vector", "parallel"):
        return True
    stores = [op.operands[0] for op in region.ops if isinstance(op.operation, Store)]
    loads = {op.operands[0] for op in region.ops if isinstance(op.operation, Load)}
    return len(stores) == len(set(stores)) and not loads & set(stores)


def _fold(region: Block, i: int) -> Op | None:
    """The op `carried = fn(carried, x)` that is all the region does with carried value `i`, or None."""
    carried, result = region.params[1 + i], region.yields[i]
    readers = [op for op in region.ops if carried in op.operands]
    others = [op for op in region.ops if result in op.operands]
    if len(readers) != 1 or others or region.yields.count(result) != 1 or carried in region.yields:
        return None
    (op,) = readers
    if op.results != (result,) or not isinstance(op.operation, Scalar) or op.operands.count(carried) != 1:
        return None
    fn = op.operation.fn
    if fn == "fma":
        return op if op.operands[2] is carried else None
    exact = result.dtype is not bfloat16  # which must be rounded at every step
    return op if exact and fn in ("add", "mul", "minimum", "maximum", "and", "or") else None


_FOLDS: dict[str, np.ufunc] = {
    "add": np.add, "fma": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def _reduce(op: Op, initial: Any, parts: list[Any], count: int) -> Any:
    """Fold lanes in order, in the dtype (`accumulate` does not reassociate, as `reduce` would)."""
    dtype: DType = op.result.dtype
    numpy = inside(dtype)
    if op.operation.fn == "fma":  # type: ignore[attr-defined]
        numpy = np.dtype(np.float64) if dtype.is_floating else numpy
        parts = [np.asarray(parts[0], numpy) * np.asarray(parts[1], numpy)]
    lanes = np.empty(count + 1, numpy)
    lanes[0] = initial
    lanes[1:] = parts[0]
    return _FOLDS[op.operation.fn].accumulate(lanes)[-1].astype(inside(dtype))  # type: ignore[attr-defined]
