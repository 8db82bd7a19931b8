"""Collating and converting samples."""

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import treadle
from treadle.utils.data import default_collate, default_convert

Pair = namedtuple("Pair", "x y")


def test_tensors_are_stacked():
    batch = default_collate([treadle.tensor([1.0, 2.0]), treadle.tensor([3.0, 4.0])])
    np.testing.assert_array_equal(batch.numpy(), [[1, 2], [3, 4]])
    scalars = default_collate([treadle.tensor(1), treadle.tensor(2)])
    assert scalars.dtype == treadle.int64
    np.testing.assert_array_equal(scalars.numpy(), [1, 2])


def test_stacking_keeps_gradients():
    a, b = treadle.ones(2, requires_grad=True), treadle.ones(2)
    default_collate([a, b]).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), [1, 1])


@pytest.mark.parametrize(
    ("samples", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.5, 2], "float64"),
        ([True, False], "bool"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.int16(1), np.int16(2)], "int16"),
        ([np.ones(2, np.uint8), np.ones(2, np.uint8)], "uint8"),
        ([np.ones(2), np.ones(2)], "float64"),
    ],
)
def test_numbers_and_arrays(samples, dtype):
    batch = default_collate(samples)
    assert batch.dtype == getattr(treadle, dtype)
    np.testing.assert_array_equal(batch.numpy(), np.array(samples))


def test_structures():
    batch = default_collate([{"a": 1, "b": (2.0, "x")}, {"a": 3, "b": (4.0, "y")}])
    np.testing.assert_array_equal(batch["a"].numpy(), [1, 3])
    assert isinstance(batch["b"], list)
    assert list(batch["b"][1]) == ["x", "y"]
    pair = default_collate([Pair(1, [2, 3]), Pair(4, [5, 6])])
    assert isinstance(pair, Pair)
    np.testing.assert_array_equal(pair.y[1].numpy(), [3, 6])
    assert isinstance(default_collate([OrderedDict(a=1)]), OrderedDict)
    assert isinstance(default_collate([defaultdict(list, a=1)]), defaultdict)
    assert default_collate(["a", "b"]) == ["a", "b"]


def test_what_cannot_be_collated():
    with pytest.raises(TypeError, match="found"):
        default_collate([object()])
    with pytest.raises(TypeError, match="found"):
        default_collate([None])
    with pytest.raises(TypeError, match="dtype"):
        default_collate([np.array(["a"])])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([np.ones(2), np.ones(3)])
    with pytest.raises(RuntimeError):
        default_collate([treadle.ones(2), treadle.ones(3)]).numpy()


def test_samples_are_left_alone():
    sample = {"a": [1, 2]}
    default_collate([sample, sample])
    default_convert(sample)
    assert sample == {"a": [1, 2]}


def test_convert():
    converted = default_convert({"a": np.ones(2, np.float32), "b": [1, "x", np.int64(3)], "c": Pair(np.zeros(1), 2)})
    assert converted["a"].dtype == treadle.float32
    assert converted["b"][:2] == [1, "x"]
    assert int(converted["b"][2]) == 3
    assert isinstance(converted["c"], Pair)
    assert converted["c"].x.shape == (1,)
    assert default_convert("x") == "x"
    assert default_convert(1.5) == 1.5
    text = np.array(["x"])
    assert default_convert(text) is text
