"""Why a trace ends, and that nothing else ends it."""

import numpy as np
import pytest

import treadle as T
from treadle.recorder import flush as flushing
from treadle.recorder import trace


@pytest.fixture
def reasons(monkeypatch):
    """Reasons of the programs that were made."""
    seen = []
    original = flushing.compile_step

    def note(tr, live, donated, reason):
        seen.append(reason)
        return original(tr, live, donated, reason)

    monkeypatch.setattr(flushing, "compile_step", note)
    return seen


def leaf():
    return T.from_numpy(np.ones((2, 3), dtype=np.float32))


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.numpy(), lambda t: t.tolist(), lambda t: t.sum().item(), lambda t: float(t.sum()),
        lambda t: bool(t.sum() > 0), lambda t: int(t.sum()), repr, lambda t: t.realize(), lambda t: f"{t.sum():.1f}",
        lambda t: np.asarray(t), lambda t: t.data_ptr(), lambda t: t.nonzero(), lambda t: t[t > 0],
    ],
)  # fmt: skip
def test_reading_a_value_ends_the_trace(read, reasons):
    y = leaf() * 2
    read(y)
    assert set(reasons) == {"value needed"}


def test_flush_and_sync_say_so(reasons):
    y = leaf() * 2
    T.flush()
    z = leaf() * 3
    T.sync()
    assert reasons == ["treadle.flush", "treadle.sync"]
    assert (y.sum().item(), z.sum().item()) == (12, 18)


def test_the_bound_says_so(reasons):
    x = leaf()
    for _ in range(trace.LIMIT + 1):
        x = x + 1
    assert reasons == ["trace bound"]


def test_writing_into_memory_that_numpy_shows_ends_the_trace(reasons):
    a = np.ones(3, dtype=np.float32)
    x = T.from_numpy(a)
    x += 1
    assert a.tolist() == [2, 2, 2]
    assert reasons == ["a write to memory shared with NumPy"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: t.shape, lambda t: t.dtype, lambda t: t.ndim, lambda t: len(t), lambda t: t.numel(),
        lambda t: t.stride(), lambda t: t.is_contiguous(), lambda t: t.requires_grad, lambda t: t.is_leaf,
        lambda t: t.grad_fn, lambda t: t.device, lambda t: t.size(), lambda t: hash(t), lambda t: t.T[1:].reshape(-1),
        lambda t: t.detach(), lambda t: t.clone(), lambda t: T.zeros_like(t), lambda t: t[:, 1], lambda t: list(t),
        lambda t: t.to(T.float64), lambda t: t.fill_(1), lambda t: t.chunk(2), lambda t: t.requires_grad_,
    ],
)  # fmt: skip
def test_questions_about_shape_and_kind_do_not(ask, reasons):
    y = leaf() * 2
    ask(y)
    assert reasons == []
    assert y.sum().item() in (12, 6)


def test_a_training_step_ends_only_where_the_loss_is_read(reasons):
    w = T.ones(3, 2, requires_grad=True)
    for _ in range(3):
        loss = (leaf() @ w).pow(2).mean()
        loss.backward()
        with T.no_grad():
            w -= w.grad * 0.1
        w.grad = None
        assert reasons == []
    assert loss.item() > 0
    assert reasons == ["value needed"]


def test_a_training_step_that_reads_its_loss_before_the_backward_settles(reasons):
    w = T.ones(3, 2, requires_grad=True)
    losses = []
    for k in range(8):
        loss = (leaf() @ w).tanh().pow(2).mean()
        losses.append(loss.item())
        loss.backward()
        with T.no_grad():
            w -= w.grad * 0.1
        w.grad = None
        if k == 4:
            settled = len(reasons)
    assert losses == sorted(losses, reverse=True)
    assert len(reasons) == settled
