"""Program specs: dim tables, serialisation, refusal of what is malformed."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.kernels import chain
from treadle.runtime import DimCode, DimTable, KernelCode, Launch, ProgramSpec, Slot, SlotKind, jit, load

SMALL = st.integers(-(1 << 31), 1 << 31)
OPERATIONS = {
    DimCode.ADD: lambda a, b: a + b,
    DimCode.SUB: lambda a, b: a - b,
    DimCode.MUL: lambda a, b: a * b,
    DimCode.FLOORDIV: lambda a, b: a // b,
    DimCode.MOD: lambda a, b: a % b,
    DimCode.MAX: max,
    DimCode.MIN: min,
    DimCode.CEILDIV: lambda a, b: -(-a // b),
}


def evaluate(codes: list[tuple[int, ...]], symbols: list[int]) -> list[int]:
    """Values of dim expressions as the native core computes them."""
    count = len(codes)
    table = (*codes, (DimCode.PUSH_CONST, 0))
    spec = ProgramSpec(
        name="dims",
        inputs=1,
        outputs=0,
        dims=table,
        slots=(Slot(SlotKind.INPUT, 0, count),),
        launches=(Launch(0, (0,), tuple(range(count)), count, count, count, 0),),
        kernels=(KernelCode("nonzero_u8"),),
        locations=("",),
        symbols=tuple(f"s{i}" for i in range(len(symbols))),
    )
    return load(spec).evaluate_sizes(symbols)["ints"]


@given(a=SMALL, b=SMALL, code=st.sampled_from(sorted(OPERATIONS)))
def test_dim_operations_are_pythons(a: int, b: int, code: DimCode) -> None:
    if b == 0 and code in (DimCode.FLOORDIV, DimCode.MOD, DimCode.CEILDIV):
        with pytest.raises(ZeroDivisionError):
            evaluate([(1, 0, 1, 1, code)], [a, b])
    else:
        assert evaluate([(1, 0, 1, 1, code)], [a, b]) == [OPERATIONS[code](a, b)]


def test_dim_extremes() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    assert evaluate([(0, low), (0, high), (0, low, 0, -1, 6)], []) == [low, high, 0]
    for code in [(0, high, 0, 1, 2), (0, low, 0, 1, 3), (0, high, 0, 2, 4), (0, low, 0, -1, 5), (0, low, 0, -1, 9)]:
        with pytest.raises(ValueError, match="64 bits"):
            evaluate([code], [])


def test_nested_expressions() -> None:
    # (s0 * 3 + s1) // 4 - max(s0, s1)
    code = (1, 0, 0, 3, 4, 1, 1, 2, 0, 4, 5, 1, 0, 1, 1, 7, 3)
    for a, b in ((1, 2), (100, 7), (0, 0)):
        assert evaluate([code], [a, b]) == [(a * 3 + b) // 4 - max(a, b)]


@pytest.mark.parametrize("code", [(), (0,), (1, 5), (2,), (0, 1, 0, 1), (0, 1, 0, 1, 99), (0, 1) * 70 + (2,) * 69])
def test_malformed_expressions_are_refused(code: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="dim expression"):
        evaluate([code], [1])


def test_dim_table_shares_expressions() -> None:
    dims = DimTable()
    assert dims.const(4) == dims.const(4) != dims.symbol(4)
    assert dims.expressions() == ((0, 4), (1, 4))


def sample() -> ProgramSpec:
    spec = chain(["increment", "checked_copy", "increment"])
    return dataclasses.replace(spec, constants=(b"", b"xyz"), scalars=("f32", "i64"))


def test_specs_round_trip() -> None:
    spec = sample()
    again = ProgramSpec.from_bytes(spec.to_bytes())
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.to_bytes() == spec.to_bytes()
    assert isinstance(again.slots[0].kind, SlotKind)


def test_truncated_and_damaged_specs_are_refused() -> None:
    data = sample().to_bytes()
    rng = random.Random(0)
    for cut in [0, 1, 9, 30, len(data) - 1, *(rng.randrange(len(data)) for _ in range(50))]:
        with pytest.raises(ValueError):
            ProgramSpec.from_bytes(data[:cut])
    for _ in range(50):
        at = rng.randrange(len(data))
        with pytest.raises(ValueError):
            ProgramSpec.from_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
    with pytest.raises(ValueError):
        ProgramSpec.from_bytes(data + b"x")


def replaced(**changes: object) -> ProgramSpec:
    return dataclasses.replace(chain(["increment"]), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": (Slot(SlotKind.INPUT, 1, 0), Slot(SlotKind.OUTPUT, 0, 0))},
        {"slots": (Slot(SlotKind.INPUT, 0, 0), Slot(SlotKind.OUTPUT, 0, 99))},
        {"slots": (Slot(SlotKind.INPUT, 0, 0), Slot(SlotKind.OUTPUT, 0, 0, alias=3))},
        {"slots": (Slot(SlotKind.OUTPUT, 0, 0), Slot(SlotKind.OUTPUT, 0, 0))},
        {"slots": (Slot(SlotKind.INPUT, 0, 0), Slot(SlotKind.TEMP, 0, 0, 0))},
        {"slots": (Slot(SlotKind.CONSTANT, 0, 0), Slot(SlotKind.OUTPUT, 0, 0))},
        {"slots": (Slot(SlotKind.SCALAR, 0, 0), Slot(SlotKind.OUTPUT, 0, 0))},
        {"launches": (Launch(9, (0, 1), (), 0, 0, 0, 0),)},
        {"launches": (Launch(0, (0, 7), (), 0, 0, 0, 0),)},
        {"launches": (Launch(0, (0, 1), (77,), 0, 0, 0, 0),)},
        {"launches": (Launch(0, (0, 1), (), 0, 0, 77, 0),)},
        {"launches": (Launch(0, (0, 1), (), 0, 0, 0, 5),)},
        {"arena": 99},
    ],
)
def test_malformed_programs_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="malformed program"):
        load(replaced(**changes))


def test_temps_must_lie_in_the_arena() -> None:
    spec = chain(["increment", "increment"])
    program = load(dataclasses.replace(spec, dims=(*spec.dims, (0, 8)), arena=len(spec.dims)))
    with pytest.raises(ValueError, match="beyond the arena"):
        program.evaluate_sizes([100])


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(KeyError, match="no_such"):
        load(replaced(kernels=(KernelCode("no_such"),)))
    with pytest.raises(RuntimeError, match="no_such"):
        load(replaced(kernels=(KernelCode("no_such", 0),)))


def test_equal_object_code_is_linked_once() -> None:
    spec = chain(["increment"])
    first = jit.link(spec.blobs[0], ["increment"])
    assert jit.link(bytes(bytearray(spec.blobs[0])), ["add"]) is first
    assert first.address("add") != first.address("increment")


def test_broken_object_code_is_refused() -> None:
    spec = chain(["increment"])
    with pytest.raises(RuntimeError):
        jit.link(spec.blobs[0][:100], ["increment"])
