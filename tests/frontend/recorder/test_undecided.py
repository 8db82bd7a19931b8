"""Sizes that decide what a program is: a general program that cannot be made gives way to one for the sizes at hand."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as T
import treadle.nn.functional as F


@pytest.mark.parametrize("size, kernel", [(5, 3), (4, 2), (3, 3), (2, 2), (7, 3), (9, 5)])
def test_windows_of_many_sizes(size: int, kernel: int) -> None:
    x = np.arange(2 * size * size, dtype=np.float64).reshape(1, 2, size, size)
    out = F.conv2d(T.tensor(x), T.ones(1, 2, kernel, kernel, dtype=T.float64)).numpy()
    n = size - kernel + 1
    want = [[x[0, :, i : i + kernel, j : j + kernel].sum() for j in range(n)] for i in range(n)]
    np.testing.assert_allclose(out[0, 0], want)


def test_adaptive_windows_of_many_sizes() -> None:
    for rows, columns in ((8, 8), (9, 7), (5, 6), (3, 3)):
        out = F.adaptive_avg_pool2d(T.ones(1, 2, rows, columns), (3, 3)).numpy()
        np.testing.assert_allclose(out, np.ones((1, 2, 3, 3)))


def test_programs_of_such_sizes_are_found_again() -> None:
    def run(size: int) -> None:
        F.conv2d(T.ones(1, 1, size, size), T.ones(1, 1, 2, 2)).numpy()

    for size in (4, 2, 3, 6):
        run(size)
    before = T.compiler.stats().programs
    for size in (4, 2, 3, 6):
        run(size)
    assert T.compiler.stats().programs == before
