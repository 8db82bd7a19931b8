"""backward() and autograd.grad: which leaves get what, when graphs are freed, and which calls are refused."""

import numpy as np
import pytest

import treadle as T


def leaf(*values):
    return T.tensor(values, dtype=T.float64, requires_grad=True)


def test_gradients_of_a_product_and_a_sum():
    x, y = leaf(1, 2, 3), leaf(4, 5, 6)
    (x * y + x).sum().backward()
    assert x.grad.tolist() == [5, 6, 7]
    assert y.grad.tolist() == [1, 2, 3]
    assert not x.grad.requires_grad
    assert x.grad.dtype is T.float64


def test_accumulation_over_calls_and_over_uses():
    x = leaf(2)
    (x * x).backward(T.ones(1, dtype=T.float64))
    (x * 3).sum().backward()
    assert x.grad.tolist() == [7]
    y = x * 2
    (y * y + y).sum().backward()
    assert x.grad.tolist() == [7 + 8 * 2 + 2]


def test_accumulation_keeps_the_grad_object_but_not_its_old_value():
    x = leaf(1, 2)
    x.sum().backward()
    first, taken = x.grad, x.grad + 0
    x.sum().backward()
    assert x.grad is first
    assert first.tolist() == [2, 2] and taken.tolist() == [1, 1]


def test_a_grad_that_was_set_to_none_or_zeroed():
    x = leaf(1)
    x.sum().backward()
    x.grad = None
    (x * 4).sum().backward()
    assert x.grad.tolist() == [4]
    x.grad.zero_()
    (x * 5).sum().backward()
    assert x.grad.tolist() == [5]
    with pytest.raises(RuntimeError, match="different size"):
        x.grad = T.zeros(2, dtype=T.float64)
    with pytest.raises(TypeError):
        x.grad = 3
    with pytest.raises(RuntimeError, match="different type"):
        x.grad = T.zeros(1)


def test_seeds():
    x = leaf(1, 2)
    y = x * x
    y.backward(T.tensor([10.0, 100.0], dtype=T.float64))
    assert x.grad.tolist() == [20, 400]
    x.grad = None
    T.autograd.backward([x * 2, x.sum()], [T.ones(2, dtype=T.float64), None])
    assert x.grad.tolist() == [3, 3]


@pytest.mark.parametrize("forced", [False, True])
def test_backward_twice_raises_unless_the_graph_is_retained(forced):
    x = leaf(3)
    y = (x * x).sum()
    if forced:
        y.item()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    assert x.grad.tolist() == [12]


@pytest.mark.parametrize("forced", [False, True])
def test_two_losses_over_one_graph(forced):
    x = leaf(2)
    h = x.exp()
    a, b = h.sum(), (h * h).sum()
    if forced:
        T.realize(a, b)
    a.backward(retain_graph=True)
    b.backward()
    with pytest.raises(RuntimeError, match="second time"):
        a.backward()
    assert x.grad.item() == pytest.approx(np.exp(2) + 2 * np.exp(4))


def test_a_graph_without_saved_values_may_be_used_twice():
    x = leaf(1, 2)
    y = (x + x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4, 4]


def test_partial_backward_and_inputs():
    x, w = leaf(2), leaf(5)
    h = x * w
    y = (h * h).sum()
    y.backward(inputs=[w], retain_graph=True)
    assert x.grad is None and w.grad.tolist() == [2 * 10 * 2]
    y.backward(inputs=x)
    assert x.grad.tolist() == [2 * 10 * 5] and w.grad.tolist() == [40]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * 1).sum().backward(inputs=[])


def test_inputs_that_are_computed():
    x = leaf(2)
    h = x * 3
    y = (h * h).sum()
    (g,) = T.autograd.grad(y, h)
    assert g.tolist() == [12]
    assert x.grad is None


def test_grad_of_several_outputs_and_inputs():
    x, y = leaf(1, 2), leaf(3, 4)
    a, b = T.autograd.grad([(x * y).sum(), x.sum()], [x, y])
    assert a.tolist() == [4, 5] and b.tolist() == [1, 2]
    assert x.grad is None and y.grad is None
    a, b = T.autograd.grad([x * y, x], [x, y], [T.ones(2, dtype=T.float64), T.tensor([2.0, 3.0], dtype=T.float64)])
    assert a.tolist() == [5, 7] and b.tolist() == [1, 2]


def test_unused_inputs():
    x, y = leaf(1), leaf(2)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        T.autograd.grad((x * 2).sum(), [x, y])
    g, none = T.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)
    assert g.tolist() == [2] and none is None
    g, zero = T.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)
    assert zero.tolist() == [0]


def test_the_root_may_be_the_leaf():
    x = T.tensor(2.0, requires_grad=True)
    x.backward()
    assert x.grad.item() == 1
    (g,) = T.autograd.grad(x, x)
    assert g.item() == 1


def test_broadcast_and_promotion_are_undone():
    x = T.ones(3, 1, requires_grad=True)
    y = T.ones(4, dtype=T.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (T.float32, [[4.0]] * 3)
    assert (y.grad.dtype, y.grad.tolist()) == (T.float64, [3.0] * 4)
    h = T.ones(2, dtype=T.float16, requires_grad=True)
    (h.float() * 3).sum().backward()
    assert (h.grad.dtype, h.grad.tolist()) == (T.float16, [3, 3])


def test_detach_cuts():
    x = leaf(2)
    y = x * x.detach()
    y.sum().backward()
    assert x.grad.tolist() == [2]
    assert not (x * 2).detach().requires_grad
    z = (x * 2).detach_()
    assert z.is_leaf and not z.requires_grad


def test_is_leaf_and_grad_fn():
    x = leaf(1)
    y = x * 2
    assert x.is_leaf and x.grad_fn is None
    assert not y.is_leaf and "Mul" in type(y.grad_fn).__name__ + repr(y.grad_fn)
    assert y.grad is None
    plain = T.ones(1)
    assert plain.is_leaf and not plain.requires_grad and (plain * 2).grad_fn is None


def test_refused_calls():
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(T.ones(3, dtype=T.float64))
    with pytest.raises(RuntimeError, match="does not require grad"):
        T.ones(1).sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        T.autograd.grad(x.sum(), T.ones(1))
    with pytest.raises(RuntimeError, match="floating point"):
        T.ones(2, dtype=T.int64).requires_grad_()
    with pytest.raises(RuntimeError, match="floating point"):
        T.zeros(2, dtype=T.bool, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf variables"):
        (x * 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()


def test_integers_and_comparisons_do_not_require_grad():
    x = leaf(1.5, -2)
    assert not (x > 0).requires_grad
    assert not x.argmax().requires_grad
    assert not x.long().requires_grad
    values, indices = x.sort()
    assert values.requires_grad and not indices.requires_grad


def test_requires_grad_on_and_off():
    x = T.ones(2)
    y = x * 2
    x.requires_grad_()
    assert not y.requires_grad
    z = (x * y).sum()
    z.backward()
    assert x.grad.tolist() == [2, 2]
    x.requires_grad_(False)
    assert not (x * 2).requires_grad
    x.requires_grad = True
    assert (x * 2).requires_grad


def test_gradient_of_zero_size_and_zero_dim():
    x = T.zeros(0, 3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.shape == (0, 3)
    s = T.tensor(3.0, requires_grad=True)
    (s * T.ones(2, 2)).sum().backward()
    assert s.grad.shape == () and s.grad.item() == 4


def test_a_long_chain():
    x = T.tensor(1.0, dtype=T.float64, requires_grad=True)
    y = x
    for _ in range(500):
        y = y * 1.01
    y.backward()
    assert x.grad.item() == pytest.approx(1.01**500)


def test_functional_jacobian_and_hessian():
    x = T.tensor([1.0, 2.0], dtype=T.float64)
    jac = T.autograd.functional.jacobian(lambda t: T.stack([t[0] * t[1], t[0] ** 3]), x)
    assert jac.tolist() == [[2, 1], [3, 0]]
    hess = T.autograd.functional.hessian(lambda t: t[0] ** 2 * t[1] ** 3, x)
    assert hess.tolist() == [[16, 24], [24, 12]]
    _, product = T.autograd.functional.vjp(lambda t: t * t, x, T.ones(2, dtype=T.float64))
    assert product.tolist() == [2, 4]
