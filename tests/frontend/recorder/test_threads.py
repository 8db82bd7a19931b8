"""Each thread records on its own; values cross by being forced; grad modes are per thread."""

import queue
import threading

import numpy as np
import pytest

import treadle as T
from treadle.recorder import trace


def run(*workers):
    """Run the workers in threads of their own; raises what one of them raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if errors:
        raise errors[0]


def test_another_thread_forces_an_unfinished_value():
    x = T.from_numpy(np.arange(4, dtype=np.float32))
    y = x * 2 + 1
    found = []
    run(lambda: found.append(y.tolist()))
    assert found == [[1, 3, 5, 7]]
    assert (y + 1).tolist() == [2, 4, 6, 8]  # this thread notices that its trace was closed


def test_another_thread_goes_on_with_an_unfinished_value():
    x = T.from_numpy(np.arange(4, dtype=np.float32))
    y = x * 2
    found = []
    run(lambda: found.append(y + 1))
    z = y + 2
    assert found[0].tolist() == [1, 3, 5, 7]
    assert z.tolist() == [2, 4, 6, 8]


def test_each_thread_has_its_trace():
    mine = trace.current_trace()
    seen = []
    run(lambda: seen.append(trace.current_trace()))
    assert seen[0] is not mine


def test_grad_mode_is_per_thread():
    seen = []
    with T.no_grad():
        run(lambda: seen.append(T.is_grad_enabled()))
        assert not T.is_grad_enabled()
    assert seen == [True]


def test_grad_mode_survives_a_trace_that_another_thread_closed():
    w = T.ones(2, requires_grad=True)
    with T.no_grad():
        y = w * 2
        run(lambda: y.tolist())
        assert not T.is_grad_enabled()
        z = w * 3
        assert not z.requires_grad
    assert (w * 3).requires_grad


def test_eight_threads_that_exchange_tensors():
    """Each passes what it computed on to the next, unforced; all in all 8 * 30 handovers of 8 tokens."""
    count, rounds = 8, 30
    mail = [queue.Queue() for _ in range(count)]
    for k in range(count):
        mail[k].put((T.full((5,), float(k)), float(k)))

    def worker(k):
        def work():
            for r in range(rounds):
                t, value = mail[k].get(timeout=60)
                assert t.shape == (5,)
                if (r + k) % 7 == 0:
                    assert t.tolist() == pytest.approx([value] * 5, rel=1e-5)
                mail[(k + 1) % count].put((t * 0.5 + (k + 1), value * 0.5 + (k + 1)))

        return work

    run(*(worker(k) for k in range(count)))
    for box in mail:
        t, value = box.get(timeout=1)
        np.testing.assert_allclose(t.numpy(), np.full(5, value), rtol=1e-5)
        assert box.empty()


def test_one_thread_records_while_others_read_what_it_made():
    newest = [T.zeros(3)]
    stop = threading.Event()

    def writer():
        x, expected = T.zeros(3), 0
        try:
            for _ in range(300):
                x = x + 1.0
                expected += 1
                newest[0] = x
            assert x.tolist() == [expected] * 3
        finally:
            stop.set()

    def reader():
        last = 0.0
        while not stop.is_set():
            values = newest[0].tolist()
            assert len(set(values)) == 1 and values[0] >= last
            last = values[0]

    run(writer, reader, reader, reader)


def test_eight_threads_train_at_once():
    """The same program in all threads: one tree, no mixed up leaves."""
    results = [None] * 8

    def worker(k):
        def work():
            w = T.full((3,), float(k + 1), requires_grad=True)
            for _ in range(10):
                loss = (w * w).sum()
                loss.backward()
                with T.no_grad():
                    w -= w.grad * 0.1
                w.grad = None
            results[k] = w.tolist()

        return work

    run(*(worker(k) for k in range(8)))
    for k, found in enumerate(results):
        assert found == pytest.approx([(k + 1) * 0.8**10] * 3, rel=1e-5)


def test_one_leaf_in_many_threads():
    shared = T.from_numpy(np.arange(6, dtype=np.float32))
    found = [None] * 8

    def worker(k):
        def work():
            for _ in range(20):
                found[k] = ((shared + k) * shared).tolist()

        return work

    run(*(worker(k) for k in range(8)))
    for k in range(8):
        assert found[k] == [(i + k) * i for i in range(6)]


def test_random_numbers_of_one_generator_are_never_drawn_twice():
    T.manual_seed(0)
    draws, lock = [], threading.Lock()

    def work():
        for _ in range(20):
            values = tuple(T.rand(4).tolist())
            with lock:
                draws.append(values)

    run(*[work] * 4)
    assert len(set(draws)) == 80
