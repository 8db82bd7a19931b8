"""Initial values: their statistics and exact structure."""

import math

import numpy as np
import pytest

import treadle
from treadle import nn
from treadle.nn import init


def big(*shape):
    return treadle.empty(shape or (300, 200))


def test_uniform_normal_and_truncated():
    u = init.uniform_(big(), -2, 3).numpy()
    assert u.min() >= -2 and u.max() <= 3 and abs(u.mean() - 0.5) < 0.05
    n = init.normal_(big(), 1.0, 2.0).numpy()
    assert abs(n.mean() - 1) < 0.05 and abs(n.std() - 2) < 0.05
    t = init.trunc_normal_(big(), 0.0, 1.0, -0.5, 1.0).numpy()
    assert t.min() >= -0.5 and t.max() <= 1.0 and 0.1 < t.mean() < 0.3


@pytest.mark.parametrize(
    "fill, std",
    [
        (lambda t: init.xavier_uniform_(t, 2.0), 2 * math.sqrt(2 / 500)),
        (lambda t: init.xavier_normal_(t), math.sqrt(2 / 500)),
        (lambda t: init.kaiming_uniform_(t), math.sqrt(2 / 200)),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 300)),
        (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), math.sqrt(1 / 600)),
    ],
)
def test_fans(fill, std):
    assert abs(fill(big()).numpy().std() / std - 1) < 0.03


def test_exact_ones():
    assert init.constant_(big(2), 3).tolist() == [3, 3]
    assert init.ones_(big(2)).tolist() == [1, 1] and init.zeros_(big(2)).tolist() == [0, 0]
    np.testing.assert_array_equal(init.eye_(big(2, 3)).numpy(), np.eye(2, 3))
    conv = nn.Conv1d(4, 4, 3, padding=1, groups=2, bias=False)
    init.dirac_(conv.weight, groups=2)
    x = treadle.randn(1, 4, 5)
    np.testing.assert_allclose(conv(x).detach().numpy(), x.numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (4, 2, 3)])
def test_orthogonal(shape):
    m = init.orthogonal_(big(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_sparse():
    m = init.sparse_(big(10, 5), 0.3).numpy()
    assert ((m == 0).sum(0) == 3).all()


def test_parameters_stay_leaves():
    p = nn.Parameter(treadle.zeros(3, 3))
    assert init.normal_(p) is p and p.is_leaf and p.requires_grad and np.any(p.detach().numpy())


def test_gains_and_errors():
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0 and init.calculate_gain("conv2d") == 1
    for call in (
        lambda: init.calculate_gain("x"),
        lambda: init.xavier_normal_(big(3)),
        lambda: init.eye_(big(3)),
        lambda: init.kaiming_normal_(big(3, 3), mode="x"),
        lambda: init.dirac_(big(3, 3)),
        lambda: init.orthogonal_(big(3)),
        lambda: init.calculate_gain("leaky_relu", "a"),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.warns(FutureWarning):
        init.uniform(big(3))
