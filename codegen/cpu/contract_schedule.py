"""How a contraction is computed and into which tiles it is cut: pure functions of the extents and the target.

One task computes `rows` x `cols` of one batch item over the whole of k, in blocks of `depth`. Panels of B (depth x nr)
are packed a few at a time and stay in the second-level cache while all rows of the task run past them. A is read where
it lies if it is contiguous along k, and packed into panels of `mr` rows otherwise.

Costs below are cycles of a core that does two vector multiply-adds and two vector loads a cycle.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Protocol

from treadle.ir.dims import Dim, ceildiv, evaluate, product, symbols_of
from treadle.ir.loops import LoopContract, TileShape

__all__ = ["Group", "Plan", "VectorTarget", "choose_tile", "coalesce", "contraction_tasks", "plan_of", "task_work"]

LIKELY = 512  # what a symbolic extent is taken for when tiles are chosen
DEPTH = 3200  # bytes of k in a block, for one row
STREAM, LARGE = 64, 1 << 19  # k in a block, where a B of more bytes than this is read once: rows of pages in turn
ROWS, COLS = 1032, 1024  # largest task
PACKED_ROWS = 516  # where A must be packed: its block should not leave the second-level cache by far
TOGETHER, SHARE = 4, 1 << 18  # panels of B that are packed at once, and the bytes that they may take
UNROLL = (4, 5, 3, 2)
DOT_ROWS = 6  # up to so many rows a B that is contiguous along k is cheaper to read again than to pack
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
CORES = ((1, 0.1), (2, 0.6), (4, 0.2), (8, 0.1))  # numbers of cores to be ready for, with weights
CORE_WORK = 1 << 18  # multiply-adds that are worth another core
PACK, PACK_NARROW, PACK_LOOSE = 0.55, 1.0, 2.0  # cycles to pack an element: by vectors, by a few, or one by one


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
    def single(self) -> bool:
        """One extent (or none): addresses are index * stride."""
        return len(self.extents) <= 1

    @property
    def stride(self) -> Dim:
        """The stride of the innermost extent; 0 for a group of one index."""
        return self.strides[-1] if self.strides else 0

    @property
    def dense(self) -> bool:
        """Neighbours in memory throughout, as far as is known here. One index alone is no row of neighbours."""
        return self.single and self.stride == 1


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


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a contraction is written."""

    op: LoopContract  # as it is computed: with A and B exchanged if `swapped`
    swapped: bool
    tile: TileShape
    lanes: int
    style: str  # "tile": outer products on register tiles; "dot": inner products along k, nothing packed
    direct_a: bool  # A may be read where it lies (if its type is the one of the sums)
    direct_b: bool  # likewise B: its whole panels
    together: int  # columns of B that are packed at once
    unroll: int

    @property
    def rows_first(self) -> bool:
        """Run along the columns that are packed with one panel of A; otherwise down the rows with one panel of B."""
        return not self.direct_b and self.style == "tile"


def likely(d: Dim) -> int:
    """The size that a dim is taken for, at least 1."""
    return max(1, d if isinstance(d, int) else evaluate(d, dict.fromkeys(symbols_of(d), LIKELY)))


def swap(op: LoopContract) -> LoopContract:
    """The transposed problem."""
    return dataclasses.replace(
        op, m=op.n, n=op.m, a_batch=op.b_batch, b_batch=op.a_batch, a_m=op.b_n, b_n=op.a_m, a_k=op.b_k, b_k=op.a_k,
        a_offset=op.b_offset, b_offset=op.a_offset, tile=TileShape(op.tile.cols, op.tile.rows, op.tile.depth),
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _plan(op: LoopContract, bits: int, registers: int) -> Plan:
    lanes = max(1, bits // (8 * op.accumulate.itemsize))
    m, n, k = (likely(product(g)) for g in (op.m, op.n, op.k))
    swapped = lanes > 1 and n <= lanes // 2 and m >= 2 * n  # hardly a vector along n
    if swapped:
        op, m, n = swap(op), n, m
    a, b = coalesce(op.m, op.a_m), coalesce(op.n, op.b_n)
    a_k, b_k = coalesce(op.k, op.a_k), coalesce(op.k, op.b_k)
    direct_a = a_k.dense or k == 1
    if lanes > 1 and m <= DOT_ROWS and k >= 2 * lanes and a_k.dense and b_k.dense:
        cols = _cut(likely(product(op.batch)), 1, n, k * m, 1, lanes, 0.0, PACK)[1]
        return Plan(op, swapped, _given(op, TileShape(m, cols, k, 1, lanes)), lanes, "dot", True, True, lanes, 1)
    # Without a fused multiply-add every product takes a register.
    fused = bits > 128 or registers >= 32
    mr, vectors = _register_tile(registers - (not fused), bits // 8, lanes, m, n)
    mr, vectors = op.tile.mr or mr, -(-op.tile.nr // lanes) or vectors
    nr = vectors * lanes
    direct_b = m <= mr and b.dense and b_k.single
    unroll = next((u for u in UNROLL if k % u == 0), 4)
    longest = STREAM if direct_b and n * k * op.accumulate.itemsize > LARGE else DEPTH // op.accumulate.itemsize
    depth = -(-k // -(-k // longest))  # equal blocks
    depth = -(-depth // unroll) * unroll
    packs_a = 0.05 if direct_a else PACK_NARROW if a.stride == 1 or a_k.stride == 1 else PACK_LOOSE
    packs_b = 0.0 if direct_b else PACK if b.stride == 1 or b_k.stride == 1 else PACK_LOOSE
    batch = likely(product(op.batch))
    rows, cols = _cut(batch, m, n, k, mr, nr, packs_a, packs_b, ROWS if direct_a else PACKED_ROWS)
    tile = _given(op, TileShape(rows, cols, depth, mr, nr))
    panels = max(1, min(TOGETHER, SHARE // (tile.depth * tile.nr * op.accumulate.itemsize)))
    return Plan(op, swapped, tile, lanes, "tile", direct_a, direct_b, min(tile.cols, panels * tile.nr), unroll)


def _register_tile(registers: int, size: int, lanes: int, m: int, n: int) -> tuple[int, int]:
    """(mr, vectors in nr): as many accumulators as leave room for a row of B, or a column of A, and an operand."""

    def cost(shape: tuple[int, int]) -> float:
        mr, vectors = shape
        # Multiply-adds, loads, latency, and what the second-level cache gives of B.
        cycles = max(mr * vectors / 2, (mr + vectors) / 2, 4.3, vectors * size / 24)
        return -(-m // mr) * -(-n // (vectors * lanes)) * (cycles + 0.25)

    shapes = [
        (mr, vectors)
        for mr in range(1, 9)
        for vectors in (1, 2, 3, 4, 6, 8)
        if mr * vectors + min(mr, vectors) + 1 <= registers
    ]
    # Among equals the one with the most accumulators, and then the narrowest: it leaves more ways to cut n.
    return min(shapes, key=lambda s: (round(cost(s), 3), -s[0] * s[1], s[1]))


def _cut(
    batch: int, m: int, n: int, k: int, mr: int, nr: int, packs_a: float, packs_b: float, most: int = ROWS
) -> tuple[int, int]:
    """(rows, cols) of a task: little packing that other tasks repeat, against idle cores."""
    best, found = float("inf"), (m, n)
    work = batch * m * n * k
    cores = [(p, w) for p, w in CORES if p == 1 or work >= p * CORE_WORK]
    for down in PARTS:
        rows = _share(m, max(down, -(-m // most)), mr)
        for across in PARTS:
            cols = _share(n, max(across, -(-n // COLS)), nr)
            tall, wide = -(-m // rows), -(-n // cols)
            tasks = batch * tall * wide
            compute = -(-m // mr) * mr * -(-n // nr) * nr / 16
            cost = compute + tall * wide * (rows * packs_a + cols * packs_b) + 30 * tall * wide
            idle = sum(w * -(-tasks // p) * p / tasks for p, w in cores) / sum(w for _, w in cores)
            if cost * idle < 0.999 * best:
                best, found = cost * idle, (rows, cols)
    return found


def _share(extent: int, parts: int, multiple: int) -> int:
    """The size of a part when `extent` is cut in about `parts`, rounded up to a multiple."""
    return ceildiv(ceildiv(extent, parts), multiple) * multiple  # type: ignore[return-value]


def _given(op: LoopContract, chosen: TileShape) -> TileShape:
    """The chosen tile, but for the fields that the op states."""
    given = op.tile
    rows, cols = given.rows or chosen.rows, given.cols or chosen.cols
    mr, nr = chosen.mr, chosen.nr
    return TileShape(-(-rows // mr) * mr, -(-cols // nr) * nr, given.depth or chosen.depth, mr, nr)


def plan_of(op: LoopContract, target: VectorTarget) -> Plan:
    """How `op` is computed on `target`."""
    return _plan(op, target.vector_bits, target.vector_registers)


def choose_tile(op: LoopContract, target: VectorTarget) -> TileShape:
    """The schedule of a contraction, with what its TileShape leaves open filled in."""
    plan = plan_of(op, target)
    tile = plan.tile
    return dataclasses.replace(tile, rows=tile.cols, cols=tile.rows) if plan.swapped else tile


def contraction_tasks(op: LoopContract, target: VectorTarget) -> Dim:
    """The number of tasks of the kernel of `op`."""
    plan = plan_of(op, target)
    op, tile = plan.op, plan.tile
    return product(op.batch) * ceildiv(product(op.m), tile.rows) * ceildiv(product(op.n), tile.cols)


def task_work(op: LoopContract, target: VectorTarget) -> Dim:
    """About the multiply-adds of one task."""
    tile = choose_tile(op, target)
    m, n = product(op.m), product(op.n)
    rows = min(m, tile.rows) if isinstance(m, int) else tile.rows
    cols = min(n, tile.cols) if isinstance(n, int) else tile.cols
    return rows * cols * product(op.k)
