"""create_graph: gradients of gradients."""

import math

import numpy as np
import pytest

import treadle as T


def scalar(value):
    return T.tensor(value, dtype=T.float64, requires_grad=True)


@pytest.mark.parametrize("forced", [False, True])
def test_first_second_third(forced):
    x = scalar(0.7)
    y = x.sin() * x**3
    if forced:
        y.item()
    wanted = [
        math.cos(0.7) * 0.343 + math.sin(0.7) * 3 * 0.49,
        -math.sin(0.7) * 0.343 + 2 * math.cos(0.7) * 3 * 0.49 + math.sin(0.7) * 6 * 0.7,
    ]
    d = [y]
    for _ in range(3):
        d.append(T.autograd.grad(d[-1], x, create_graph=True)[0])
        if forced:
            d[-1].item()
    assert d[1].item() == pytest.approx(wanted[0])
    assert d[2].item() == pytest.approx(wanted[1])
    h = 1e-4
    f2 = lambda v: -math.sin(v) * v**3 + 6 * math.cos(v) * v**2 + 6 * math.sin(v) * v  # noqa: E731
    assert d[3].item() == pytest.approx((f2(0.7 + h) - f2(0.7 - h)) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("forced", [False, True])
def test_backward_through_a_gradient_penalty(forced):
    w = T.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=T.float64, requires_grad=True)
    x = T.tensor([0.5, -1.0], dtype=T.float64, requires_grad=True)
    out = ((w @ x).tanh()).sum()
    if forced:
        out.item()
    (g,) = T.autograd.grad(out, x, create_graph=True)
    penalty = (g * g).sum()
    if forced:
        penalty.item()
    penalty.backward()
    a, b = w.detach().numpy().copy(), x.detach().numpy().copy()

    def p(m):
        v = m.T @ (1 - np.tanh(m @ b) ** 2)
        return (v * v).sum()

    numeric = np.zeros_like(a)
    for i in np.ndindex(a.shape):
        e = np.zeros_like(a)
        e[i] = 1e-6
        numeric[i] = (p(a + e) - p(a - e)) / 2e-6
    np.testing.assert_allclose(w.grad.numpy(), numeric, rtol=1e-6)


def test_hessian_vector_product():
    x = T.tensor([1.0, 2.0, 3.0], dtype=T.float64, requires_grad=True)
    y = (x**3).sum() + x.prod()
    (g,) = T.autograd.grad(y, x, create_graph=True)
    v = T.tensor([1.0, -1.0, 2.0], dtype=T.float64)
    (hv,) = T.autograd.grad((g * v).sum(), x)
    hess = np.diag(6 * np.array([1.0, 2, 3])) + np.array([[0, 3, 2], [3, 0, 1], [2, 1, 0]])
    np.testing.assert_allclose(hv.numpy(), hess @ v.numpy())


def test_create_graph_makes_grads_that_require_grad():
    x = scalar(2.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    assert x.grad.item() == 12
    first = x.grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 12


def test_without_create_graph_a_gradient_is_a_constant():
    x = scalar(2.0)
    (g,) = T.autograd.grad(x**3, x)
    assert not g.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        g.backward()


def test_a_linear_function_has_no_second_derivative():
    x = scalar(2.0)
    (g,) = T.autograd.grad(x * 3, x, create_graph=True)
    assert g.item() == 3
    if g.requires_grad:
        (h,) = T.autograd.grad(g, x, allow_unused=True)
        assert h is None or h.item() == 0


def test_relu_matmul_softmax_twice():
    rng = np.random.default_rng(0)
    x = T.tensor(rng.standard_normal((3, 4)), requires_grad=True)
    w = T.tensor(rng.standard_normal((4, 5)), requires_grad=True)

    def inner(a, b):
        loss = T.nn.functional.log_softmax((a @ b).relu(), -1)[:, 0].sum()
        (g,) = T.autograd.grad(loss, a, create_graph=True)
        return (g**2).sum()

    inner(x, w).backward()
    got = w.grad.numpy().copy()
    for i in [(0, 0), (1, 3), (3, 4)]:
        base = w.detach().numpy().copy()
        ends = []
        for step in (1e-6, -1e-6):
            moved = base.copy()
            moved[i] += step
            ends.append(inner(x, T.tensor(moved, requires_grad=True)).item())
        assert got[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-8)


def test_mixed_partials_commute():
    x, y = scalar(0.3), scalar(1.2)
    f = (x * y).exp() + x.sin() * y**2
    (fx,) = T.autograd.grad(f, x, create_graph=True)
    (fy,) = T.autograd.grad(f, y, create_graph=True)
    (fxy,) = T.autograd.grad(fx, y, retain_graph=True)
    (fyx,) = T.autograd.grad(fy, x)
    assert fxy.item() == pytest.approx(fyx.item())
    assert fxy.item() == pytest.approx(math.exp(0.36) * (1 + 0.36) + math.cos(0.3) * 2.4)


def test_runtime_scalars_in_a_forced_graph():
    for k in range(4):
        x = scalar(2.0)
        y = (x * (1.5 + k)) ** 2
        y.item()
        (g,) = T.autograd.grad(y, x, create_graph=True)
        (h,) = T.autograd.grad(g, x)
        assert (g.item(), h.item()) == (4.0 * (1.5 + k) ** 2, 2 * (1.5 + k) ** 2)
