"""Samplers: orders, reproducibility, checks."""

import pytest

import treadle
from treadle.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def seeded(seed=0):
    return treadle.Generator().manual_seed(seed)


def test_sequential():
    sampler = SequentialSampler("abc")
    assert list(sampler) == [0, 1, 2]
    assert len(sampler) == 3


def test_random_is_a_permutation_that_a_generator_repeats():
    sampler = RandomSampler(range(20), generator=seeded(1))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == list(range(20))
    assert first != second
    assert list(RandomSampler(range(20), generator=seeded(1))) == first


def test_random_follows_the_global_seed():
    orders = []
    for _ in range(2):
        treadle.manual_seed(5)
        orders.append(list(RandomSampler(range(20))))
    assert orders[0] == orders[1]


def test_random_with_other_numbers_of_samples():
    more = list(RandomSampler(range(4), num_samples=10, generator=seeded()))
    assert len(more) == 10
    assert sorted(more[:4]) == sorted(more[4:8]) == list(range(4))
    fewer = list(RandomSampler(range(4), num_samples=2, generator=seeded()))
    assert len(set(fewer)) == 2
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=70, generator=seeded()))
    assert len(drawn) == 70
    assert set(drawn) == {0, 1, 2}


def test_random_checks():
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler([])
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler([1], num_samples=0)
    with pytest.raises(TypeError, match="boolean"):
        RandomSampler([1], replacement=1)


def test_subset_random():
    sampler = SubsetRandomSampler([3, 5, 7], generator=seeded())
    assert sorted(sampler) == [3, 5, 7]
    assert len(sampler) == 3


def test_weighted():
    drawn = list(WeightedRandomSampler([0.0, 1.0, 3.0], 200, generator=seeded()))
    assert set(drawn) == {1, 2}
    assert drawn.count(2) > drawn.count(1)
    assert sorted(WeightedRandomSampler([1.0, 1.0, 3.0], 3, replacement=False, generator=seeded())) == [0, 1, 2]
    with pytest.raises(ValueError, match="num_samples"):
        WeightedRandomSampler([1.0], 0)
    with pytest.raises(ValueError, match="1d"):
        WeightedRandomSampler([[1.0]], 1)
    with pytest.raises(ValueError, match="boolean"):
        WeightedRandomSampler([1.0], 1, replacement="yes")


def test_batch():
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2, False)) == 3
    assert len(BatchSampler(range(5), 2, True)) == 2
    with pytest.raises(ValueError, match="batch_size"):
        BatchSampler(range(5), 0, False)
    with pytest.raises(ValueError, match="drop_last"):
        BatchSampler(range(5), 1, 1)


def test_base():
    with pytest.raises(NotImplementedError):
        iter(Sampler())
