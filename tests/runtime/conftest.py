"""The runtime is one per process: leave it as it was found."""

from collections.abc import Iterator

import pytest

from treadle import runtime


@pytest.fixture(autouse=True)
def _restore_runtime() -> Iterator[None]:
    threads = runtime.get_num_threads()
    yield
    runtime.synchronize()
    runtime.set_num_threads(threads)
    runtime.set_memory_limit(0)
