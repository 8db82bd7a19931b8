"""Convolutions and sliding windows, against loops."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F


def conv(x, w, b=None, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1):
    """2-d cross-correlation by the definition."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    n, _, h, width = x.shape
    out, per_group, kh, kw = w.shape
    oh = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, out, oh, ow))
    for o in range(out):
        first = o // (out // groups) * per_group
        for i in range(oh):
            for j in range(ow):
                rows = slice(i * stride[0], i * stride[0] + dilation[0] * (kh - 1) + 1, dilation[0])
                cols = slice(j * stride[1], j * stride[1] + dilation[1] * (kw - 1) + 1, dilation[1])
                y[:, o, i, j] = (x[:, first : first + per_group, rows, cols] * w[o]).sum((1, 2, 3))
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def test_conv2d_options():
    x, w, b = rand(2, 4, 7, 8), rand(6, 2, 2, 3, seed=1), rand(6, seed=2)
    got = F.conv2d(*map(treadle.tensor, (x, w, b)), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2).numpy()
    wanted = conv(x, w, b, (2, 1), ((1, 1), (2, 2)), (1, 2), 2)
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    single = F.conv2d(treadle.tensor(x[0]), treadle.tensor(w), stride=(2, 1), groups=2).numpy()
    np.testing.assert_allclose(single, conv(x[:1], w, None, (2, 1), groups=2)[0], atol=1e-12)


def test_same_padding_puts_the_odd_one_after():
    x, w = rand(1, 2, 6, 7), rand(4, 1, 2, 3, seed=1)
    got = F.conv2d(treadle.tensor(x), treadle.tensor(w), padding="same", dilation=(2, 3), groups=2).numpy()
    np.testing.assert_allclose(got, conv(x, w, None, padding=((1, 1), (3, 3)), dilation=(2, 3), groups=2), atol=1e-12)
    line, k = rand(1, 1, 5), rand(1, 1, 4, seed=3)
    got = F.conv1d(treadle.tensor(line), treadle.tensor(k), padding="same").numpy()
    np.testing.assert_allclose(got[0, 0], np.correlate(np.pad(line[0, 0], (1, 2)), k[0, 0]), atol=1e-12)
    with pytest.raises(RuntimeError):
        F.conv2d(treadle.tensor(x), treadle.tensor(w), padding="same", stride=2, groups=2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_transposed_is_the_adjoint(n):
    sizes, kernel = (5, 6, 4)[:n], (3, 2, 2)[:n]
    x, w = rand(1, 4, *sizes), rand(4, 2, *kernel, seed=1)
    forward = getattr(F, f"conv{n}d")
    back = getattr(F, f"conv_transpose{n}d")
    options = {"stride": 2, "padding": 1, "groups": 2}
    y = back(treadle.tensor(x), treadle.tensor(w), output_padding=1, **options)
    z = rand(*y.shape, seed=2)
    down = forward(treadle.tensor(z), treadle.tensor(w), **options)
    assert tuple(down.shape) == x.shape
    np.testing.assert_allclose((y.numpy() * z).sum(), (down.numpy() * x).sum(), rtol=1e-10)


def test_gradients():
    check_gradient(lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), rand(1, 2, 4, 5), rand(3, 2, 3, 2), rand(3))
    check_gradient(lambda x, w: F.conv_transpose1d(x, w, stride=2), rand(1, 2, 4), rand(2, 3, 3))


def test_layer_output_size_and_padding_modes():
    up = nn.ConvTranspose2d(2, 3, 3, stride=2)
    assert tuple(up(treadle.ones(1, 2, 4, 5), output_size=(10, 12)).shape) == (1, 3, 10, 12)
    with pytest.raises(ValueError):
        up(treadle.ones(1, 2, 4, 5), output_size=(20, 12))
    layer = nn.Conv1d(1, 1, 3, padding=2, padding_mode="circular", bias=False)
    x = rand(1, 1, 5).astype(np.float32)
    wanted = np.correlate(np.pad(x[0, 0], 2, mode="wrap"), layer.weight.detach().numpy()[0, 0])
    np.testing.assert_allclose(layer(treadle.tensor(x)).detach().numpy()[0, 0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.conv2d(treadle.ones(1, 3, 5, 5), treadle.ones(2, 2, 3, 3)),
        lambda: F.conv2d(treadle.ones(1, 2, 2, 2), treadle.ones(2, 2, 3, 3)),
        lambda: F.conv2d(treadle.ones(1, 2, 5, 5), treadle.ones(2, 2, 3, 3), stride=0),
        lambda: F.conv2d(treadle.ones(5, 5), treadle.ones(2, 2, 3, 3)),
        lambda: F.conv2d(treadle.ones(1, 2, 5, 5), treadle.ones(2, 2, 3, 3), padding="full"),
        lambda: F.conv2d(treadle.ones(1, 2, 5, 5), treadle.ones(2, 2, 3, 3), bias=treadle.ones(3)),
        lambda: F.conv_transpose2d(treadle.ones(1, 2, 5, 5), treadle.ones(2, 2, 3, 3), output_padding=1),
    ],
)
def test_errors(call):
    with pytest.raises(RuntimeError):
        call()


def test_layer_errors():
    for make in (
        lambda: nn.Conv2d(3, 4, 1, groups=2),
        lambda: nn.Conv2d(4, 3, 1, groups=2),
        lambda: nn.Conv2d(1, 1, 1, padding="x"),
        lambda: nn.Conv2d(1, 1, 1, padding_mode="x"),
        lambda: nn.Conv2d(1, 1, 1, 2, padding="same"),
        lambda: nn.Conv2d(1, 1, 1, groups=0),
    ):
        with pytest.raises(ValueError):
            make()


def test_unfold_and_fold():
    x = rand(2, 3, 5, 6)
    columns = F.unfold(treadle.tensor(x), (2, 3), padding=1, stride=(2, 1)).numpy()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.stack([padded[:, :, i : i + 2, j : j + 3].reshape(2, -1) for i in range(0, 6, 2) for j in range(6)], 2)
    np.testing.assert_array_equal(columns, wanted)
    z = rand(*columns.shape, seed=1)
    image = F.fold(treadle.tensor(z), (5, 6), (2, 3), padding=1, stride=(2, 1)).numpy()
    np.testing.assert_allclose((image * x).sum(), (z * columns).sum(), rtol=1e-10)
    check_gradient(lambda a: F.unfold(a, 2), rand(1, 1, 3, 3))
    with pytest.raises(RuntimeError):
        F.unfold(treadle.ones(1, 1, 2, 2), 3)
    with pytest.raises(RuntimeError):
        F.fold(treadle.ones(1, 5, 4), (3, 3), 2)
