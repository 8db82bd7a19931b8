"""The epilogue region of a contraction on rows of finished sums, a vector along j at a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from treadle.codegen.cpu.contract_tile import Tile, splat
from treadle.ir.core import Block, Op, Value
from treadle.ir.dtypes import bool_
from treadle.ir.loops import Alloc, Check, Load, Store
from treadle.ir.scalar import Scalar
from treadle.ir.types import ScalarType

if TYPE_CHECKING:
    from treadle.codegen.emit import Emitter

__all__ = ["Epilogue", "masked_region"]

INLINE_OPS = 120  # ops that may be written for a whole tile whose sums are still in registers


def masked_region(region: Block) -> tuple[Block, Value]:
    """The region with an i1 that masks its stores, and its loads at places that vary along j; for the edge of n."""
    mask = Value(ScalarType(bool_), "mask")
    acc, _, _, j = region.params
    varying: set[Value] = {acc, j}
    ops: list[Op] = []
    for op in region.ops:
        varies = any(v in varying for v in op.operands)
        if varies:
            varying.update(op.results)
        operation = op.operation
        if isinstance(operation, Store) or (isinstance(operation, Load) and varies):
            operands, valid = op.operands, mask
            if operation.masked:
                valid = Value(mask.type)
                ops.append(Op(Scalar("and"), (operands[-1], mask), (valid,)))
                operands = operands[:-1]
            operation = dataclasses.replace(operation, masked=True)
            op = dataclasses.replace(op, operation=operation, operands=(*operands, valid))
        ops.append(op)
    return Block((*region.params, mask), tuple(ops), region.yields), mask


class Epilogue:
    """Writes the region on tiles of sums in memory (row-major, `tile.nr` apart)."""

    def __init__(self, emitter: Emitter, region: Block, tile: Tile) -> None:
        self.emitter, self.code, self.region, self.tile = emitter, emitter.code, region, tile
        # Control flow and checks cannot run for lanes that do not exist: then one value at a time.
        scalar = any(op.regions or isinstance(op.operation, Check | Alloc) for op in region.ops)
        self.vector = tile.lanes > 1 and not scalar
        self.masked, self.mask = masked_region(region)
        self.inline = self.vector and len(region.ops) * tile.mr * tile.vectors <= INLINE_OPS

    def run(self, values: str, b: str, i: str, j: str, width: int, valid: str = "") -> None:
        """The region on `width` sums of row i from column j on; only the first `valid` of them where that is given."""
        from treadle.codegen.emit import Lanes

        acc, at_b, at_i, at_j = self.region.params
        many = width > 1
        bindings = {acc: Lanes(values, many), at_b: Lanes(b), at_i: Lanes(i), at_j: Lanes(j, False, int(many))}
        if not valid:
            self.emitter.emit_block(self.region, bindings, width)
            return
        code = self.code
        kind = f"<{width} x i32>"
        limit = splat(code, "i32", width, code.let(f"trunc i64 {valid} to i32"))
        ramp = ", ".join(f"i32 {lane}" for lane in range(width))
        bindings[self.mask] = Lanes(code.let(f"icmp slt {kind} <{ramp}>, {limit}"), True)
        self.emitter.emit_block(self.masked, bindings, width)

    def from_registers(self, sums: list[str], b: str, i: str, j: str) -> None:
        """The region on a whole tile of sums."""
        code, tile = self.code, self.tile
        for n, values in enumerate(sums):
            r, v = divmod(n, tile.vectors)
            self.run(values, b, code.add(i, str(r)), code.add(j, str(v * tile.lanes)), tile.lanes)

    def from_memory(self, sums: str, b: str, i: str, height: str, j: str, width: str) -> None:
        """The region on height x width of the sums of one tile, the first of which is (i, j)."""
        code, tile = self.code, self.tile
        lanes = tile.lanes if self.vector else 1

        def values(r: str, at: str) -> str:
            p = code.at(tile.element, sums, code.add(code.mul(r, str(tile.nr)), at))
            kind = tile.kind if self.vector else tile.element
            return code.let(f"load {kind}, ptr {p}, align {tile.dtype.itemsize}")

        def full(r: str) -> None:
            for v in range(tile.vectors):
                at = str(v * lanes)
                self.run(values(r, at), b, code.add(i, r), code.add(j, at), lanes)

        def edge(r: str) -> None:
            def part(at: str) -> None:
                valid = code.smaller(code.sub(width, at), str(lanes)) if lanes > 1 else ""
                self.run(values(r, at), b, code.add(i, r), code.add(j, at), lanes, valid)

            code.loop("0", width, part, step=str(lanes), runs=True, plain=True)

        whole = code.equal(width, str(tile.nr)) if self.vector else "false"
        if self.inline and whole != "true":
            whole = "false"  # whole tiles were written from registers: what comes here are edges
        code.branch(
            whole,
            lambda: code.loop("0", height, full, runs=True, plain=True),
            lambda: code.loop("0", height, edge, runs=True, plain=True),
        )
