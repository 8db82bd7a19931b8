"""Finite differences for tests of the adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["numeric_vjp"]


def numeric_vjp(
    run: Callable[..., Sequence[np.ndarray]],
    arrays: Sequence[np.ndarray],
    seeds: Sequence[np.ndarray],
    wrt: Sequence[int],
    step: float = 1e-6,
) -> list[np.ndarray]:
    """Cotangents of `arrays[i]` for i in `wrt`, of the outputs of `run` weighted by `seeds`, by central differences."""

    def objective(arrays: Sequence[np.ndarray]) -> float:
        return sum(float(np.sum(out * seed)) for out, seed in zip(run(*arrays), seeds, strict=True))

    found = []
    for i in wrt:
        grad = np.zeros_like(arrays[i])
        for at in np.ndindex(arrays[i].shape):
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[i][at] += sign * step
                sides.append(objective(moved))
            grad[at] = (sides[0] - sides[1]) / (2 * step)
        found.append(grad)
    return found
