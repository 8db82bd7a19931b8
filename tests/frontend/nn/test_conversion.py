"""Module.to and its relatives."""

import pytest

import treadle
from treadle import nn


def model():
    m = nn.BatchNorm1d(2)
    m(treadle.tensor([[1.0, 2.0], [3.0, 5.0]])).sum().backward()
    return m


@pytest.mark.parametrize("name, dtype", [("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16")])
def test_casts_change_floats_only_and_keep_objects(name, dtype):
    m = model()
    weight = m.weight
    assert getattr(m, name)() is m
    wanted = getattr(treadle, dtype)
    assert m.weight is weight and weight.dtype == wanted and weight.grad.dtype == wanted
    assert m.running_mean.dtype == wanted and m.num_batches_tracked.dtype == treadle.int64
    assert isinstance(weight, nn.Parameter) and weight.requires_grad


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((treadle.float64,), {}),
        (("cpu", treadle.float64), {}),
        ((), {"dtype": treadle.float64}),
        ((treadle.zeros(1, dtype=treadle.float64),), {}),
        ((treadle.device("cpu"), treadle.float64, True), {}),
    ],
)
def test_to_overloads(args, kwargs):
    assert model().to(*args, **kwargs).weight.dtype == treadle.float64


def test_to_refuses_integer_types_and_nothing():
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        model().to(treadle.int32)
    with pytest.raises(TypeError):
        model().to()


def test_moves_and_the_rest():
    m = model()
    assert m.cpu() is m and m.to("cpu") is m and m.share_memory() is m
    assert m.type(treadle.float64).bias.dtype == treadle.float64
    assert tuple(m.to_empty(device="cpu").weight.shape) == (2,)
