"""Datasets and random splits."""

import numpy as np
import pytest

import treadle
from treadle.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index * index


class Count(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size


def tensors():
    return TensorDataset(treadle.arange(12).reshape(6, 2), treadle.arange(6) * 2.0)


def test_tensor_dataset():
    data = tensors()
    assert len(data) == 6
    x, y = data[-1]
    np.testing.assert_array_equal(x.numpy(), [10, 11])
    assert float(y) == 10.0
    with pytest.raises(ValueError, match="Size mismatch"):
        TensorDataset(treadle.zeros(2), treadle.zeros(3))


def test_tensor_dataset_gives_whole_batches():
    rows = tensors().__getitems__([4, 0, -1])
    assert len(rows) == 3
    np.testing.assert_array_equal(rows.columns[0].numpy(), [[8, 9], [0, 1], [10, 11]])
    np.testing.assert_array_equal(rows[1][0].numpy(), [0, 1])
    assert [float(y) for _, y in rows[1:]] == [0.0, 10.0]
    with pytest.raises(IndexError):
        rows[3]
    with pytest.raises(IndexError):
        tensors().__getitems__([6])


def test_batches_do_not_share_memory_with_the_dataset():
    data = tensors()
    for indices in ([0, 1, 2], [2, 0]):
        data.__getitems__(indices).columns[1].add_(100.0)
    np.testing.assert_array_equal(data.tensors[1].numpy(), np.arange(6) * 2.0)


def test_a_batch_follows_later_changes_of_the_tensor():
    data = tensors()
    data.tensors[1].add_(1.0)
    np.testing.assert_array_equal(data.__getitems__([1, 0]).columns[1].numpy(), [3.0, 1.0])


def test_batches_of_tensors_that_need_gradients_or_have_no_numpy_type():
    weight = treadle.ones(4, requires_grad=True)
    (column,) = TensorDataset(weight).__getitems__([0, 0, 2]).columns
    column.sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [2, 0, 1, 0])
    (half,) = TensorDataset(treadle.arange(4).to(treadle.bfloat16)).__getitems__([3, 1]).columns
    assert half.dtype == treadle.bfloat16
    np.testing.assert_array_equal(half.to(treadle.float32).numpy(), [3, 1])


def test_subclasses_that_change_samples_are_asked_for_each():
    class Negated(TensorDataset):
        def __getitem__(self, index):
            return -super().__getitem__(index)[0]

    class Named(Subset):
        def __getitem__(self, index):
            return "sample", super().__getitem__(index)

    assert [int(v) for v in Negated(treadle.arange(3)).__getitems__([2, 1])] == [-2, -1]
    assert Named(Squares(4), [3, 2]).__getitems__([0]) == [("sample", 9)]


def test_concat():
    data = ConcatDataset([Squares(3), Squares(2)])
    assert [data[i] for i in range(len(data))] == [0, 1, 4, 0, 1]
    assert data[-5] == 0
    assert data.cumulative_sizes == [3, 5]
    assert len(Squares(2) + Squares(4)) == 6
    with pytest.raises(ValueError, match="absolute"):
        data[-6]
    with pytest.raises(ValueError, match="empty"):
        ConcatDataset([])
    with pytest.raises(ValueError, match="Iterable"):
        ConcatDataset([Count(3)])


def test_chain():
    data = Count(2) + Count(3)
    assert isinstance(data, ChainDataset)
    assert list(data) == [0, 1, 0, 1, 2]
    assert len(data) == 5
    with pytest.raises(TypeError, match="IterableDataset"):
        list(ChainDataset([Squares(2)]))


def test_stack():
    data = StackDataset(Squares(3), range(3))
    assert data[2] == (4, 2)
    assert data.__getitems__([0, 2]) == [(0, 0), (4, 2)]
    named = StackDataset(a=Squares(3), b=Subset(Squares(9), [8, 7, 6]))
    assert named[1] == {"a": 1, "b": 49}
    assert named.__getitems__([2]) == [{"a": 4, "b": 36}]
    assert len(named) == 3
    with pytest.raises(ValueError, match="Size mismatch"):
        StackDataset(Squares(3), Squares(4))
    with pytest.raises(ValueError, match="not both"):
        StackDataset(Squares(3), a=Squares(3))
    with pytest.raises(ValueError, match="At least one"):
        StackDataset()


def test_subset():
    data = Subset(Squares(10), [5, 3])
    assert len(data) == 2
    assert data[0] == 25
    assert data.__getitems__([1, 0]) == [9, 25]
    rows = Subset(tensors(), [5, 3, 1]).__getitems__([0, 2])
    np.testing.assert_array_equal(rows.columns[1].numpy(), [10.0, 2.0])


def test_bases_ask_for_their_methods():
    with pytest.raises(NotImplementedError):
        Dataset()[0]
    with pytest.raises(NotImplementedError):
        iter(IterableDataset())


def test_random_split():
    def split(lengths, seed=0):
        return random_split(range(10), lengths, generator=treadle.Generator().manual_seed(seed))

    a, b = split([3, 7])
    assert len(a) == 3
    assert sorted([*a, *b]) == list(range(10))
    assert list(a) == list(split([3, 7])[0])
    assert list(split([10])[0]) != list(range(10))
    assert [len(part) for part in split([0.25, 0.25, 0.5])] == [3, 2, 5]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        split([3, 3])
    with pytest.raises(ValueError, match="Fraction"):
        split([-0.5, 1.5])
    with pytest.warns(UserWarning, match="is 0"):
        split([0.99, 0.01])
