"""One program for many sizes: right for every size, and few programs."""

import numpy as np
import pytest

import treadle as T
from tests.frontend.recorder.counting import counting
from treadle.recorder.flush import HOT


def data(*shape, seed=0, dtype=np.float32):
    a = np.random.default_rng(seed + sum(shape)).uniform(-2, 2, shape).astype(dtype)
    return a, T.from_numpy(a.copy())


def mlp_step(x, y, w1, b1, w2):
    """Loss and gradients of a two-layer net in NumPy (float64)."""
    h = x @ w1 + b1
    a = np.maximum(h, 0)
    out = a @ w2
    n = len(x)
    d = 2 * (out - y) / out.size
    da = (d @ w2.T) * (h > 0)
    assert n
    return ((out - y) ** 2).mean(), x.T @ da, da.sum(0), a.T @ d


def test_twenty_batch_sizes_through_a_training_step():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in ((5, 8), (8,), (8, 3))]
    params = [T.tensor(a, dtype=T.float32, requires_grad=True) for a in arrays]
    T.realize(*params)
    with counting() as count:
        for n in range(2, 22):
            x, y = rng.standard_normal((n, 5)), rng.standard_normal((n, 3))
            w1, b1, w2 = params
            tx, ty = T.tensor(x, dtype=T.float32), T.tensor(y, dtype=T.float32)
            loss = (((tx @ w1 + b1).relu() @ w2 - ty) ** 2).mean()
            loss.backward()
            grads = [p.grad for p in params]
            T.realize(loss, *grads)
            expected = mlp_step(x, y, *arrays)
            for got, want in zip((loss, *grads), expected):
                np.testing.assert_allclose(got.detach().numpy(), want, rtol=2e-4, atol=1e-5)
            for p in params:
                p.grad = None
    assert count.made <= 2


@pytest.mark.parametrize("sizes", [(5, 1, 6, 0, 7, 1, 0), (0, 4, 6, 1, 5), (1, 3, 4, 0, 9)])
def test_sizes_zero_and_one_among_others(sizes):
    for n in sizes:
        a, x = data(n, 3)
        b, y = data(4, 3, seed=1)
        np.testing.assert_allclose((x * 2 + 1).sum(0).numpy(), (a * 2 + 1).sum(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(T.cat([x, y]).numpy(), np.concatenate([a, b]))
        np.testing.assert_allclose((x @ y.T).numpy(), a @ b.T, rtol=1e-4, atol=1e-5)
        if n == 1:
            np.testing.assert_allclose((x + y).numpy(), a + b, rtol=1e-6)


def test_a_dim_of_one_broadcasts_and_a_symbol_does_not():
    b, y = data(4, 2, seed=9)
    for n in (4, 1, 4, 1):
        a, x = data(n, 2)
        np.testing.assert_allclose((x + y).numpy(), a + b, rtol=1e-6)
    for n in (5, 6):
        with pytest.raises(RuntimeError, match=f"size of tensor a \\({n}\\)"):
            data(n, 2)[1] + y


def test_symbols_that_were_equal_at_first_and_differ_later():
    for m, n in ((3, 3), (5, 5), (4, 6), (6, 4), (3, 7)):
        a, x = data(m, 2)
        b, y = data(n, 2, seed=1)
        np.testing.assert_allclose((x @ y.T).numpy(), a @ b.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose((x.sum(0) + y.sum(0)).numpy(), a.sum(0) + b.sum(0), rtol=1e-4, atol=1e-5)


def test_operands_that_shared_a_symbol_still_raise_when_they_differ():
    for n in (3, 5, 7):
        a, x = data(n)
        b, y = data(n, seed=1)
        np.testing.assert_allclose((x + y).numpy(), a + b, rtol=1e-6)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(4\) must match the size of tensor b \(6\)"):
        (data(4)[1] + data(6)[1]).numpy()
    a, x = data(8)
    b, y = data(8, seed=1)
    np.testing.assert_allclose((x + y).numpy(), a + b, rtol=1e-6)


PROGRAMS = {
    "reshape": (lambda x: x.reshape(-1, 2).sum(1), lambda a: a.reshape(-1, 2).sum(1), lambda n: (n, 4)),
    "flatten": (lambda x: x.flatten(0, 1) * 2, lambda a: a.reshape(-1, a.shape[2]) * 2, lambda n: (n, 3, 2)),
    "transpose": (lambda x: (x.T + 1).reshape(-1), lambda a: (a.T + 1).reshape(-1), lambda n: (n, 3)),
    "expand": (lambda x: x.unsqueeze(1).expand(-1, 3) * 1, lambda a: np.repeat(a[:, None], 3, 1), lambda n: (n,)),
    "slice": (lambda x: x[1:] - x[:-1], lambda a: a[1:] - a[:-1], lambda n: (n, 2)),
    "strided slice": (lambda x: x[::2] * 3, lambda a: a[::2] * 3, lambda n: (n, 2)),
    "half": (lambda x: x[: len(x) // 2] + 1, lambda a: a[: len(a) // 2] + 1, lambda n: (n,)),
    "last row": (lambda x: x[-1] * 2, lambda a: a[-1] * 2, lambda n: (n, 2)),
    "cat": (lambda x: T.cat([x, x * 2, x[:1]]), lambda a: np.concatenate([a, a * 2, a[:1]]), lambda n: (n, 2)),
    "stack": (lambda x: T.stack([x, x + 1], 1), lambda a: np.stack([a, a + 1], 1), lambda n: (n,)),
    "arange": (lambda x: x + T.arange(len(x)), lambda a: a + np.arange(len(a), dtype=np.float32), lambda n: (n,)),
    "ones": (lambda x: x @ T.ones(x.shape[1], 2), lambda a: np.stack([a.sum(1)] * 2, 1), lambda n: (2, n)),
    "mean": (lambda x: x.mean(), lambda a: a.mean(), lambda n: (n, 3)),
    "var": (lambda x: x.var(0), lambda a: a.var(0, ddof=1), lambda n: (n, 3)),
    "count": (lambda x: x.sum() / x.numel(), lambda a: a.sum() / a.size, lambda n: (n, 3)),
    "matmul": (lambda x: x @ x.T, lambda a: a @ a.T, lambda n: (n, 3)),
    "softmax": (lambda x: x.softmax(-1), lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True), lambda n: (2, n)),
    "flip": (lambda x: x.flip(0), lambda a: a[::-1], lambda n: (n, 2)),
    "roll": (lambda x: x.roll(1, 0), lambda a: np.roll(a, 1, 0), lambda n: (n, 2)),
    "cumsum": (lambda x: x.cumsum(0), lambda a: a.cumsum(0), lambda n: (n, 2)),
    "index": (lambda x: x[T.arange(len(x)), 1], lambda a: a[:, 1], lambda n: (n, 2)),
    "tril": (lambda x: x.tril(), np.tril, lambda n: (n, n)),
    "diagonal": (lambda x: x.diagonal() * 1, np.diagonal, lambda n: (n, n)),
    "repeat": (lambda x: x.repeat(2, 1), lambda a: np.tile(a, (2, 1)), lambda n: (n, 2)),
    "pad": (
        lambda x: T.nn.functional.pad(x, (1, 2)), lambda a: np.pad(a, ((0, 0), (1, 2))), lambda n: (2, n),
    ),
    "argmax": (lambda x: x.argmax(0), lambda a: a.argmax(0), lambda n: (n, 3)),
    "sort": (lambda x: x.sort(0)[0], lambda a: np.sort(a, 0), lambda n: (n, 3)),
    "put": (lambda x: put(x), lambda a: np.where(np.arange(len(a)) < 1, 0, a), lambda n: (n,)),
}  # fmt: skip


def put(x):
    y = x.clone()
    y[:1] = 0
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_of_symbolic_sizes(name):
    program, reference, shape = PROGRAMS[name]
    with counting() as count:
        for n in (3, 5, 4, 8, 2, 11, 6, 16, 7):
            a, x = data(*shape(n))
            got = program(x).numpy()
            assert got.shape == np.shape(reference(a))
            np.testing.assert_allclose(got, reference(a), rtol=2e-5, atol=1e-5, err_msg=f"{name} at {n}")
    assert count.made <= 4, name


def test_gradients_of_symbolic_sizes():
    with counting() as count:
        for n in (3, 5, 4, 8, 11):
            a, x = data(n, 4)
            x.requires_grad_()
            y = (x[1:] * x[:-1]).reshape(-1, 2).sum(1)
            y.backward(T.ones(y.shape))
            expected = np.zeros_like(a)
            expected[1:] += a[:-1]
            expected[:-1] += a[1:]
            np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)
    assert count.made <= 3


def test_a_loop_over_the_size_has_a_program_for_each_length():
    for n in (2, 3, 4, 2, 5):
        a, x = data(n)
        total = x[0] * 1
        for i in range(1, n):
            total = total * 2 + x[i]
        want = a[0]
        for i in range(1, n):
            want = want * 2 + a[i]
        assert total.item() == pytest.approx(float(want), rel=1e-5)


def test_numbers_that_no_symbol_explains_fall_back_to_literals():
    """The slice depends on the size in no simple way: each size is its own program, and all are right."""
    table = {3: 1, 5: 4, 6: 2, 9: 7, 10: 3}
    for n, k in (*table.items(), *table.items()):
        a, x = data(n)
        np.testing.assert_allclose((x[:k] * 2).numpy(), a[:k] * 2, rtol=1e-6)


def test_a_pattern_found_by_chance_is_not_trusted():
    """2n and n + 3 agree at n = 3; only evaluation at this run's size decides."""
    for n, k in ((3, 6), (3, 6), (4, 7), (5, 8), (5, 10), (6, 9), (8, 16)):
        a, x = data(n)
        np.testing.assert_allclose((x.sum() + T.ones(k)).numpy(), a.sum() + np.ones(k), rtol=1e-5)


def test_a_general_trace_that_turns_away_is_recorded_again():
    for n in (3, 5, 7):
        a, x = data(n)
        np.testing.assert_allclose((x * 2 + 1).numpy(), a * 2 + 1, rtol=1e-6)
    a, x = data(9)
    y = x * 2  # on the general path
    z = y.sin()  # an event unknown to it
    assert z.shape == (9,) and y.shape == (9,)
    np.testing.assert_allclose(z.numpy(), np.sin(a * 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y.numpy(), a * 2, rtol=1e-6)


def test_shapes_of_a_general_trace_are_this_runs():
    for n in (3, 5, 7):
        _, x = data(n, 2)
        y = x.reshape(-1).unsqueeze(0)
        assert y.shape == (1, 2 * n)
        assert len(x[1:]) == n - 1
        assert y.expand(3, -1).numel() == 6 * n
        y.realize()
        assert y.shape == (1, 2 * n)


def test_two_dims_at_once():
    with counting() as count:
        for m, n in ((3, 4), (5, 7), (6, 2), (2, 9), (8, 8)):
            a, x = data(m, n)
            np.testing.assert_allclose(x.reshape(-1).numpy(), a.reshape(-1))
            np.testing.assert_allclose((x.T @ x).numpy(), a.T @ a, rtol=1e-4, atol=1e-5)
    assert count.made <= 5


def test_a_scalar_and_a_size_change_together():
    with counting() as count:
        for n, s in ((3, 0.5), (4, 0.25), (6, 2.0), (5, 1.0)):
            a, x = data(n)
            np.testing.assert_allclose((x * s + s).numpy(), a * np.float32(s) + np.float32(s), rtol=1e-5)
    assert count.made <= 2


def test_backward_of_an_executed_program_whose_sizes_no_residual_shows():
    for n in (3, 5, 4, 7, 6):
        w = T.tensor(2.0, requires_grad=True)
        loss = (w * T.arange(n)).sum() * w
        assert loss.item() == 4 * sum(range(n))  # forced: the backward is a call of its own
        loss.backward()
        assert w.grad.item() == 4 * sum(range(n))
    for n in (4, 6, 10, 8, 4):
        a, x = data(n, 4)
        x.requires_grad_()
        y = x.reshape(-1, 2).exp().mean()
        assert y.item() == pytest.approx(np.exp(a).mean(), rel=1e-5)
        y.backward()
        np.testing.assert_allclose(x.grad.numpy(), np.exp(a) / a.size, rtol=1e-5)


def set_at(x, i):
    y = x.clone()
    y[i] = 5
    return y


def set_range(x, i):
    y = x.clone()
    y[i : 2 * i, 1] += x[0, 0]
    return y


def put_at(a, i, value):
    b = a.copy()
    b[i] = value
    return b


def put_range(a, i):
    b = a.copy()
    b[i : 2 * i, 1] += a[0, 0]
    return b


POSITIONS = {
    "row": (lambda x, i: x[i] * 2, lambda a, i: a[i] * 2),
    "element": (lambda x, i: x[i, 1] * 2, lambda a, i: a[i, 1] * 2),
    "window": (lambda x, i: x[i : i + 8].sum(0), lambda a, i: a[i : i + 8].sum(0)),
    "head": (lambda x, i: x[:i].sum(0), lambda a, i: a[:i].sum(0)),
    "tail": (lambda x, i: x[-i:].sum(0), lambda a, i: a[-i:].sum(0)),
    "growing window": (lambda x, i: x[i : 2 * i].sum(0), lambda a, i: a[i : 2 * i].sum(0)),
    "steps": (lambda x, i: x[i : i + 8 : 2] * 2, lambda a, i: a[i : i + 8 : 2] * 2),
    "roll": (lambda x, i: x.roll(i, 0) * 2, lambda a, i: np.roll(a, i, 0) * 2),
    "write": (set_at, lambda a, i: put_at(a, i, 5)),
    "write range": (set_range, put_range),
    "narrow": (lambda x, i: x.narrow(0, i, 4) + 1, lambda a, i: a[i : i + 4] + 1),
    "two": (lambda x, i: x[i] + x[i * i % 50], lambda a, i: a[i] + a[i * i % 50]),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_program_of_symbolic_positions(name):
    program, reference = POSITIONS[name]
    a, x = data(60, 3)
    x = x * 1
    T.sync()
    with counting() as count:
        for i in (3, 5, 4, 8, 11, 6, 16, 7, 20, 21, 22, 23):
            np.testing.assert_allclose(
                program(x, i).numpy(), reference(a, i), rtol=2e-5, atol=1e-5, err_msg=f"{name} {i}"
            )
    assert count.made <= 5, name


def test_gradients_of_batches_of_a_data_set():
    a, x = data(200, 3)
    x = x * 1
    w = T.ones(3).requires_grad_()
    T.sync()
    with counting() as count:
        for i in range(0, 200, 16):
            w.grad = None
            (x[i : i + 16] @ w).square().sum().backward()
            part = a[i : i + 16]
            np.testing.assert_allclose(w.grad.numpy(), 2 * part.T @ part.sum(1), rtol=1e-4, atol=1e-5)
    assert count.made <= 3  # literal, general, and the shorter last batch


def test_a_growing_sequence():
    x = T.zeros(1, 4)
    T.sync()
    with counting() as count:
        for n in range(30):
            x = T.cat([x, x[-1:] + 1])
            assert x[-1, 0].item() == n + 1
    assert count.made <= 4


def test_unrelated_sizes_are_symbols_of_their_own():
    """Two runs lie on a line, whatever their sizes; the third need not."""
    with counting() as count:
        for n, k, m in ((4, 6, 9), (5, 8, 13), (6, 3, 7), (11, 5, 2), (3, 13, 8)):
            a, x = data(n, k)
            b, y = data(k, m, seed=1)
            np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    assert count.made <= 2


def test_sizes_that_come_often_get_a_program_of_their_own():
    w = T.ones(3, 2).requires_grad_()
    T.sync()

    def step(n):
        a, x = data(n, 3)
        w.grad = None
        loss = (x @ w).square().mean()
        loss.backward()
        np.testing.assert_allclose(w.grad.numpy(), a.T @ (a @ np.ones((3, 2))) / n, rtol=1e-4, atol=1e-5)

    with counting() as count:
        for n in (4, 5, 6, 7):
            step(n)
    assert count.made == 2
    with counting() as count:
        for _ in range(HOT - 2):
            step(6)
    assert count.made == 0
    with counting() as count:
        for _ in range(5):
            step(6)
            step(8)
    assert count.made == 1
    text = str(T.compiler.explain())
    assert "sizes that come often" in text
