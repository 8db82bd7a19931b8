"""Parameters and buffers: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

import treadle
from treadle import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


def _of_class(cls: type, data: Tensor, requires_grad: bool) -> Tensor:
    """A leaf of class `cls` that shares the storage of `data`."""
    made = Tensor.__new__(cls)
    made.data = data.detach()
    return made.requires_grad_(requires_grad)


def _rebuild_parameter(data: Tensor, requires_grad: bool) -> Parameter:
    """Undo `Parameter.__reduce_ex__`."""
    return Parameter(data, requires_grad)


class Parameter(Tensor):
    """A leaf tensor that belongs to a model.

    Args:
        data: the initial value, any shape; the parameter shares its storage. None makes an empty float tensor.
        requires_grad: whether gradients are collected; must be False for integer dtypes.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = treadle.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"cannot make a Parameter of {type(data).__name__}: a Tensor is expected")
        return _of_class(cls, data, requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """All is done in `__new__`; this keeps Tensor's own constructor away from the arguments."""

    def __deepcopy__(self, memo: dict) -> Parameter:
        known = memo.get(id(self))
        if known is None:
            known = memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return known

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _rebuild_parameter, (self.data, self.requires_grad)


class _BufferMeta(type(Tensor)):
    """Makes `isinstance(t, Buffer)` true only for tensors made by `Buffer(...)`."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is Buffer:
            return type.__instancecheck__(cls, instance) or getattr(instance, "_is_buffer", False) is True
        return type.__instancecheck__(cls, instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that is saved with a module but not trained.

    Args:
        data: the value, any shape and dtype. None makes an empty float tensor.
        persistent: whether it is part of the module's state_dict.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = treadle.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"cannot make a Buffer of {type(data).__name__}: a Tensor is expected")
        made = _of_class(cls, data, data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """All is done in `__new__`."""

    def __deepcopy__(self, memo: dict) -> Buffer:
        known = memo.get(id(self))
        if known is None:
            known = memo[id(self)] = Buffer(self.data.clone(), persistent=self.persistent)
        return known

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _rebuild_buffer, (self.data, self.persistent)


def _rebuild_buffer(data: Tensor, persistent: bool) -> Buffer:
    """Undo `Buffer.__reduce_ex__`."""
    return Buffer(data, persistent=persistent)


class UninitializedParameter:
    """Placeholder type of lazy modules, which treadle does not have."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError("treadle has no lazily sized parameters: give the module its sizes")


class UninitializedBuffer:
    """Placeholder type of lazy modules, which treadle does not have."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError("treadle has no lazily sized buffers: give the module its sizes")
