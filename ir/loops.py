"""The loop level: structured loops over buffers. One Function is one kernel.

A kernel Function's parameters are its buffers (BufferType, space "global"), then its symbolic sizes (IndexType, one for
each of `Function.symbols`, in order). It returns nothing. Its body is a sequence of ops, of which those of kind
`loop.for{kind="parallel"}` at top level are the kernel's tasks: the parallel domain of the kernel is the concatenation of the
iteration ranges of its top-level parallel loops (ranges may depend only on constants and symbols); a chunk [begin, end)
of it runs the corresponding iterations. A kernel without a parallel loop is one task. Top-level ops outside parallel
loops are pure index arithmetic.

Dims in attributes are Dim expressions over the Function's symbols.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.core import Operation, operation
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.types import INDEX, BufferType, ScalarType, Type

__all__ = [
    "For",
    "Load",
    "Store",
    "Alloc",
    "IndexConst",
    "Affine",
    "IndexDiv",
    "IndexMod",
    "IndexMin",
    "IndexCast",
    "Check",
    "If",
    "TileShape",
    "LoopContract",
]

# How the partial values of a carried scalar combine when lanes or unrolled copies run apart. "last": no reassociation
# is allowed for this carried value (the loop must then run serially). argmax-like pairs are written with kind "serial"
# or as two loops.
COMBINERS = ("add", "mul", "maximum", "minimum", "and", "or", "last")


@operation("loop.for")
class For(Operation):
    """for iv in range(lo, hi, step), operands (lo, hi, *inits); region (iv, *carried) yields the next carried.

    `kind` is "serial", "parallel" or "vector" (lanes of `width`; the body must be free of cross-iteration dependence but for
    carried values with a combiner; a scalar or masked remainder is codegen's work). `unroll` copies the body, with
    separate partial accumulators where combiners allow.
    """

    kind: str = "serial"
    width: int = 1
    unroll: int = 1
    step: int = 1
    combiners: tuple[str, ...] = ()

    def infer(self, *types: Type) -> tuple[Type, ...]:
        if types[:2] != (INDEX, INDEX):
            raise TypeError("loop.for takes index bounds")
        if len(self.combiners) != len(types) - 2:
            raise TypeError("loop.for takes one combiner for each carried value")
        return types[2:]


@operation("loop.load")
class Load(Operation):
    """buffer[offset + sum(index_k * strides_k)]; operands (buffer, *indices[, mask: i1]): masked off reads give 0."""

    strides: tuple[Dim, ...] = ()
    offset: Dim = 0
    masked: bool = False
    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        buffer = types[0]
        assert isinstance(buffer, BufferType)
        if len(types) != 1 + len(self.strides) + self.masked:
            raise TypeError("loop.load: one index for each stride")
        return (ScalarType(buffer.dtype),)


@operation("loop.store")
class Store(Operation):
    """Write; operands (buffer, value, *indices[, mask])."""

    strides: tuple[Dim, ...] = ()
    offset: Dim = 0
    masked: bool = False
    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        buffer, value = types[:2]
        if not isinstance(buffer, BufferType) or value is not ScalarType(buffer.dtype):
            raise TypeError(f"loop.store of {value} into {buffer}")
        if len(types) != 2 + len(self.strides) + self.masked:
            raise TypeError("loop.store: one index for each stride")
        return ()


@operation("loop.alloc")
class Alloc(Operation):
    """Scratch of `size` elements, private to one task (at the point where it stands), uninitialised, 64-byte aligned."""

    dtype: DType
    size: Dim
    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (BufferType(self.dtype, self.size, "local"),)


@operation("loop.index")
class IndexConst(Operation):
    """A constant or symbolic index."""

    value: Dim

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX,)


@operation("loop.affine")
class Affine(Operation):
    """offset + sum(index_k * coeffs_k)."""

    coeffs: tuple[Dim, ...]
    offset: Dim = 0

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX,)


@operation("loop.index_div")
class IndexDiv(Operation):
    """index // divisor, for a non-negative index and a positive divisor."""

    divisor: Dim

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX,)


@operation("loop.index_mod")
class IndexMod(Operation):
    """index % divisor, for a non-negative index and a positive divisor."""

    divisor: Dim

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX,)


@operation("loop.index_min")
class IndexMin(Operation):
    """The smaller of two indices."""

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX,)


@operation("loop.index_cast")
class IndexCast(Operation):
    """index -> scalar of `dtype`, or an integer scalar -> index when `dtype` is None."""

    dtype: DType | None = None

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return (INDEX if self.dtype is None else ScalarType(self.dtype),)


@operation("loop.check")
class Check(Operation):
    """Operand (ok: i1): when false the kernel stops and returns `number` (> 0), an index into the program's messages."""

    number: int
    message: str
    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return ()


@operation("loop.if")
class If(Operation):
    """Operand (cond: i1): runs its region, which yields nothing, when true. Not inside a vector loop."""

    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return ()


@dataclass(frozen=True)
class TileShape:
    """Schedule of a contraction: one task computes `rows` x `cols` of one batch item, in k-blocks of `depth`; the register
    tile is `mr` x `nr`. Zeros: codegen's target chooses."""

    rows: int = 0
    cols: int = 0
    depth: int = 0
    mr: int = 0
    nr: int = 0


@operation("loop.contract")
class LoopContract(Operation):
    """out[b, i, j] = sum over k of A[b, i, k] * B[b, k, j], register-tiled and packed; codegen owns the tiling.

    Operands (a: buffer, b: buffer); it stands at the top level of a kernel and is the kernel's whole parallel domain (a task
    is one tile of output: `TileShape` says which). Index groups are tuples of extents, linearised row-major: `batch`, `m`,
    `n`, `k`. The element of A at (b.., i.., k..) is at a_offset + sum(b * a_batch) + sum(i * a_m) + sum(k * a_k); likewise B.
    So transposes, windows (convolution) and slices are only strides.

    Region: params (acc: scalar of `accumulate`, b: index, i: index, j: index) with the linear index of each group; its body
    is the epilogue: scalar ops, loads and stores of other buffers (free values of the region); codegen runs it on register
    tiles with lanes along j.
    """

    batch: tuple[Dim, ...]
    m: tuple[Dim, ...]
    n: tuple[Dim, ...]
    k: tuple[Dim, ...]
    a_batch: tuple[Dim, ...]
    a_m: tuple[Dim, ...]
    a_k: tuple[Dim, ...]
    b_batch: tuple[Dim, ...]
    b_k: tuple[Dim, ...]
    b_n: tuple[Dim, ...]
    accumulate: DType
    a_offset: Dim = 0
    b_offset: Dim = 0
    tile: TileShape = TileShape()
    pure = False

    def infer(self, *types: Type) -> tuple[Type, ...]:
        if len(types) != 2 or not all(isinstance(t, BufferType) for t in types):
            raise TypeError("loop.contract takes two buffers")
        return ()
