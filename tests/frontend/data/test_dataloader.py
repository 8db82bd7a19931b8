"""The loader: batches, orders, streams, checks."""

import numpy as np
import pytest

import treadle
from treadle.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, size, stated=None):
        self.size, self.stated = size, stated

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size if self.stated is None else self.stated


def dataset(size=10):
    return TensorDataset(treadle.arange(size), treadle.arange(size) * 2.0)


def batches(loader):
    return [x.tolist() for x in loader]


def test_batches_of_a_tensor_dataset():
    loader = DataLoader(dataset(), batch_size=4)
    got = list(loader)
    assert [x.tolist() for x, _ in got] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert got[2][1].tolist() == [16.0, 18.0]
    assert isinstance(got[0], list)
    assert len(loader) == 3
    assert len(DataLoader(dataset(), batch_size=4, drop_last=True)) == 2
    assert len(list(DataLoader(dataset(), batch_size=4, drop_last=True))) == 2
    assert list(DataLoader(TensorDataset(treadle.zeros(0, 2)), batch_size=2)) == []


def test_whole_batches_are_fetched_at_once():
    class Counting(TensorDataset):
        calls = 0

        def __getitems__(self, indices):
            Counting.calls += 1
            return super().__getitems__(indices)

    loader = DataLoader(Subset(Counting(treadle.arange(10)), list(range(1, 9))), batch_size=4)
    assert [x.tolist() for (x,) in loader] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert Counting.calls == 2


def test_own_collate_function_gets_a_list_of_samples():
    seen = []
    loader = DataLoader(dataset(), batch_size=5, collate_fn=lambda samples: seen.append(samples) or len(samples))
    assert list(loader) == [5, 5]
    assert isinstance(seen[0], list)
    assert float(seen[1][0][1]) == 10.0


def test_shuffling_is_reproducible():
    def order(seed):
        loader = DataLoader(range(30), batch_size=7, shuffle=True, generator=treadle.Generator().manual_seed(seed))
        return [batches(loader), batches(loader)]

    first, again, other = order(1), order(1), order(2)
    assert first == again
    assert first[0] != first[1]
    assert first != other
    assert sorted(sum(first[0], [])) == list(range(30))


def test_shuffling_follows_the_global_seed():
    orders = []
    for _ in range(2):
        treadle.manual_seed(9)
        orders.append(batches(DataLoader(range(30), shuffle=True)))
    assert orders[0] == orders[1]


def test_samplers():
    assert batches(DataLoader(range(9), sampler=[4, 2, 8], batch_size=2)) == [[4, 2], [8]]
    loader = DataLoader(range(9), batch_sampler=[[1], [2, 3]])
    assert batches(loader) == [[1], [2, 3]]
    assert len(loader) == 2
    assert loader.batch_size is None


def test_without_batches():
    assert list(DataLoader([1.5, 2.5], batch_size=None)) == [1.5, 2.5]
    (row,) = DataLoader(np.ones((1, 3), np.float32), batch_size=None)
    assert row.shape == (3,)
    assert list(DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]


def test_streams():
    assert batches(DataLoader(Stream(7), batch_size=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches(DataLoader(Stream(7), batch_size=3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert batches(DataLoader(Stream(6), batch_size=3)) == [[0, 1, 2], [3, 4, 5]]
    assert len(DataLoader(Stream(7), batch_size=3)) == 3
    assert len(DataLoader(Stream(7), batch_size=3, drop_last=True)) == 2
    iterator = iter(DataLoader(Stream(4), batch_size=3))
    assert len(list(iterator)) == 2
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_stream_longer_than_it_says():
    loader = DataLoader(Stream(4, stated=1), batch_size=2)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="more samples"):
        list(loader)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": [0], "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"num_workers": -1},
        {"timeout": -1},
    ],
)
def test_contradictory_options(options):
    with pytest.raises(ValueError):
        DataLoader(range(3), **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}])
def test_streams_have_no_order(options):
    with pytest.raises(ValueError, match="unspecified"):
        DataLoader(Stream(3), **options)


def test_options_without_effect_and_limits():
    loader = DataLoader(range(3), pin_memory=True, timeout=3, prefetch_factor=2, worker_init_fn=print, in_order=False)
    assert batches(loader) == [[0], [1], [2]]
    with pytest.raises(NotImplementedError, match="num_workers=2"):
        DataLoader(range(3), num_workers=2)
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 3
    assert get_worker_info() is None
