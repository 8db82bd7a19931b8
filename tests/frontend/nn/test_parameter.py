"""Parameters and buffers."""

import copy

import numpy as np
import pytest

import treadle
from treadle import nn


def test_a_parameter_is_a_leaf_that_wants_gradients():
    p = nn.Parameter(treadle.tensor([1.0, 2.0]))
    assert isinstance(p, treadle.Tensor) and p.requires_grad and p.is_leaf
    assert not nn.Parameter(treadle.ones(2), requires_grad=False).requires_grad
    assert not isinstance(p + 1, nn.Parameter)


def test_it_shares_storage_with_its_data():
    data = treadle.zeros(3)
    p = nn.Parameter(data)
    with treadle.no_grad():
        p.add_(1)
    np.testing.assert_array_equal(data.numpy(), [1, 1, 1])


def test_empty_and_wrong_data():
    assert nn.Parameter().numel() == 0
    with pytest.raises(TypeError):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError):
        nn.Parameter(treadle.tensor([1]))
    assert nn.Parameter(treadle.tensor([1]), requires_grad=False).dtype == treadle.int64


def test_repr_says_parameter():
    assert repr(nn.Parameter(treadle.ones(1))).startswith("Parameter containing:\n")


def test_deepcopy_is_memoised():
    p = nn.Parameter(treadle.ones(2), requires_grad=False)
    a, b = copy.deepcopy([p, p])
    assert a is b and a is not p and not a.requires_grad


def test_buffer_knows_whether_it_persists():
    b = nn.Buffer(treadle.ones(2), persistent=False)
    assert isinstance(b, nn.Buffer) and not b.persistent and not b.requires_grad
    assert not isinstance(treadle.ones(1), nn.Buffer)


def test_lazy_placeholders_say_no():
    with pytest.raises(NotImplementedError):
        nn.UninitializedParameter()
    with pytest.raises(NotImplementedError):
        nn.LazyLinear(3)
