"""Custom autograd.Functions: as leaves of the tape, in the middle of graphs, forced or not."""

import numpy as np
import pytest

import treadle as T

FORCED = pytest.mark.parametrize("forced", [False, True])


class Cube(T.autograd.Function):
    """x**3 with a derivative that is marked by a factor: 30 x**2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 30 * x * x


class SinCos(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx, gs, gc):
        s, c = ctx.saved_tensors
        return gs * c - gc * s


def leaf(*values):
    return T.tensor(values, dtype=T.float64, requires_grad=True)


@FORCED
def test_in_the_middle_of_a_graph(forced):
    x = leaf(1, 2)
    y = Cube.apply(x * 2)
    assert y.requires_grad and not y.is_leaf
    z = (y * 5).sum()
    if forced:
        assert z.item() == 5 * (8 + 64)
    z.backward()
    assert x.grad.tolist() == [5 * 30 * 4 * 2, 5 * 30 * 16 * 2]


@FORCED
def test_at_the_root_and_at_the_leaf(forced):
    x = leaf(3)
    y = Cube.apply(x)
    if forced:
        y.item()
    y.backward(T.ones(1, dtype=T.float64))
    assert x.grad.tolist() == [270]


@FORCED
def test_several_outputs(forced):
    x = leaf(0.3, 1.1)
    s, c = SinCos.apply(x * 2)
    loss = (s * c).sum()
    if forced:
        loss.item()
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(4 * np.array([0.3, 1.1])))


@FORCED
def test_outputs_without_a_gradient_get_zeros(forced):
    x = leaf(0.3)
    s, c = SinCos.apply(x)
    loss = s.sum()
    if forced:
        T.realize(loss, c)
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos([0.3]))


def test_outputs_without_a_gradient_may_get_none():
    seen = []

    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return a

    x = leaf(1)
    a, _ = Two.apply(x)
    a.sum().backward()
    assert seen[0][1] is None and seen[0][0].tolist() == [1]


def test_several_inputs_none_and_needs_input_grad():
    class Scale(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, y):
            ctx.factor = factor
            ctx.needs = ctx.needs_input_grad
            Scale.needs = ctx.needs_input_grad
            return x * factor + y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None, g if ctx.needs_input_grad[2] else None

    x, y = leaf(1), T.ones(1, dtype=T.float64)
    Scale.apply(x, 4.0, y).sum().backward()
    assert x.grad.tolist() == [4]
    assert Scale.needs == (True, False, False)
    w = leaf(5)
    Scale.apply(x, 3.0, w).sum().backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([7], [1])
    assert Scale.needs == (True, False, True)


def test_non_differentiable_outputs():
    class Top(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.max(0)
            rank = values * 0
            ctx.mark_non_differentiable(indices, rank)
            ctx.indices = indices
            ctx.shape = x.shape
            return values, indices, rank

        @staticmethod
        def backward(ctx, g, *rest):
            return T.zeros(ctx.shape, dtype=g.dtype).index_fill(0, ctx.indices.reshape(1), 1) * g

    x = leaf(1, 5, 2)
    v, i, r = Top.apply(x)
    assert v.requires_grad and not i.requires_grad and not r.requires_grad
    v.backward()
    assert x.grad.tolist() == [0, 1, 0]


def test_setup_context():
    class Mul(T.autograd.Function):
        @staticmethod
        def forward(a, b):
            return a * b

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, g * a

    a, b = leaf(2), leaf(7)
    Mul.apply(a, b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([7], [2])


def test_straight_through_estimator_in_a_training_step():
    class Round(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    w = leaf(0.4, 1.6)
    for _ in range(3):
        loss = (Round.apply(w) * T.tensor([1.0, 2.0], dtype=T.float64)).sum()
        loss.backward()
        assert w.grad.tolist() == [1, 2]
        with T.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
    np.testing.assert_allclose(w.detach().numpy(), [0.1, 1.0])


@FORCED
def test_chains_and_diamonds_of_functions(forced):
    x = leaf(1.0)
    a = Cube.apply(x)  # 30
    b = Cube.apply(a * 2)  # 30 * 4 = 120
    c = Cube.apply(a + 1)  # 120
    loss = (b + c).sum()
    if forced:
        T.realize(a)
        loss.item()
    loss.backward()
    assert x.grad.tolist() == [(120 * 2 + 120) * 30]


def test_a_function_used_twice_on_one_input():
    x = leaf(2)
    (Cube.apply(x) + Cube.apply(x)).sum().backward()
    assert x.grad.tolist() == [240]


def test_no_grad_and_plain_inputs():
    assert not Cube.apply(T.ones(2)).requires_grad
    x = leaf(1)
    with T.no_grad():
        assert not Cube.apply(x).requires_grad


def test_backward_twice():
    x = leaf(1)
    y = Cube.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [60]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_wrong_number_of_gradients():
    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(leaf(1), leaf(2)).sum().backward()


def test_mark_dirty():
    class AddOne(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    w = leaf(1)
    x = w * 2
    y = AddOne.apply(x)
    assert y is x and x.tolist() == [3]
    x.sum().backward()
    assert w.grad.tolist() == [10]


def test_double_backward_through_a_function():
    x = leaf(2)
    (g,) = T.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [120]
    (h,) = T.autograd.grad(g.sum(), x)
    assert h.tolist() == [120]


def test_reading_values_inside_forward_and_backward():
    class Checked(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = x.abs().max().item()
            return x / ctx.scale

        @staticmethod
        def backward(ctx, g):
            assert g.sum().item() == pytest.approx(6)
            return g / ctx.scale

    x = leaf(1, -4)
    y = x * 2
    (Checked.apply(y) * 3).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.75, 0.75])
