"""Packing of contraction operands into panels, and the offset tables that make any layout look alike.

A panel holds `width` lanes (rows of A or columns of B) for every k of a block, k-major. The offsets of lanes and of k
are separable: lane l at k is base[lane_offset[l] + k_offset(k)]. Lanes past the edge repeat the last one: what is
computed from them is never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.codegen.cpu.contract_code import Code
from treadle.codegen.cpu.contract_schedule import Group
from treadle.codegen.emit_scalar import Scalars, llvm_type, memory_type
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType

__all__ = ["KAxis", "Operand", "Panel", "fill_offsets", "pack_panels", "vector_type"]

ABREAST = 8  # panels that are packed at once where their lanes are consecutive

Evaluate = Callable[[Dim], str]  # a Dim as an i64 operand


def vector_type(lanes: int, element: str) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


# Offsets -------------------------------------------------------------------------------------------------------------


def fill_offsets(code: Code, evaluate: Evaluate, table: str, group: Group, start: str, valid: str, total: str) -> None:
    """table[t] = offset of index start + min(t, valid - 1) of `group`, for t in range(total)."""
    if group.single:
        stride = evaluate(group.stride)
        last = code.sub(valid, "1")

        def entry(t: str) -> None:
            index = code.add(start, code.smaller(t, last))
            code.do(f"store i64 {code.mul(index, stride)}, ptr {code.at('i64', table, t)}, align 8")

        code.loop("0", total, entry, plain=True)
        return
    # Where the start divides into the extents is computed; from there on they are counted up, without divisions.
    extents = [evaluate(e) for e in group.extents]
    strides = [evaluate(s) for s in group.strides]
    indices, rest = [], start
    for extent in reversed(extents[1:]):
        indices.append(code.rem(rest, extent))
        rest = code.div(rest, extent)
    indices.append(rest)
    indices.reverse()
    offset = "0"
    for index, stride in zip(indices, strides):
        offset = code.add(offset, code.mul(index, stride))

    def step(t: str, *state: str) -> list[str]:
        """Store, then count up from the innermost index, carrying into the next where one wraps."""
        here, at = state[0], list(state[1:])
        code.do(f"store i64 {here}, ptr {code.at('i64', table, t)}, align 8")
        carry = code.less(code.add(t, "1"), valid)
        for d in reversed(range(len(extents))):
            bumped = code.add(at[d], code.select(carry, "1", "0"))
            here = code.add(here, code.select(carry, strides[d], "0"))
            at[d] = bumped
            if d:
                wrap = code.equal(bumped, extents[d])
                at[d] = code.select(wrap, "0", bumped)
                here = code.sub(here, code.select(wrap, code.mul(extents[d], strides[d]), "0"))
                carry = wrap
        return [here, *at]

    code.loop("0", total, step, [("i64", offset), *(("i64", i) for i in indices)], plain=True)


@dataclass(frozen=True)
class KAxis:
    """Offsets along k of the current block: a stride, or a table where k has several extents."""

    stride: str = ""
    table: str = ""

    def offset(self, code: Code, k: str) -> str:
        if not self.table:
            return code.mul(k, self.stride)
        return code.let(f"load i64, ptr {code.at('i64', self.table, k)}, align 8")


def consecutive(code: Code, table: str, count: int) -> str:
    """i1: the `count` offsets at `table` rise by one each."""
    kind = f"<{count} x i64>"
    offsets = code.let(f"load {kind}, ptr {table}, align 8")
    first = code.let(f"load i64, ptr {table}, align 8")
    seed = code.let(f"insertelement {kind} poison, i64 {first}, i64 0")
    splat = code.let(f"shufflevector {kind} {seed}, {kind} poison, <{count} x i32> zeroinitializer")
    rise = code.let(f"sub {kind} {offsets}, {splat}")
    ramp = ", ".join(f"i64 {i}" for i in range(count))
    same = code.let(f"icmp eq {kind} {rise}, <{ramp}>")
    return code.let(f"call i1 @llvm.vector.reduce.and.v{count}i1(<{count} x i1> {same})")


# Panels --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """A or B of the batch item and block of k at hand: `base` includes the offset of the batch item (and of the block
    where k has a stride)."""

    scalars: Scalars
    base: str
    source: DType
    target: DType
    lanes: Group
    k: Group
    axis: KAxis

    def move(self, code: Code, pointer: str, offset: str) -> str:
        """The address of the element `offset` after the one at `pointer`."""
        return code.at(memory_type(self.source), pointer, offset)

    def read(self, code: Code, pointer: str, lanes: int) -> str:
        """`lanes` consecutive elements at `pointer`, converted to the accumulation type."""
        raw = code.let(
            f"load {vector_type(lanes, memory_type(self.source))}, ptr {pointer}, align {self.source.itemsize}"
        )
        value = self.scalars.from_memory(raw, self.source, lanes)
        return self.scalars.cast(value, self.source, self.target, lanes)


@dataclass(frozen=True)
class Panel:
    """`width` lanes of the panel at `base`, packed `group` lanes at a time from lane offsets `table`."""

    base: str
    table: str
    width: int
    group: int


def pack_panels(code: Code, x: Operand, panel: Panel, lanes: str, count: str, even: bool) -> None:
    """Pack k in range(count) of the panels of `lanes` lanes, one after the other from `panel` on.

    `even`: the last panel is always a whole one.

    Stores may run past the end of a panel by less than a vector: the panels are written in ascending order.
    """
    width = str(panel.width)

    def at(first: str) -> Panel:
        base = code.at(llvm_type(x.target), panel.base, code.mul(first, count))
        return Panel(base, code.at("i64", panel.table, first), panel.width, panel.group)

    if x.lanes.single and x.lanes.stride == 1:
        rest = lanes if even else code.mul(code.div(lanes, width), width)
        several = str(ABREAST * panel.width)
        code.loop("0", rest, lambda j: _copy_side_by_side(code, x, at(j), code.sub(rest, j), count), step=several)
        if not even:
            code.branch(code.less(rest, lanes), lambda: _pack_by_groups(code, x, at(rest), count))
    else:
        code.loop("0", lanes, lambda j: _pack_panel(code, x, at(j), count), step=width, runs=True)


def _copy_side_by_side(code: Code, x: Operand, panel: Panel, lanes: str, count: str) -> None:
    """Full panels whose lanes are consecutive in memory, several at once: what is read of one k is then long enough for
    the caches, also where the stride of k is a large power of two."""
    target = llvm_type(x.target)
    kind = vector_type(panel.group, target)
    together = code.smaller(lanes, str(ABREAST * panel.width))
    source = x.move(code, x.base, code.let(f"load i64, ptr {panel.table}, align 8"))

    def step(k: str) -> None:
        row = x.move(code, source, x.axis.offset(code, k))
        place = code.at(target, panel.base, code.mul(k, str(panel.width)))

        def one(first: str) -> None:
            here = x.move(code, row, first)
            there = code.at(target, place, code.mul(first, count))
            for lane in range(0, panel.width, panel.group):
                values = x.read(code, x.move(code, here, str(lane)), panel.group)
                code.do(f"store {kind} {values}, ptr {code.at(target, there, str(lane))}, align {x.target.itemsize}")

        code.loop("0", together, one, step=str(panel.width), runs=True, plain=True)

    code.loop("0", count, step, plain=True)


def _pack_panel(code: Code, x: Operand, panel: Panel, count: str) -> None:
    slow = lambda: _pack_by_groups(code, x, panel, count)  # noqa: E731
    if x.lanes.stride != 1:
        slow()
        return
    whole = "true"
    for g in range(panel.width // panel.group):
        table = code.at("i64", panel.table, str(g * panel.group))
        ok = consecutive(code, table, panel.group)
        whole = ok if whole == "true" else code.let(f"and i1 {whole}, {ok}")
    code.branch(whole, lambda: _copy(code, x, panel, count), slow)


def _copy(code: Code, x: Operand, panel: Panel, count: str) -> None:
    """Vectors of lanes are consecutive in memory, though one may not follow the other."""
    target = llvm_type(x.target)
    starts = range(0, panel.width, panel.group)
    sources = []
    for lane in starts:
        offset = code.let(f"load i64, ptr {code.at('i64', panel.table, str(lane))}, align 8")
        sources.append(x.move(code, x.base, offset))

    def step(k: str) -> None:
        offset = x.axis.offset(code, k)
        row = code.at(target, panel.base, code.mul(k, str(panel.width)))
        for lane, source in zip(starts, sources):
            values = x.read(code, x.move(code, source, offset), panel.group)
            kind = vector_type(panel.group, target)
            code.do(f"store {kind} {values}, ptr {code.at(target, row, str(lane))}, align {x.target.itemsize}")

    code.loop("0", count, step, plain=True)


def _pack_by_groups(code: Code, x: Operand, panel: Panel, count: str) -> None:
    target = llvm_type(x.target)

    def group(lane: str) -> None:
        table = code.at("i64", panel.table, lane)
        destination = code.at(target, panel.base, lane)
        rows = []
        for i in range(panel.group):
            offset = code.let(f"load i64, ptr {code.at('i64', table, str(i))}, align 8")
            rows.append(x.move(code, x.base, offset))
        if x.k.stride == 1 and panel.group > 1:
            _transpose_blocks(code, x, rows, destination, panel, count)
        else:
            _gather(code, x, rows, destination, panel.width, "0", count)

    code.loop("0", str(panel.width), group, step=str(panel.group))


def _gather(code: Code, x: Operand, rows: list[str], destination: str, width: int, lo: str, hi: str) -> None:
    """Element by element."""
    target, lanes = llvm_type(x.target), len(rows)
    kind = vector_type(lanes, target)

    def step(k: str) -> None:
        offset = x.axis.offset(code, k)
        value = "poison"
        for i, row in enumerate(rows):
            scalar = x.read(code, x.move(code, row, offset), 1)
            value = scalar if lanes == 1 else code.let(f"insertelement {kind} {value}, {target} {scalar}, i64 {i}")
        place = code.at(target, destination, code.mul(k, str(width)))
        code.do(f"store {kind} {value}, ptr {place}, align {x.target.itemsize}")

    code.loop(lo, hi, step, plain=True)


def _transpose_blocks(code: Code, x: Operand, rows: list[str], destination: str, panel: Panel, count: str) -> None:
    """Lanes run along k in memory: square blocks are read by rows and turned in registers."""
    side = 1 << (len(rows) - 1).bit_length()
    target = llvm_type(x.target)
    kind = f"<{side} x {target}>"

    def turn(k: str) -> None:
        offset = x.axis.offset(code, k)
        block = [x.read(code, x.move(code, row, offset), side) for row in rows]
        block += ["poison"] * (side - len(rows))
        place = code.at(target, destination, code.mul(k, str(panel.width)))
        # With fewer lanes than the side a store spills into the next row, which the next store puts right.
        for i, values in enumerate(transpose(code, block, target, x.target.bits)):
            spot = code.at(target, place, str(i * panel.width))
            code.do(f"store {kind} {values}, ptr {spot}, align {x.target.itemsize}")

    def block(k: str) -> None:
        end = code.smaller(code.add(k, str(side)), count)
        whole = code.equal(code.sub(end, k), str(side))
        rest = lambda: _gather(code, x, rows, destination, panel.width, k, end)  # noqa: E731
        if not x.axis.table:
            code.branch(whole, lambda: turn(k), rest)
            return

        def look() -> list[str]:
            return [consecutive(code, code.at("i64", x.axis.table, k), side)]

        (run,) = code.branch(whole, look, lambda: ["false"], ["i1"])
        code.branch(run, lambda: turn(k), rest)

    code.loop("0", count, block, step=str(side), plain=True)


def transpose(code: Code, rows: list[str], element: str, bits: int) -> list[str]:
    """Columns of a square of vectors. Shuffles stay in 128-bit chunks as long as they can: one instruction."""
    side = len(rows)
    kind = f"<{side} x {element}>"
    chunk = max(1, 128 // bits)
    rows = list(rows)

    def shuffle(a: str, b: str, picks: list[int]) -> str:
        if a == b == "poison":
            return "poison"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return code.let(f"shufflevector {kind} {a}, {kind} {b}, <{side} x i32> <{mask}>")

    def exchange(distance: int) -> None:
        """Swap the off-diagonal blocks of size `distance`."""
        for i in range(side):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                low = [p if not p & distance else side + p - distance for p in range(side)]
                high = [p + distance if not p & distance else side + p for p in range(side)]
                rows[i], rows[i + distance] = shuffle(a, b, low), shuffle(a, b, high)

    def interleave(i: int, j: int) -> None:
        a, b = rows[i], rows[j]
        for half, place in ((0, i), (2, j)):
            rows[place] = shuffle(a, b, [p - p % 4 + half + p % 4 // 2 + (p & 1) * side for p in range(side)])

    if bits == 32 and side >= 4:
        for i in range(0, side, 4):
            interleave(i, i + 1)
            interleave(i + 2, i + 3)
            # Now rows i, i+1 hold columns 0/1 and 2/3 of the upper pair, i+2, i+3 of the lower.
            rows[i + 1], rows[i + 2] = rows[i + 2], rows[i + 1]
            for j in (i, i + 2):
                a, b = rows[j], rows[j + 1]
                low = [p if p % 4 < 2 else side + p - 2 for p in range(side)]
                high = [p + 2 if p % 4 < 2 else side + p for p in range(side)]
                rows[j], rows[j + 1] = shuffle(a, b, low), shuffle(a, b, high)
        distance = chunk
    else:
        distance = 1
    while distance < side:
        exchange(distance)
        distance *= 2
    return rows
