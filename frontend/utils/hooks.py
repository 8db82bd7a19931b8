"""Handles by which registered hooks are taken off again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, MutableMapping
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """What registering a hook returns: `remove()` takes it off; used as a context manager it does so at the end."""

    def __init__(self, hooks: MutableMapping[int, Callable[..., Any]]) -> None:
        self.id = next(_ids)
        self._hooks = hooks

    def remove(self) -> None:
        """Take the hook off; a second call has no effect."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
