"""Parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

import treadle
from treadle import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened and joined: (number of elements,)."""
    return treadle.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the parameters to the parts of a vector. Raises TypeError for something else."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        count = param.numel()
        param.data = vec[start : start + count].reshape(tuple(param.shape)).data
        start += count
