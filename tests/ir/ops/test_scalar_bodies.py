"""Loop-level bodies, run by a small interpreter, against the NumPy references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.ops.support import arrays_of, assert_close, graph_classes, named, results_of, run_body, samples_of
from treadle.ir import dtypes
from treadle.ir.core import Value
from treadle.ir.dtypes import DType
from treadle.ir.evaluate_scalars import round_bfloat16
from treadle.ir.ops.base import Elementwise
from treadle.ir.ops.scans import Scan
from treadle.ir.ops.sources import RandomBits, philox, philox_scalar
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import ScalarType, TensorType

ELEMENTWISE = {n: c for n, c in graph_classes().items() if issubclass(c, Elementwise)}
SCANS = {n: c for n, c in graph_classes().items() if issubclass(c, Scan)}
# Functions whose last bits depend on the formula.
SCALE = {"graph.sigmoid": 10.0, "graph.hypot": 10.0}


def body_of(operation: Any, kinds: list[DType], arrays: list[np.ndarray]) -> np.ndarray:
    params = [Value(ScalarType(k)) for k in kinds]
    s = ScalarBuilder()
    result = operation.scalar(s, *params)
    (expected,) = operation.infer(*(TensorType(k, a.shape) for k, a in zip(kinds, arrays, strict=True)))
    assert result.dtype is expected.dtype
    (got,) = run_body(s.ops, dict(zip(params, arrays, strict=True)), [result])
    return np.broadcast_to(got, arrays[-1].shape)


@pytest.mark.parametrize("cls", named(ELEMENTWISE))
def test_body_is_the_reference(cls: Any) -> None:
    for sample in samples_of(cls):
        arrays = arrays_of(sample)
        kinds = [dtypes.from_numpy(a.dtype) for a in arrays]
        (expected,) = results_of(sample.operation, arrays)
        got = body_of(sample.operation, kinds, arrays)
        assert_close(got, expected, SCALE.get(cls.name, 1.0), sample)
        if expected.dtype.kind == "f":  # signs of zeros too
            zeros = (expected == 0) & (got == 0)
            np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]), err_msg=str(sample))


@pytest.mark.parametrize("cls", named({n: c for n, c in ELEMENTWISE.items() if "f" in c.kinds}))
def test_body_in_bfloat16_rounds_once(cls: Any) -> None:
    """Within half a unit of the last place (bfloat16 has 8 bits) of the reference taken in float32."""
    if cls.name in ("graph.bitcast", "graph.nextafter"):
        pytest.skip("it works on bits")
    for sample in samples_of(cls):
        arrays = arrays_of(sample)
        if not any(a.dtype == np.float32 for a in arrays) or any(a.dtype == np.float64 for a in arrays):
            continue
        arrays = [round_bfloat16(a) if a.dtype == np.float32 else a for a in arrays]
        kinds = [dtypes.bfloat16 if a.dtype == np.float32 else dtypes.from_numpy(a.dtype) for a in arrays]
        (expected,) = results_of(sample.operation, arrays)
        got = body_of(sample.operation, kinds, arrays)
        if expected.dtype == np.float32:
            np.testing.assert_allclose(got, expected, rtol=2.0**-8, atol=1e-30, err_msg=str(sample))
        else:
            np.testing.assert_array_equal(got, expected, err_msg=str(sample))


@pytest.mark.parametrize("cls", named(SCANS))
def test_scan_steps_are_the_reference(cls: Any) -> None:
    for sample in samples_of(cls):
        operation, arrays = sample.operation, arrays_of(sample)
        expected = results_of(operation, arrays)
        moved = [np.moveaxis(a, operation.dim, 0) for a in arrays]  # type: ignore[attr-defined]
        dtype = dtypes.from_numpy(arrays[0].dtype)
        start = operation.start(dtype)  # type: ignore[attr-defined]
        carried_values = [Value(ScalarType(d)) for d, _ in start]
        xs = tuple(Value(ScalarType(dtype)) for _ in arrays)
        position = Value(ScalarType(dtypes.int64))
        s = ScalarBuilder()
        next_values, results = operation.step(s, position, tuple(carried_values), xs)  # type: ignore[attr-defined]
        assert [v.dtype for v in next_values] == [d for d, _ in start]
        carried = [np.full(moved[0].shape[1:], value, d.numpy) for d, value in start]
        rows: list[list[np.ndarray]] = [[] for _ in results]
        for k in range(len(moved[0])):
            env = dict(zip((*carried_values, *xs), (*carried, *(m[k] for m in moved)), strict=True))
            env[position] = np.full(moved[0].shape[1:], k, np.int64)
            made = run_body(s.ops, env, (*next_values, *results))
            carried = made[: len(start)]
            for row, r in zip(rows, made[len(start) :], strict=True):
                row.append(r)
        for row, e in zip(rows, expected, strict=True):
            if row:
                assert_close(np.moveaxis(np.stack(row), 0, operation.dim), e, note=sample)  # type: ignore[attr-defined]


# Philox ---------------------------------------------------------------------------------------------------------------

# Known answers of the published generator (philox4x32-10): counter, key, output words.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    made = philox(tuple(np.array(c) for c in counter), (np.array(key[0]), np.array(key[1])))
    assert tuple(int(w) for w in made) == words
    params = [Value(ScalarType(dtypes.int32)) for _ in range(6)]
    s = ScalarBuilder()
    results = philox_scalar(s, params[:4], params[4:])
    env = {p: np.array(v, np.uint32).astype(np.int32)[()] for p, v in zip(params, (*counter, *key), strict=True)}
    assert tuple(int(w) & 0xFFFFFFFF for w in run_body(s.ops, env, results)) == words


def test_random_bits_by_index() -> None:
    for sample in samples_of(RandomBits):
        operation = sample.operation
        assert isinstance(operation, RandomBits)
        expected = operation.reference(*sample.operands).reshape(-1)
        params = [Value(ScalarType(dtypes.int64)) for _ in range(3)]
        s = ScalarBuilder()
        result = operation.index_scalar(s, *params)
        if not expected.size:
            continue
        index = np.arange(expected.size, dtype=np.int64)
        lanes = (index, *(np.full(index.shape, a) for a in sample.operands))
        (got,) = run_body(s.ops, dict(zip(params, lanes, strict=True)), [result])
        np.testing.assert_array_equal(got, expected)


def test_random_bits_beyond_32_bit_indices() -> None:
    """An element's high index word counts: no stream repeats after 2^32 elements."""
    operation = RandomBits((4,))
    params = [Value(ScalarType(dtypes.int64)) for _ in range(3)]
    s = ScalarBuilder()
    result = operation.index_scalar(s, *params)
    index = np.array([5, 5 + 2**32], np.int64)
    lanes = (index, np.array([1, 1]), np.array([2, 2]))
    (got,) = run_body(s.ops, dict(zip(params, lanes, strict=True)), [result])
    words = philox(
        (index & 0xFFFFFFFF, index >> 32, np.array([2, 2]), np.array([0, 0])), (np.array([1, 1]), np.array([0, 0]))
    )
    np.testing.assert_array_equal(got.view(np.uint32), words[0])
    assert got[0] != got[1]
