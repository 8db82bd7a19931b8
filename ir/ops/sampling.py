"""Sample operands for the per-op tests: arrays by kind of dtype, and the generic samples of elementwise classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from treadle.ir.ops.base import Sample

__all__ = ["array", "arrays_of", "edge_values", "elementwise_samples"]

_DTYPES = {"b": ("?",), "u": ("u1",), "i": ("i4", "i8", "i1"), "f": ("f4", "f8", "f2")}
_EDGES: dict[str, list[Any]] = {
    "b": [False, True],
    "u": [0, 1, 2, 7, 8, 255],
    "i": [0, 1, -1, 2, -3, 31],
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan],
}


def array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64, domain: tuple[float, float] = (-3.0, 3.0)
) -> np.ndarray:
    """Random elements: floats uniform in `domain`, integers small and of both signs."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.uniform(*domain, shape).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape) == 1)
    return np.asarray(rng.integers(0 if dtype.kind == "u" else -9, 10, shape)).astype(dtype)


def edge_values(dtype: Any) -> np.ndarray:
    """Values at which functions go wrong: zeros, ones, infinities, NaN, the extreme integers."""
    dtype = np.dtype(dtype)
    values = list(_EDGES[dtype.kind])
    if dtype.kind == "i":
        values += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return np.array(values, dtype)


def arrays_of(kind: str, rng: np.random.Generator, domain: tuple[float, float] = (-3.0, 3.0)) -> list[np.ndarray]:
    """A few arrays of each dtype of `kind`: a matrix, a scalar, an empty one, and the edge values."""
    found = []
    for name in _DTYPES[kind]:
        found += [array(rng, shape, name, domain) for shape in ((3, 4), (), (2, 0))]
        found.append(edge_values(name))
    return found


def elementwise_samples(cls: Any, rng: np.random.Generator) -> list[Sample]:
    """Samples of an elementwise class without attributes: every kind it accepts, and all pairs of edge values."""
    from treadle.ir.ops.base import Sample

    found = []
    for kind in cls.kinds:
        for name in _DTYPES[kind]:
            for shape in ((3, 4), (), (2, 0)):
                operands = [array(rng, shape, name, cls.domain) for _ in range(cls.arity)]
                found.append(Sample(cls(), _conditioned(cls, rng, operands)))
            grid = np.meshgrid(*[edge_values(name)] * (cls.arity - cls.mixed), indexing="ij")
            operands = [g.reshape(-1) for g in grid]
            found.append(Sample(cls(), _conditioned(cls, rng, [operands[0], *operands] if cls.mixed else operands)))
    return found


def _conditioned(cls: Any, rng: np.random.Generator, operands: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The operands; for a class of mixed dtypes the first one becomes a condition."""
    if cls.mixed:
        operands = [array(rng, operands[0].shape, np.bool_), *operands[1:]]
    return tuple(operands)
