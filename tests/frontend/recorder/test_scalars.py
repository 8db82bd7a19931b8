"""Python numbers in programs: literal at first, arguments from the second value on."""

import numpy as np
import pytest

import treadle as T
from tests.frontend.recorder.counting import counting, nodes


def test_a_thousand_learning_rates_make_two_programs():
    w = T.ones(4)
    g = T.full((4,), 0.5)
    expected = np.ones(4, dtype=np.float32)
    with counting() as count:
        for k in range(1000):
            lr = 0.1 / (k + 1)
            w = w - g * lr
            w.realize()
            expected = expected - np.float32(0.5) * np.float32(lr)
            if k == 10:
                settled, size = count.made, nodes()
    assert settled <= 4  # the first steps have other leaves (constants) than the later ones
    assert count.made == settled
    assert nodes() == size
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)


def test_the_first_value_stays_literal_until_a_second_comes():
    x = T.from_numpy(np.arange(3, dtype=np.float32))
    with counting() as count:
        for _ in range(4):
            assert (x * 2.5).tolist() == [0, 2.5, 5]
        assert count.made == 1
        assert (x * 3.5).tolist() == [0, 3.5, 7]
        assert count.made == 2
        for s in (4.5, 5.5, 2.5, -1.0):
            assert (x * s).tolist() == [0, s, 2 * s]
    assert count.made == 2


def test_only_the_scalar_that_differs_becomes_an_argument():
    x = T.from_numpy(np.arange(3, dtype=np.float32))
    with counting() as count:
        for s in (0.5, 1.5, 2.5, 3.5):
            assert ((x + 1.0) * s).tolist() == [s, 2 * s, 3 * s]
        made = count.made
        assert ((x + 2.0) * 0.5).tolist() == [1, 1.5, 2]
    assert made == 2
    assert count.made <= 3


@pytest.mark.parametrize("values", [(1, 2, 3, 10, -4), (True, False, True)])
def test_integers_and_bools(values):
    x = T.from_numpy(np.arange(4, dtype=np.int64))
    for v in values * 2:
        assert (x * v).tolist() == [0, v, 2 * v, 3 * v]
        assert (x * v).dtype is T.int64


def test_an_argument_promotes_as_a_python_number():
    x = T.from_numpy(np.arange(3, dtype=np.float16))
    n = T.from_numpy(np.arange(3, dtype=np.int32))
    for s in (0.5, 1.5, 2.5, 7.25):
        assert (x * s).dtype is T.float16
        assert (n * s).dtype is T.float32
        np.testing.assert_array_equal((x * s).numpy(), np.arange(3, dtype=np.float16) * np.float16(s))
        np.testing.assert_array_equal((n * s).numpy(), (np.arange(3) * s).astype(np.float32))


def test_an_argument_is_rounded_as_a_literal_is():
    x = T.from_numpy(np.array([3.0], dtype=np.float32))
    got = [(x * s).item() for s in (0.1, 0.2, 0.3, 1 / 3, 1e-40)]
    assert got == [float(np.float32(3) * np.float32(s)) for s in (0.1, 0.2, 0.3, 1 / 3, 1e-40)]


def test_float_values_that_change_type_do_not_mix():
    x = T.from_numpy(np.arange(3, dtype=np.int64))
    for s in (2, 2.0, 3, 3.0, True):
        got = x * s
        assert got.dtype is (T.float32 if isinstance(s, float) else T.int64)
        assert got.tolist() == [0, 1 * s, 2 * s]


def test_runtime_scalar_never_enters_the_key():
    x = T.from_numpy(np.arange(3, dtype=np.float32))
    with counting() as count:
        for k in range(5):
            assert (x * T.runtime_scalar(k + 0.5)).tolist() == [0, k + 0.5, 2 * k + 1]
    assert count.made == 1


def test_fill_values_are_scalars_too():
    with counting() as count:
        for v in (0.25, 0.5, 0.75, 1.25, 8.0):
            assert T.full((3,), v).tolist() == [v] * 3
    assert count.made <= 2


def test_scalars_in_a_training_step_with_backward():
    w = T.tensor([2.0], requires_grad=True)
    with counting() as count:
        for k in range(20):
            scale = 1.0 + k / 7
            loss = ((w * scale) ** 2).sum()
            (g,) = T.autograd.grad(loss, w)
            assert g.item() == pytest.approx(2 * 2.0 * scale**2, rel=1e-5)
    assert count.made <= 2
