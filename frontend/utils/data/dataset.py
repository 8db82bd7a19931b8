"""Datasets: by index (`Dataset`), as a stream (`IterableDataset`), and combinations of them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from treadle.utils.data._host import host_stream, take

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "TensorRows",
    "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: a subclass defines `__getitem__`, and `__len__` for the samplers.

    It may define `__getitems__(indices)`, which returns the samples of a whole batch at once.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples as a stream: a subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorRows(Sequence):
    """Samples of a TensorDataset that were fetched together: tuples of rows, kept as whole columns.

    `columns` are the fetched tensors; collating the samples by default gives just these.
    """

    def __init__(self, columns: tuple[Any, ...], length: int) -> None:
        self.columns = columns
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"sample {index} of a batch of {self._length}")
        return tuple(column[index] for column in self.columns)


class TensorDataset(Dataset[tuple]):
    """Sample i is the tuple of row i of each tensor. ValueError if their first dimensions differ."""

    def __init__(self, *tensors: Any) -> None:
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise ValueError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[tuple]:
        """The samples `indices`, by one indexing operation a tensor."""
        if type(self).__getitem__ is not TensorDataset.__getitem__:  # a subclass changes what a sample is
            return [self[index] for index in indices]
        return TensorRows(tuple(take(tensor, indices) for tensor in self.tensors), len(indices))

    def __len__(self) -> int:
        return len(self.tensors[0])


def _fetch(dataset: Any, indices: Sequence[int]) -> Sequence[Any]:
    """Samples `indices` of any dataset, at once if it can."""
    together = getattr(dataset, "__getitems__", None)
    if not callable(together):
        return [dataset[index] for index in indices]
    samples = together(indices)
    if len(samples) != len(indices):
        raise ValueError(f"__getitems__ of {type(dataset).__name__} gave {len(samples)} samples for {len(indices)}")
    return samples


class StackDataset(Dataset):
    """Sample i is the tuple (or for keyword arguments the dict) of sample i of each dataset, all of one length."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("StackDataset takes datasets by position (tuples) or by keyword (dicts), not both")
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        parts = list(args or kwargs.values())
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {key: part[index] for key, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples `indices`; every part is asked once."""
        if isinstance(self.datasets, dict):
            columns = [_fetch(part, indices) for part in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(zip(*(_fetch(part, indices) for part in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """The samples of several datasets, one after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        number = bisect.bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][index - start]


class ChainDataset(IterableDataset):
    """The streams of several iterable datasets, one after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def _parts(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._parts():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._parts())


class Subset(Dataset[T_co]):
    """Sample i is sample `indices[i]` of `dataset`."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples `indices`, fetched together where the dataset underneath can."""
        if type(self).__getitem__ is not Subset.__getitem__:  # a subclass changes what a sample is
            return [self[index] for index in indices]
        return _fetch(self.dataset, [self.indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None) -> list[Subset]:
    """Split `dataset` at random into subsets of the given lengths, or of given fractions that add up to 1.

    Of fractions the floors are taken, and what is left goes one each to the first subsets. The permutation comes from
    `generator`, or the global one. ValueError if the lengths do not add up to that of the dataset.
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for number, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {number} is not between 0 and 1")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for extra in range(total - sum(sizes)):
            sizes[extra % len(sizes)] += 1
        for number, size in enumerate(sizes):
            if size == 0:
                warnings.warn(f"Length of split at index {number} is 0, which gives an empty dataset", stacklevel=2)
    else:
        sizes = list(lengths)  # type: ignore[arg-type]
    if sum(sizes) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = host_stream(generator).permutation(total).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
