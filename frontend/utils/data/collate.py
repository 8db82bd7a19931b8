"""Turning samples into a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

import treadle
from treadle.utils.data._host import stack
from treadle.utils.data.dataset import TensorRows

__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Join samples of one structure into a batch of that structure, with a new first dimension.

    Tensors and NumPy arrays are stacked; Python and NumPy numbers become tensors (float64 and int64 for Python's);
    strings and bytes stay a list; mappings, named tuples, tuples and lists are joined part by part (tuples to lists).
    TypeError for anything else, RuntimeError if sizes differ.
    """
    if isinstance(batch, TensorRows):
        return list(batch.columns)
    first = batch[0]
    if isinstance(first, treadle.Tensor):
        return stack(batch)
    if isinstance(first, np.ndarray):
        return _stack_arrays(batch)
    if isinstance(first, np.generic) and not isinstance(first, (np.str_, np.bytes_)):
        return treadle.from_numpy(np.array(batch, dtype=first.dtype))
    if isinstance(first, (bool, int, float)):
        return _numbers(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _like_mapping(first, lambda key: default_collate([sample[key] for sample in batch]))
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(part) for part in _transposed(batch)))
    if isinstance(first, Sequence):
        parts = [default_collate(part) for part in _transposed(batch)]
        return parts if isinstance(first, tuple) else _like_sequence(first, parts)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__module__}.{type(first).__qualname__}"
    )


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers inside a structure as tensors; everything else as it is (tuples become lists)."""
    if isinstance(data, treadle.Tensor) or isinstance(data, (str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        return data if array.dtype.kind in "SUO" else treadle.as_tensor(array)
    if isinstance(data, Mapping):
        return _like_mapping(data, lambda key: default_convert(data[key]))
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(part) for part in data))
    if isinstance(data, Sequence):
        parts = [default_convert(part) for part in data]
        return parts if isinstance(data, tuple) else _like_sequence(data, parts)
    return data


def _numbers(batch: Sequence[Any]) -> Any:
    """A vector of Python numbers; the first decides that floats are float64, as Python's are."""
    if isinstance(batch[0], float):
        return treadle.from_numpy(np.array(batch, dtype=np.float64))
    array = np.array(batch)
    if array.dtype.kind not in "bi":  # integers mixed with floats, or too large: as for any list of numbers
        return treadle.tensor(list(batch))
    return treadle.from_numpy(array)


def _stack_arrays(batch: Sequence[Any]) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(f"default_collate: cannot make a tensor of a numpy array of dtype {batch[0].dtype}")
    try:
        return treadle.from_numpy(np.stack(batch))
    except ValueError as error:
        shapes = sorted({sample.shape for sample in batch})
        raise RuntimeError(f"stack expects each array to be equal size, but got shapes {shapes}") from error


def _transposed(batch: Sequence[Any]) -> list[tuple]:
    """Samples that are sequences, as one tuple a position."""
    size = len(batch[0])
    if any(len(sample) != size for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    return list(zip(*batch, strict=True))


def _like_mapping(example: Mapping, value: Callable[[Any], Any]) -> Any:
    """A mapping of the type of `example`, or a dict if that type cannot be made from its items."""
    items = {key: value(key) for key in example}
    try:
        if isinstance(example, MutableMapping):
            made: Any = copy.copy(example)  # keeps what a subclass carries besides its items
            made.update(items)
            return made
        return type(example)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _like_sequence(example: Sequence, parts: list[Any]) -> Any:
    """A sequence of the type of `example`, or a list if that type cannot be made from its elements."""
    try:
        if isinstance(example, MutableSequence):
            made = copy.copy(example)
            made[:] = parts
            return made
        return type(example)(parts)  # type: ignore[call-arg]
    except TypeError:
        return parts
