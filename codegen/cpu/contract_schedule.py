"""Which tiles a contraction is cut into: pure functions of the extents and the target.

One task computes `rows` x `cols` of one batch item, over the whole of k in blocks of `depth`. A block of A (rows x depth)
stays in the second-level cache, packed into panels of `mr` rows; panels of B (depth x nr) are packed one at a time, just
before the panels of A run past them, and live in the first level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from treadle.ir.dims import Dim, ceildiv, evaluate, product, symbols_of
from treadle.ir.dtypes import DType
from treadle.ir.loops import LoopContract, TileShape

__all__ = ["Group", "VectorTarget", "choose_tile", "coalesce", "contraction_tasks", "resolve_tile", "task_work"]

LIKELY = 512  # what a symbolic extent is taken for when tiles are chosen
DEPTH = 384  # elements of k in a block of 32-bit values; 64-bit values take half
TASK_WORK = 1 << 20  # multiply-adds below which a task is not worth cutting


class VectorTarget(Protocol):
    """What the schedule reads of a target description."""

    @property
    def vector_bits(self) -> int: ...

    @property
    def vector_registers(self) -> int: ...


@dataclass(frozen=True)
class Group:
    """An index group as one operand sees it: extents with strides in elements, outermost first."""

    extents: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    @property
    def count(self) -> Dim:
        return product(self.extents)

    @property
    def single(self) -> bool:
        """One extent (or none): addresses are index * stride."""
        return len(self.extents) <= 1

    @property
    def stride(self) -> Dim:
        """The stride of the innermost extent; 0 for a group of one index."""
        return self.strides[-1] if self.strides else 0

    @property
    def constant(self) -> bool:
        """Every index has the address of the first."""
        return all(s == 0 for s in self.strides)


def coalesce(extents: tuple[Dim, ...], strides: tuple[Dim, ...]) -> Group:
    """The same addresses with the fewest extents."""
    kept: list[tuple[Dim, Dim]] = []
    for extent, stride in zip(extents, strides, strict=True):
        if extent == 1:
            continue
        if kept and kept[-1][1] == extent * stride:
            kept[-1] = (kept[-1][0] * extent, stride)
        else:
            kept.append((extent, stride))
    return Group(tuple(e for e, _ in kept), tuple(s for _, s in kept))


def likely(d: Dim) -> int:
    """The size that a dim is taken for."""
    return d if isinstance(d, int) else max(1, evaluate(d, dict.fromkeys(symbols_of(d), LIKELY)))


def lanes_of(target: VectorTarget, dtype: DType) -> int:
    """Elements of a vector register."""
    return max(1, target.vector_bits // (8 * dtype.itemsize))


def register_tile(target: VectorTarget, lanes: int, m: int, n: int) -> tuple[int, int]:
    """(mr, vectors in nr): accumulators that fill the register file and leave room for one row of B and an element of A."""
    wide = target.vector_registers >= 32
    shapes = [(14, 2), (8, 3), (6, 4), (4, 6), (2, 12), (1, 24)] if wide else [(6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]

    def waste(shape: tuple[int, int]) -> float:
        mr, nr = shape[0], shape[1] * lanes
        return -(-m // mr) * mr * (-(-n // nr)) * nr / (m * n)

    # Shapes are in order of merit: only a clear saving of padding moves to a later one.
    best = shapes[0]
    for shape in shapes[1:]:
        if waste(shape) < 0.85 * waste(best):
            best = shape
    mr, vectors = best
    return min(mr, m), min(vectors, -(-n // lanes))


def choose_tile(op: LoopContract, target: VectorTarget) -> TileShape:
    """The schedule of a contraction where its TileShape leaves it open."""
    m, n, k, batch = (max(1, likely(product(g))) for g in (op.m, op.n, op.k, op.batch))
    lanes = lanes_of(target, op.accumulate)
    mr, vectors = register_tile(target, lanes, m, n)
    nr = vectors * lanes
    depth = DEPTH * 4 // max(4, op.accumulate.itemsize)
    depth = -(-k // -(-k // depth))  # equal blocks
    depth = -(-depth // 8) * 8
    rows = min(m, max(mr, 288 // mr * mr))
    rows = _even(m, rows, mr)
    cols = _even(n, min(n, 512), nr)
    # Enough tasks for balance, as long as they are worth a task.
    while batch * -(-m // rows) * -(-n // cols) < 8 and rows * cols * k > TASK_WORK:
        if cols > 4 * nr and cols >= rows:
            cols = _even(n, -(-cols // 2), nr)
        elif rows > 4 * mr:
            rows = _even(m, -(-rows // 2), mr)
        elif cols > nr:
            cols = _even(n, -(-cols // 2), nr)
        else:
            break
    return TileShape(rows, cols, depth, mr, nr)


def _even(extent: int, size: int, multiple: int) -> int:
    """`extent` cut in equal parts of at most about `size`, rounded up to a multiple."""
    parts = -(-extent // size)
    return -(-(-(-extent // parts)) // multiple) * multiple


def resolve_tile(op: LoopContract, target: VectorTarget) -> TileShape:
    """`op.tile` with its zeros filled in and its fields made to fit each other."""
    chosen, given = choose_tile(op, target), op.tile
    lanes = lanes_of(target, op.accumulate)
    mr = given.mr or chosen.mr
    nr = -(-(given.nr or chosen.nr) // lanes) * lanes
    rows = -(-(given.rows or chosen.rows) // mr) * mr
    cols = -(-(given.cols or chosen.cols) // nr) * nr
    return TileShape(rows, cols, given.depth or chosen.depth, mr, nr)


def contraction_tasks(op: LoopContract, target: VectorTarget) -> Dim:
    """The number of tasks of the kernel of `op`."""
    tile = resolve_tile(op, target)
    return product(op.batch) * ceildiv(product(op.m), tile.rows) * ceildiv(product(op.n), tile.cols)


def task_work(op: LoopContract, target: VectorTarget) -> Dim:
    """About the multiply-adds of one task."""
    tile = resolve_tile(op, target)
    m, n = product(op.m), product(op.n)
    rows = min(m, tile.rows) if isinstance(m, int) else tile.rows
    cols = min(n, tile.cols) if isinstance(n, int) else tile.cols
    return rows * cols * product(op.k)
