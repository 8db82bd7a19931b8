"""Comparison of analytic gradients with central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.autograd.functional import jacobian
from treadle.backward.modes import no_grad
from treadle.ops.creation import tensor
from treadle.tensor import Tensor

__all__ = ["gradcheck"]


def gradcheck(
    func: Callable, inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True
) -> bool:
    """True where the Jacobian of `func` at float64 `inputs` agrees with central differences of step `eps`."""
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    active = [k for k, t in enumerate(given) if isinstance(t, Tensor) and t.requires_grad]
    for k in active:
        base = given[k].detach().numpy().copy()

        def at(x: Any, k: int = k) -> Any:
            return func(*given[:k], x, *given[k + 1 :])

        analytic = jacobian(at, given[k].detach())
        tables = [analytic] if isinstance(analytic, Tensor) else list(analytic)
        for n, table in enumerate(tables):
            wanted = _differences(at, base, eps, n)
            got = table.detach().numpy().reshape(wanted.shape)
            if not np.allclose(got, wanted, rtol=rtol, atol=atol):
                if raise_exception:
                    raise RuntimeError(
                        f"Jacobian mismatch for output {n} with respect to input {k}: analytical {got}, numerical {wanted}"
                    )
                return False
    return True


def _differences(f: Callable, base: np.ndarray, eps: float, output: int) -> np.ndarray:
    columns = []
    with no_grad():
        for i in range(base.size):
            ends = []
            for step in (eps, -eps):
                moved = base.copy()
                moved.reshape(-1)[i] += step
                y = f(tensor(moved))
                ends.append((y if isinstance(y, Tensor) else y[output]).detach().numpy().reshape(-1).copy())
            columns.append((ends[0] - ends[1]) / (2 * eps))
    return np.stack(columns, 1)
