"""Indexing against NumPy, the gather and scatter families against loops."""

import numpy as np
import pytest

import treadle as T

A = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def key_of(key):
    """NumPy arrays in a key as tensors."""
    if isinstance(key, np.ndarray):
        return T.tensor(key)
    return tuple(map(key_of, key)) if isinstance(key, tuple) else key


KEYS = [
    0, -1, (0, 1), (0, 1, 2), (slice(None), 2), (..., -1), (0, ...), ..., None, (None, 0), (0, None, slice(1)),
    slice(1, 3), slice(-2, None), (slice(None), slice(None, None, 2)), (slice(None), slice(1, 1)), slice(5, 9),
    (slice(None), slice(3, 1)),
    [0, 2], [[0, 1], [2, 0]], ([0, 2], [1, 3]), ([0, 2], slice(None), [1, 3]), (slice(None), [1, 3]), (0, [1, 3]),
    ([0, 2], 1), (slice(None), [3, 0], [0, 4]), (slice(None), 0, [1, 2]), ([0, 1], None, [1, 2]), (..., [0, 1]),
    np.array([2, 0]), np.array(1), np.array([[-1, 0]]), (np.array([0, 1])[:, None], np.array([2, 3])),
    (slice(None, None, 2), np.array([0, 3]), slice(1, 3)), A[:, 0, 0] > 10, A > 30, (A[:, :, 0] > 10),
    (0, np.array([True, False, True, False])), (slice(None), np.array([True, False, False, True])),
    (np.array([True, True, False]), [0, 2]), True, False, [], (slice(None), []), np.zeros((2, 0), dtype=np.int64),
    np.int64(1), (np.int32(0), slice(None)), range(2), ([-1, -2], [-1, -2]),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda k: repr(k)[:40])
def test_getitem(key):
    x = T.tensor(A)
    want = A[list(key) if isinstance(key, range) else key]
    got = x[key_of(key)]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("key", KEYS, ids=lambda k: repr(k)[:40])
def test_gradient_of_getitem(key):
    x = T.tensor(A, requires_grad=True)
    got = x[key_of(key)]
    weight = np.arange(1.0, got.numel() + 1, dtype=np.float32).reshape(got.shape)
    (got * T.tensor(weight)).sum().backward()
    want = np.zeros_like(A)
    np.add.at(want, list(key) if isinstance(key, range) else key, weight)
    np.testing.assert_array_equal(x.grad.numpy(), want)


@pytest.mark.parametrize(
    "key, kind, message",
    [
        (3, IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
        (-4, IndexError, "out of bounds"),
        ((0, 0, 0, 0), IndexError, "too many indices"),
        ((..., ...), IndexError, "single ellipsis"),
        ("a", (IndexError, TypeError), ""),
        (1.0, (IndexError, TypeError), ""),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
        (T.tensor([0.5]), IndexError, "must be long, int, byte or bool"),
        (T.tensor([True, False]), IndexError, "does not match the shape of the indexed tensor"),
        (([0, 1], [0, 1, 2]), IndexError, "could not be broadcast"),
    ],
)
def test_refused_keys(key, kind, message):
    with pytest.raises(kind, match=message or None):
        T.tensor(A)[key]


def test_out_of_range_values_raise_when_read():
    for key in ([7], [-4], [0, 3]):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds|out of range"):
            T.tensor(A)[key].numpy()


def test_zero_dim():
    x = T.tensor(5.0)
    assert x[...].item() == 5 and x[None].shape == (1,) and x[()].item() == 5
    assert x[T.tensor(True)].tolist() == [5]
    with pytest.raises(IndexError):
        x[0]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_gather_scatter(dim):
    index = RNG.integers(0, A.shape[dim], (2, 3, 4))
    src = RNG.integers(1, 9, (2, 3, 4)).astype(np.float32)
    x, i, s = T.tensor(A), T.tensor(index), T.tensor(src)
    shape = [A.shape[k] if k == dim % 3 else index.shape[k] for k in range(3)]
    crop = A[tuple(slice(n) for n in shape)]
    np.testing.assert_array_equal(x.gather(dim, i).numpy(), np.take_along_axis(crop, index, dim))
    added, placed, top = A.copy(), A.copy(), A.copy()
    for at in np.ndindex(index.shape):
        to = list(at)
        to[dim] = index[at]
        added[tuple(to)] += src[at]
        placed[tuple(to)] = -1
        top[tuple(to)] = max(top[tuple(to)], src[at])
    np.testing.assert_array_equal(x.scatter_add(dim, i, s).numpy(), added)
    np.testing.assert_array_equal(x.scatter(dim, i, -1.0).numpy(), placed)
    np.testing.assert_array_equal(x.scatter_reduce(dim, i, s, "amax").numpy(), top)
    np.testing.assert_array_equal(x.numpy(), A)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_functions(dim):
    index = np.array([2, 0, 2])
    shape = list(A.shape)
    shape[dim] = 3
    src = RNG.integers(1, 9, shape).astype(np.float32)
    x, i, s = T.tensor(A), T.tensor(index), T.tensor(src)
    np.testing.assert_array_equal(x.index_select(dim, i).numpy(), np.take(A, index, dim))
    want = A.copy()
    np.add.at(np.moveaxis(want, dim, 0), index, np.moveaxis(2 * src, dim, 0))
    np.testing.assert_array_equal(x.index_add(dim, i, s, alpha=2).numpy(), want)
    want = A.copy()
    np.moveaxis(want, dim, 0)[index] = 7
    np.testing.assert_array_equal(x.index_fill(dim, i, 7).numpy(), want)
    want = A.copy()
    np.moveaxis(want, dim, 0)[index] = np.moveaxis(src, dim, 0)
    np.testing.assert_array_equal(x.index_copy(dim, i, s).numpy(), want)


def test_put_and_take():
    x = T.tensor(A)
    assert x.take(T.tensor([[0, -1]])).tolist() == [[0, 59]]
    y = x.index_put((T.tensor([0, 0]), T.tensor([1, 1])), T.tensor(1.0), accumulate=True)
    assert (y - x).sum().item() == 10 and (y - x)[0, 1].tolist() == [2.0] * 5
    np.testing.assert_array_equal(x.take_along_dim(x.argmax(1, keepdim=True), 1).numpy(), A.max(1, keepdims=True))


def test_masked_functions():
    x, m = T.tensor(A), T.tensor(A % 3 == 0)
    np.testing.assert_array_equal(x.masked_fill(m, -1).numpy(), np.where(A % 3 == 0, -1, A))
    np.testing.assert_array_equal(x.masked_select(m).numpy(), A[A % 3 == 0])
    np.testing.assert_array_equal(x.masked_scatter(m, T.arange(100.0)).numpy()[A % 3 == 0], np.arange(20))
    assert [k.tolist() for k in T.where(T.tensor([[False, True], [True, False]]))] == [[0, 1], [1, 0]]
    np.testing.assert_array_equal(m.nonzero().numpy(), np.argwhere(A % 3 == 0))
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.masked_fill(T.ones(3, 4, 5), 0)


def test_triangles():
    for k in (-2, -1, 0, 1, 3):
        np.testing.assert_array_equal(T.tensor(A).tril(k).numpy(), np.tril(A, k))
        np.testing.assert_array_equal(T.tensor(A).triu(k).numpy(), np.triu(A, k))
    assert T.tensor([[True, True]]).tril().tolist() == [[True, False]]
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        T.ones(2).tril()


def test_index_errors_of_functions():
    x = T.tensor(A)
    i = T.tensor([0])
    for bad, kind in (
        (lambda: x.gather(0, i), RuntimeError),
        (lambda: x.gather(3, i), IndexError),
        (lambda: x.index_select(0, T.tensor([0.5])), RuntimeError),
        (lambda: x.index_select(0, T.tensor([[0]])), IndexError),
        (lambda: x.scatter_reduce(0, T.zeros(1, 1, 1, dtype=T.int64), x, "max"), RuntimeError),
        (lambda: x.index_add(0, i, T.ones(2, 4, 5)), RuntimeError),
    ):
        with pytest.raises(kind):
            bad()
