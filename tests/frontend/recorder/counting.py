"""Counting what the recorder makes: programs, nodes; and starting from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import treadle
from treadle.recorder import trace
from treadle.recorder.flush import forget_programs
from treadle.recorder.tree import size


def forget_everything() -> None:
    """An empty tree and an open trace without events."""
    treadle.flush()
    trace.roots.clear()
    forget_programs()
    trace.state.trace = trace.Trace(0)


class Count:
    """Programs made and found since the block was entered."""

    def __init__(self) -> None:
        self._misses, self._hits = trace.misses, trace.hits

    @property
    def made(self) -> int:
        return trace.misses - self._misses

    @property
    def found(self) -> int:
        return trace.hits - self._hits


@contextmanager
def counting() -> Iterator[Count]:
    """`with counting() as programs: ...`; then `programs.made`, `programs.found`."""
    treadle.flush()
    yield Count()


def nodes() -> int:
    """Nodes of the tree of the default dtype."""
    return size(trace.root())
