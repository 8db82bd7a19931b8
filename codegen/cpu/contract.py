"""Entry: a `loop.contract` as the body of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.codegen.cpu.contract_code import known
from treadle.codegen.cpu.contract_epilogue import Epilogue
from treadle.codegen.cpu.contract_pack import KAxis, Operand, Panel, fill_offsets, pack_panels
from treadle.codegen.cpu.contract_schedule import coalesce, plan_of
from treadle.codegen.cpu.contract_tile import Rows, Tile, Vectors, run_dot, run_tile
from treadle.codegen.emit_scalar import memory_type
from treadle.ir.core import Block, Op
from treadle.ir.dims import product
from treadle.ir.dtypes import DType
from treadle.ir.loops import LoopContract

if TYPE_CHECKING:
    from treadle.codegen.emit import Emitter

__all__ = ["emit_contract"]


def emit_contract(emitter: Emitter, op: Op) -> None:
    """Write the loop over tasks [%begin, %end) of a contraction."""
    _Contraction(emitter, op).tasks("%begin", "%end")


@dataclass(frozen=True)
class _Block:
    """One block of k of one task: rows x cols of batch item `b` from (i0, j0) on."""

    left: Operand
    right: Operand
    b: str
    i0: str
    rows: str
    j0: str
    cols: str
    k0: str
    count: str
    last: str


class _Contraction:
    """Writes one kernel body."""

    def __init__(self, emitter: Emitter, node: Op) -> None:
        assert isinstance(node.operation, LoopContract)
        plan = plan_of(node.operation, emitter.target)
        self.plan, self.op, self.shape = plan, plan.op, plan.tile
        self.emitter, self.code, self.scalars, self.evaluate = emitter, emitter.code, emitter.scalars, emitter.dim
        operands, region = node.operands, node.regions[0]
        if plan.swapped:
            acc, b, i, j = region.params
            operands, region = operands[::-1], Block((acc, b, j, i), region.ops, region.yields)
        self.buffers = [emitter.env[v].text for v in operands]
        self.dtypes: list[DType] = [v.dtype for v in operands]
        op, accumulate = self.op, self.op.accumulate
        self.tile = Tile(self.shape.mr, self.shape.nr // plan.lanes, plan.lanes, accumulate)
        self.epilogue = Epilogue(emitter, region, self.tile)
        self.m, self.n, self.k = (self.evaluate(product(g)) for g in (op.m, op.n, op.k))
        self.lanes = (coalesce(op.m, op.a_m), coalesce(op.n, op.b_n))
        self.k_groups = (coalesce(op.k, op.a_k), coalesce(op.k, op.b_k))
        self.dot = plan.style == "dot"
        self.direct_a = plan.direct_a and self.dtypes[0] is accumulate
        self.direct_b = plan.direct_b and self.dtypes[1] is accumulate
        k = known(self.k)
        self.single = self.dot or (k is not None and k <= self.shape.depth)
        self.exact = k is not None and k > 0 and k % plan.unroll == 0 and self.shape.depth % plan.unroll == 0
        # No tile is cut by the edge: nothing needs to be written for that.
        m, n = known(self.m), known(self.n)
        self.even_m = m is not None and m % self.shape.mr == 0
        self.even_n = n is not None and n % self.shape.nr == 0
        self.reserve_scratch()

    def reserve_scratch(self) -> None:
        plan, shape, reserve = self.plan, self.shape, self.emitter.reserve
        size, depth = self.op.accumulate.itemsize, shape.depth
        self.a_panels = self.b_panels = ""
        self.k_tables = ["", ""]
        if not self.dot:
            # The last store of a panel may run past its end by less than a vector.
            if not self.direct_a:
                self.a_panels = reserve((shape.rows * depth + plan.lanes) * size)
            self.b_panels = reserve((depth * (shape.nr if self.direct_b else plan.together) + plan.lanes) * size)
            self.k_tables = ["" if group.single else reserve(depth * 8) for group in self.k_groups]
        self.sums = reserve((shape.mr * shape.nr if self.single else shape.rows * shape.cols) * size)
        self.a_table, self.b_table = reserve(shape.rows * 8), reserve(shape.cols * 8)

    # Tasks -----------------------------------------------------------------------------------------------------------

    def tasks(self, begin: str, end: str) -> None:
        code, shape = self.code, self.shape
        across = code.ceildiv(self.n, shape.cols)
        down = code.ceildiv(self.m, shape.rows)

        def task(t: str) -> None:
            i0 = code.mul(code.rem(code.div(t, across), down), str(shape.rows))
            j0 = code.mul(code.rem(t, across), str(shape.cols))
            b = code.div(t, code.mul(across, down))
            rows = code.smaller(code.sub(self.m, i0), str(shape.rows))
            cols = code.smaller(code.sub(self.n, j0), str(shape.cols))
            fill_offsets(code, self.evaluate, self.a_table, self.lanes[0], i0, rows, self.padded(rows, shape.mr))
            fill_offsets(code, self.evaluate, self.b_table, self.lanes[1], j0, cols, self.padded(cols, shape.nr))
            a_offset, b_offset = self.batch_offsets(b)
            self.blocks(a_offset, b_offset, b, i0, rows, j0, cols)

        code.loop(begin, end, task)

    def padded(self, count: str, multiple: int) -> str:
        return self.code.mul(self.code.ceildiv(count, multiple), str(multiple))

    def batch_offsets(self, b: str) -> tuple[str, str]:
        """Offsets of A and B at linear batch index `b`."""
        code, op = self.code, self.op
        a, bb, rest = self.evaluate(op.a_offset), self.evaluate(op.b_offset), b
        for n, (extent, sa, sb) in reversed(list(enumerate(zip(op.batch, op.a_batch, op.b_batch)))):
            size = self.evaluate(extent)
            index = code.rem(rest, size) if n else rest
            rest = code.div(rest, size) if n else rest
            a = code.add(a, code.mul(index, self.evaluate(sa)))
            bb = code.add(bb, code.mul(index, self.evaluate(sb)))
        return a, bb

    def blocks(self, a_offset: str, b_offset: str, b: str, i0: str, rows: str, j0: str, cols: str) -> None:
        code, shape = self.code, self.shape

        def run(k0: str) -> None:
            count = self.k if self.single else code.smaller(code.sub(self.k, k0), str(shape.depth))
            left = self.operand(0, a_offset, k0, count)
            right = self.operand(1, b_offset, k0, count)
            last = "true" if self.single else code.equal(code.add(k0, count), self.k)
            block = _Block(left, right, b, i0, rows, j0, cols, k0, count, last)
            if self.dot:
                self.tiles(block, "0", cols)
                return
            if not self.direct_a:
                panel = Panel(self.a_panels, self.a_table, shape.mr, shape.mr)
                pack_panels(code, left, panel, rows, count, self.even_m)
            if self.direct_b:
                if not self.even_n:
                    whole = code.mul(code.div(cols, str(shape.nr)), str(shape.nr))
                    code.branch(code.less(whole, cols), lambda: self.pack_columns(block, whole, code.sub(cols, whole)))
                self.tiles(block, "0", cols)
            else:
                code.loop("0", cols, lambda j: self.columns(block, j), step=str(self.plan.together), runs=True)

        if self.single:
            run("0")
        else:
            code.loop("0", code.larger(self.k, "1"), run, step=str(shape.depth), runs=True)

    def operand(self, which: int, offset: str, k0: str, count: str) -> Operand:
        """A (0) or B (1) from k0 on; `offset` is the batch item's."""
        code, k, table, dtype = self.code, self.k_groups[which], self.k_tables[which], self.dtypes[which]
        if table:
            fill_offsets(code, self.evaluate, table, k, k0, count, count)
            axis = KAxis(table=table)
        else:
            axis = KAxis(stride=self.evaluate(k.stride))
            offset = code.add(offset, code.mul(k0, axis.stride))
        base = code.at(memory_type(dtype), self.buffers[which], offset)
        return Operand(self.scalars, base, dtype, self.op.accumulate, self.lanes[which], k, axis)

    # Tiles -----------------------------------------------------------------------------------------------------------

    def pack_columns(self, block: _Block, first: str, cols: str) -> None:
        table = self.code.at("i64", self.b_table, first)
        panel = Panel(self.b_panels, table, self.shape.nr, self.tile.lanes)
        pack_panels(self.code, block.right, panel, cols, block.count, self.even_n)

    def columns(self, block: _Block, first: str) -> None:
        """Pack some panels of B and run all of A past them."""
        here = self.code.smaller(self.code.sub(block.cols, first), str(self.plan.together))
        self.pack_columns(block, first, here)
        self.tiles(block, first, here)

    def tiles(self, block: _Block, first: str, cols: str) -> None:
        """All rows by `cols` columns from `first` on."""
        code, shape = self.code, self.shape
        across, down = str(shape.nr), str(shape.mr)

        def row(i: str) -> None:
            left = self.left(block, i)
            each = lambda j: self.one(block, left, i, self.right(block, j), code.add(first, j))  # noqa: E731
            code.loop("0", cols, each, step=across, runs=True)

        def column(j: str) -> None:
            right = self.right(block, j)
            each = lambda i: self.one(block, self.left(block, i), i, right, code.add(first, j))  # noqa: E731
            code.loop("0", block.rows, each, step=down, runs=True)

        if self.plan.rows_first:
            code.loop("0", block.rows, row, step=down, runs=True)
        else:
            code.loop("0", cols, column, step=across, runs=True)

    def left(self, block: _Block, i: str) -> Rows:
        """The rows of A of the tile at i."""
        if self.direct_a or self.dot:
            return Rows(self.starts(block.left, self.a_table, i, self.tile.mr), block.left.axis.stride)
        panel = self.code.at(self.tile.element, self.a_panels, self.code.mul(i, block.count))
        return Rows([panel], str(self.tile.mr))

    def right(self, block: _Block, j: str) -> Vectors:
        """The columns of B of the tile at j: a packed panel, or B as it lies in memory."""
        code, nr = self.code, self.shape.nr
        if self.dot:
            return Vectors("", "", self.starts(block.right, self.b_table, j, nr))
        if not self.direct_b:
            return Vectors(code.at(self.tile.element, self.b_panels, code.mul(j, block.count)), str(nr))
        (start,) = self.starts(block.right, self.b_table, j, 1)
        whole = "true" if self.even_n else code.less(code.add(j, str(nr - 1)), block.cols)
        stride = code.select(whole, block.right.axis.stride, str(nr))
        return Vectors(code.select(whole, start, self.b_panels, "ptr"), stride)

    def starts(self, x: Operand, table: str, first: str, number: int) -> list[str]:
        """Addresses of some lanes at the first k."""
        code, table = self.code, self.code.at("i64", table, first)
        offsets = (code.let(f"load i64, ptr {code.at('i64', table, str(r))}, align 8") for r in range(number))
        return [x.move(code, x.base, offset) for offset in offsets]

    def one(self, block: _Block, a: Rows, i: str, b: Vectors, j: str) -> None:
        """One register tile, and the epilogue on it after the last block of k."""
        code, tile, shape = self.code, self.tile, self.shape
        sums = self.sums
        if not self.single:
            # Tiles lie in the order in which they are computed.
            sums = code.at(tile.element, sums, code.add(code.mul(j, str(shape.rows)), code.mul(i, str(shape.nr))))
        values = self.compute(block, a, b, sums)
        height = str(tile.mr) if self.even_m else code.smaller(code.sub(block.rows, i), str(tile.mr))
        width = str(tile.nr) if self.even_n else code.smaller(code.sub(block.cols, j), str(tile.nr))
        at_i, at_j = code.add(block.i0, i), code.add(block.j0, j)

        def keep() -> None:
            for v, value in enumerate(values):
                p = code.at(tile.element, sums, str(v * tile.lanes))
                code.do(f"store {tile.kind} {value}, ptr {p}, align {tile.dtype.itemsize}")

        def keep_and_finish() -> None:
            keep()
            code.branch(block.last, lambda: self.epilogue.from_memory(sums, block.b, at_i, height, at_j, width))

        if not self.epilogue.inline:
            keep_and_finish()
            return
        whole = code.both(code.equal(height, str(tile.mr)), code.equal(width, str(tile.nr)))
        whole = code.both(block.last, whole)
        code.branch(whole, lambda: self.epilogue.from_registers(values, block.b, at_i, at_j), keep_and_finish)

    def compute(self, block: _Block, a: Rows, b: Vectors, sums: str) -> list[str]:
        """The sums of one tile up to and with this block of k; those of the blocks before lie at `sums`."""
        code, tile = self.code, self.tile
        if self.dot:
            return [run_dot(code, tile, block.left, a.starts[0], block.right, b.starts, block.count)]
        zeros = ["zeroinitializer"] * (tile.mr * tile.vectors)
        initial = zeros
        if not self.single:
            spots = [code.at(tile.element, sums, str(v * tile.lanes)) for v in range(len(zeros))]
            initial = code.branch(
                code.equal(block.k0, "0"),
                lambda: zeros,
                lambda: [code.let(f"load {tile.kind}, ptr {p}, align {tile.dtype.itemsize}") for p in spots],
                [tile.kind] * len(zeros),
            )
        return run_tile(code, tile, a, b, block.count, initial, self.plan.unroll, self.exact)
