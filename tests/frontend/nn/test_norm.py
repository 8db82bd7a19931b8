"""Normalisation layers by their formulas."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F


def standardise(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_batch_norm_statistics():
    x = rand(4, 2, 3)
    m = nn.BatchNorm1d(2, momentum=0.25).double()
    y = m(treadle.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), standardise(x, (0, 2)))
    np.testing.assert_allclose(m.running_mean.numpy(), 0.25 * x.mean((0, 2)))
    np.testing.assert_allclose(m.running_var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1))
    assert int(m.num_batches_tracked) == 1
    m.eval()
    wanted = (x - m.running_mean.numpy()[:, None]) / np.sqrt(m.running_var.numpy()[:, None] + 1e-5)
    np.testing.assert_allclose(m(treadle.tensor(x)).detach().numpy(), wanted)


def test_batch_norm_cumulative_average_and_no_statistics():
    x = rand(4, 2, 3)
    m = nn.BatchNorm1d(2, momentum=None).double()
    m(treadle.tensor(x))
    m(treadle.tensor(3 * x))
    np.testing.assert_allclose(m.running_var.numpy(), 5 * x.var((0, 2), ddof=1))
    np.testing.assert_allclose(m.running_mean.numpy(), 2 * x.mean((0, 2)))
    m.reset_running_stats()
    assert int(m.num_batches_tracked) == 0 and m.running_var.tolist() == [1.0, 1.0]
    plain = nn.BatchNorm1d(2, track_running_stats=False, affine=False).eval()
    np.testing.assert_allclose(plain(treadle.tensor(x)).numpy(), standardise(x, (0, 2)))
    assert list(plain.state_dict()) == []


def test_batch_norm_checks():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(treadle.ones(1, 3))
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(3)(treadle.ones(2, 3))
    with pytest.raises(RuntimeError):
        nn.BatchNorm1d(3)(treadle.ones(4, 2))
    with pytest.raises(RuntimeError):
        F.batch_norm(treadle.ones(4, 2), None, None)


def test_gradients():
    w, b = rand(4, seed=1), rand(4, seed=2)
    check_gradient(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), rand(3, 4, 2), w, b)
    check_gradient(lambda x, w, b: F.group_norm(x, 2, w, b), rand(2, 4, 3), w, b)
    check_gradient(lambda x, w, b: F.instance_norm(x, None, None, w, b), rand(2, 4, 3), w, b, rtol=1e-4)
    check_gradient(lambda x, w, b: F.layer_norm(x, (4,), w, b), rand(3, 4), w, b)
    check_gradient(lambda x, w: F.rms_norm(x, (4,), w), rand(3, 4), w)
    check_gradient(lambda x: F.local_response_norm(x, 3, alpha=0.5), rand(1, 4, 3))


def test_layer_group_instance_rms():
    x = rand(3, 4, 5, 2)
    t = treadle.tensor(x)
    np.testing.assert_allclose(F.layer_norm(t, (5, 2)).numpy(), standardise(x, (2, 3)))
    grouped = standardise(x.reshape(3, 2, -1), 2).reshape(x.shape)
    np.testing.assert_allclose(F.group_norm(t, 2).numpy(), grouped)
    np.testing.assert_allclose(F.instance_norm(t).numpy(), standardise(x, (2, 3)))
    rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(F.rms_norm(t, (2,), eps=1e-3).numpy(), rms)
    affine = nn.GroupNorm(2, 4).double()
    with treadle.no_grad():
        affine.weight.fill_(2)
        affine.bias.fill_(1)
    np.testing.assert_allclose(affine(t).detach().numpy(), 2 * grouped + 1)
    unbatched = nn.InstanceNorm2d(4)(treadle.tensor(x[0])).numpy()
    np.testing.assert_allclose(unbatched, standardise(x, (2, 3))[0])


def test_instance_norm_running_statistics():
    x = rand(3, 2, 5)
    m = nn.InstanceNorm1d(2, track_running_stats=True).double()
    m(treadle.tensor(x))
    np.testing.assert_allclose(m.running_mean.numpy(), 0.1 * x.mean((0, 2)))
    np.testing.assert_allclose(m.running_var.numpy(), 0.9 + 0.1 * x.var(2, ddof=1).mean(0))


def test_local_response_norm():
    x = rand(2, 5, 3)
    wanted = np.empty_like(x)
    for c in range(5):
        near = (x[:, max(0, c - 1) : c + 2] ** 2).sum(1) / 3
        wanted[:, c] = x[:, c] / (2 + 0.1 * near) ** 0.75
    np.testing.assert_allclose(nn.LocalResponseNorm(3, alpha=0.1, k=2)(treadle.tensor(x)).numpy(), wanted)


def test_half_precision_takes_statistics_in_float32():
    x = treadle.full((4, 2, 300), 60.0, dtype=treadle.float16)
    y = F.batch_norm(x, None, None, training=True)
    assert y.dtype == treadle.float16 and not np.any(y.numpy())
    z = F.group_norm(x, 1)
    assert z.dtype == treadle.float16 and np.isfinite(z.numpy()).all()


def test_shape_errors():
    for call in (
        lambda: F.layer_norm(treadle.ones(2, 3), (4,)),
        lambda: F.layer_norm(treadle.ones(2, 3), ()),
        lambda: F.layer_norm(treadle.ones(2, 3), (3,), treadle.ones(2)),
        lambda: F.group_norm(treadle.ones(2, 3), 2),
        lambda: F.rms_norm(treadle.ones(2, 3), (2,)),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (
        lambda: nn.GroupNorm(2, 3),
        lambda: F.instance_norm(treadle.ones(2, 3, 1)),
        lambda: F.local_response_norm(treadle.ones(2, 3), 2),
    ):
        with pytest.raises(ValueError):
            call()


def test_sync_batch_norm_conversion_keeps_tensors():
    m = nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())
    weight = m[0].weight
    m = nn.SyncBatchNorm.convert_sync_batchnorm(m)
    assert isinstance(m[0], nn.SyncBatchNorm) and m[0].weight is weight
