"""The loader: a dataset, an order and a way of collating, as an iterable of batches."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from treadle.utils.data.collate import default_collate, default_convert
from treadle.utils.data.dataset import IterableDataset, TensorRows
from treadle.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)


def get_worker_info() -> None:
    """None: samples are always loaded in the process that asks for them."""
    return None


class _Forever(Sampler[None]):
    """The "order" of a stream: its samples come as they come."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Iterates over batches of `dataset`.

    `batch_size` samples make a batch, collated by `collate_fn`; with None there are no batches, and single samples are
    converted. `shuffle` takes a RandomSampler; `sampler` (indices) or `batch_sampler` (lists of indices) state an order
    of one's own. `drop_last` leaves out an incomplete last batch. `generator` is where the shuffling draws from: the
    same state gives the same order. `pin_memory`, `timeout`, `prefetch_factor`, `persistent_workers`, `in_order` and
    `worker_init_fn` are accepted and have no effect.

    Raises NotImplementedError for `num_workers` > 0, ValueError for options that exclude each other.
    """

    _fixed = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
    _made = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable[Sequence] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to load in this process")
        if num_workers > 0:
            raise NotImplementedError(
                f"num_workers={num_workers}: worker processes are not supported, samples are loaded in the calling "
                "process; pass num_workers=0"
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        self.dataset = dataset
        self.num_workers = 0
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.generator = generator
        self._stream = isinstance(dataset, IterableDataset)
        self._check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if sampler is None:
            sampler = self._default_sampler(bool(shuffle))
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn
        self._stated_length: int | None = None
        self._made = True

    def _check_order(
        self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:  # fmt: skip
        if self._stream:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_sampler is None and batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables batching and is mutually exclusive with drop_last")

    def _default_sampler(self, shuffle: bool) -> Sampler:
        if self._stream:
            return _Forever()
        if shuffle:
            return RandomSampler(self.dataset, generator=self.generator)
        return SequentialSampler(self.dataset)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in self._fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)

    def __len__(self) -> int:
        if not self._stream:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        length = self._stated_length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


class _Batches(Iterator):
    """One pass over a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._collate = loader.collate_fn
        self._order = iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        # Workers, if there were any, would be seeded by this draw. It is made so that a generator is in the same state
        # after an epoch as where there are.
        self._base_seed = draw_seed(loader.generator)
        self._samples = iter(loader.dataset) if loader._stream else None
        self._ended = False
        self._given = 0

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        index = next(self._order)
        batched = self._loader.batch_sampler is not None
        if self._samples is not None:
            batch = self._next_of_stream(len(index) if batched else None)
        elif batched:
            batch = self._collate(self._fetch(index))
        else:
            batch = self._collate(self._loader.dataset[index])
        self._given += 1
        return batch

    def _fetch(self, indices: Sequence[int]) -> Sequence[Any]:
        dataset = self._loader.dataset
        together = getattr(dataset, "__getitems__", None)
        samples = together(indices) if callable(together) else [dataset[index] for index in indices]
        if isinstance(samples, TensorRows) and self._collate is not default_collate:
            return list(samples)
        return samples

    def _next_of_stream(self, count: int | None) -> Any:
        assert self._samples is not None
        if self._ended:
            raise StopIteration
        if count is None:
            sample = self._collate(next(self._samples))
            self._check_length(self._loader._stated_length)
            return sample
        samples = list(itertools.islice(self._samples, count))
        self._ended = len(samples) < count
        if not samples or (self._loader.drop_last and self._ended):
            raise StopIteration
        self._check_length(self._loader._stated_length and len(self._loader))
        return self._collate(samples)

    def _check_length(self, stated: int | None) -> None:
        if stated is not None and self._given >= stated:
            warnings.warn(
                f"the length of {type(self._loader.dataset).__name__} was reported to be "
                f"{self._loader._stated_length}, but it gives more samples",
                stacklevel=4,
            )
