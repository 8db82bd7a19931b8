"""Clipping, vectors of parameters, other small things."""

import numpy as np
import pytest

import treadle
from treadle import nn
from treadle.nn import utils


def parameters():
    a, b = nn.Parameter(treadle.zeros(2)), nn.Parameter(treadle.zeros(1))
    a.grad, b.grad = treadle.tensor([3.0, -8.0]), treadle.tensor([4.0])
    return a, b


def test_clip_grad_norm():
    a, b = parameters()
    total = utils.clip_grad_norm_([a, b, nn.Parameter(treadle.zeros(3))], 2.0, norm_type=float("inf"))
    assert float(total) == 8.0
    np.testing.assert_allclose(a.grad.numpy(), [0.75, -2.0], rtol=1e-5)
    a, b = parameters()
    total = utils.clip_grad_norm_(iter([a, b]), 100.0)
    np.testing.assert_allclose(float(total), np.sqrt(89), rtol=1e-6)
    assert a.grad.tolist() == [3.0, -8.0]
    a, b = parameters()
    utils.clip_grad_norm_([a, b], 1.0)
    left = np.linalg.norm(np.concatenate([a.grad.numpy(), b.grad.numpy()]))
    np.testing.assert_allclose(left, 1.0, rtol=1e-5)
    with pytest.warns(UserWarning):
        assert float(utils.clip_grad_norm_([], 1.0)) == 0


def test_nonfinite_norms():
    a, b = parameters()
    a.grad = treadle.tensor([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_([a, b], 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    a, b = parameters()
    utils.clip_grad_value_(a, 3.5)
    assert a.grad.tolist() == [3.0, -3.5] and b.grad.tolist() == [4.0]


def test_get_total_norm_of_one_order():
    a, b = parameters()
    assert float(utils.get_total_norm([a.grad, b.grad], 1.0)) == 15.0


def test_vectors():
    m = nn.Linear(2, 3)
    v = utils.parameters_to_vector(m.parameters())
    assert tuple(v.shape) == (9,)
    utils.vector_to_parameters(treadle.arange(9, dtype=treadle.float32), m.parameters())
    assert m.bias.tolist() == [6.0, 7.0, 8.0] and m.bias.requires_grad
    with pytest.raises(TypeError):
        utils.vector_to_parameters([1.0], m.parameters())


def test_skip_init():
    assert isinstance(utils.skip_init(nn.Linear, 2, 3), nn.Linear)
    with pytest.raises(RuntimeError):
        utils.skip_init(int)
