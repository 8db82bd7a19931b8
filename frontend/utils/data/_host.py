"""Rows of tensors by way of their memory on the host.

Loading data is not worth compiling: every batch has other indices and happens once. A tensor in host memory that needs
no gradient is therefore read through its NumPy view, and the result is a new tensor of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle

__all__ = ["host_view", "stack", "take"]


def host_view(tensor: Any) -> np.ndarray | None:
    """The NumPy view of `tensor`, or None if it needs gradients, is elsewhere, or has a type NumPy lacks."""
    if tensor.requires_grad or tensor.dtype == treadle.bfloat16 or str(tensor.device) != "cpu":
        return None
    return tensor.numpy()


def take(tensor: Any, indices: Sequence[int]) -> Any:
    """Rows `indices` of `tensor` in a new tensor of shape (len(indices), *tensor.shape[1:])."""
    rows = list(map(operator.index, indices))
    view = host_view(tensor)
    if view is None:
        return tensor[treadle.tensor(rows, dtype=treadle.int64, device=tensor.device)]
    count = len(rows)
    first = rows[0] if rows else 0
    if first >= 0 and first + count <= len(view) and rows == list(range(first, first + count)):
        return treadle.from_numpy(view[first : first + count].copy())  # in order, as without shuffling: one block
    return treadle.from_numpy(np.take(view, np.array(rows, dtype=np.int64), axis=0))


def stack(tensors: Sequence[Any]) -> Any:
    """The tensors, all of one shape, as rows of a new one. RuntimeError if the shapes differ."""
    first = tensors[0]
    views = []
    for tensor in tensors:
        view = host_view(tensor) if tensor.dtype == first.dtype and tensor.shape == first.shape else None
        if view is None:
            return treadle.stack(list(tensors), 0)
        views.append(view)
    return treadle.from_numpy(np.stack(views))


def host_stream(generator: Any = None) -> np.random.Generator:
    """One draw of a treadle Generator (the default one) as a NumPy stream: orders of samples are needed on the host at
    once, and a program for them would have to be compiled and waited for."""
    seed, draw = (generator or treadle.default_generator).take_draw()
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, draw]))
