"""Memory shared with NumPy: an op reads the elements of the moment at which the program states it, lazily or not."""

from __future__ import annotations

import numpy as np

import treadle as T


def test_a_later_write_does_not_reach_earlier_ops() -> None:
    a = np.arange(6, dtype=np.float32)
    t = T.from_numpy(a)
    before = t * 2
    a[0] = 50
    after = t * 2
    assert before.tolist() == [0, 2, 4, 6, 8, 10]
    assert after.tolist() == [100, 2, 4, 6, 8, 10]


def test_views_show_the_elements_of_the_moment() -> None:
    for size in (6, 1 << 19):  # copied whole, copied in part
        a = np.arange(size, dtype=np.float32)
        t = T.from_numpy(a)
        part = t[2:4]
        before = part + 1
        a[2] = -7
        assert (part + 1).tolist() == [-6, 4]
        assert before.tolist() == [3, 4]
        assert part.tolist() == [-7, 3]


def test_large_memory_is_read_at_once() -> None:
    a = np.ones((1000, 1000), np.float32)
    t = T.from_numpy(a)
    total, row, picked = t.sum(), t[5] + 1, t[T.tensor([1, 2])]
    a[:] = 3
    assert (total.item(), row[0].item(), picked[0, 0].item(), t.mean().item()) == (1e6, 2, 1, 3)


def test_a_result_given_to_numpy() -> None:
    x = T.ones(4) * 1
    x.tolist()
    before = x * 2
    a = x.numpy()
    a[1] = 9
    after = x * 2
    assert before.tolist() == [2, 2, 2, 2]
    assert after.tolist() == [2, 18, 2, 2]


def test_in_place_ops_write_to_the_array() -> None:
    a = np.zeros(4, np.float32)
    t = T.from_numpy(a)
    t.add_(1)
    t[1:3] *= 5
    assert a.tolist() == [1, 5, 5, 1]


def test_gradient_of_a_leaf_on_shared_memory() -> None:
    w = T.from_numpy(np.array([1, 2], np.float32)).requires_grad_()
    ((w * w).sum() + (3 * w).sum()).backward()
    assert w.grad.tolist() == [5, 7]


def test_batches_from_numpy_stay_one_program() -> None:
    w = T.ones(8, 4).requires_grad_()

    def step(n: int) -> None:
        x = T.from_numpy(np.full((16, 8), n, np.float32))
        w.grad = None
        (x @ w).square().mean().backward()
        w.grad.tolist()

    for n in range(3):
        step(n)
    T.compiler.reset_stats()
    step(3)
    assert T.compiler.stats().programs == 0
    assert T.compiler.stats().trace_hits == 1
