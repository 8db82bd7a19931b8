"""The register tile: mr rows by a few vectors of accumulators over one block of k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from treadle.codegen.cpu.contract_code import Code
from treadle.codegen.cpu.contract_pack import Operand, transpose, vector_type
from treadle.codegen.emit_scalar import llvm_type
from treadle.ir.dtypes import DType

__all__ = ["Rows", "Tile", "Vectors", "run_dot", "run_tile", "splat"]


@dataclass(frozen=True)
class Tile:
    """Shape and type of the accumulators."""

    mr: int
    vectors: int
    lanes: int
    dtype: DType

    @property
    def nr(self) -> int:
        return self.vectors * self.lanes

    @property
    def element(self) -> str:
        return llvm_type(self.dtype)

    @property
    def kind(self) -> str:
        return vector_type(self.lanes, self.element)


@dataclass(frozen=True)
class Rows:
    """Where A comes from: row i at `starts[i]` + k * stride; a packed panel has one start, and rows are neighbours."""

    starts: list[str]
    stride: str

    @property
    def apart(self) -> bool:
        return len(self.starts) > 1


@dataclass(frozen=True)
class Vectors:
    """Where B comes from: vectors side by side at `start` + k * stride; for inner products the `starts` of columns."""

    start: str
    stride: str
    starts: list[str] = field(default_factory=list)


def splat(code: Code, element: str, lanes: int, value: str) -> str:
    """A vector of one value."""
    if lanes == 1:
        return value
    kind = vector_type(lanes, element)
    seed = code.let(f"insertelement {kind} poison, {element} {value}, i64 0")
    return code.let(f"shufflevector {kind} {seed}, {kind} poison, <{lanes} x i32> zeroinitializer")


def multiply_add(code: Code, tile: Tile, a: str, b: str, c: str) -> str:
    """c + a * b; fused where the target can."""
    kind = tile.kind
    if tile.dtype.is_floating:
        suffix = f"f{tile.dtype.bits}" if tile.lanes == 1 else f"v{tile.lanes}f{tile.dtype.bits}"
        return code.let(f"call {kind} @llvm.fmuladd.{suffix}({kind} {a}, {kind} {b}, {kind} {c})")
    return code.let(f"add {kind} {c}, {code.let(f'mul {kind} {a}, {b}')}")


def run_tile(
    code: Code, tile: Tile, a: Rows, b: Vectors, count: str, initial: list[str], unroll: int, exact: bool
) -> list[str]:
    """The accumulators after k in range(count), row by row. `exact`: the count is a positive multiple of `unroll`."""

    def steps(copies: int) -> Callable[..., list[str]]:
        def body(_: str, a_at: str, b_at: str, *sums: str) -> list[str]:
            now = list(sums)
            for u in range(copies):
                _step(code, tile, a, b, (a_at, b_at), now, u)
            ahead = code.mul(str(copies), a.stride)
            a_next = code.add(a_at, ahead) if a.apart else code.at(tile.element, a_at, ahead)
            return [a_next, code.at(tile.element, b_at, code.mul(str(copies), b.stride)), *now]

        return body

    first = ("i64", "0") if a.apart else ("ptr", a.starts[0])
    state = [first, ("ptr", b.start), *((tile.kind, x) for x in initial)]
    main = count if exact else code.sub(count, code.rem(count, str(unroll)))
    values = code.loop("0", main, steps(unroll), state, step=str(unroll), runs=exact, plain=True)
    if not exact:
        state = [(kind, value) for (kind, _), value in zip(state, values, strict=True)]
        values = code.loop(main, count, steps(1), state, plain=True)
    return values[2:]


def _step(code: Code, tile: Tile, a: Rows, b: Vectors, at: tuple[str, str], sums: list[str], u: int) -> None:
    """One k, the u-th after the addresses `at`, added into `sums`."""
    element, size = tile.element, tile.dtype.itemsize
    ahead = code.mul(str(u), a.stride)
    b_row = code.at(element, at[1], code.mul(str(u), b.stride))

    def left(i: int) -> str:
        row, offset = (a.starts[i], code.add(at[0], ahead)) if a.apart else (at[0], code.add(ahead, str(i)))
        p = code.at(element, row, offset)
        return splat(code, element, tile.lanes, code.let(f"load {element}, ptr {p}, align {size}"))

    def right(v: int) -> str:
        return code.let(f"load {tile.kind}, ptr {code.at(element, b_row, str(v * tile.lanes))}, align {size}")

    # The shorter side is held in registers while the other goes by.
    if tile.vectors <= tile.mr:
        row = [right(v) for v in range(tile.vectors)]
        for i in range(tile.mr):
            value = left(i)
            for v in range(tile.vectors):
                n = i * tile.vectors + v
                sums[n] = multiply_add(code, tile, value, row[v], sums[n])
    else:
        column = [left(i) for i in range(tile.mr)]
        for v in range(tile.vectors):
            value = right(v)
            for i in range(tile.mr):
                n = i * tile.vectors + v
                sums[n] = multiply_add(code, tile, column[i], value, sums[n])


def run_dot(code: Code, tile: Tile, a: Operand, row: str, b: Operand, columns: list[str], count: str) -> str:
    """A vector of inner products along k of one row of A with some columns of B, all of them contiguous."""
    lanes, element = tile.lanes, tile.element

    def body(width: int) -> Callable[..., list[str]]:
        one = Tile(1, 1, width, tile.dtype)

        def step(k: str, *sums: str) -> list[str]:
            x = a.read(code, a.move(code, row, k), width)
            return [
                multiply_add(code, one, x, b.read(code, b.move(code, column, k), width), total)
                for column, total in zip(columns, sums, strict=True)
            ]

        return step

    zero = "0.0" if tile.dtype.is_floating else "0"
    main = code.sub(count, code.rem(count, str(lanes)))
    sums = code.loop("0", main, body(lanes), [(tile.kind, "zeroinitializer")] * lanes, step=str(lanes), plain=True)
    rest = code.loop(main, count, body(1), [(element, zero)] * lanes, plain=True)
    add = "fadd" if tile.dtype.is_floating else "add"
    parts = transpose(code, sums, element, tile.dtype.bits)
    if rest[0] != zero:
        tail = "poison"
        for lane, value in enumerate(rest):
            tail = code.let(f"insertelement {tile.kind} {tail}, {element} {value}, i64 {lane}")
        parts.append(tail)
    while len(parts) > 1:
        pairs = [code.let(f"{add} {tile.kind} {x}, {y}") for x, y in zip(parts[::2], parts[1::2])]
        parts = [*pairs, *parts[len(pairs) * 2 :]]
    return parts[0]
