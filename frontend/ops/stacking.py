"""Stacking and splitting by dimension: atleast_*, hstack and its family, block_diag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.ir.dtypes import promote
from treadle.ops.elementwise import cast
from treadle.ops.registration import PUBLIC, public
from treadle.ops.views import cat, tensor_split
from treadle.tensor import Tensor

__all__ = ["block_diag", "hstack", "vstack"]


@public(method=False, out=False)
def atleast_1d(*tensors: Any) -> Any:
    """With at least one dimension."""
    return _each(tensors, lambda t: t.reshape(1) if t.ndim < 1 else t)


@public(method=False, out=False)
def atleast_2d(*tensors: Any) -> Any:
    """With at least two dimensions."""
    return _each(tensors, lambda t: t.reshape(1, -1) if t.ndim < 2 else t)


@public(method=False, out=False)
def atleast_3d(*tensors: Any) -> Any:
    """With at least three dimensions; vectors lie along the second."""
    return _each(tensors, _three)


def _three(t: Tensor) -> Tensor:
    if t.ndim < 2:
        return t.reshape(1, -1, 1)
    return t.unsqueeze(-1) if t.ndim == 2 else t


def _each(tensors: tuple, f: Any) -> Any:
    if len(tensors) == 1:
        return f(tensors[0]) if isinstance(tensors[0], Tensor) else tuple(map(f, tensors[0]))
    return tuple(map(f, tensors))


@public(method=False)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenated along the second dimension (the first of vectors)."""
    parts = [t.reshape(1) if not t.ndim else t for t in tensors]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@public(method=False, aliases=("row_stack",))
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenated along the first dimension; vectors become rows."""
    return cat([t.reshape(1, -1) if t.ndim < 2 else t for t in tensors], 0)


@public(method=False)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenated along the third dimension."""
    return cat([_three(t) for t in tensors], 2)


@public(method=False)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenated along the second dimension; vectors become columns."""
    return cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors], 1)


def _splitter(name: str, dim: int, least: int) -> Callable:
    def f(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {input.ndim} "
                "dimensions!"
            )
        d = 0 if input.ndim == 1 else dim
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or input.shape[d] % indices_or_sections):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension "
                f"{input.shape[d]} is "
                f"not divisible by the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, d)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"Pieces along dimension {dim}, of one size or between the given indices."
    return public(out=False)(f)


hsplit, vsplit, dsplit = _splitter("hsplit", 1, 1), _splitter("vsplit", 0, 2), _splitter("dsplit", 2, 3)


@public(method=False, out=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a matrix that is zero elsewhere."""
    blocks = []
    for k, t in enumerate(tensors):
        if t.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {t.ndim} dimensions"
            )
        blocks.append(t.reshape(1, -1) if t.ndim < 2 else t)
    dtype = blocks[0].dtype
    for t in blocks[1:]:
        dtype = promote(dtype, t.dtype)
    width = sum(t.shape[1] for t in blocks)
    rows, left = [], 0
    for t in blocks:
        pad = (left, width - left - t.shape[1])
        zeros = [PUBLIC["zeros"](t.shape[0], n, dtype=dtype) for n in pad]
        rows.append(cat([zeros[0], cast(t, dtype), zeros[1]], 1))
        left += t.shape[1]
    return cat(rows, 0)
