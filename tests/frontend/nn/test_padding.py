"""Padding against numpy.pad."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

X = rand(2, 3, 4, 5)
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode):
    got = F.pad(treadle.tensor(X), (1, 2, 3, 0), mode=mode).numpy()
    np.testing.assert_array_equal(got, np.pad(X, ((0, 0), (0, 0), (3, 0), (1, 2)), mode=MODES[mode]))
    check_gradient(lambda a: F.pad(a, (1, 2, 2, 0), mode=mode), X[:1, :1])


def test_constant_and_negative():
    got = F.pad(treadle.tensor(X), (1, -2, 0, 3, -1, 0), value=7.0).numpy()
    wanted = np.pad(X[:, 1:, :, :-2], ((0, 0), (0, 0), (0, 3), (1, 0)), constant_values=7)
    np.testing.assert_array_equal(got, wanted)
    check_gradient(lambda a: F.pad(a, (1, -1, 2, 1)), X[:1, :1])
    assert F.pad(treadle.tensor([1, 2]), (1, 1)).tolist() == [0, 1, 2, 0]
    x = treadle.ones(2)
    F.pad(x, (0, -1)).add_(1)
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "pad, mode, error",
    [
        ((1,), "constant", RuntimeError),
        ((1,) * 10, "constant", RuntimeError),
        ((-3, -3), "constant", RuntimeError),
        ((5, 0), "reflect", RuntimeError),
        ((6, 0), "circular", RuntimeError),
        ((1, 1), "odd", NotImplementedError),
    ],
)
def test_errors(pad, mode, error):
    with pytest.raises(error):
        F.pad(treadle.tensor(X[0]), pad, mode)


def test_layers():
    t = treadle.tensor(X)
    assert tuple(nn.ZeroPad2d(1)(t).shape) == (2, 3, 6, 7)
    assert float(nn.ConstantPad2d((1, 0, 0, 0), 3.5)(t)[0, 0, 0, 0]) == 3.5
    assert repr(nn.ReflectionPad2d(2)) == "ReflectionPad2d((2, 2, 2, 2))"
    with pytest.raises(ValueError):
        nn.ReflectionPad1d(1)(t)
