"""Gradients through in-place ops and writes into views."""

import numpy as np
import pytest

import treadle as T


def leaf(*values):
    return T.tensor(values, dtype=T.float64, requires_grad=True)


FORCED = pytest.mark.parametrize("forced", [False, True])


@FORCED
def test_in_place_on_a_computed_tensor(forced):
    x = leaf(1, 2)
    y = x * 3
    y += 1
    y.mul_(2)
    y *= y.detach() * 0 + x
    if forced:
        y.tolist()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * (3 * 2 * np.array([1, 2]) + 1))


@FORCED
def test_writes_into_views(forced):
    x = leaf(1, 2, 3, 4)
    y = x * 1
    y[1:3] = 0
    y[0] *= 5
    y.view(2, 2)[1, 1] += x[0] * x[1]
    if forced:
        y.tolist()
    (y * T.tensor([1.0, 10.0, 100.0, 1000.0], dtype=T.float64)).sum().backward()
    assert x.grad.tolist() == [5 + 2000, 1000, 0, 1000]


@FORCED
def test_the_value_written_gets_its_gradient(forced):
    v = leaf(7, 8)
    base = T.zeros(3, 2, dtype=T.float64)
    base[1] = v * 2
    base.T[0] *= 10
    assert base.requires_grad and not base.is_leaf
    if forced:
        base.tolist()
    (base**2).sum().backward()
    np.testing.assert_allclose(v.grad.numpy(), [2 * 2 * 14 * 100, 2 * 2 * 16])


def test_stale_views_carry_the_new_history():
    x = leaf(1, 2)
    y = x * 1
    v = y[0]
    y.mul_(x)
    v.backward()
    assert x.grad.tolist() == [2, 0]


def test_a_view_taken_before_the_write_of_a_base():
    x = leaf(3)
    base = T.zeros(2, dtype=T.float64)
    v = base[:1]
    base[0] = x[0] ** 2
    assert v.requires_grad
    v.sum().backward()
    assert x.grad.tolist() == [6]


def test_masks_and_index_lists():
    x = leaf(1, -2, 3)
    y = x * 2
    y[y < 0] = 0
    y[[0, 2]] += x[1]
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_setitem_of_a_leaf_value_in_a_loop():
    x = leaf(2)
    out = T.zeros(4, dtype=T.float64)
    for k in range(4):
        out[k] = x[0] ** (k + 1)
    out.sum().backward()
    assert x.grad.tolist() == [1 + 4 + 12 + 32]


def test_leaves_refuse_writes():
    x = leaf(1, 2)
    for write in (
        lambda: x.add_(1), lambda: x.__setitem__(0, 1.0), lambda: x[0].mul_(2), lambda: x.view(-1).zero_(),
        lambda: x.copy_(T.zeros(2)), lambda: x.T.fill_(1), lambda: x.__iadd__(1),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="leaf Variable"):
            write()
    assert x.tolist() == [1, 2]
    x.detach().add_(1)
    assert x.tolist() == [2, 3]


def test_updates_under_no_grad_between_backwards():
    w = leaf(1, 2)
    for _ in range(3):
        (w * w).sum().backward()
        with T.no_grad():
            w -= 0.25 * w.grad
            w.grad.zero_()
    np.testing.assert_allclose(w.detach().numpy(), [0.125, 0.25])
    assert w.is_leaf and w.grad.tolist() == [0, 0]


def test_values_saved_before_a_write_are_used():
    """Values are immutable here, so what torch refuses with an error is right instead."""
    x = leaf(2)
    y = x * 1
    z = y.exp()
    w = z * z
    z.zero_()
    w.sum().backward()
    assert x.grad.item() == pytest.approx(2 * np.exp(4))


def test_in_place_activation():
    x = leaf(-1, 2)
    h = x * 3
    T.nn.functional.relu(h, inplace=True)
    (h * h).sum().backward()
    assert x.grad.tolist() == [0, 36]


def test_in_place_on_a_view_of_a_value_with_hooks():
    x = leaf(1, 2)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    z = y * 1
    z[0] = 0
    z.sum().backward()
    assert seen == [[0, 1]]
    assert x.grad.tolist() == [0, 2]


def test_detached_views_share_but_do_not_connect():
    x = leaf(1, 2)
    y = x * 2
    d = y.detach()
    d[0] = 50
    assert y.tolist() == [50, 4]
    y.sum().backward()
    assert x.grad is not None
