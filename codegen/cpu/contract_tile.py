"""The register tile: mr rows by a few vectors of accumulators over one block of k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.codegen.cpu.contract_code import Code, known
from treadle.codegen.cpu.contract_pack import vector_type
from treadle.codegen.emit_scalar import llvm_type
from treadle.ir.dtypes import DType

__all__ = ["Rows", "Tile", "Vectors", "run_tile", "splat"]


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


@dataclass(frozen=True)
class Vectors:
    """Where B comes from: vectors one after the other at `start` + k * stride."""

    start: str
    stride: str


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


def run_tile(code: Code, tile: Tile, a: Rows, b: Vectors, count: str, initial: list[str], unroll: int) -> list[str]:
    """The accumulators after k in range(count), row by row."""
    element, size = tile.element, tile.dtype.itemsize

    def step(a_at: str, b_at: str, sums: list[str], u: int) -> list[str]:
        b_row = code.at(element, b_at, code.mul(str(u), b.stride))
        row = []
        for v in range(tile.vectors):
            p = code.at(element, b_row, str(v * tile.lanes))
            row.append(code.let(f"load {tile.kind}, ptr {p}, align {size}"))
        sums = list(sums)
        for i in range(tile.mr):
            ahead = code.mul(str(u), a.stride)
            if len(a.starts) > 1:
                p = code.at(element, a.starts[i], code.add(a_at, ahead))
            else:
                p = code.at(element, a_at, code.add(ahead, str(i)))
            value = splat(code, element, tile.lanes, code.let(f"load {element}, ptr {p}, align {size}"))
            for v in range(tile.vectors):
                n = i * tile.vectors + v
                sums[n] = multiply_add(code, tile, value, row[v], sums[n])
        return sums

    def steps(copies: int) -> Callable[..., list[str]]:
        def body(_: str, a_at: str, b_at: str, *sums: str) -> list[str]:
            now = list(sums)
            for u in range(copies):
                now = step(a_at, b_at, now, u)
            ahead = code.mul(str(copies), a.stride)
            a_next = code.add(a_at, ahead) if len(a.starts) > 1 else code.at(element, a_at, ahead)
            b_next = code.at(element, b_at, code.mul(str(copies), b.stride))
            return [a_next, b_next, *now]

        return body

    first = ("i64", "0") if len(a.starts) > 1 else ("ptr", a.starts[0])
    state = [first, ("ptr", b.start), *((tile.kind, x) for x in initial)]
    while known(count) is not None and int(count) % unroll:
        unroll -= 1  # no remainder
    if unroll > 1:
        main = code.sub(count, code.rem(count, str(unroll)))
        values = code.loop("0", main, steps(unroll), state, step=str(unroll))
        state = [(kind, value) for (kind, _), value in zip(state, values)]
        values = code.loop(main, count, steps(1), state)
    else:
        values = code.loop("0", count, steps(1), state)
    return values[2:]
