"""Pooling against loops over windows."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

X = rand(2, 3, 7, 9)


def adaptive(x, out, reduce):
    h, w = x.shape[-2:]
    y = np.empty((*x.shape[:2], *out))
    for i in range(out[0]):
        for j in range(out[1]):
            window = x[..., i * h // out[0] : -(-(i + 1) * h // out[0]), j * w // out[1] : -(-(j + 1) * w // out[1])]
            y[..., i, j] = reduce(window, (-2, -1))
    return y


def test_max_and_average():
    t = treadle.tensor(X)
    wanted = np.stack([X[..., i : i + 3, j : j + 2].max((-2, -1)) for i in range(0, 5, 2) for j in range(0, 8, 3)], -1)
    got, at = F.max_pool2d(t, (3, 2), stride=(2, 3), return_indices=True)
    np.testing.assert_array_equal(got.numpy(), wanted.reshape(2, 3, 3, 3))
    flat = X.reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, at.numpy().reshape(2, 3, -1), 2), wanted)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    mean = F.avg_pool2d(t, 3, stride=1, padding=1).numpy()
    np.testing.assert_allclose(mean[0, 0, 0, 0], padded[0, 0, :3, :3].mean())
    own = F.avg_pool2d(t, 3, stride=1, padding=1, count_include_pad=False).numpy()
    np.testing.assert_allclose(own[0, 0, 0, 0], X[0, 0, :2, :2].mean())
    np.testing.assert_allclose(F.avg_pool2d(t, 2, divisor_override=1).numpy()[0, 0, 0, 0], X[0, 0, :2, :2].sum())
    assert tuple(F.max_pool1d(treadle.ones(3, 8), 2).shape) == (3, 4)


def test_ceil_mode_windows_start_inside():
    x = treadle.tensor(X[:1, :1, :6, :7])
    assert tuple(F.max_pool2d(x, 1, stride=2, ceil_mode=True).shape) == (1, 1, 3, 4)
    assert np.isfinite(F.avg_pool2d(x, (1, 2), stride=(1, 2), padding=(0, 1), ceil_mode=True).numpy()).all()
    assert tuple(F.max_pool1d(treadle.ones(1, 1, 1), 1, ceil_mode=True).shape) == (1, 1, 1)


@pytest.mark.parametrize("out", [(1, 1), (7, 3), (3, 4), (5, 9), (10, 11)])
def test_adaptive(out):
    t = treadle.tensor(X)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(t, out).numpy(), adaptive(X, out, np.mean))
    got, at = F.adaptive_max_pool2d(t, out, return_indices=True)
    np.testing.assert_array_equal(got.numpy(), adaptive(X, out, np.max))
    picked = np.take_along_axis(X.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(picked.reshape(got.shape), got.numpy())


def test_adaptive_none_keeps_an_axis():
    assert tuple(nn.AdaptiveAvgPool2d((None, 2))(treadle.tensor(X)).shape) == (2, 3, 7, 2)


def test_adaptive_max_takes_the_first_of_equals():
    _, at = F.adaptive_max_pool2d(treadle.ones(1, 1, 5, 5), (2, 2), return_indices=True)
    assert at.tolist() == [[[[0, 2], [10, 12]]]]


def test_unpool_inverts_pool():
    x = treadle.tensor(X[..., :6, :8])
    y, at = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(y, at, 2).numpy()
    assert back.shape == (2, 3, 6, 8) and (back != 0).sum() == y.numel()
    kept = back != 0
    np.testing.assert_array_equal(back[kept], x.numpy()[kept])
    with pytest.raises(ValueError):
        F.max_unpool2d(y, at, 2, output_size=(20, 20))
    with pytest.raises(RuntimeError):
        F.max_unpool2d(y, at.to(treadle.float32), 2)


def test_lp_pool():
    got = F.lp_pool1d(treadle.tensor(X[0]), 2, 3).numpy()
    wanted = np.sqrt((X[0][..., :9].reshape(3, 7, 3, 3) ** 2).sum(-1))
    np.testing.assert_allclose(got, wanted)


def test_fractional_windows():
    samples = treadle.tensor([[[0.3, 0.6]] * 3] * 2, dtype=treadle.float64)
    x = treadle.tensor(X)
    y, at = F.fractional_max_pool2d(x, 2, output_size=(3, 4), return_indices=True, _random_samples=samples)
    assert tuple(y.shape) == (2, 3, 3, 4)
    picked = np.take_along_axis(X.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(picked.reshape(y.shape), y.numpy())
    assert tuple(nn.FractionalMaxPool2d(2, output_ratio=0.5)(x).shape) == (2, 3, 3, 4)
    with pytest.raises(ValueError):
        nn.FractionalMaxPool2d(2)


def test_gradients():
    x = rand(1, 2, 5, 5)
    check_gradient(lambda a: F.max_pool2d(a, 3, 2, 1), x)
    check_gradient(lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), x)
    check_gradient(lambda a: F.adaptive_avg_pool2d(a, (3, 2)), x)
    check_gradient(lambda a: F.adaptive_max_pool2d(a, (3, 2)), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.max_pool2d(treadle.ones(1, 1, 4, 4), 2, padding=2),
        lambda: F.max_pool2d(treadle.ones(1, 1, 4, 4), 0),
        lambda: F.max_pool2d(treadle.ones(1, 1, 4, 4), 2, stride=0),
        lambda: F.max_pool2d(treadle.ones(1, 1, 1, 1), 3),
        lambda: F.max_pool2d(treadle.ones(4, 4), 2),
        lambda: F.avg_pool2d(treadle.ones(1, 1, 4, 4), (2, 2, 2)),
        lambda: F.avg_pool2d(treadle.ones(1, 1, 4, 4), 2, divisor_override=0),
        lambda: F.adaptive_avg_pool2d(treadle.ones(1, 1, 4, 4), (1, 2, 3)),
        lambda: F.adaptive_avg_pool2d(treadle.ones(1, 1, 4, 4), (-1, 2)),
    ],
)
def test_errors(call):
    with pytest.raises((RuntimeError, ValueError)):
        call()
