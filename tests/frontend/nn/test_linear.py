"""Linear maps, distances and one_hot."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F


def test_linear_values_and_initial_range():
    m = nn.Linear(3, 4)
    x = rand(5, 3).astype(np.float32)
    wanted = x @ m.weight.detach().numpy().T + m.bias.detach().numpy()
    np.testing.assert_allclose(m(treadle.tensor(x)).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(m.weight.detach().numpy()).max() <= 1 / np.sqrt(3)
    assert nn.Linear(3, 4, bias=False).bias is None
    assert nn.Identity(1, a=2)(x) is x


def test_bilinear():
    x1, x2, w, b = rand(5, 3), rand(5, 4, seed=1), rand(2, 3, 4, seed=2), rand(2, seed=3)
    got = F.bilinear(*map(treadle.tensor, (x1, x2, w, b))).numpy()
    np.testing.assert_allclose(got, np.einsum("ni,oij,nj->no", x1, w, x2) + b)
    check_gradient(lambda *a: F.bilinear(*a), x1[:2], x2[:2], w, b)
    with pytest.raises(RuntimeError):
        F.bilinear(treadle.tensor(x1), treadle.tensor(x2[:2]), treadle.tensor(w))


def test_normalize_keeps_zero_rows():
    x = treadle.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    y = F.normalize(x)
    np.testing.assert_allclose(y.detach().numpy(), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    y.sum().backward()
    assert np.isfinite(x.grad.numpy()[0]).all()


def test_distances():
    a, b = rand(4, 3), rand(4, 3, seed=1)
    ta, tb = treadle.tensor(a), treadle.tensor(b)
    cos = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(nn.CosineSimilarity()(ta, tb).numpy(), cos)
    np.testing.assert_allclose(nn.PairwiseDistance(eps=0)(ta, tb).numpy(), np.linalg.norm(a - b, axis=1))
    rows = [np.linalg.norm(a[i] - a[j]) for i in range(4) for j in range(i + 1, 4)]
    np.testing.assert_allclose(F.pdist(ta).numpy(), rows)
    check_gradient(F.cosine_similarity, a, b)
    check_gradient(F.pairwise_distance, a, b)


def test_one_hot():
    t = treadle.tensor([[0, 2], [1, 1]])
    got = F.one_hot(t, 4)
    assert got.dtype == treadle.int64
    np.testing.assert_array_equal(got.numpy(), np.eye(4, dtype=np.int64)[t.numpy()])
    assert tuple(F.one_hot(t).shape) == (2, 2, 3)
    with pytest.raises(RuntimeError):
        F.one_hot(treadle.tensor([1.0]))
    with pytest.raises(RuntimeError):
        F.one_hot(treadle.tensor([-1]))
