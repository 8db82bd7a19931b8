"""Reductions against NumPy: dims, keepdim, empty inputs, NaN, integers, several results."""

import numpy as np
import pytest

import treadle as T

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 4, 5)).astype(np.float32)
REDUCTIONS = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min, "nansum": np.nansum,
    "all": np.all, "any": np.any,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_one_dim_or_all(name, dim, keepdim):
    x = T.tensor(A)
    got = getattr(x, name)() if dim is None else getattr(x, name)(dim, keepdim=keepdim)
    want = REDUCTIONS[name](A, axis=dim, keepdims=keepdim and dim is not None)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin"])
def test_several_dims(name):
    for dims in ((0, 1), (0, -1), (2, 1, 0)):
        got, want = getattr(T, name)(T.tensor(A), dims, keepdim=True), REDUCTIONS[name](A, axis=dims, keepdims=True)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_var_std_and_their_corrections():
    x = T.tensor(A)
    for correction in (0, 1, 2):
        np.testing.assert_allclose(x.var(1, correction=correction).numpy(), A.var(1, ddof=correction), rtol=1e-5)
        got, want = x.std((0, 2), correction=correction), A.std((0, 2), ddof=correction)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(x.var(unbiased=False).item(), A.var(), rtol=1e-5)
    v, m = T.var_mean(x, 0)
    np.testing.assert_allclose(m.numpy(), A.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v.numpy(), A.var(0, ddof=1), rtol=1e-5)
    big = A[0, 0] + np.float32(10_000)
    np.testing.assert_allclose(T.tensor(big).var().item(), big.astype(np.float64).var(ddof=1), rtol=1e-3)


@pytest.mark.parametrize("name, reference", [("max", np.argmax), ("min", np.argmin)])
def test_values_and_indices(name, reference):
    x = T.tensor(A)
    for dim in (0, 1, -1):
        found = getattr(x, name)(dim)
        np.testing.assert_array_equal(found.indices.numpy(), reference(A, dim))
        np.testing.assert_array_equal(found.values.numpy(), getattr(A, name)(dim))
        assert found.indices.dtype is T.int64 and found[0] is found.values
        assert getattr(x, name)(dim, keepdim=True)[1].shape == np.expand_dims(reference(A, dim), dim).shape
        np.testing.assert_array_equal(getattr(x, f"arg{name}")(dim).numpy(), reference(A, dim))
    assert getattr(x, f"arg{name}")().item() == reference(A)
    assert getattr(x, name)().item() == getattr(A, name)()


def test_ties_take_the_first():
    x = T.tensor([3, 1, 3, 1])
    assert x.argmax().item() == 0 and x.argmin().item() == 1


def test_nan_wins():
    x = T.tensor([1.0, np.nan, 3.0])
    for f in (x.max, x.min, x.amax, x.sum, x.mean, x.prod, lambda: T.maximum(x, T.ones(3)).sum()):
        assert np.isnan(f().item())
    assert x.argmax().item() == 1 and x.argmin().item() == 1
    assert T.fmax(x, T.ones(3)).tolist() == [1, 1, 3]
    assert x.nansum().item() == 4


def test_empty():
    x = T.zeros(0, 3)
    assert x.sum().item() == 0 and x.prod().item() == 1 and np.isnan(x.mean().item())
    assert x.sum(0).tolist() == [0] * 3 and x.sum(1).shape == (0,)
    assert x.all().item() is True and x.any().item() is False
    assert x.amax(1).shape == (0,)
    for bad in (x.max, x.argmax, lambda: x.max(0), lambda: x.amax(0)):
        with pytest.raises((RuntimeError, IndexError)):
            bad()
    assert x.cumsum(0).shape == (0, 3)
    assert T.cat([x, x]).shape == (0, 3)


def test_integers():
    n = np.array([[100, 100, 100], [-3, 5, 7]], dtype=np.int8)
    x = T.tensor(n)
    assert (x.sum().dtype, x.sum().item()) == (T.int64, n.sum(dtype=np.int64))
    assert x.prod(1).tolist() == n.astype(np.int64).prod(1).tolist()
    assert x.sum(dtype=T.float64).dtype is T.float64
    assert x.amax(1).dtype is T.int8
    assert T.tensor([True, True]).sum().item() == 2
    with pytest.raises(RuntimeError, match="mean"):
        x.mean()


def test_logsumexp_and_norms():
    x = T.tensor(A)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), np.log(np.exp(A).sum(1)), rtol=1e-5)
    assert T.tensor([1000.0, 1000.0]).logsumexp(0).item() == pytest.approx(1000 + np.log(2))
    np.testing.assert_allclose(x.norm().item(), np.sqrt((A**2).sum()), rtol=1e-5)
    np.testing.assert_allclose(x.norm(1, 0).numpy(), np.abs(A).sum(0), rtol=1e-5)
    np.testing.assert_allclose(x.norm(float("inf"), -1).numpy(), np.abs(A).max(-1), rtol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scans(dim):
    x = T.tensor(A)
    np.testing.assert_allclose(x.cumsum(dim).numpy(), A.cumsum(dim), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(x.cumprod(dim).numpy(), A.cumprod(dim), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(x.cummax(dim)[0].numpy(), np.maximum.accumulate(A, dim))
    np.testing.assert_array_equal(x.cummin(dim)[0].numpy(), np.minimum.accumulate(A, dim))
    np.testing.assert_allclose(x.logcumsumexp(dim).numpy(), np.log(np.exp(A).cumsum(dim)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sorting(dim):
    x = T.tensor(A)
    for descending in (False, True):
        want = np.flip(np.sort(A, dim), dim) if descending else np.sort(A, dim)
        values, indices = x.sort(dim, descending=descending)
        np.testing.assert_array_equal(values.numpy(), want)
        np.testing.assert_array_equal(np.take_along_axis(A, indices.numpy(), dim), want)
        values, indices = x.topk(2, dim, largest=descending)
        np.testing.assert_array_equal(values.numpy(), np.take(want, range(2), dim))
    values, indices = x.kthvalue(2, dim)
    np.testing.assert_array_equal(values.numpy(), np.take(np.sort(A, dim), 1, dim))
    values, indices = x.median(dim)
    np.testing.assert_array_equal(values.numpy(), np.take(np.sort(A, dim), (A.shape[dim] - 1) // 2, dim))


def test_sort_is_stable_on_request_and_unique_sorts():
    x = T.tensor([2, 1, 2, 1])
    assert x.sort(stable=True)[1].tolist() == [1, 3, 0, 2]
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2], [1, 0, 1, 0], [2, 2])
    assert T.bincount(x).tolist() == [0, 2, 2]


def test_errors():
    x = T.tensor(A)
    for bad, kind in (
        (lambda: x.sum(5), IndexError), (lambda: x.sum((0, 0)), RuntimeError), (lambda: x.topk(9), RuntimeError),
        (lambda: x.kthvalue(0), RuntimeError), (lambda: x.cumsum(3), IndexError), (lambda: T.sum("a"), TypeError),
    ):  # fmt: skip
        with pytest.raises(kind):
            bad()


@pytest.mark.parametrize("n", [70_001, 1 << 17])
def test_long_sums_are_accurate(n):
    """The error of a float32 sum stays near that of pairwise summation."""
    a = RNG.uniform(0, 1, n).astype(np.float32)
    exact = a.astype(np.float64).sum()
    assert abs(T.tensor(a).sum().item() - exact) < 1e-5 * exact
    h = T.tensor(a).to(T.float16)
    assert abs(h.mean().item() - 0.5) < 0.01
