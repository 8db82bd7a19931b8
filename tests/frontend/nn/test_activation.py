"""Activations: values from their formulas, and gradients at and around their edges."""

import math

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient
from treadle import nn
from treadle.nn import functional as F

X = np.array([-50.0, -4.0, -3.0, -1.0, -0.4, -1e-3, 0.0, 1e-3, 0.4, 1.0, 2.9, 3.0, 6.0, 7.0, 50.0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FORMULAS = {
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "relu6": (F.relu6, lambda x: np.clip(x, 0, 6)),
    "hardtanh": (F.hardtanh, lambda x: np.clip(x, -1, 1)),
    "leaky_relu": (F.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "elu": (lambda x: F.elu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0)))),
    "celu": (lambda x: F.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2))),
    "silu": (F.silu, lambda x: x * sigmoid(x)),
    "mish": (F.mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "softplus": (F.softplus, lambda x: np.logaddexp(0, x)),
    "softplus_beta": (lambda x: F.softplus(x, 2.0), lambda x: np.logaddexp(0, 2 * x) / 2),
    "hardswish": (F.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardsigmoid": (F.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "logsigmoid": (F.logsigmoid, lambda x: -np.logaddexp(0, -x)),
    "softsign": (F.softsign, lambda x: x / (1 + np.abs(x))),
    "tanhshrink": (F.tanhshrink, lambda x: x - np.tanh(x)),
    "softshrink": (F.softshrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hardshrink": (F.hardshrink, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "threshold": (lambda x: F.threshold(x, 0.5, 20.0), lambda x: np.where(x > 0.5, x, 20)),
    "gelu": (F.gelu, lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients(name):
    function, formula = FORMULAS[name]
    np.testing.assert_allclose(function(treadle.tensor(X)).numpy(), formula(X), rtol=1e-8, atol=1e-8)
    smooth = np.array([-30.0, -2.2, -0.7, 0.3, 0.8, 2.2, 30.0])
    check_gradient(function, smooth)


@pytest.mark.parametrize(
    "function, at, slope",
    [
        (F.relu, 0.0, 0.0),
        (F.relu6, 6.0, 0.0),
        (F.leaky_relu, 0.0, 0.01),
        (F.elu, 0.0, 1.0),
        (F.logsigmoid, 0.0, 0.5),
        (F.hardswish, 3.0, 1.0),
        (F.hardswish, -3.0, 0.0),
        (F.hardsigmoid, 3.0, 0.0),
        (F.softplus, 100.0, 1.0),
        (F.elu, 1000.0, 1.0),
        (F.selu, 1000.0, 1.0507009873554805),
        (F.softplus, 1000.0, 1.0),
        (F.mish, 1000.0, 1.0),
        (F.logsigmoid, -1000.0, 1.0),
        (F.softshrink, 0.5, 0.0),
        (F.hardtanh, 1.0, 0.0),
    ],
)
def test_slopes_at_edges(function, at, slope):
    x = treadle.tensor([at], dtype=treadle.float64, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [slope], atol=1e-12)


def test_nan_passes():
    x = treadle.tensor([float("nan")])
    for f in (
        F.relu,
        F.relu6,
        F.leaky_relu,
        F.elu,
        F.selu,
        F.celu,
        F.silu,
        F.softplus,
        F.hardswish,
        F.logsigmoid,
        F.softshrink,
        F.hardshrink,
    ):
        assert np.isnan(f(x).numpy()).all(), f


def test_inplace():
    for f in (F.relu, F.elu, F.leaky_relu, F.hardtanh, F.silu, F.hardswish):
        x = treadle.tensor([-1.0, 2.0])
        wanted = f(treadle.tensor([-1.0, 2.0])).numpy()
        assert f(x, inplace=True) is x
        np.testing.assert_array_equal(x.numpy(), wanted)
    x = treadle.tensor([-1.0, 2.0])
    assert F.relu_(x) is x and x.tolist() == [0.0, 2.0]


def test_prelu_and_glu():
    x = np.array([[-1.0, 2.0], [3.0, -4.0]])
    w = np.array([0.5, 0.25])
    np.testing.assert_allclose(F.prelu(treadle.tensor(x), treadle.tensor(w)).numpy(), [[-0.5, 2], [3, -1]])
    check_gradient(F.prelu, x, w)
    with pytest.raises(RuntimeError):
        F.prelu(treadle.tensor(x), treadle.tensor([1.0, 2.0, 3.0], dtype=treadle.float64))
    np.testing.assert_allclose(F.glu(treadle.tensor(x)).numpy(), x[:, :1] * sigmoid(x[:, 1:]))
    with pytest.raises(RuntimeError, match="even"):
        F.glu(treadle.ones(3))


def test_softmax_family():
    x = np.array([[1000.0, 0.0], [1.0, 2.0]])
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    t = treadle.tensor(x)
    np.testing.assert_allclose(F.softmax(t, 1).numpy(), p)
    np.testing.assert_allclose(F.softmin(-t, 1).numpy(), p)
    np.testing.assert_allclose(F.log_softmax(t[1:], 1).exp().numpy(), p[1:])
    assert F.softmax(treadle.ones(2), 0, dtype=treadle.float64).dtype == treadle.float64
    with pytest.warns(UserWarning, match="Implicit dimension"):
        F.softmax(t)
    hard = F.gumbel_softmax(treadle.zeros(5, 4), hard=True).numpy()
    np.testing.assert_allclose(hard.sum(1), np.ones(5), rtol=1e-6)
    np.testing.assert_allclose(np.sort(hard, 1)[:, -1], np.ones(5), rtol=1e-6)


def test_bad_options():
    for call in (
        lambda: F.hardtanh(treadle.ones(1), 1, -1),
        lambda: F.softshrink(treadle.ones(1), -1.0),
        lambda: F.gelu(treadle.ones(1), approximate="x"),
        lambda: F.rrelu(treadle.ones(1), 2.0, 1.0),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            call()
    with pytest.raises(ZeroDivisionError):
        F.celu(treadle.ones(1), 0)
    assert repr(nn.LeakyReLU(0.2, True)) == "LeakyReLU(negative_slope=0.2, inplace=True)"
