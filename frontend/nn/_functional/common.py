"""Small helpers that the parts of `nn.functional` share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from treadle import Tensor

IntOrInts = int | Sequence[int]


def ntuple(value: IntOrInts, n: int, name: str) -> tuple[int, ...]:
    """`value` as `n` ints: one int, or a sequence of one, stands for all."""
    if isinstance(value, (tuple, list)):
        if len(value) == n:
            return tuple(value)
        if len(value) == 1:
            return (value[0],) * n
        raise RuntimeError(f"{name} must be one int or a sequence of {n} ints, got {list(value)}")
    return (value,) * n


def write_back(x: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """`result`, or with `inplace` x after taking its values."""
    return x.copy_(result) if inplace else result


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless `reduction` is none, mean or sum."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction` unless the two arguments it replaced are given."""
    if size_average is None and reduce is None:
        return reduction
    warnings.warn("size_average and reduce args are deprecated: use reduction instead", stacklevel=3)
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """The mean or sum of all elements, or `loss` itself."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    check_reduction(reduction)
    return loss


def is_half(x: Tensor) -> bool:
    """Whether `x` is of a 16-bit float type, of which statistics are taken in float32."""
    return x.is_floating_point() and x.element_size() == 2


def require(condition: Any, message: str, error: type[Exception] = RuntimeError) -> None:
    """Raise `error` unless `condition`. For messages that are cheap to build."""
    if not condition:
        raise error(message)
