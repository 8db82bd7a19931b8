"""Named results of functions that return several tensors (`values`, `indices`)."""

from __future__ import annotations

from collections import namedtuple
from functools import cache

__all__ = ["named_result"]


@cache
def named_result(name: str, *fields: str) -> type:
    """A named tuple type called like torch's in its repr: `treadle.return_types.<name>`."""
    made = namedtuple(name, fields)  # noqa: PYI024
    made.__module__ = "treadle.return_types"
    return made
