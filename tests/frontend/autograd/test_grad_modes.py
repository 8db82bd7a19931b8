"""no_grad, enable_grad, set_grad_enabled, inference_mode: as blocks, as decorators, nested, after exceptions."""

import pytest

import treadle as T


@pytest.fixture
def w():
    return T.ones(2, requires_grad=True)


@pytest.mark.parametrize("mode", [T.no_grad, T.inference_mode, lambda: T.set_grad_enabled(False)])
def test_blocks(mode, w):
    with mode():
        assert not T.is_grad_enabled()
        y = w * 2
        with T.enable_grad():
            z = w * 3
        v = w * 4
    assert T.is_grad_enabled()
    assert (y.requires_grad, z.requires_grad, v.requires_grad) == (False, True, False)
    assert y.is_leaf and y.grad_fn is None
    assert w.requires_grad


@pytest.mark.parametrize("decorate", [T.no_grad(), T.no_grad, T.inference_mode(), T.inference_mode])
def test_decorators(decorate, w):
    @decorate
    def double(x, *, times=2):
        """Doc."""
        assert not T.is_grad_enabled()
        return x * times

    assert not double(w).requires_grad
    assert double(w, times=3).tolist() == [3, 3]
    assert (double.__name__, double.__doc__) == ("double", "Doc.")
    assert T.is_grad_enabled()

    @T.enable_grad()
    def again(x):
        return x * 2

    with T.no_grad():
        assert again(w).requires_grad


def test_decorated_recursion(w):
    @T.no_grad()
    def down(n):
        assert not T.is_grad_enabled()
        if n:
            down(n - 1)

    down(3)
    assert T.is_grad_enabled()


def test_set_grad_enabled_as_a_function(w):
    T.set_grad_enabled(False)
    try:
        assert not (w * 2).requires_grad
    finally:
        T.set_grad_enabled(True)
    assert (w * 2).requires_grad
    with T.set_grad_enabled(True):
        assert T.is_grad_enabled()


def test_exceptions_restore_the_mode(w):
    with pytest.raises(ValueError):
        with T.no_grad():
            raise ValueError
    assert T.is_grad_enabled()


def test_the_mode_survives_the_end_of_a_trace(w):
    with T.no_grad():
        (w * 2).tolist()
        assert not T.is_grad_enabled()
        assert not (w * 2).requires_grad
        T.flush()
        assert not (w * 2).requires_grad
    assert (w * 2).requires_grad


def test_inference_mode(w):
    with T.inference_mode():
        assert T.is_inference_mode_enabled()
        y = w * 2
    assert not T.is_inference_mode_enabled()
    with T.inference_mode(False):
        assert T.is_grad_enabled()
        assert (w * 2).requires_grad
    assert not y.requires_grad


def test_values_of_no_grad_are_constants_of_later_gradients(w):
    with T.no_grad():
        scale = (w * 3).sum()
    (w * scale).sum().backward()
    assert w.grad.tolist() == [6, 6]


def test_a_graph_made_before_no_grad_can_be_differentiated_inside(w):
    y = (w * w).sum()
    with T.no_grad():
        y.backward()
        z = (w * 2).sum()
    assert w.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="does not require grad"):
        z.backward()


def test_a_generator_sees_its_own_mode(w):
    @T.no_grad()
    def plain():
        return [w * k for k in range(3)]

    assert not any(t.requires_grad for t in plain())
