"""Contractions: which extents step through which strides, and the epilogue on the register tile."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.core import Block, Builder, Op, Value
from treadle.ir.dims import Atom, Dim, product, symbol
from treadle.ir.loops import LoopContract
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.views import Reshape
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX, ScalarType
from treadle.passes.nests.index import Space, coefficients, linear_index, simplified
from treadle.passes.nests.scalars import Memory, Pull

__all__ = ["lower_contraction"]


@dataclass(frozen=True)
class Side:
    """An operand as addresses over letters' variables."""

    memory: Memory
    address: Dim


def lower_contraction(b: Builder, region: Block, memory: dict[Value, Memory], messages: list[str]) -> None:
    """Append the loop.contract of a region with one graph.contract."""
    producers = {r: op for op in region.ops for r in op.results}
    (op,) = [o for o in region.ops if isinstance(o.operation, Contract)]
    contract: Contract = op.operation  # type: ignore[assignment]
    lhs, rhs, out = contract.lhs, contract.rhs, contract.out
    a, c = op.operands
    extents = dict(zip([*lhs, *rhs], [*a.shape, *c.shape], strict=True))
    if out and out[-1] in lhs and out[-1] not in rhs:  # lanes run along the last letter of the result
        a, c, lhs, rhs = c, a, rhs, lhs
    space = Space({_name(k): d for k, d in extents.items()})
    a_place, c_place = (
        _reach(producers, memory, v, tuple(symbol(_name(k)) for k in letters)) for v, letters in ((a, lhs), (c, rhs))
    )
    space.refine([i for _, index in (a_place, c_place) for i in index])
    sides = [Side(memory[v], _address(v, index, space)) for v, index in (a_place, c_place)]
    groups = {
        "batch": [k for k in out if k in lhs and k in rhs], "m": [k for k in out if k in lhs and k not in rhs],
        "n": [k for k in out if k in rhs and k not in lhs], "k": [k for k in lhs if k in rhs and k not in out],
    }  # fmt: skip
    acc = contract.accumulate_dtype(op.result.dtype)
    spec = {}
    for name, letters in groups.items():
        spec[name] = [v for k in letters for v in _parts(space, _name(k))]
    strides = [{v: _coefficient(s.address, v, space) for v in space.extents} for s in sides]
    offsets = [coefficients(s.address, space.extents)[1] for s in sides]
    if spec["k"]:
        spec["k"].sort(key=lambda v: -_rank(strides, v))

    def ext(name: str) -> tuple[Dim, ...]:
        return tuple(space.extents[v] for v in spec[name])

    def step(side: int, name: str) -> tuple[Dim, ...]:
        return tuple(strides[side][v] for v in spec[name])

    operation = LoopContract(
        ext("batch"), ext("m"), ext("n"), ext("k"), step(0, "batch"), step(0, "m"), step(0, "k"), step(1, "batch"),
        step(1, "k"), step(1, "n"), acc, offsets[0], offsets[1],
    )  # fmt: skip
    region_block = _epilogue(op, region, producers, memory, extents, groups, acc, messages)
    b.emit(operation, sides[0].memory.buffer, sides[1].memory.buffer, regions=(region_block,))


def _rank(strides: list[dict[str, Dim]], v: str) -> int:
    """Order of the contracted variables: large steps outside."""
    from treadle.passes.nests.index import likely

    return likely(strides[0][v]) if strides[0][v] != 0 else 0


def _name(letter: str) -> str:
    return f"L{letter}"


def _parts(space: Space, name: str) -> list[str]:
    """Present variables of an original one, outermost first."""
    return [v for v in space.extents if v == name or (v.startswith(name) and set(v[len(name) :]) <= {"h", "l"})]


def _reach(
    producers: dict[Value, Op], memory: dict[Value, Memory], v: Value, index: tuple[Dim, ...]
) -> tuple[Value, tuple[Dim, ...]]:
    """The value in memory behind a chain of views, and its index."""
    while v not in memory:
        op = producers[v]
        (x,) = op.operands
        index = op.operation.index_map(index, x.shape)  # type: ignore[attr-defined]
        v = x
    return v, index


def _address(v: Value, index: tuple[Dim, ...], space: Space) -> Dim:
    from treadle.passes.nests.scalars import row_major

    total: Dim = 0
    for i, s in zip(index, row_major(v.shape), strict=True):
        total = total + space.rewrite(i) * s
    return simplified(total, space.extents)


def _coefficient(address: Dim, name: str, space: Space) -> Dim:
    found, _ = coefficients(address, space.extents)
    if any(a.op != "sym" for a in found):
        raise NotImplementedError(f"a contraction operand whose address is not linear: {address}")
    return found.get(Atom("sym", name), 0)


def _epilogue(
    op: Op, region: Block, producers: dict[Value, Op], memory: dict[Value, Memory], extents: dict[str, Dim],
    groups: dict[str, list[str]], acc: object, messages: list[str],
) -> Block:  # fmt: skip
    """(acc, b, i, j): store every result at its index."""
    total = Value(ScalarType(acc))  # type: ignore[arg-type]
    at = {name: Value(INDEX) for name in ("batch", "m", "n")}
    s = ScalarBuilder()
    place: dict[str, Dim] = {}
    ranges: dict[str, Dim] = {}
    for name in ("batch", "m", "n"):
        letters = groups[name]
        ranges[name] = product(extents[k] for k in letters)
        rest: Dim = symbol(name)
        for k in reversed(letters):
            inner = rest if k == letters[0] else rest % extents[k]
            place[k] = inner
            rest = rest // extents[k] if k != letters[0] else rest
    index = tuple(simplified(place[k], ranges) for k in op.operation.out)  # type: ignore[attr-defined]
    p = Pull(producers, dict(memory), ranges, s, dict(at), messages=messages)
    value = s.cast(total, op.result.dtype)

    here = linear_index(index, op.result.shape, ranges)

    def ready(where: tuple[Dim, ...]) -> Value | None:
        return value if linear_index(where, op.result.shape, ranges) == here else None

    p.stages = {op.result: ready}
    results = []
    for v in region.yields:
        place_of = index if v.shape == op.result.shape else Reshape(op.result.shape).index_map(index, v.shape)
        kept = p.memory.pop(v)
        results.append((v, place_of, p.value(v, place_of)))
        p.memory[v] = kept
    for v, place_of, result in results:
        p.store(v, place_of, result)
    return s.block((total, at["batch"], at["m"], at["n"]), ())
