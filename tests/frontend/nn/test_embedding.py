"""Look-up tables and bags."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

W = rand(6, 3)


def test_padding_row_gets_no_gradient():
    m = nn.Embedding(4, 2, padding_idx=-1)
    assert m.padding_idx == 3 and m.weight[3].tolist() == [0.0, 0.0]
    m(treadle.tensor([[0, 3], [0, 1]])).sum().backward()
    np.testing.assert_array_equal(m.weight.grad.numpy(), [[2, 2], [1, 1], [0, 0], [0, 0]])
    with pytest.raises(AssertionError):
        nn.Embedding(4, 2, padding_idx=4)


def test_max_norm_changes_the_used_rows_only():
    w = treadle.tensor(W * 10)
    F.embedding(treadle.tensor([1, 1, 4]), w, max_norm=1.0)
    norms = np.linalg.norm(w.numpy(), axis=1)
    np.testing.assert_allclose(norms[[1, 4]], [1, 1], rtol=1e-5)
    np.testing.assert_array_equal(w.numpy()[[0, 2, 3, 5]], (W * 10)[[0, 2, 3, 5]])


def test_frequency_scaling():
    w = treadle.tensor(W, requires_grad=True)
    F.embedding(treadle.tensor([1, 1, 4]), w, scale_grad_by_freq=True).sum().backward()
    np.testing.assert_allclose(w.grad.numpy()[[1, 4]], np.ones((2, 3)))


def test_from_pretrained():
    m = nn.Embedding.from_pretrained(treadle.tensor(W))
    assert not m.weight.requires_grad and repr(m) == "Embedding(6, 3)"
    np.testing.assert_array_equal(m(treadle.tensor(2)).numpy(), W[2])


@pytest.mark.parametrize("mode, reduce", [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
def test_bags(mode, reduce):
    index, offsets = np.array([0, 5, 2, 2, 1, 3]), np.array([0, 2, 2, 5])
    w = treadle.tensor(W)
    got = F.embedding_bag(treadle.tensor(index), w, treadle.tensor(offsets), mode=mode).numpy()
    bags = [index[0:2], index[2:2], index[2:5], index[5:]]
    np.testing.assert_allclose(got, [reduce(W[b], 0) if len(b) else np.zeros(3) for b in bags])
    grid = index.reshape(2, 3)
    got = F.embedding_bag(treadle.tensor(grid), w, mode=mode, padding_idx=2).numpy()
    np.testing.assert_allclose(got, [reduce(W[row[row != 2]], 0) for row in grid])
    check_gradient(lambda a: F.embedding_bag(treadle.tensor(grid), a, mode=mode), W)


def test_bag_weights_and_last_offset():
    index = treadle.tensor([0, 5, 2])
    weights = np.array([0.5, 2.0, 1.0])
    got = F.embedding_bag(
        index,
        treadle.tensor(W),
        treadle.tensor([0, 2, 3]),
        mode="sum",
        include_last_offset=True,
        per_sample_weights=treadle.tensor(weights),
    ).numpy()
    np.testing.assert_allclose(got, [0.5 * W[0] + 2 * W[5], W[2]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.embedding(treadle.tensor([1.0]), treadle.ones(2, 2)),
        lambda: F.embedding(treadle.tensor([1]), treadle.ones(2, 2), padding_idx=5),
        lambda: F.embedding(treadle.tensor([1]), treadle.ones(2, 2, 2)),
        lambda: F.embedding_bag(treadle.tensor([1]), treadle.ones(2, 2)),
        lambda: F.embedding_bag(treadle.tensor([[1]]), treadle.ones(2, 2), treadle.tensor([0])),
        lambda: F.embedding_bag(treadle.tensor([[1]]), treadle.ones(2, 2), mode="min"),
    ],
)
def test_errors(call):
    with pytest.raises((RuntimeError, ValueError)):
        call()
