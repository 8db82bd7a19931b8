"""Forward passes that were executed before their backward: residuals are kept, used, and freed."""

import gc

import numpy as np
import pytest

import treadle as T
from treadle.recorder.handle import FREED


def leaf(*values):
    return T.tensor(values, dtype=T.float64, requires_grad=True)


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((4, 8), (8,), (8, 3))
    return [T.tensor(rng.standard_normal(s), requires_grad=True) for s in shapes]


def forward(params, x):
    w, b, v = params
    return ((x @ w + b).tanh() @ v).pow(2).mean()


def test_reading_the_loss_first_changes_no_gradient():
    x = T.tensor(np.random.default_rng(1).standard_normal((5, 4)))
    plain, read = parameters(), parameters()
    forward(plain, x).backward()
    loss = forward(read, x)
    loss.item()
    loss.backward()
    for p, q in zip(plain, read):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-12)


def test_every_intermediate_forced():
    x = leaf(0.5, 1.5)
    y = x
    expected = np.array([0.5, 1.5])
    derivative = np.ones(2)
    for _ in range(5):
        y = y.sin() * 2
        derivative = derivative * 2 * np.cos(expected)
        expected = 2 * np.sin(expected)
        np.testing.assert_allclose(y.detach().numpy(), expected)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), derivative)


def test_graphs_that_join_segments_of_different_ages():
    x, w = leaf(2), leaf(3)
    a = x * w
    a.tolist()
    b = a * a
    c = a.exp()
    b.tolist()
    d = (b + c * w).sum()
    d.item()
    (d * x).sum().backward()
    A = 6.0
    D = A * A + np.exp(A) * 3
    assert x.grad.item() == pytest.approx(D + 2 * (2 * A * 3 + np.exp(A) * 3 * 3))
    assert w.grad.item() == pytest.approx(2 * (2 * A * 2 + np.exp(A) * 2 * 3 + np.exp(A)))


def test_segments_are_freed_by_backward():
    x = leaf(1, 2)
    y = x.exp()
    z = (y * y).sum()
    z.item()
    segment, _ = z._h.history
    assert segment.saved is not None
    z.backward()
    assert segment.saved is None and segment.leaves == []
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_value_whose_graph_was_used_up_in_the_trace():
    x = leaf(1)
    y = x.exp()
    y.sum().backward()
    y.tolist()
    assert y._h.history is FREED
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_residuals_go_when_the_graph_is_dropped():
    x = T.zeros(1000, requires_grad=True)
    y = (x.exp() * 2).sum()
    y.item()
    segment, _ = y._h.history
    kept = len(gc.get_referrers(segment))
    assert kept
    del y
    gc.collect()
    assert not [r for r in gc.get_referrers(segment) if isinstance(r, tuple)]


def test_memory_of_a_loop_that_reads_the_loss_is_flat():
    params = parameters()
    x = T.tensor(np.random.default_rng(1).standard_normal((64, 4)))
    sizes = []
    for k in range(60):
        loss = forward(params, x)
        loss.item()
        loss.backward()
        with T.no_grad():
            for p in params:
                p -= 0.01 * p.grad
                p.grad = None
        if k in (20, 59):
            T.sync()
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert sizes[1] - sizes[0] < 500


def test_losses_kept_without_backward_keep_only_their_own_graph():
    x = leaf(1, 2)
    losses = []
    for k in range(5):
        loss = (x * (k + 1)).exp().sum()
        loss.item()
        losses.append(loss)
    T.stack(losses).sum().backward()
    expected = sum((k + 1) * np.exp((k + 1) * np.array([1.0, 2])) for k in range(5))
    np.testing.assert_allclose(x.grad.numpy(), expected)


def test_a_leaf_that_changed_after_the_forward():
    """The gradient is that of the forward that ran."""
    w = leaf(2)
    loss = (w * w * w).sum()
    loss.item()
    with T.no_grad():
        w += 100
    loss.backward()
    assert w.grad.tolist() == [12]


def test_partial_backward_through_segments():
    x = leaf(2)
    h = x * x
    h.tolist()
    y = (h * h).sum()
    y.item()
    (g,) = T.autograd.grad(y, h, retain_graph=True)
    assert g.tolist() == [8]
    y.backward()
    assert x.grad.tolist() == [4 * 8]


def test_detached_loop_frees_the_past():
    state = T.zeros(3, dtype=T.float64)
    w = leaf(0.5)
    for _ in range(10):
        state = (state.detach() * w + 1).tanh()
        state.sum().backward()
        assert w.grad.shape == (1,)
    assert state.tolist()


def test_dropout_of_a_forced_forward_uses_one_mask():
    T.manual_seed(0)
    x = T.ones(1000, requires_grad=True)
    y = T.nn.functional.dropout(x, 0.5, True)
    values = y.detach().numpy().copy()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)


def test_sizes_vary_and_losses_are_read():
    rng = np.random.default_rng(2)
    params = parameters()
    for n in (5, 7, 6, 1, 9):
        x = T.tensor(rng.standard_normal((n, 4)))
        a, b = parameters(), params
        forward(a, x).backward()
        loss = forward(b, x)
        loss.item()
        loss.backward()
        for p, q in zip(a, b):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-10)
            q.grad = None
