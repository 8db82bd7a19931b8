"""Moving and converting the tensors of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import treadle
from treadle import Tensor

__all__ = ["ConversionMixin"]

Self = TypeVar("Self", bound="ConversionMixin")


class ConversionMixin:
    """`to`, `float`, `cuda` and the like: all are `_apply` of a function of tensors, in place."""

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace each parameter's and buffer's data, and gradients, by `fn` of it; returns self.

        Parameters stay the same objects, so optimisers that hold them need not be told.
        """
        if recurse:
            for child in self.children():
                child._apply(fn)
        with treadle.no_grad():
            for param in self._parameters.values():
                if param is None:
                    continue
                grad = param.grad
                new = fn(param.data)
                if grad is not None:
                    # Between the two assignments the gradient's dtype would not be the parameter's.
                    param.grad = None
                param.data = new
                if grad is not None:
                    param.grad = fn(grad).requires_grad_(grad.requires_grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """`to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, with `non_blocking` and `memory_format`.

        Only floating point tensors change dtype. Changes the module in place and returns it.
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not _is_inexact(dtype):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )

        def convert(t: Tensor) -> Tensor:
            changes: dict[str, Any] = {}
            if device is not None:
                changes["device"] = device
            if dtype is not None and (t.is_floating_point() or t.is_complex()):
                changes["dtype"] = dtype
            if memory_format is not None and t.dim() in (4, 5):
                changes["memory_format"] = memory_format
            return t.to(non_blocking=non_blocking, **changes) if changes else t

        return self._apply(convert)

    def type(self: Self, dst_type: Any) -> Self:
        """Cast all parameters and buffers to `dst_type`."""
        return self._apply(lambda t: t.to(dst_type) if isinstance(dst_type, treadle.dtype) else t.type(dst_type))

    def float(self: Self) -> Self:
        """Cast floating point parameters and buffers to float32."""
        return self._cast(treadle.float32)

    def double(self: Self) -> Self:
        """Cast floating point parameters and buffers to float64."""
        return self._cast(treadle.float64)

    def half(self: Self) -> Self:
        """Cast floating point parameters and buffers to float16."""
        return self._cast(treadle.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating point parameters and buffers to bfloat16."""
        return self._cast(treadle.bfloat16)

    def _cast(self: Self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def cpu(self: Self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Any = None) -> Self:
        """Move all parameters and buffers to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to `device` without copying the values."""
        return self._apply(lambda t: treadle.empty_like(t, device=device), recurse=recurse)

    def share_memory(self: Self) -> Self:
        """Accepted for compatibility: treadle's processes do not share tensors."""
        return self


def _is_inexact(dtype: Any) -> bool:
    """Whether `dtype` is a floating point or complex type."""
    example = treadle.empty(0, dtype=dtype)
    return example.is_floating_point() or example.is_complex()


def _parse_to(
    first: Any = None,
    second: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    device: Any = None,
    dtype: Any = None,
    tensor: Tensor | None = None,
    memory_format: Any = None,
) -> tuple:
    """(device, dtype, non_blocking, memory_format) of the overloads of `Module.to`."""
    if isinstance(first, Tensor):
        tensor = first
        non_blocking = bool(second) or non_blocking
    elif isinstance(first, treadle.dtype):
        dtype = first
        non_blocking = bool(second) or non_blocking
    else:
        if first is not None:
            device = first
        if isinstance(second, bool):
            non_blocking = second
        elif second is not None:
            dtype = second
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if device is not None and not isinstance(device, treadle.device):
        device = treadle.device(device)
    if device is None and dtype is None and memory_format is None:
        raise TypeError("to() received an invalid combination of arguments: a device, a dtype or a tensor is expected")
    return device, dtype, non_blocking, memory_format
