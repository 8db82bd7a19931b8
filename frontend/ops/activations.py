"""Activations and softmax that torch offers at top level and as methods; each is one recorded op."""

from __future__ import annotations

from typing import Any

from treadle import _ops
from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ir.ops import composites as co
from treadle.ir.ops.indexing import Take
from treadle.ops.elementwise import cast, need_tensor
from treadle.ops.registration import PUBLIC, public
from treadle.recorder.trace import record, record1
from treadle.recorder.tree import intern_operation
from treadle.tensor import Tensor

__all__ = ["relu", "softmax"]

_RELU = intern_operation(co.Relu())
_RELU_ID = id(_RELU)


@public(inplace=True, out=False)
def relu(input: Tensor) -> Tensor:
    """max(x, 0); the slope at 0 is 0."""
    need_tensor("relu", input)
    return record1(_RELU, _RELU_ID, input)


@public()
def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) over `dim`."""
    return _ops.softmax(input if dtype is None else cast(input, dtype), dim)


@public()
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) over `dim`."""
    return _ops.log_softmax(input if dtype is None else cast(input, dtype), dim)


PUBLIC["special.softmax"], PUBLIC["special.log_softmax"] = softmax, log_softmax


def _take_rows(weight: Tensor, idx: Any) -> Tensor:
    """Rows of a matrix; the kernel refuses indices out of range."""
    if idx.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
            f"got {idx.dtype!r} instead (while checking arguments for embedding)"
        )
    return record(Take(0), weight, cast(idx, dtypes.int64))


PUBLIC["_take_rows"] = _take_rows
