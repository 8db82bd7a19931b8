"""Where the elements of a tensor lie in its storage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["dense_strides", "extent"]


def dense_strides(shape: Iterable[int]) -> list[int]:
    """Strides of a contiguous tensor of that shape, in elements."""
    strides, step = [], 1
    for size in reversed(list(shape)):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last that a view of at least one element touches."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
