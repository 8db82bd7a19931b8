"""Hooks: on leaves and computed tensors, returning new gradients, removal, retain_grad, after accumulation."""

import pytest

import treadle as T


@pytest.fixture
def x():
    return T.tensor([1.0, 2.0], requires_grad=True)


FORCED = pytest.mark.parametrize("forced", [False, True])


def test_leaf_hook_sees_and_replaces(x):
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    assert seen == [[3, 3]]
    assert x.grad.tolist() == [30, 30]


@FORCED
def test_intermediate_hook_sees_the_complete_gradient(x, forced):
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    z = (y * y).sum() + y.sum()
    if forced:
        z.item()
    z.backward()
    assert seen == [[2 * 2 + 1, 2 * 4 + 1]]
    assert x.grad.tolist() == [10, 18]


@FORCED
def test_intermediate_hook_replaces(x, forced):
    y = x * 2
    y.register_hook(lambda g: g * 0 + 7)
    z = (y.exp()).sum()
    if forced:
        z.item()
    z.backward()
    assert x.grad.tolist() == [14, 14]


@FORCED
def test_hooks_run_in_order_and_may_be_removed(x, forced):
    calls = []
    y = x * 2
    first = y.register_hook(lambda g: calls.append("first"))
    y.register_hook(lambda g: calls.append("second"))
    with y.register_hook(lambda g: calls.append("third")):
        pass
    z = (y * y).sum()
    if forced:
        z.item()
    z.backward(retain_graph=True)
    first.remove()
    z.backward()
    assert calls == ["first", "second", "second"]


@FORCED
def test_hooks_of_a_chain_run_from_the_end(x, forced):
    calls = []
    a = x * 2
    b = a * 3
    c = b.sin()
    for name, t in (("a", a), ("b", b), ("c", c)):
        t.register_hook(lambda g, name=name: calls.append(name))
    z = c.sum()
    if forced:
        z.item()
    z.backward()
    assert calls == ["c", "b", "a"]


def test_hook_on_a_value_that_was_computed_before(x):
    y = x * 2
    y.tolist()
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * 5).sum().backward()
    assert seen == [[5, 5]]
    assert x.grad.tolist() == [10, 10]


@FORCED
def test_retain_grad(x, forced):
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    z = (y * y).sum()
    if forced:
        z.item()
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [4, 8]
    assert y.retains_grad and not x.retains_grad
    z.backward()
    assert y.grad.tolist() == [8, 16]
    x.retain_grad()
    with pytest.raises(RuntimeError):
        T.ones(1).retain_grad()


def test_post_accumulate_hooks(x):
    calls = []

    def step(t):
        calls.append(t.grad.tolist())
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 3).sum().backward()
    assert calls == [[3, 3]] and x.grad is None
    handle.remove()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3] and len(calls) == 1
    with pytest.raises(RuntimeError):
        (x * 2).register_post_accumulate_grad_hook(step)


def test_a_hook_that_reads_values_and_records_more(x):
    y = x * 3
    norms = []

    def clip(g):
        norms.append((g * g).sum().sqrt().item())
        return g / norms[-1]

    y.register_hook(clip)
    (y * T.tensor([3.0, 4.0])).sum().backward()
    assert norms == [5]
    assert x.grad.tolist() == pytest.approx([1.8, 2.4])


def test_a_hook_that_raises(x):
    y = x * 3

    def fail(g):
        raise ValueError("no")

    handle = y.register_hook(fail)
    z = (y * y).sum()
    with pytest.raises(ValueError, match="no"):
        z.backward(retain_graph=True)
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_hooks_need_gradients():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        T.ones(1).register_hook(print)


def test_the_same_function_twice_is_two_hooks(x):
    calls = []

    def note(g):
        calls.append(1)

    x.register_hook(note)
    x.register_hook(note)
    x.sum().backward()
    assert len(calls) == 2


@FORCED
def test_hooks_in_autograd_grad(x, forced):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    z = (y * y).sum()
    if forced:
        z.item()
    (g,) = T.autograd.grad(z, x)
    assert g.tolist() == [2 * 2 * 2 * 10, 2 * 4 * 2 * 10]
