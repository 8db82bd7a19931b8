"""Tensors from data, constants, ranges; like and new forms; arguments that are refused."""

import math

import numpy as np
import pytest

import treadle as T


@pytest.mark.parametrize(
    "data, dtype, values",
    [
        (3, T.int64, 3), (2.5, T.float32, 2.5), (True, T.bool, True), ([], T.float32, []), ([1, 2], T.int64, [1, 2]),
        ([1, 2.5], T.float32, [1, 2.5]), ([True, False], T.bool, [True, False]), ([[1], [2]], T.int64, [[1], [2]]),
        ((1, (2)), T.int64, [1, 2]), (range(3), T.int64, [0, 1, 2]), (np.float64(2), T.float64, 2),
        (np.arange(3, dtype=np.int16), T.int16, [0, 1, 2]), ([np.float32(1), 2], T.float32, [1, 2]),
        ([[]], T.float32, [[]]), (-0.0, T.float32, -0.0), ([float("inf"), 1], T.float32, [math.inf, 1]),
        (np.array([True]), T.bool, [True]), ([2**40], T.int64, [2**40]),
    ],
)  # fmt: skip
def test_tensor_from_data(data, dtype, values):
    t = T.tensor(data)
    assert t.dtype is dtype
    assert t.tolist() == values
    assert t.shape == np.shape(np.asarray(values))


def test_tensor_with_dtype_and_flags():
    assert T.tensor([1.9, -1.9], dtype=T.int32).tolist() == [1, -1]
    assert T.tensor([0, 2], dtype=T.bool).tolist() == [False, True]
    assert T.tensor([1, 2], dtype=T.bfloat16).tolist() == [1, 2]
    t = T.tensor([1.0], requires_grad=True)
    assert t.requires_grad and t.is_leaf
    u = T.tensor(t)
    assert not u.requires_grad and u.tolist() == [1]
    assert T.tensor([T.tensor(1), T.tensor(2)]).tolist() == [1, 2]


@pytest.mark.parametrize(
    "bad, kind",
    [
        (lambda: T.tensor([[1], [2, 3]]), ValueError), (lambda: T.tensor("a"), (TypeError, ValueError)),
        (lambda: T.tensor([None]), (RuntimeError, TypeError)), (lambda: T.tensor([2**70]), RuntimeError),
        (lambda: T.zeros(-1), RuntimeError), (lambda: T.zeros(1.5), TypeError), (lambda: T.zeros("a"), TypeError),
        (lambda: T.full((2,), "a"), TypeError), (lambda: T.arange(0, 3, 0), RuntimeError),
        (lambda: T.arange(0, 3, -1), RuntimeError), (lambda: T.from_numpy([1]), TypeError),
        (lambda: T.zeros(2, device="cuda"), RuntimeError), (lambda: T.eye(-1), RuntimeError),
        (lambda: T.linspace(0, 1, -2), RuntimeError), (lambda: T.zeros(2, device="nowhere"), RuntimeError),
    ],
)  # fmt: skip
def test_refused(bad, kind):
    with pytest.raises(kind):
        bad()


@pytest.mark.parametrize("size", [(2, 3), ((2, 3),), ([2, 3],), (T.Size([2, 3]),), (np.int64(2), 3)])
def test_sizes(size):
    for make, value in ((T.zeros, 0), (T.ones, 1)):
        t = make(*size)
        assert (t.shape, t.dtype) == ((2, 3), T.float32)
        assert t.tolist() == [[value] * 3] * 2
    assert T.empty(*size).shape == (2, 3)
    assert T.rand(*size).shape == (2, 3)


def test_full_and_likes():
    assert T.full((2,), 3).dtype is T.int64
    assert T.full((2,), 3.0).dtype is T.float32
    assert T.full((), True).dtype is T.bool
    assert T.full((2,), 7, dtype=T.float16).tolist() == [7, 7]
    x = T.ones(2, 3, dtype=T.int16)
    for make, value in ((T.zeros_like, 0), (T.ones_like, 1)):
        assert (make(x).dtype, make(x).tolist()) == (T.int16, [[value] * 3] * 2)
        assert make(x, dtype=T.float64).dtype is T.float64
    assert T.full_like(x, 4).tolist() == [[4] * 3] * 2
    assert (x.new_zeros(2).dtype, x.new_ones((1, 2)).shape, x.new_full((2,), 5).tolist()) == (T.int16, (1, 2), [5, 5])
    assert x.new_tensor([1.5]).dtype is T.int16
    assert T.empty_like(x).shape == (2, 3)


@pytest.mark.parametrize(
    "args", [(5,), (2, 5), (5, 2, -1), (0, 1, 0.3), (0.5, 3), (3, 3), (1, 2, 0.25), (-3, 3, 2), (10, 0, -3)]
)
def test_arange(args):
    got, want = T.arange(*args), np.arange(*args)
    assert got.dtype is (T.float32 if any(isinstance(a, float) for a in args) else T.int64)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    assert T.arange(*args, dtype=T.float64).dtype is T.float64


def test_linspace_logspace_eye():
    np.testing.assert_allclose(T.linspace(-1, 2, 7).numpy(), np.linspace(-1, 2, 7), rtol=1e-6, atol=1e-7)
    assert T.linspace(3, 5, 1).tolist() == [3]
    assert T.linspace(0, 1, 0).shape == (0,)
    np.testing.assert_allclose(T.logspace(0, 3, 4).numpy(), [1, 10, 100, 1000], rtol=1e-5)
    np.testing.assert_array_equal(T.eye(2, 3).numpy(), np.eye(2, 3))
    assert T.eye(2, dtype=T.int64).tolist() == [[1, 0], [0, 1]]


def test_meshgrid_and_combinations_of_ranges():
    a, b = T.meshgrid(T.arange(2), T.arange(3), indexing="ij")
    assert (a.tolist(), b.tolist()) == ([[0] * 3, [1] * 3], [[0, 1, 2]] * 2)
    a, _ = T.meshgrid(T.arange(2), T.arange(3), indexing="xy")
    assert a.shape == (3, 2)
    assert T.cartesian_prod(T.arange(2), T.arange(2)).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert T.tril_indices(2, 2).tolist() == [[0, 1, 1], [0, 0, 1]]


def test_casts():
    x = T.tensor([0.0, 1.5, -2.7])
    names = {"double": T.float64, "half": T.float16, "long": T.int64, "int": T.int32, "bool": T.bool}
    for name, dtype in names.items():
        assert getattr(x, name)().dtype is dtype
        assert x.to(dtype).tolist() == getattr(x, name)().tolist()
    assert x.long().tolist() == [0, 1, -2]
    assert x.bool().tolist() == [False, True, True]
    assert x.to("cpu") is x and x.float() is x and x.to(T.float32) is x
    assert x.to(T.float64, copy=True).dtype is T.float64
    assert x.type(T.int64).dtype is T.int64
    assert x.type() == "torch.FloatTensor"
    assert x.type_as(T.ones(1, dtype=T.int8)).dtype is T.int8


def test_python_protocols():
    x = T.tensor([[1, 2], [3, 4]])
    assert len(x) == 2 and [r.tolist() for r in x] == [[1, 2], [3, 4]]
    assert int(x[0, 1]) == 2 and float(x[0, 0]) == 1.0 and bool(x[1, 1]) and [10, 20][T.tensor(1)] == 20
    assert 3 in x and 9 not in x
    with pytest.raises(TypeError):
        len(T.tensor(1))
    with pytest.raises(TypeError):
        iter(T.tensor(1))
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()
    assert np.asarray(x).tolist() == x.tolist()
    assert np.array_equal(np.sqrt(T.tensor([4.0])), [2.0])
    assert x.size() == (2, 2) and x.size(0) == 2 and x.numel() == 4 and x.nbytes == 32 and x.element_size() == 8
