"""Aliasing: which tensors share memory in the user's eyes, and what a write through one does to the others.

Values are immutable; a write rebinds. A Storage holds the current value of the base; a view keeps the chain of View ops
that leads to it. A write through a view puts the new elements into the base value and marks the other aliases stale:
their handles are derived again when next used. A tensor without aliases has no Storage at all.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.ir.ops.base import View
from treadle.ir.ops.identity import Copy, StopGradient
from treadle.ir.ops.view_put import ViewPut
from treadle.ir.ops.views import Expand
from treadle.ir.types import TensorType
from treadle.recorder.flush import finish, flush
from treadle.recorder.handle import GradCell, Handle, concrete, unresolved
from treadle.recorder.trace import COPIED, current_trace, install, make_tensor, record, record1, set_no_grad, state
from treadle.recorder.tree import intern_operation
from treadle.runtime import Buffer

if TYPE_CHECKING:
    from treadle.tensor import Tensor

__all__ = [
    "Alias",
    "Storage",
    "alias_of",
    "base_of",
    "leaf_over",
    "same_storage",
    "snapshot_of_view",
    "version_of",
    "view",
    "write",
]


_COPY = intern_operation(Copy())
_STOP = intern_operation(StopGradient())


class Storage:
    """The memory that a family of aliases shares: value of the base, and the tensors that show it."""

    __slots__ = ("base", "type", "tensors", "version", "_prune_at")

    def __init__(self, t: Tensor) -> None:
        self.base: Handle = t._h
        self.type: TensorType = t._type()
        self.tensors: list[weakref.ref] = [weakref.ref(t)]
        self.version = version_of(t)
        self._prune_at = 16

    def add(self, t: Tensor) -> None:
        self.tensors.append(weakref.ref(t))
        if len(self.tensors) > self._prune_at:
            self.tensors = [r for r in self.tensors if r() is not None]
            self._prune_at = 2 * len(self.tensors) + 16


class Alias:
    """How a tensor sees its storage: a chain of View operations from the base (empty for the base itself).

    `detached`: it was made by detach() or under no_grad, and has no part in the gradients of the base.
    """

    __slots__ = ("storage", "chain", "detached")

    def __init__(self, storage: Storage, chain: tuple[View, ...], detached: bool = False) -> None:
        self.storage = storage
        self.chain = chain
        self.detached = detached


def alias_of(t: Tensor) -> Alias:
    """The alias of `t`, made when first asked for."""
    if t._alias is None:
        t._alias = Alias(Storage(t), ())
    return t._alias


def view(op: View, t: Tensor) -> Tensor:
    """A tensor that shows the storage of `t` through one more View op."""
    op = intern_operation(op)  # type: ignore[assignment]
    alias = t._alias or alias_of(t)
    base = alias.storage.base.buffer
    if base is not None and base.exposed and not t._h.grad:
        (type_,) = op.infer(t._type())
        seen = Alias(alias.storage, (*alias.chain, op), alias.detached)
        out = make_tensor(_derived(seen, type_, None))  # the elements may change before they are read
        out._alias = seen
    else:
        out = record1(op, id(op), t)
        out._alias = Alias(alias.storage, (*alias.chain, op), alias.detached or (t._h.grad and not out._h.grad))
    alias.storage.add(out)
    return out


def base_of(t: Tensor) -> Tensor:
    """A tensor that shows the whole storage of `t`."""
    storage = alias_of(t).storage
    h = storage.base
    while h.resolve is not None:
        h = storage.base = h.resolve()
    out = make_tensor(h)
    out._alias = Alias(storage, ())
    storage.add(out)
    return out


def share(out: Tensor, t: Tensor) -> Tensor:
    """Let `out` (the same elements as `t`, without history) be an alias of `t`."""
    alias = alias_of(t)
    out._alias = Alias(alias.storage, alias.chain, True)
    alias.storage.add(out)
    return out


def version_of(t: Tensor) -> int:
    """How often the memory of `t` was written to by in-place ops."""
    return getattr(t, "_writes", 0) if t._alias is None else t._alias.storage.version


def same_storage(a: Tensor, b: Tensor) -> bool:
    return a is b or (a._alias is not None and b._alias is not None and a._alias.storage is b._alias.storage)


# ---- handles that are made when needed ------------------------------------------------------------------------------


def leaf_over(source: Handle, type_: TensorType, cell: GradCell) -> Handle:
    """A differentiable leaf with the value of `source`."""
    if source.buffer is not None:
        return concrete(source.buffer, type_, True, cell)

    def resolve() -> Handle:
        value = source
        tr = current_trace()
        while value.resolve is not None:
            value = value.resolve()
        if value.buffer is None and value.trace is tr:
            return tr.mark(cell, value)
        finish(value)
        return concrete(value.buffer, type_, True, cell)

    return unresolved(type_, resolve, True, cell)


def _derived(alias: Alias, type_: TensorType, cell: GradCell | None) -> Handle:
    """The value that an alias shows now."""
    storage = alias.storage

    def resolve() -> Handle:
        was = set_no_grad(0)  # what a view is does not depend on where it is looked at
        try:
            t = make_tensor(storage.base)
            for op in alias.chain:
                t = record1(op, id(op), t)
            if alias.detached and t._h.grad:
                t = record1(_STOP, id(_STOP), t)
        finally:
            set_no_grad(was)
        return t._h if cell is None else leaf_over(t._h, type_, cell)

    grad = storage.base.grad and not alias.detached if cell is None else True
    return unresolved(type_, resolve, grad, cell)


def snapshot_of_view(t: Tensor) -> Handle | None:
    """What a view of memory that is seen from outside (NumPy, DLPack) shows at this moment; None for other tensors.

    Of a large base only what the view shows is copied.
    """
    alias = t._alias
    storage = alias.storage
    base = storage.base.buffer
    if not alias.chain or base is None or not base.exposed or t._h.grad:
        return None
    type_ = t._type()
    if storage.type.nbytes <= COPIED:
        return _derived(alias, type_, None).resolve()
    memory = base.array(storage.type.dtype.numpy, list(storage.type.shape))
    for op in alias.chain:
        memory = op.reference(memory)
    return concrete(_copied(memory, type_), type_)


def _copied(memory: np.ndarray, type_: TensorType) -> Buffer:
    buffer = Buffer(memory.nbytes)
    if memory.size:
        np.copyto(buffer.array(type_.dtype.numpy, list(type_.shape)), memory)
    return buffer


def snapshot(h: Handle) -> Handle:
    """The value of `h` at this moment; a leaf or a result with a history keeps its part in gradients."""
    type_ = h.type
    made = concrete(_copied(h.buffer.array(type_.dtype.numpy, list(type_.shape)), type_), type_, h.grad, h.leaf)
    made.history, made.hooks = h.history, h.hooks
    return made


# ---- writing --------------------------------------------------------------------------------------------------------


def check_writable(t: Tensor) -> None:
    """Raises RuntimeError where torch forbids an in-place op: on leaves that require grad, on overlapping views."""
    alias = t._alias
    if not state.trace.no_grad:
        leaf = t._h.leaf if alias is None else None if alias.detached else alias.storage.base.leaf
        if leaf is not None and not leaf.of_function:
            what = "a leaf Variable" if alias is None or not alias.chain else "a view of a leaf Variable"
            raise RuntimeError(f"{what} that requires grad is being used in an in-place operation.")
    if alias is not None and _repeats(alias):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _repeats(alias: Alias) -> bool:
    """Whether an element of the storage appears more than once by expansion."""
    if not any(isinstance(op, Expand) for op in alias.chain):
        return False
    type_ = alias.storage.type
    for op in alias.chain:
        if isinstance(op, Expand) and not op.is_injective(type_.shape):
            return True
        (type_,) = op.infer(type_)
    return False


def write(t: Tensor, new: Tensor) -> Tensor:
    """In-place assignment: `t`, and every alias of it, shows `new` (of the same shape and dtype) from now on."""
    while new._h.resolve is not None:  # its value now
        new._h = new._h.resolve()
    if new._h.leaf is not None or _exposed(new._h) is not None:  # a value, not a leaf or memory that others write to
        new = record1(_COPY, id(_COPY), new)
    alias = t._alias
    type_ = t._type()
    if alias is None:
        cell = t._h.leaf
        t._h = _stored(t._h, new._h, type_, cell)
        t._writes = version_of(t) + 1
        return t
    storage = alias.storage
    if alias.chain:
        base = make_tensor(storage.base)
        new = record(ViewPut(alias.chain), base, new)
    storage.version += 1
    old_leaf = storage.base.leaf
    storage.base = _stored(storage.base, new._h, storage.type, None)
    leaf = None
    for ref in storage.tensors:
        u = ref()
        if u is not None:
            cell = u._h.leaf
            if cell is not None and cell is old_leaf and not u._alias.chain:
                u._h = leaf = leaf_over(storage.base, storage.type, cell)
            else:
                u._h = _derived(u._alias, u._type(), cell)
    if leaf is not None:
        storage.base = leaf
    return t


def _exposed(h: Handle) -> Any:
    """The buffer of `h` if something outside treadle shows it (NumPy, DLPack); then writes must arrive there."""
    buffer = h.buffer
    return buffer if buffer is not None and (buffer.foreign or buffer.exports) else None


def _stored(old: Handle, new: Handle, type_: TensorType, cell: GradCell | None) -> Handle:
    """The handle of value `new` where `old` was: memory seen from outside stays the memory, and takes the elements."""
    buffer = _exposed(old)
    if buffer is None:
        return new if cell is None else leaf_over(new, type_, cell)
    while new.resolve is not None:
        new = new.resolve()
    if new.buffer is None:
        flush("a write to memory shared with NumPy")
        finish(new)
    dtype, shape = type_.dtype.numpy, list(type_.shape)
    memory = buffer.array(dtype, shape)
    old.buffer = Buffer(memory.nbytes)  # a graph may have saved the old value
    if memory.size:
        np.copyto(old.buffer.array(dtype, shape), memory)
    np.copyto(memory, new.buffer.array(dtype, shape))
    made = concrete(buffer, type_, new.grad if cell is None else True, cell)
    if cell is None:
        made.history, made.hooks = new.history, new.hooks
    return made


install(snapshot_of_view=snapshot_of_view, snapshot=snapshot)
