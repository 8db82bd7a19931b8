"""Losses of classes."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

X = rand(5, 4)
T = np.array([1, -100, 3, 0, 1])
W = np.array([0.5, 1.0, 2.0, 0.25])


def log_softmax(x, axis=1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def reference(x, t, w=None, ignore=-100, smoothing=0.0):
    """(losses, weights) of rows, by the definition."""
    logp = log_softmax(x)
    w = np.ones(x.shape[1]) if w is None else w
    losses, weights = np.zeros(len(t)), np.zeros(len(t))
    for i, y in enumerate(t):
        if y != ignore:
            losses[i] = -(1 - smoothing) * w[y] * logp[i, y] - smoothing / x.shape[1] * (w * logp[i]).sum()
            weights[i] = w[y]
    return losses, weights


@pytest.mark.parametrize("weight", [None, W])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_indices(weight, smoothing):
    losses, weights = reference(X, T, weight, smoothing=smoothing)
    kw = {"weight": None if weight is None else treadle.tensor(weight), "label_smoothing": smoothing}
    x, t = treadle.tensor(X), treadle.tensor(T)
    np.testing.assert_allclose(F.cross_entropy(x, t, reduction="none", **kw).numpy(), losses)
    np.testing.assert_allclose(float(F.cross_entropy(x, t, reduction="sum", **kw)), losses.sum())
    np.testing.assert_allclose(float(F.cross_entropy(x, t, **kw)), losses.sum() / weights.sum())
    check_gradient(lambda a: F.cross_entropy(a, t, **kw), X)


def test_probabilities_and_images():
    p = np.exp(log_softmax(rand(5, 4, seed=1)))
    x, logp = treadle.tensor(X), log_softmax(X)
    got = F.cross_entropy(x, treadle.tensor(p), weight=treadle.tensor(W), label_smoothing=0.1)
    mixed = p * 0.9 + 0.1 / 4
    np.testing.assert_allclose(float(got), -(mixed * W * logp).sum() / 5)
    image = rand(2, 4, 3)
    t = np.array([[0, 1, 3], [2, 2, 0]])
    rows = image.transpose(0, 2, 1).reshape(6, 4)
    losses, _ = reference(rows, t.reshape(-1))
    got = F.cross_entropy(treadle.tensor(image), treadle.tensor(t), reduction="none").numpy()
    np.testing.assert_allclose(got.reshape(-1), losses)
    np.testing.assert_allclose(float(F.cross_entropy(x[0], treadle.tensor(2))), -logp[0, 2])


def test_nothing_counts():
    x = treadle.tensor(X[:2], requires_grad=True)
    t = treadle.tensor([-100, -100])
    assert np.isnan(float(F.cross_entropy(x, t)))
    total = F.cross_entropy(x, t, reduction="sum")
    total.backward()
    assert float(total) == 0 and not np.any(x.grad.numpy())
    assert float(F.cross_entropy(treadle.zeros(0, 3), treadle.zeros(0, dtype=treadle.int64), reduction="sum")) == 0


def test_extreme_logits():
    x = treadle.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = F.cross_entropy(x, treadle.tensor([1]))
    loss.backward()
    assert float(loss) == 2000.0
    np.testing.assert_allclose(x.grad.numpy(), [[1, -1]])


def test_linear_cross_entropy_is_the_composition():
    h, w = treadle.tensor(rand(5, 3)), treadle.tensor(rand(4, 3, seed=4))
    t = treadle.tensor(T)
    np.testing.assert_allclose(float(F.linear_cross_entropy(h, w, t)), float(F.cross_entropy(F.linear(h, w), t)))


@pytest.mark.parametrize(
    "x, t, error",
    [
        ((5, 4), np.zeros(3, np.int64), ValueError),
        ((5, 4), np.zeros(5, np.float32), RuntimeError),
        ((5, 4), np.zeros((5, 4), np.int64), RuntimeError),
        ((2, 4, 3), np.zeros((2, 2), np.int64), RuntimeError),
    ],
)
def test_cross_entropy_errors(x, t, error):
    with pytest.raises(error):
        F.cross_entropy(treadle.ones(*x), treadle.tensor(t))
    with pytest.raises(RuntimeError):
        F.cross_entropy(treadle.ones(2, 3), treadle.tensor([0, 1]), weight=treadle.ones(2))


def test_margin_losses():
    y = np.array([0, 3, 1, 2, 2])
    wanted = np.array([sum(max(0, 1 - X[i, y[i]] + X[i, j]) ** 2 for j in range(4) if j != y[i]) / 4 for i in range(5)])
    got = nn.MultiMarginLoss(2, reduction="none")(treadle.tensor(X), treadle.tensor(y)).numpy()
    np.testing.assert_allclose(got, wanted)
    x = np.array([[0.1, 0.2, 0.4, 0.8]])
    got = float(F.multilabel_margin_loss(treadle.tensor(x), treadle.tensor([[3, 0, -1, 1]])))
    np.testing.assert_allclose(got, 0.25 * ((1 - 0.1 + 0.2) + (1 - 0.1 + 0.4) + (1 - 0.8 + 0.2) + (1 - 0.8 + 0.4)))
    t = (rand(5, 4, seed=8) > 0).astype(np.float64)
    p = 1 / (1 + np.exp(-X))
    got = F.multilabel_soft_margin_loss(treadle.tensor(X), treadle.tensor(t), reduction="none").numpy()
    np.testing.assert_allclose(got, -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(1))


def test_ctc_sums_over_all_alignments():
    logp = log_softmax(rand(4, 1, 3), 2)
    from itertools import product

    def collapse(path):
        kept = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        return [c for c in kept if c]

    total = sum(
        np.exp(sum(logp[t, 0, c] for t, c in enumerate(path)))
        for path in product(range(3), repeat=4)
        if collapse(path) == [1, 1]
    )
    got = F.ctc_loss(treadle.tensor(logp), treadle.tensor([[1, 1]]), [4], [2], reduction="sum")
    np.testing.assert_allclose(float(got), -np.log(total))
    impossible = F.ctc_loss(treadle.tensor(logp[:2]), treadle.tensor([[1, 1]]), [2], [2], reduction="none")
    assert np.isinf(impossible.numpy()).all()
    zero = F.ctc_loss(treadle.tensor(logp[:2]), treadle.tensor([[1, 1]]), [2], [2], zero_infinity=True)
    assert float(zero) == 0
    check_gradient(lambda a: F.ctc_loss(a, treadle.tensor([[1, 2]]), [4], [2]), logp)
