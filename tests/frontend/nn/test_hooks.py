"""Forward and backward hooks of modules."""

import numpy as np
import pytest

import treadle
from treadle import nn


class Double(nn.Module):
    def forward(self, x, *, by=2.0):
        return x * by


class Two(nn.Module):
    def forward(self, x, y):
        return x * y, x + y


def ones(*shape):
    return treadle.ones(*shape)


def test_forward_hooks_replace_input_and_output():
    m = Double()
    pre = m.register_forward_pre_hook(lambda mod, args: args[0] + 1)
    m.register_forward_hook(lambda mod, args, out: out + args[0])
    assert float(m(ones(()))) == 6.0
    pre.remove()
    pre.remove()
    assert float(m(ones(()))) == 3.0


def test_hooks_with_kwargs_see_and_change_them():
    m = Double()
    m.register_forward_pre_hook(lambda mod, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True)
    seen = []
    m.register_forward_hook(lambda mod, args, kwargs, out: seen.append(kwargs["by"]), with_kwargs=True)
    assert float(m(ones(()), by=4.0)) == 5.0
    assert seen == [5.0]
    bad = Double()
    bad.register_forward_pre_hook(lambda mod, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        bad(ones(()))


def test_order_and_prepend():
    m, seen = Double(), []
    m.register_forward_hook(lambda *a: seen.append(1))
    m.register_forward_hook(lambda *a: seen.append(2))
    m.register_forward_hook(lambda *a: seen.append(0), prepend=True)
    m(ones(()))
    assert seen == [0, 1, 2]


def test_always_call_runs_after_an_error_and_once():
    m, seen = Double(), []
    m.register_forward_hook(lambda mod, args, out: seen.append(out), always_call=True)
    with pytest.raises(TypeError):
        m(ones(()), unknown=1)
    assert seen == [None]


def test_handle_is_a_context_manager():
    m, seen = Double(), []
    with m.register_forward_hook(lambda *a: seen.append(1)):
        m(ones(()))
    m(ones(()))
    assert seen == [1]


def test_full_backward_hook_sees_and_replaces_gradients():
    m, seen = Double(), []

    def hook(mod, grad_input, grad_output):
        seen.append((float(grad_input[0].sum()), float(grad_output[0].sum())))
        return (grad_input[0] * 10,)

    m.register_full_backward_hook(hook)
    x = treadle.ones(3, requires_grad=True)
    (m(x) * 5).sum().backward()
    assert seen == [(30.0, 15.0)]
    np.testing.assert_array_equal(x.grad.numpy(), [100.0] * 3)


def test_full_backward_hook_of_several_inputs_and_outputs_runs_once():
    m, seen = Two(), []

    def hook(mod, grad_input, grad_output):
        seen.append(([g.tolist() for g in grad_input], [g.tolist() for g in grad_output]))
        return tuple(g * 2 for g in grad_input)

    m.register_full_backward_hook(hook)
    x = treadle.tensor([2.0], requires_grad=True)
    y = treadle.tensor([3.0, 4.0], requires_grad=True)
    p, s = m(x, y)
    (p.sum() + s.sum() * 10).backward()
    assert seen == [([[27.0], [12.0, 12.0]], [[1.0, 1.0], [10.0, 10.0]])]
    np.testing.assert_array_equal(x.grad.numpy(), [54.0])
    np.testing.assert_array_equal(y.grad.numpy(), [24.0, 24.0])


def test_backward_pre_hook_replaces_grad_output():
    m = Double()
    m.register_full_backward_pre_hook(lambda mod, grads: (grads[0] * 3,))
    x = treadle.ones(2, requires_grad=True)
    m(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [6.0, 6.0])


def test_backward_hook_without_input_gradients():
    m, seen = nn.Linear(2, 1), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, float(go[0].sum()))))
    m(ones(4, 2)).sum().backward()
    assert seen == [((None,), 4.0)]


def test_wrong_number_of_gradients():
    m = Double()
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    x = treadle.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="invalid number of grad_input"):
        m(x).sum().backward()
