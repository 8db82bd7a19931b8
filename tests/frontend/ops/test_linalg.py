"""treadle.linalg against torch.linalg: values, and gradients of what does not depend on signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle

torch = pytest.importorskip("torch")


def symmetric(a: Any) -> Any:
    return a + a.mT + 6 * a.new_ones(a.shape[-1]).diag()


def spread(a: Any) -> Any:
    return a @ a.mT + 1.5 * a.new_ones(a.shape[-2]).diag()


CASES: dict[str, tuple[tuple[int, ...], Callable]] = {
    "inv": ((2, 3, 3), lambda T, a: T.linalg.inv(a)),
    "det": ((2, 3, 3), lambda T, a: T.linalg.det(a)),
    "det_of_one": ((1, 1), lambda T, a: T.linalg.det(a)),
    "slogdet": ((3, 3), lambda T, a: T.linalg.slogdet(a)[1]),
    "logdet": ((3, 3), lambda T, a: T.logdet(spread(a))),
    "solve": ((2, 3, 3), lambda T, a: T.linalg.solve(a, a[0] * 2 + 1)),
    "solve_right": ((3, 3), lambda T, a: T.linalg.solve(a, a * a, left=False)),
    "solve_vector": ((3, 3), lambda T, a: T.linalg.solve(a, a[0])),
    "triangular": ((3, 3), lambda T, a: T.linalg.solve_triangular(a, a * 2, upper=True)),
    "unit_triangular": (
        (3, 3),
        lambda T, a: T.linalg.solve_triangular(a, a, upper=False, unitriangular=True, left=False),
    ),
    "cholesky": ((2, 3, 3), lambda T, a: T.linalg.cholesky(spread(a))),
    "cholesky_upper": ((3, 3), lambda T, a: T.linalg.cholesky(spread(a), upper=True)),
    "eigvalsh": ((3, 3), lambda T, a: T.linalg.eigvalsh(symmetric(a))),
    "eigenvectors": ((3, 3), lambda T, a: T.linalg.eigh(symmetric(a))[1] ** 2),
    "svdvals": ((2, 4, 3), lambda T, a: T.linalg.svdvals(a)),
    "singular_vectors": ((4, 3), lambda T, a: T.linalg.svd(a, full_matrices=False)[0] ** 2),
    "wide_vectors": ((2, 4), lambda T, a: T.linalg.svd(a, full_matrices=False)[2] ** 2),
    "tall_qr": ((4, 3), lambda T, a: T.linalg.qr(a)[0] * T.linalg.qr(a)[1].sum()),
    "wide_qr": ((2, 4), lambda T, a: T.linalg.qr(a)[1]),
    "pinv_tall": ((4, 2), lambda T, a: T.linalg.pinv(a)),
    "pinv_of_low_rank": ((4, 2), lambda T, a: T.linalg.pinv(a @ a.mT)),
    "power": ((2, 3, 3), lambda T, a: T.linalg.matrix_power(a, 5)),
    "inverse_power": ((3, 3), lambda T, a: T.linalg.matrix_power(a, -2)),
    "no_power": ((3, 3), lambda T, a: T.linalg.matrix_power(a, 0) * a),
    "multi_dot": ((3, 3), lambda T, a: T.linalg.multi_dot([a[0], a, a.mT, a[1]])),
    "vecdot": ((2, 3), lambda T, a: T.linalg.vecdot(a, a * 2, dim=0)),
    "cdist": ((4, 3), lambda T, a: T.cdist(a, a[:2] * 2 + 1, 3.0)),
    "lstsq": ((4, 2), lambda T, a: T.linalg.lstsq(a, a[:, :1] + 1).solution),
    "cond": ((3, 3), lambda T, a: T.linalg.cond(a)),
}
NORMS = [None, "fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    shape, f = CASES[name]
    a = np.random.default_rng(3).standard_normal(shape) + 2 * np.eye(*shape[-2:])
    found = []
    for T in (torch, treadle):
        x = T.tensor(a, requires_grad=True)
        out = f(T, x)
        weights = T.tensor(np.random.default_rng(4).standard_normal(tuple(out.shape)))
        (out * weights).sum().backward()
        found.append((np.asarray(out.detach()), np.asarray(x.grad)))
    for want, got in zip(*found, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 4), (2, 0), (0, 0)])
@pytest.mark.parametrize("ord", NORMS, ids=str)
def test_norms(ord: Any, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(3).standard_normal(shape)
    try:
        want = torch.linalg.norm(torch.tensor(a), ord).numpy()
    except (RuntimeError, IndexError):
        with pytest.raises((RuntimeError, IndexError)):
            treadle.linalg.norm(treadle.tensor(a), ord)
        return
    np.testing.assert_allclose(treadle.linalg.norm(treadle.tensor(a), ord).numpy(), want)


def test_singular_matrices() -> None:
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    with pytest.raises(treadle.linalg.LinAlgError):
        treadle.linalg.inv(treadle.tensor(a))
    with pytest.raises(RuntimeError):
        treadle.linalg.cholesky(treadle.tensor(-a))
    x = treadle.tensor(a, requires_grad=True)
    treadle.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[4.0, -2.0], [-2.0, 1.0]])


def test_refusals() -> None:
    with pytest.raises(RuntimeError, match="square"):
        treadle.linalg.inv(treadle.ones(2, 3))
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        treadle.linalg.svd(treadle.ones(3))
    with pytest.raises(RuntimeError, match="dtype"):
        treadle.linalg.det(treadle.ones(2, 2, dtype=treadle.int64))
