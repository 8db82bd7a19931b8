"""Handle: one immutable SSA value, wherever it is. Tensors point to handles; mutation rebinds the pointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from treadle.ir.types import TensorType

if TYPE_CHECKING:
    from treadle.recorder.segment import Segment
    from treadle.recorder.trace import Trace

__all__ = ["FREED", "GradCell", "Handle"]


class GradCell:
    """What a leaf that requires grad owns besides its value: `.grad` and its hooks. Survives rebinding of the value."""

    __slots__ = ("grad", "hooks", "post_hooks")
    of_function = False  # True for outputs of custom Functions, which are leaves of the tape but not the user's

    def __init__(self) -> None:
        self.grad: Any = None
        self.hooks: dict[int, Callable] | None = None
        self.post_hooks: dict[int, Callable] | None = None


class _Freed:
    """History of a value whose graph a backward has used up."""

    def __repr__(self) -> str:
        return "FREED"


FREED = _Freed()


class Handle:
    """A value that is recorded (`trace`, `index`), concrete (`buffer`), or unresolved (`resolve` makes it when needed).

    `grad`: requires grad. `leaf`: its GradCell where it is a leaf. `history`: (Segment, output number) where it was computed
    by an executed program and can be differentiated, FREED where that graph is used up.
    """

    __slots__ = ("trace", "index", "type", "grad", "leaf", "history", "buffer", "resolve", "hooks", "__weakref__")

    trace: Trace | None
    index: int
    type: TensorType
    grad: bool
    leaf: GradCell | None
    history: tuple[Segment, int] | _Freed | None
    buffer: Any
    resolve: Callable[[], Handle] | None
    hooks: dict[int, Callable] | None


def concrete(buffer: Any, type: TensorType, grad: bool = False, leaf: GradCell | None = None) -> Handle:
    """A handle of a value that sits in `buffer`, contiguous."""
    h = Handle()
    h.trace = None
    h.index = -1
    h.type = type
    h.grad = grad
    h.leaf = leaf
    h.history = None
    h.buffer = buffer
    h.resolve = None
    h.hooks = None
    return h


def unresolved(type: TensorType, resolve: Callable[[], Handle], grad: bool, leaf: GradCell | None = None) -> Handle:
    """A handle whose value is recorded by `resolve()` when it is next used."""
    h = concrete(None, type, grad, leaf)
    h.resolve = resolve
    return h
