"""Counting, searching, quantiles, stacking, scans: against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle

torch = pytest.importorskip("torch")

X = np.array([[3.0, 1.0, 2.0, 2.0], [0.5, 2.0, -1.0, 3.0], [2.0, 2.0, 7.0, 0.0]])
K = np.array([3, 1, 4, 1, 5, 0, 2, 6, 5, 3])

CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "bincount": lambda T, x, k: T.bincount(k),
    "bincount_weights": lambda T, x, k: T.bincount(k, k * 0.5, minlength=12),
    "histc": lambda T, x, k: T.histc(x, 5),
    "histc_range": lambda T, x, k: x.histc(4, -1, 2),
    "unique": lambda T, x, k: T.unique(k, return_inverse=True, return_counts=True),
    "unique_rows": lambda T, x, k: T.unique(T.cat([x, x]), dim=0, return_inverse=True),
    "unique_consecutive": lambda T, x, k: T.unique_consecutive(x, return_inverse=True, return_counts=True),
    "unique_consecutive_rows": lambda T, x, k: T.unique_consecutive(T.cat([x, x[2:]]), return_counts=True, dim=0),
    "isin": lambda T, x, k: T.isin(x, T.tensor([2.0, 7.0], dtype=x.dtype)),
    "searchsorted": lambda T, x, k: T.searchsorted(x.sort(1)[0], x * 0.5 + 1),
    "searchsorted_right": lambda T, x, k: T.searchsorted(k.sort()[0], k.reshape(2, 5), right=True),
    "bucketize": lambda T, x, k: T.bucketize(x, T.tensor([0.0, 2.0, 3.0], dtype=x.dtype), right=True),
    "quantile": lambda T, x, k: T.quantile(x, 0.3),
    "quantiles": lambda T, x, k: T.quantile(x, T.tensor([0.0, 0.4, 1.0], dtype=x.dtype), 1, True),
    "quantile_nearest": lambda T, x, k: T.quantile(x, 0.4, 0, interpolation="nearest"),
    "nanquantile": lambda T, x, k: T.nanquantile(T.where(x == 2, float("nan"), x), 0.5, 1),
    "mode": lambda T, x, k: tuple(T.mode(x, 1)),
    "dstack": lambda T, x, k: T.dstack([x, x]),
    "column_stack": lambda T, x, k: T.column_stack([x[:, 0], x]),
    "block_diag": lambda T, x, k: T.block_diag(x, x[0], T.ones((), dtype=x.dtype)),
    "slice_scatter": lambda T, x, k: T.slice_scatter(x, x[:, :2] * 5, 1, 0, 4, 2),
    "select_scatter": lambda T, x, k: x.select_scatter(x[0] + 9, 0, -1),
    "diagonal_scatter": lambda T, x, k: T.diagonal_scatter(x, x[:, 0], 1),
    "meshgrid_xy": lambda T, x, k: tuple(T.meshgrid(k[:3], k[:2], indexing="xy")),
    "cummax": lambda T, x, k: tuple(T.cummax(x, 1)),
    "cummin_of_bool": lambda T, x, k: tuple(T.cummin(x > 1, 0)),
    "sort_of_bool": lambda T, x, k: tuple(T.sort(x > 1, dim=0, descending=True, stable=True)),
    "nonzero_scalar": lambda T, x, k: T.nonzero(x[0, 0]),
    "take_along_dim": lambda T, x, k: T.take_along_dim(x, T.tensor([[-1], [0], [-3]]), 1),
    "empty_gather": lambda T, x, k: T.gather(k, 0, T.zeros(2, 0, dtype=T.uint8)),
    "fftshift": lambda T, x, k: T.fft.fftshift(x),
    "arange_of_truncated_ends": lambda T, x, k: T.arange(0.5, 2.5, 1.5, dtype=T.int64),
    "exact_doubles": lambda T, x, k: T.tensor([0.1, 1 / 3], dtype=T.float64),
}
DIFFERENTIABLE = [
    "quantile",
    "quantiles",
    "dstack",
    "block_diag",
    "slice_scatter",
    "select_scatter",
    "diagonal_scatter",
    "cummax",
]


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    want = CASES[name](torch, torch.tensor(X), torch.tensor(K))
    got = CASES[name](treadle, treadle.tensor(X), treadle.tensor(K))
    want, got = (v if isinstance(v, tuple) else (v,) for v in (want, got))
    assert len(want) == len(got)
    for a, b in zip(got, want, strict=True):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    found = []
    for T in (torch, treadle):
        x = T.tensor(X, requires_grad=True)
        out = CASES[name](T, x, T.tensor(K))
        out = out[0] if isinstance(out, tuple) else out
        (out * out).sum().backward()
        found.append(np.asarray(x.grad))
    np.testing.assert_allclose(found[1], found[0])


def test_products_of_zeros_have_slopes() -> None:
    a = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 1.0, 2.0]])
    found = []
    for T in (torch, treadle):
        x = T.tensor(a, requires_grad=True)
        (x.cumprod(1) * T.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)).sum().backward()
        found.append(np.asarray(x.grad))
    np.testing.assert_allclose(found[1], found[0])


def test_an_index_out_of_range_of_a_smaller_scatter_is_refused() -> None:
    out = treadle.zeros(3, 5).scatter(0, treadle.tensor([[34, 1], [1, 2]]), treadle.ones(2, 2))
    with pytest.raises(IndexError, match="out of range"):
        out.numpy()


def test_a_constant_in_place_of_a_computed_value_keeps_the_graph() -> None:
    x = treadle.ones(3, requires_grad=True)
    y = x * 2
    y.fill_(5.0)
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.0, 0.0, 0.0])


def test_softmax_of_a_number_requires_grad() -> None:
    x = treadle.tensor(3.0, requires_grad=True)
    treadle.softmax(x, 0).backward()
    assert x.grad.item() == 0.0


@pytest.mark.parametrize("name", ["eq", "maximum", "logical_and", "atan2", "fmod", "logaddexp", "isclose"])
def test_numbers_where_torch_takes_tensors(name: str) -> None:
    with pytest.raises(TypeError):
        getattr(treadle, name)(2, treadle.ones(3))
