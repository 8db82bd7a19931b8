"""Strides as torch reports them. The compiler lays memory out as it likes; these are the user's view of a chain of views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.ir.ops import views as vw
from treadle.ops.arguments import axis
from treadle.ops.registration import public
from treadle.tensor import Tensor

__all__ = ["contiguous_strides", "layout", "view_strides"]


def view_strides(old: Sequence[int], stride: Sequence[int], new: Sequence[int]) -> list[int] | None:
    """Strides of `new` over the same memory, or None. Walks both shapes from the right in contiguous chunks."""
    if math.prod(new) == 0:
        return [1] * len(new)
    chunks: list[tuple[int, int]] = []  # (elements, stride of the last) of contiguous runs, from the left
    for d, s in zip(old, stride, strict=True):
        if d == 1:
            continue
        if chunks and chunks[-1][1] == d * s:
            chunks[-1] = (chunks[-1][0] * d, s)
        else:
            chunks.append((d, s))
    out = [1] * len(new)
    k, left, step = len(chunks) - 1, 1, stride[-1] if stride else 1
    for j in range(len(new) - 1, -1, -1):
        if new[j] != 1 and left == 1:
            if k < 0:
                return None
            left, step = chunks[k]
            k -= 1
        if left % new[j]:
            return None
        out[j] = step
        step *= new[j]
        left //= new[j]
    return out


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    out, step = [], 1
    for d in reversed(shape):
        out.append(step)
        step *= max(d, 1)
    return tuple(reversed(out))


def layout(t: Tensor) -> tuple[tuple[int, ...], int]:
    """(strides, storage offset) in elements that torch would report."""
    if t._alias is None or not t._alias.chain:
        return contiguous_strides(t.shape), 0
    shape: tuple[int, ...] = tuple(t._alias.storage.type.shape)  # type: ignore[assignment]
    stride, offset = list(contiguous_strides(shape)), 0
    for op in t._alias.chain:
        shape, stride, offset = _step_layout(op, shape, stride, offset)
    return tuple(stride), offset


def _step_layout(
    op: Any, shape: tuple[int, ...], stride: list[int], offset: int
) -> tuple[tuple[int, ...], list[int], int]:
    if isinstance(op, vw.Permute):
        return tuple(shape[d] for d in op.dims), [stride[d] for d in op.dims], offset
    if isinstance(op, vw.Expand):
        lead = len(op.shape) - len(shape)
        new = [0] * lead + [0 if shape[k] == 1 and op.shape[k + lead] != 1 else stride[k] for k in range(len(shape))]
        return tuple(op.shape), new, offset
    if isinstance(op, vw.Slice):
        new_shape = tuple(max(0, -(-(z - a) // s)) for a, z, s in zip(op.starts, op.limits, op.steps, strict=True))
        return (
            new_shape,
            [s * k for s, k in zip(stride, op.steps, strict=True)],
            offset + sum(s * a for s, a in zip(stride, op.starts, strict=True)),
        )
    if isinstance(op, vw.AsStrided):  # its strides count elements in row-major order
        return (
            tuple(op.shape),
            [_in_memory(s, shape, stride) for s in op.strides],
            offset + _in_memory(op.offset, shape, stride),
        )
    if isinstance(op, vw.Window):
        n = len(op.kernel)
        lead = len(shape) - n
        out = tuple((shape[lead + i] - op.dilation[i] * (op.kernel[i] - 1) - 1) // op.stride[i] + 1 for i in range(n))
        tail = [stride[lead + i] * op.stride[i] for i in range(n)] + [
            stride[lead + i] * op.dilation[i] for i in range(n)
        ]
        return (*shape[:lead], *out, *op.kernel), stride[:lead] + tail, offset
    found = view_strides(shape, stride, op.shape)
    return tuple(op.shape), found if found is not None else list(contiguous_strides(op.shape)), offset


def _in_memory(step: int, shape: Sequence[int], stride: Sequence[int]) -> int:
    """What a step of that many elements in row-major order is in memory."""
    total = 0
    for d, row, s in zip(shape, contiguous_strides(shape), stride, strict=True):
        if d > 1:
            count, step = divmod(step, row)
            total += count * s
    return total


@public(function=False, out=False)
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Step in elements of each dimension (or of `dim`)."""
    s = layout(self)[0]
    return s if dim is None else s[axis(dim, self.ndim)]


@public(function=False, out=False)
def storage_offset(self: Tensor) -> int:
    """Offset of the first element in its storage."""
    return layout(self)[1]


@public(function=False, out=False)
def is_contiguous(self: Tensor, memory_format: Any = None) -> bool:
    """True where the strides are row-major."""
    if self._alias is None or not self._alias.chain:
        return True
    shape, s = self.shape, layout(self)[0]
    expected = 1
    for d, step in zip(reversed(shape), reversed(s), strict=True):
        if d != 1 and step != expected:
            return math.prod(shape) == 0
        expected *= d
    return True
