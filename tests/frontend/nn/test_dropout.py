"""Dropout: what is dropped, and that the rest is scaled."""

import numpy as np
import pytest

import treadle
from treadle import nn
from treadle.nn import functional as F


def test_elements_are_zero_or_scaled():
    y = F.dropout(treadle.ones(100, 100), 0.25).numpy()
    assert set(np.unique(y.round(4))) == {0.0, np.float32(1.3333)}
    assert abs((y == 0).mean() - 0.25) < 0.03


@pytest.mark.parametrize("n, layer", [(1, nn.Dropout1d), (2, nn.Dropout2d), (3, nn.Dropout3d)])
def test_channels_go_together(n, layer):
    y = layer(0.5)(treadle.ones(40, 30, *(3,) * n)).numpy().reshape(40, 30, -1)
    assert (y == y[..., :1]).all()
    assert abs((y == 0).mean() - 0.5) < 0.1
    single = layer(0.5)(treadle.ones(500, *(3,) * n)).numpy()
    if n != 2:  # of three dims, dropout2d takes the second for the channels, as torch does
        assert (single.reshape(500, -1) == single.reshape(500, -1)[:, :1]).all()


def test_evaluation_and_extremes():
    x = treadle.ones(4, 4)
    for layer in (nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.5)):
        np.testing.assert_array_equal(layer.eval()(x).numpy(), np.ones((4, 4)))
    assert not np.any(F.dropout(x, 1.0).numpy()) and np.all(F.dropout(x, 0.0).numpy() == 1)
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError):
            F.dropout(x, p)
        with pytest.raises(ValueError):
            nn.Dropout(p)
    with pytest.raises(RuntimeError):
        F.dropout1d(treadle.ones(2, 2, 2, 2))


def test_alpha_dropout_keeps_mean_and_variance():
    y = F.alpha_dropout(treadle.randn(400, 400), 0.3, training=True).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02


def test_inplace():
    x = treadle.ones(50)
    y = F.dropout(x, 0.5, inplace=True)
    assert y is x and set(np.unique(x.numpy())) == {0.0, 2.0}
