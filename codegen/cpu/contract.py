"""Entry: a `loop.contract` as the body of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.codegen.cpu.contract_code import known
from treadle.codegen.cpu.contract_epilogue import Epilogue
from treadle.codegen.cpu.contract_pack import KAxis, Operand, Panel, fill_offsets, pack_panels
from treadle.codegen.cpu.contract_schedule import Group, coalesce, lanes_of, resolve_tile
from treadle.codegen.cpu.contract_tile import Rows, Tile, Vectors, run_tile
from treadle.codegen.emit_scalar import memory_type
from treadle.ir.core import Op
from treadle.ir.dims import product
from treadle.ir.dtypes import DType
from treadle.ir.loops import LoopContract

if TYPE_CHECKING:
    from treadle.codegen.emit import Emitter

__all__ = ["emit_contract"]


@dataclass
class Options:
    direct_a: bool = False
    direct_b: bool = False
    unroll: int = 1


OPTIONS = Options()


def emit_contract(emitter: Emitter, op: Op) -> None:
    """Write the loop over tasks [%begin, %end) of a contraction."""
    _Contraction(emitter, op).tasks("%begin", "%end")


class _Contraction:
    """Writes one kernel body."""

    def __init__(self, emitter: Emitter, node: Op) -> None:
        op = node.operation
        assert isinstance(op, LoopContract)
        self.op, self.code = op, emitter.code
        self.emitter, self.scalars, self.evaluate = emitter, emitter.scalars, emitter.dim
        self.a_buffer, self.b_buffer = (emitter.env[v].text for v in node.operands)
        self.a_dtype, self.b_dtype = (v.dtype for v in node.operands)
        self.options = OPTIONS
        self.shape = resolve_tile(op, emitter.target)
        lanes = lanes_of(emitter.target, op.accumulate)
        self.tile = Tile(self.shape.mr, self.shape.nr // lanes, lanes, op.accumulate)
        self.epilogue = Epilogue(emitter, node.regions[0], self.tile)
        self.reserve = emitter.reserve
        self.m, self.n, self.k = (self.evaluate(product(g)) for g in (op.m, op.n, op.k))
        self.a_lanes, self.b_lanes = coalesce(op.m, op.a_m), coalesce(op.n, op.b_n)
        self.a_k, self.b_k = coalesce(op.k, op.a_k), coalesce(op.k, op.b_k)
        depth = self.shape.depth
        k = known(self.k)
        self.single = k is not None and k <= depth
        size = op.accumulate.itemsize
        o = self.options
        self.a_panels = "" if o.direct_a else self.reserve((self.shape.rows * depth + 64) * size)
        self.together = min(self.shape.cols, 4 * self.shape.nr)
        self.b_panels = self.reserve(depth * self.together * size)
        self.sums = self.reserve((self.shape.mr * self.shape.nr if self.single else self.shape.rows * self.shape.cols) * size)
        self.a_table = self.reserve(self.shape.rows * 8)
        self.b_table = self.reserve(self.shape.cols * 8)
        self.a_k_table = "" if self.a_k.single else self.reserve(depth * 8)
        self.b_k_table = "" if self.b_k.single else self.reserve(depth * 8)

    # Tasks -----------------------------------------------------------------------------------------------------------

    def tasks(self, begin: str, end: str) -> None:
        code, op, shape = self.code, self.op, self.shape
        across = code.ceildiv(self.n, shape.cols)
        down = code.ceildiv(self.m, shape.rows)

        def task(t: str) -> None:
            i0 = code.mul(code.rem(code.div(t, across), down), str(shape.rows))
            j0 = code.mul(code.rem(t, across), str(shape.cols))
            b = code.div(t, code.mul(across, down))
            rows = code.smaller(code.sub(self.m, i0), str(shape.rows))
            cols = code.smaller(code.sub(self.n, j0), str(shape.cols))
            fill_offsets(code, self.evaluate, self.a_table, self.a_lanes, i0, rows, self.padded(rows, shape.mr))
            fill_offsets(code, self.evaluate, self.b_table, self.b_lanes, j0, cols, self.padded(cols, shape.nr))
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
        code, shape, op = self.code, self.shape, self.op

        def block(k0: str) -> None:
            count = code.smaller(code.sub(self.k, k0), str(shape.depth))
            a = self.operand(self.a_buffer, self.a_dtype, a_offset, self.a_lanes, self.a_k, self.a_k_table, k0, count)
            bb = self.operand(self.b_buffer, self.b_dtype, b_offset, self.b_lanes, self.b_k, self.b_k_table, k0, count)
            if not self.options.direct_a:
                pack_panels(code, a, Panel(self.a_panels, self.a_table, shape.mr, shape.mr), rows, count)
            last = "true" if self.single else code.equal(code.add(k0, count), self.k)
            self.panels(a, bb, k0, count, last, b, i0, rows, j0, cols)

        code.loop("0", code.larger(self.k, "1"), block, step=str(shape.depth), runs=True)

    def operand(self, buffer: str, dtype: DType, offset: str, lanes: Group, k: Group, table: str, k0: str, count: str) -> Operand:
        code = self.code
        if table:
            fill_offsets(code, self.evaluate, table, k, k0, count, count)
            axis = KAxis(table=table)
        else:
            axis = KAxis(stride=self.evaluate(k.stride))
            offset = code.add(offset, code.mul(k0, axis.stride))
        return Operand(self.scalars, code.at(memory_type(dtype), buffer, offset), dtype, self.op.accumulate, lanes, k, axis)

    # Tiles -----------------------------------------------------------------------------------------------------------

    def panels(self, a: Operand, bb: Operand, k0: str, count: str, last: str, b: str, i0: str, rows: str, j0: str, cols: str) -> None:
        code, shape, tile = self.code, self.shape, self.tile
        element = tile.element

        def columns(first: str) -> None:
            """Panels of B that are packed together."""
            here = code.smaller(code.sub(cols, first), str(self.together))
            table = code.at("i64", self.b_table, first)
            pack_panels(code, bb, Panel(self.b_panels, table, shape.nr, tile.lanes), here, count)

            def packed(j: str) -> None:
                column(code.add(first, j), Vectors(code.at(element, self.b_panels, code.mul(j, count)), str(shape.nr)))

            code.loop("0", here, packed, step=str(shape.nr), runs=True)

        def direct(j: str) -> None:
            offset = code.let(f"load i64, ptr {code.at('i64', self.b_table, j)}, align 8")
            column(j, Vectors(bb.move(code, bb.base, offset), bb.axis.stride))

        def column(j: str, vectors: Vectors) -> None:
            def row(i: str) -> None:
                if self.options.direct_a:
                    starts = []
                    for r in range(tile.mr):
                        p = code.at("i64", code.at("i64", self.a_table, i), str(r))
                        starts.append(a.move(code, a.base, code.let(f"load i64, ptr {p}, align 8")))
                    source = Rows(starts, a.axis.stride)
                else:
                    source = Rows([code.at(element, self.a_panels, code.mul(i, count))], str(tile.mr))
                if self.single:
                    sums = self.sums
                else:
                    sums = code.at(element, self.sums, code.add(code.mul(j, str(shape.rows)), code.mul(i, str(shape.nr))))
                values = self.compute(source, vectors, k0, count, sums)
                height = code.smaller(code.sub(rows, i), str(tile.mr))
                width = code.smaller(code.sub(cols, j), str(tile.nr))
                at_i, at_j = code.add(i0, i), code.add(j0, j)

                def keep() -> None:
                    for v, value in enumerate(values):
                        p = code.at(element, sums, str(v * tile.lanes))
                        code.do(f"store {tile.kind} {value}, ptr {p}, align {tile.dtype.itemsize}")

                def finish() -> None:
                    self.epilogue.from_memory(sums, b, at_i, height, at_j, width)

                def keep_and_finish() -> None:
                    keep()
                    code.branch(last, finish)

                if not self.epilogue.inline:
                    keep_and_finish()
                    return
                full = code.both(last, code.both(code.equal(height, str(tile.mr)), code.equal(width, str(tile.nr))))
                code.branch(full, lambda: self.epilogue.from_registers(values, b, at_i, at_j), keep_and_finish)

            code.loop("0", rows, row, step=str(shape.mr), runs=True)

        if self.options.direct_b:
            code.loop("0", cols, direct, step=str(shape.nr), runs=True)
        else:
            code.loop("0", cols, columns, step=str(self.together), runs=True)

    def compute(self, a: Rows, b: Vectors, k0: str, count: str, sums: str) -> list[str]:
        """The sums of one tile up to and with this block of k; those of the blocks before lie at `sums`."""
        code, tile = self.code, self.tile
        zeros = ["zeroinitializer"] * (tile.mr * tile.vectors)
        initial = zeros
        if not self.single:
            spots = [code.at(tile.element, sums, str(v * tile.lanes)) for v in range(len(zeros))]
            initial = code.branch(
                code.equal(k0, "0"),
                lambda: zeros,
                lambda: [code.let(f"load {tile.kind}, ptr {p}, align {tile.dtype.itemsize}") for p in spots],
                [tile.kind] * len(zeros),
            )
        return run_tile(code, tile, a, b, count, initial, self.options.unroll)
