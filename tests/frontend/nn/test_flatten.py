"""Flatten and Unflatten."""

import pytest

import treadle
from treadle import nn


def test_flatten_and_back():
    x = treadle.arange(24).reshape(2, 3, 4)
    assert tuple(nn.Flatten()(x).shape) == (2, 12) and tuple(nn.Flatten(0, 1)(x).shape) == (6, 4)
    assert tuple(nn.Unflatten(2, (2, -1))(x).shape) == (2, 3, 2, 2)
    with pytest.raises(TypeError):
        nn.Unflatten(1, 2)
    with pytest.raises(TypeError):
        nn.Unflatten(1, (2, "a"))
