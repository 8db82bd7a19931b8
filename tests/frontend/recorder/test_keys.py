"""What makes two traces the same: operations with their attributes, operands, types, grad mode, grad flags, scalars."""

import math

import numpy as np
import pytest

import treadle as T
from tests.frontend.recorder.counting import counting, nodes


def runs(*programs):
    """How many programs are made when each of `programs` runs twice."""
    with counting() as count:
        for program in (*programs, *programs):
            program()
    return count.made


def data(*shape, dtype=np.float32):
    return T.from_numpy(np.ones(shape, dtype=dtype))


def test_the_same_program_is_made_once():
    x = data(3, 4)

    def program():
        return ((x + x).exp() * x).sum().item()

    with counting() as count:
        results = {program() for _ in range(5)}
    assert (count.made, count.found) == (1, 4)
    assert len(results) == 1


def test_no_node_is_added_by_a_repetition():
    x = data(3, 4)
    (x * x - x).tanh().realize()
    before = nodes()
    for _ in range(3):
        (x * x - x).tanh().realize()
    assert nodes() == before


@pytest.mark.parametrize(
    "one, other",
    [
        (lambda x: x.sin(), lambda x: x.cos()),
        (lambda x: x.sum(0), lambda x: x.sum(1)),
        (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
        (lambda x: x - x * 1, lambda x: x * 1 - x),
        (lambda x: x * 2, lambda x: x * 2.0),
        (lambda x: x * 1, lambda x: x * True),
        (lambda x: x.long(), lambda x: x.int()),
        (lambda x: T.full((2,), 0.0), lambda x: T.full((2,), -0.0)),
        (lambda x: x.transpose(0, 1) + 1, lambda x: x + 1),
    ],
)
def test_programs_that_differ_are_told_apart(one, other):
    x = data(3, 3)
    assert runs(lambda: one(x).realize(), lambda: other(x).realize()) == 2


def test_signs_of_zero_and_nan_are_kept():
    x = data(2)
    assert [math.copysign(1, (x * s).tolist()[0]) for s in (0.0, -0.0, 0.0, -0.0)] == [1, -1, 1, -1]
    for s in (math.nan, 1.0, math.nan):
        assert math.isnan((x * s).tolist()[0]) == math.isnan(s)


def test_dtype_of_a_leaf_is_part_of_the_key():
    def program(x):
        return (x + x).tolist()

    assert program(data(2)) == [2.0, 2.0]
    assert program(data(2, dtype=np.int64)) == [2, 2]
    assert type(program(data(2, dtype=np.int64))[0]) is int


def test_default_dtype_is_part_of_the_key():
    x = data(2, dtype=np.int64)

    def program():
        return x / 2 + T.zeros(2)

    assert program().dtype is T.float32
    program().realize()
    T.set_default_dtype(T.float64)
    try:
        assert program().dtype is T.float64
        assert program().numpy().dtype == np.float64
    finally:
        T.set_default_dtype(T.float32)
    assert program().numpy().dtype == np.float32


def test_requires_grad_of_a_leaf_and_grad_mode_are_part_of_the_key():
    plain, leaf = data(2), data(2).requires_grad_()
    assert not (plain * 2).requires_grad
    assert (leaf * 2).requires_grad
    with T.no_grad():
        assert not (leaf * 2).requires_grad
    assert (leaf * 2).requires_grad


def test_one_tensor_twice_is_not_two_tensors():
    a, b = data(3), data(3) * 2
    b.realize()
    with counting() as count:
        assert (a + a).tolist() == [2, 2, 2]
        assert (a + b).tolist() == [3, 3, 3]
    assert count.made == 2


def test_order_of_operands_matters():
    a, b = data(3) * 5, data(3) * 2
    T.realize(a, b)
    assert (a - b).tolist() == [3, 3, 3]
    assert (b - a).tolist() == [-3, -3, -3]


def test_what_is_alive_is_part_of_the_program_but_not_of_the_path():
    x = data(4)

    def program(keep):
        y = x * 3
        z = y + 1
        if not keep:
            del y
        z.realize()
        return (y.tolist(), z.tolist()) if keep else z.tolist()

    with counting() as count:
        assert program(True) == ([3.0] * 4, [4.0] * 4)
        before = nodes()
        assert program(False) == [4.0] * 4
        assert nodes() == before
        assert program(True) == ([3.0] * 4, [4.0] * 4)
    assert count.made == 2
