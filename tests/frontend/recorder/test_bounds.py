"""Bounds: of a trace, of the tree, of memory in a loop that never reads."""

import resource

import numpy as np
import pytest

import treadle as T
from tests.frontend.recorder.counting import counting, nodes
from treadle.recorder import flush as flushing
from treadle.recorder import trace
from treadle.recorder.tree import prune, size


def test_a_hundred_thousand_iterations_without_a_read():
    x = T.from_numpy(np.full(1000, 0.5, dtype=np.float32))
    a, b = T.full((1000,), 0.5), T.full((1000,), 0.25)
    T.realize(a, b)
    with counting() as count:
        for k in range(100_000):
            x = x * a + b
            if k == 20_000:
                peak, made, grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, count.made, nodes()
    np.testing.assert_array_equal(x.numpy(), 0.5)
    assert count.made <= made + 1  # the last, shorter trace
    assert made <= 2
    assert nodes() == grown
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000  # KiB


def test_a_trace_ends_at_its_bound_and_its_values_stay():
    x = T.from_numpy(np.zeros(2, dtype=np.float32))
    with counting() as count:
        kept = []
        for k in range(trace.LIMIT + 10):
            x = x + 1.0
            if k in (0, trace.LIMIT - 2, trace.LIMIT - 1, trace.LIMIT):
                kept.append((k, x))
        assert count.made == 1
        for k, y in kept:
            assert y.tolist() == [k + 1.0] * 2
    assert x.tolist() == [trace.LIMIT + 10.0] * 2


def test_gradients_through_a_trace_longer_than_the_bound():
    w = T.tensor([1.0], requires_grad=True)
    y = w
    for _ in range(trace.LIMIT + 50):
        y = y * 1.0 + 1.0
    y.sum().backward()
    assert w.grad.tolist() == [1.0]


def test_pruning_keeps_what_was_used_last():
    x = T.from_numpy(np.ones(2, dtype=np.float32))
    for k in range(40):
        y = x
        for _ in range(k % 7 + 1):
            y = y * float(k + 2)
        y.abs().realize()
    T.flush()
    before = nodes()
    (x * 2.0).abs().realize()
    dropped = prune(trace.root(), before // 2)
    assert dropped == before - nodes() > 0
    assert nodes() <= before // 2 + 8
    with counting() as count:
        assert (x * 2.0).abs().tolist() == [2.0, 2.0]
    assert count.made <= 1
    assert prune(trace.root(), size(trace.root())) == 0


@pytest.mark.parametrize("k", [1, 3])
def test_results_are_right_after_pruning_everything(k):
    x = T.from_numpy(np.ones(2, dtype=np.float32))
    assert (x * 2.0 + k).tolist() == [2.0 + k] * 2
    prune(trace.root(), 1)
    assert (x * 2.0 + k).tolist() == [2.0 + k] * 2


def test_the_tree_is_pruned_as_programs_are_made(monkeypatch):
    monkeypatch.setattr(flushing, "NODES", 300)
    x = T.from_numpy(np.ones(2, dtype=np.float32))
    ops = [T.sin, T.cos, T.exp, T.abs]
    for k in range(4**4):
        y = x
        for j in range(4):
            y = ops[k // 4**j % 4](y)
        y.realize()
        assert nodes() < 300 + 64 * 5
    assert x.sin().sin().sin().sin().tolist() == pytest.approx([np.sin(np.sin(np.sin(np.sin(1))))] * 2, rel=1e-6)
