"""Host functions: sort and nonzero against NumPy, and the encoding of scalars."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import runtime
from treadle.runtime import Buffer, DimTable, KernelCode, Launch, ProgramSpec, Slot, SlotKind, load, submit

DTYPES = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.uint16,  # by its bits
    "f32": np.float32,
    "f64": np.float64,
}


def sort_program(dtype: str, order: str) -> runtime.Program:
    item = np.dtype(DTYPES[dtype]).itemsize
    dims = DimTable()
    rows, length, wanted, one, none = *map(dims.symbol, range(3)), dims.const(1), dims.const(0)
    given = dims.add((1, 0, 1, 1, 4, 0, item, 4))
    values = dims.add((1, 0, 1, 2, 4, 0, item, 4))
    indices = dims.add((1, 0, 1, 2, 4, 0, 8, 4))
    return load(
        ProgramSpec(
            name="sort",
            inputs=1,
            outputs=2,
            dims=dims.expressions(),
            slots=(
                Slot(SlotKind.INPUT, 0, given),
                Slot(SlotKind.OUTPUT, 0, values),
                Slot(SlotKind.OUTPUT, 1, indices),
            ),
            launches=(Launch(0, (0, 1, 2), (length, wanted), rows, one, none, 0),),
            kernels=(KernelCode(f"sort_{dtype}_{order}"),),
            locations=("here",),
            symbols=("s0", "s1", "s2"),
        )
    )


def as_numbers(dtype: str, array: np.ndarray) -> np.ndarray:
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def rows_of(dtype: str, rows: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Random rows with ties, and for floats NaNs, infinities and zeros of both signs."""
    if dtype[0] in "fb" and dtype != "bool":
        numbers = rng.choice([1.5, -2.25, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 3.0], (rows, length))
        numbers = np.where(rng.random((rows, length)) < 0.5, numbers, rng.standard_normal((rows, length)))
        if dtype == "bf16":
            return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return numbers.astype(DTYPES[dtype])
    if dtype == "bool":
        return rng.random((rows, length)) < 0.5
    info = np.iinfo(DTYPES[dtype])
    wide = rng.integers(info.min, info.max, (rows, length), dtype=DTYPES[dtype], endpoint=True)
    return np.where(rng.random((rows, length)) < 0.5, wide, wide % 3).astype(DTYPES[dtype])


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, length", [(3, 0), (0, 5), (4, 1), (5, 40), (3, 511), (2, 5000)])
def test_sort(dtype: str, order: str, rows: int, length: int) -> None:
    array = rows_of(dtype, rows, length, np.random.default_rng(length))
    program = sort_program(dtype, order)
    numbers = as_numbers(dtype, array)
    if order == "asc":
        expected = np.argsort(numbers, axis=1, kind="stable")
    else:
        # A stable descending order is the stable ascending order of the row read backwards, read backwards.
        expected = length - 1 - np.argsort(numbers[:, ::-1], axis=1, kind="stable")[:, ::-1]
    for wanted in {length, length // 2, min(length, 1), length // 5, length // 300}:
        given = Buffer.from_bytes(array.tobytes())
        values, indices = submit(program, [given], symbols=[rows, length, wanted])
        first = expected[:, :wanted]
        np.testing.assert_array_equal(indices.array(np.int64, (rows, wanted)), first)
        assert values.array(array.dtype, (rows, wanted)).tobytes() == np.take_along_axis(array, first, 1).tobytes()


def test_out_of_memory_in_a_host_function_is_an_error() -> None:
    dims = DimTable()
    one, none, length = dims.const(1), dims.const(0), dims.const(1 << 60)
    spec = ProgramSpec(
        name="sort",
        inputs=1,
        outputs=1,
        dims=dims.expressions(),
        slots=(Slot(SlotKind.INPUT, 0, one), Slot(SlotKind.OUTPUT, 0, one)),
        launches=(Launch(0, (0, 1, 1), (length, length), one, one, none, 0),),
        kernels=(KernelCode("sort_u8_asc"),),
        locations=("model.py:9",),
    )
    (out,) = submit(load(spec), [Buffer(8)])
    with pytest.raises(MemoryError, match=r"working memory.*\n  at model.py:9"):
        out.wait()


@given(st.lists(st.booleans(), max_size=200))
def test_nonzero(flags: list[bool]) -> None:
    mask = np.array(flags, np.bool_)
    buffer = Buffer.from_bytes(mask.tobytes())
    dims = DimTable()
    n, found, one, none, eight = dims.symbol(0), dims.add((1, 1, 0, 8, 4)), dims.const(1), dims.const(0), dims.const(8)

    def program(name: str, nbytes: int) -> runtime.Program:
        return load(
            ProgramSpec(
                name=name,
                inputs=1,
                outputs=1,
                dims=dims.expressions(),
                slots=(Slot(SlotKind.INPUT, 0, n), Slot(SlotKind.OUTPUT, 0, nbytes)),
                launches=(Launch(0, (0, 1), (n,), one, one, none, 0),),
                kernels=(KernelCode(name),),
                locations=("here",),
                symbols=("s0", "s1"),
            )
        )

    (count,) = submit(program("count_nonzero_u8", eight), [buffer], symbols=[len(flags), 0])
    total = int(count.array(np.int64, ()))
    assert total == mask.sum()
    (where,) = submit(program("nonzero_u8", found), [buffer], symbols=[len(flags), total])
    np.testing.assert_array_equal(where.array(np.int64, (total,)), np.flatnonzero(mask))


def scalar_bits(dtype: str, value: object) -> bytes:
    """What a kernel finds in the cell of a scalar: read as an output by a copy through sort."""
    dims = DimTable()
    eight, one, none = dims.const(8), dims.const(1), dims.const(0)
    spec = ProgramSpec(
        name="scalar",
        inputs=0,
        outputs=2,
        dims=dims.expressions(),
        slots=(Slot(SlotKind.SCALAR, 0, eight), Slot(SlotKind.OUTPUT, 0, eight), Slot(SlotKind.OUTPUT, 1, eight)),
        launches=(Launch(0, (0, 1, 2), (one, one), one, one, none, 0),),
        kernels=(KernelCode("sort_i64_asc"),),
        locations=("here",),
        scalars=(dtype,),
    )
    return submit(load(spec), [], scalars=[value])[0].array(np.uint8, (8,)).tobytes()


@given(st.floats(width=64) | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4))
def test_float_scalars_round_once(value: float) -> None:
    with np.errstate(over="ignore"):
        half, single = np.float16(value), np.float32(value)
    assert scalar_bits("f64", value) == struct.pack("<d", value)
    assert scalar_bits("f32", value)[:4] == single.tobytes() or np.isnan(value)
    if not np.isnan(value):
        assert scalar_bits("f16", value)[:2] == half.tobytes()
    assert nearest_bfloat(value, int.from_bytes(scalar_bits("bf16", value)[:2], "little"))


def bfloat(bits: int) -> float:
    """The value of bfloat16 bits."""
    return struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0]


def nearest_bfloat(value: float, bits: int) -> bool:
    """True if no neighbour of the bfloat16 is nearer to `value`, ties to even."""
    number = bfloat(bits)
    if np.isnan(value):
        return bool(np.isnan(number))
    if np.isinf(number):
        return abs(value) >= 3.3961775292304957e38 and (number > 0) == (value > 0)
    for other in (bits - 1, bits + 1):
        neighbour = bfloat(other)
        if np.isfinite(neighbour) and bits & 0x7FFF:
            mine, theirs = abs(number - value), abs(neighbour - value)
            if theirs < mine or (theirs == mine and bits & 1):
                return False
    return True


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16", "i32", "i64"])
def test_integer_scalars(dtype: str) -> None:
    info = np.iinfo(DTYPES[dtype])
    width = np.dtype(DTYPES[dtype]).itemsize
    for value in (info.min, info.max, 0, 1):
        assert scalar_bits(dtype, value)[:width] == int(value).to_bytes(width, "little", signed=info.min < 0)
    for value in (info.min - 1, info.max + 1, 0.5):
        with pytest.raises(ValueError, match="scalar"):
            scalar_bits(dtype, value)


def test_bool_scalars() -> None:
    assert scalar_bits("i1", True)[0] == 1
    assert scalar_bits("i1", 0)[0] == 0
