"""Buffers: sharing memory in both directions, lifetimes, statistics, limits."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from treadle import runtime
from treadle.runtime import Buffer


def test_memory_is_aligned_and_of_the_size_asked_for() -> None:
    for nbytes in (0, 1, 63, 64, 65, 1000, 4097, 1 << 20, (1 << 20) + 1, 5_000_001):
        buffer = Buffer(nbytes)
        assert buffer.nbytes == nbytes
        assert buffer.data_ptr % 64 == 0
        buffer.array("u1", (nbytes,))[:] = 7


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Buffer(-1)


def test_array_shares_memory_and_keeps_it() -> None:
    buffer = Buffer(24)
    array = buffer.array(np.float32, (2, 3))
    array[:] = np.arange(6).reshape(2, 3)
    assert array.ctypes.data == buffer.data_ptr
    assert buffer.exports == 1
    assert buffer.use_count() == 2
    again = buffer.array(np.int32, (3,))
    again[0] = 0
    del buffer
    gc.collect()
    Buffer(24).array(np.float32, (6,))[:] = -1  # would land in the memory if it had been freed
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_exports_are_counted_down() -> None:
    buffer = Buffer(8)
    array = buffer.array(np.int64, ())
    view = array[...]
    del array
    assert buffer.exports == 1
    del view
    assert buffer.exports == 0
    assert buffer.use_count() == 1


@pytest.mark.parametrize("shape", [(3,), (2, 2), (-1,), (1 << 62, 1 << 62)])
def test_arrays_beyond_the_buffer_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Buffer(8).array(np.float32, shape)


def test_from_numpy_shares_in_both_directions() -> None:
    array = np.arange(5, dtype=np.int32)
    buffer = Buffer.from_numpy(array)
    assert buffer.foreign and buffer.data_ptr == array.ctypes.data
    array[0] = 9
    buffer.array(np.int32, (5,))[1] = 8
    assert array.tolist() == [9, 8, 2, 3, 4]
    assert buffer.array(np.int32, (5,)).tolist() == [9, 8, 2, 3, 4]


def test_from_numpy_keeps_the_array_alive_no_longer_than_needed() -> None:
    array = np.zeros(1000)
    alive = weakref.ref(array)
    buffer = Buffer.from_numpy(array)
    del array
    gc.collect()
    assert alive() is not None
    del buffer
    gc.collect()
    assert alive() is None


def test_read_only_arrays_stay_read_only() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    assert not buffer.writable
    assert not buffer.array(np.float64, (3,)).flags.writeable


def test_arrays_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        Buffer.from_numpy(np.zeros((4, 4))[:, ::2])


def test_wrap_keeps_the_owner() -> None:
    class Owner:
        pass

    memory = np.arange(4, dtype=np.uint8)
    owner = Owner()
    alive = weakref.ref(owner)
    buffer = Buffer.wrap(memory.ctypes.data, 4, owner)
    del owner
    assert alive() is not None
    assert buffer.array(np.uint8, (4,)).tolist() == [0, 1, 2, 3]
    del buffer
    gc.collect()
    assert alive() is None


def test_from_bytes_copies() -> None:
    assert Buffer.from_bytes(b"abc").array(np.uint8, (3,)).tobytes() == b"abc"
    assert Buffer.from_bytes(b"").nbytes == 0


def test_statistics_and_reuse() -> None:
    runtime.empty_cache()
    before = runtime.memory_stats()
    assert before["cached"] == 0
    buffer = Buffer(3 << 20)
    during = runtime.memory_stats()
    assert during["allocated"] == before["allocated"] + (3 << 20)
    assert during["allocations"] == before["allocations"] + 1
    address = buffer.data_ptr
    del buffer
    after = runtime.memory_stats()
    assert after["allocated"] == before["allocated"]
    assert after["cached"] == 3 << 20
    assert after["peak"] >= during["allocated"]
    again = Buffer((3 << 20) - 5)  # the same size class: the block is reused, still mapped
    assert again.data_ptr == address
    assert runtime.memory_stats()["system_allocations"] == during["system_allocations"]
    del again
    runtime.empty_cache()
    assert runtime.memory_stats()["cached"] == 0
    runtime.reset_peak_memory()
    assert runtime.memory_stats()["peak"] == runtime.memory_stats()["allocated"]


def test_limit_frees_the_cache_first_and_then_raises() -> None:
    runtime.empty_cache()
    base = runtime.memory_stats()["allocated"]
    runtime.set_memory_limit(base + (8 << 20))
    del [Buffer(1 << 20)][0]
    held = Buffer(7 << 20)
    with pytest.raises(MemoryError, match=r"2097152 bytes for a buffer .*limit"):
        Buffer(2 << 20)
    del held
    assert Buffer(8 << 20).nbytes == 8 << 20


def test_absurd_sizes_raise() -> None:
    for nbytes in (1 << 50, (1 << 63) - 1):
        with pytest.raises(MemoryError):
            Buffer(nbytes)


def test_cache_is_bounded() -> None:
    runtime.empty_cache()
    runtime.set_memory_limit(runtime.memory_stats()["allocated"] + (64 << 20))
    for _ in range(3):
        held = [Buffer((i + 1) << 20) for i in range(8)]
        del held
        assert runtime.memory_stats()["cached"] <= runtime.memory_stats()["limit"] // 2


def test_limit_from_the_environment() -> None:
    code = "from treadle import runtime; print(runtime.memory_stats()['limit'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"TREADLE_MEMORY_LIMIT": "123456"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "123456"
