"""Resampling: interpolation, grids, shuffles."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

X = rand(1, 2, 5, 7)
T = treadle.tensor


def linear_axis(x, out, align):
    """Linear resampling of the last axis."""
    size = x.shape[-1]
    i = np.arange(out)
    at = i * ((size - 1) / max(out - 1, 1)) if align else np.maximum((i + 0.5) * size / out - 0.5, 0)
    low = at.astype(int)
    high = np.minimum(low + 1, size - 1)
    return x[..., low] * (1 - (at - low)) + x[..., high] * (at - low)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (8, 3), (10, 14), (1, 1)])
def test_bilinear(size, align):
    rows = linear_axis(X, size[1], align)
    wanted = np.swapaxes(linear_axis(np.swapaxes(rows, 2, 3), size[0], align), 2, 3)
    np.testing.assert_allclose(F.interpolate(T(X), size, mode="bilinear", align_corners=align).numpy(), wanted)


@pytest.mark.parametrize("size", [(10, 14), (3, 4), (8, 21)])
def test_nearest(size):
    rows, cols = (np.arange(o) * s // o for o, s in zip(size, (5, 7)))
    np.testing.assert_array_equal(F.interpolate(T(X), size).numpy(), X[:, :, rows][..., cols])
    rows, cols = ((np.arange(o) * 2 + 1) * s // (2 * o) for o, s in zip(size, (5, 7)))
    np.testing.assert_array_equal(F.interpolate(T(X), size, mode="nearest-exact").numpy(), X[:, :, rows][..., cols])


def test_bicubic_reproduces_lines_and_area_means():
    ramp = T(np.arange(8.0).reshape(1, 1, 1, 8).repeat(8, 2))
    up = F.interpolate(ramp, (8, 15), mode="bicubic", align_corners=True).numpy()
    np.testing.assert_allclose(up[0, 0, 4, 4:-4], np.arange(15)[4:-4] / 2, atol=1e-12)
    area = F.interpolate(T(X[..., :4, :6]), (2, 3), mode="area").numpy()
    np.testing.assert_allclose(area, X[..., :4, :6].reshape(1, 2, 2, 2, 3, 2).mean((3, 5)))


def test_antialias_keeps_constants():
    for mode in ("bilinear", "bicubic"):
        small = F.interpolate(treadle.ones(1, 1, 9, 9), (4, 3), mode=mode, antialias=True).numpy()
        np.testing.assert_allclose(small, np.ones((1, 1, 4, 3)), rtol=1e-6)


def test_scale_factor_is_used_as_given():
    x = T(X)
    direct = F.interpolate(x, scale_factor=1.5, mode="bilinear")
    again = F.interpolate(x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True)
    assert tuple(direct.shape) == tuple(again.shape) == (1, 2, 7, 10)
    assert np.abs(direct.numpy() - again.numpy()).max() > 1e-3
    np.testing.assert_allclose(again.numpy(), F.interpolate(x, (7, 10), mode="bilinear").numpy())


def test_gradients():
    x = X[:, :1, :3, :4]
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        check_gradient(lambda a, mode=mode: F.interpolate(a, (4, 6), mode=mode), x)
    grid = np.random.default_rng(3).uniform(-0.9, 0.9, (1, 2, 3, 2))
    for mode in ("bilinear", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            check_gradient(lambda a, g, m=mode, p=padding: F.grid_sample(a, g, m, p, False), x, grid, rtol=1e-4)


@pytest.mark.parametrize(
    "kwargs, error",
    [
        ({}, ValueError),
        ({"size": 2, "scale_factor": 2}, ValueError),
        ({"size": (2, 2, 2)}, ValueError),
        ({"size": 2, "mode": "linear"}, NotImplementedError),
        ({"size": 2, "mode": "x"}, NotImplementedError),
        ({"size": 2, "align_corners": True}, ValueError),
        ({"size": 0}, RuntimeError),
        ({"size": 2, "antialias": True}, ValueError),
    ],
)
def test_interpolate_errors(kwargs, error):
    with pytest.raises(error):
        F.interpolate(T(X), **kwargs)


def test_identity_grid():
    theta = T([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]).to(treadle.float64)
    for align in (False, True):
        grid = F.affine_grid(theta, (1, 2, 5, 7), align_corners=align)
        np.testing.assert_allclose(F.grid_sample(T(X), grid, align_corners=align).numpy(), X, atol=1e-12)
        near = F.grid_sample(T(X), grid, mode="nearest", align_corners=align).numpy()
        np.testing.assert_array_equal(near, X)


def test_grid_outside():
    grid = T(np.array([[[[5.0, 0.0], [float("nan"), 0.0]]]]))
    zero = F.grid_sample(T(X), grid, align_corners=True).numpy()
    assert not np.any(zero[..., 0])
    edge = F.grid_sample(T(X), grid, padding_mode="border", align_corners=True).numpy()
    np.testing.assert_allclose(edge[0, :, 0, 0], X[0, :, 2, 6])
    with pytest.raises(ValueError):
        F.grid_sample(T(X), grid, mode="cubic")
    with pytest.raises(RuntimeError):
        F.grid_sample(T(X), grid[..., :1])


def test_shuffles():
    x = np.arange(16.0).reshape(1, 4, 2, 2)
    y = F.pixel_shuffle(T(x), 2)
    assert y.numpy()[0, 0].tolist() == [[0, 4, 1, 5], [8, 12, 9, 13], [2, 6, 3, 7], [10, 14, 11, 15]]
    np.testing.assert_array_equal(F.pixel_unshuffle(y, 2).numpy(), x)
    assert nn.ChannelShuffle(2)(T(x)).numpy()[0, :, 0, 0].tolist() == [0, 8, 4, 12]
    for bad in (
        lambda: F.pixel_shuffle(treadle.ones(1, 3, 2, 2), 2),
        lambda: F.pixel_unshuffle(T(X), 2),
        lambda: F.channel_shuffle(T(X), 3),
    ):
        with pytest.raises(RuntimeError):
            bad()
