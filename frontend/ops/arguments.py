"""Checks of arguments: dimension numbers, sizes, operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.tensor import Size, Tensor

__all__ = ["axes", "axis", "sizes"]


def axis(dim: int, ndim: int, wrap_scalar: bool = True) -> int:
    """A dimension number in [0, ndim). Raises IndexError naming the valid range."""
    n = max(ndim, 1) if wrap_scalar else ndim
    if isinstance(dim, Tensor):
        dim = int(dim)
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def axes(dim: Any, ndim: int) -> tuple[int, ...]:
    """Sorted dimension numbers of `dim` (int, sequence or None for all). Raises RuntimeError on a repeated one."""
    if dim is None or (isinstance(dim, Sequence) and not len(dim)):
        return tuple(range(ndim))
    if isinstance(dim, Tensor | int):
        dim = (dim,)
    found = [axis(d, ndim) for d in dim]
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return tuple(sorted(found)) if ndim else ()


def sizes(args: tuple, name: str = "size") -> tuple[int, ...]:
    """A shape given as ints or as one sequence."""
    if len(args) == 1 and isinstance(args[0], Sequence | Size):
        args = tuple(args[0])
    if all(type(d) is int for d in args):
        return args
    out = []
    for d in args:
        if isinstance(d, bool) or not (isinstance(d, int) or hasattr(d, "__index__")):
            raise TypeError(
                f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(d).__name__}"
            )
        out.append(int(d))
    return tuple(out)
