"""What a program computes: the values that somebody still holds, and nothing else."""

import gc
import sys

import numpy as np
import pytest

import treadle as T
from treadle.compiler import driver
from treadle.recorder import flush as flushing


@pytest.fixture
def live(monkeypatch):
    """Number of live values of each program that was made."""
    seen = []
    original = flushing.compile_step

    def note(tr, live, donated, reason):
        seen.append((len(live), reason, donated))
        return original(tr, live, donated, reason)

    monkeypatch.setattr(flushing, "compile_step", note)
    return seen


def test_dead_intermediates_are_no_outputs(live):
    x = T.from_numpy(np.ones(4, dtype=np.float32))
    y = ((x * 2) + 3).exp().log()
    y.realize()
    assert [n for n, *_ in live] == [1]


def test_a_deleted_result_is_not_computed(live):
    x = T.from_numpy(np.ones(4, dtype=np.float32))
    y, z = x * 2, x * 3
    del y
    z.realize()
    assert [n for n, *_ in live] == [1]


def test_held_intermediates_are_outputs(live):
    x = T.from_numpy(np.ones(4, dtype=np.float32))
    a = x * 2
    b = a + 1
    c = b * b
    c.realize()
    assert [n for n, *_ in live] == [3]
    assert (a.tolist(), b.tolist(), c.tolist()) == ([2.0] * 4, [3.0] * 4, [9.0] * 4)
    assert len(live) == 1


def test_nothing_alive_runs_nothing(live):
    x = T.from_numpy(np.ones(4, dtype=np.float32))
    _ = x * 2
    del _
    T.flush()
    assert live == []


def test_a_backward_keeps_only_gradients_and_what_is_held(live):
    w = T.from_numpy(np.ones(4, dtype=np.float32)).requires_grad_()
    loss = ((w * 3).sin() ** 2).sum()
    loss.backward()
    del loss
    w.grad.realize()
    assert [n for n, *_ in live] == [1]


def test_a_leaf_that_nobody_else_holds_is_donated(live):
    x = T.from_numpy(np.ones(4, dtype=np.float32)) * 1
    x.realize()
    y = x + 1
    del x
    y.realize()
    assert live[-1][2] == (0,)
    z = y + 1
    z.realize()
    assert live[-1][2] == ()  # y is still held


def test_memory_that_numpy_sees_is_never_donated(live):
    a = np.ones(4, dtype=np.float32)
    y = T.from_numpy(a) + 1
    y.realize()
    np.testing.assert_array_equal(a, 1)
    assert y.tolist() == [2.0] * 4
    z = T.zeros(4) + 1
    z.realize()
    shown = z.numpy()
    w = z + 1
    del z
    w.realize()
    np.testing.assert_array_equal(shown, 1)


def test_a_closed_trace_keeps_nothing_alive():
    x = T.from_numpy(np.ones(4, dtype=np.float32)) * 1
    x.realize()
    (x + 1).realize()
    buffer = x._h.buffer
    before = sys.getrefcount(buffer)
    for _ in range(3):
        (x * 2).realize()
    gc.collect()
    assert sys.getrefcount(buffer) == before


def test_step_types_follow_the_live_values():
    x = T.from_numpy(np.ones((2, 3), dtype=np.float32))
    y, z = x.sum(0), x.long()
    T.flush()
    assert (y.shape, y.dtype, z.shape, z.dtype) == ((3,), T.float32, (2, 3), T.int64)
    assert driver.Step is not None
