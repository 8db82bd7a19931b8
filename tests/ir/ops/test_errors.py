"""Bad operands are refused at inference, with errors like torch's that name shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.ir import dtypes
from treadle.ir.core import Block, Function, Value
from treadle.ir.dims import Undecided, symbol
from treadle.ir.dtypes import DType
from treadle.ir.ops.arithmetic import Add, Div, Floor, Neg, Sub
from treadle.ir.ops.composites import Attention, Conv, ConvTranspose, CrossEntropy, Gelu, LayerNorm, MaxPool, Softmax
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.control import Call, Grad
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take
from treadle.ir.ops.logic import Bitcast, BitwiseAnd, Eq, Select
from treadle.ir.ops.padding import Concat, SliceUpdate
from treadle.ir.ops.reductions import ArgMax, Max, Sum
from treadle.ir.ops.scans import CumSum
from treadle.ir.ops.sources import RandomBits
from treadle.ir.ops.views import Reshape
from treadle.ir.types import TensorType


def T(*shape: Any, dtype: DType = dtypes.float32) -> TensorType:
    return TensorType(dtype, shape)


I64, I1 = dtypes.int64, dtypes.bool_

CASES: tuple[tuple[Any, tuple[TensorType, ...], type[Exception], str], ...] = (
    (Add(), (T(2), T(3)), RuntimeError, r"\[2\] and \[3\]"),
    (Add(), (T(2), T(2, dtype=I64)), RuntimeError, "f32, i64"),
    (Add(), (T(2),), TypeError, "takes 2 operands"),
    (Add(), (T(2), TensorType(dtypes.float32, (2,), "cuda:0")), RuntimeError, "cpu and cuda:0"),
    (Neg(), (T(2, dtype=I1),), RuntimeError, "bool tensor"),
    (Sub(), (T(2, dtype=I1), T(2, dtype=I1)), RuntimeError, "bool tensor"),
    (Div(), (T(2, dtype=I64), T(2, dtype=I64)), RuntimeError, '"div" not implemented for treadle.int64'),
    (Floor(), (T(2, dtype=I64),), RuntimeError, "not implemented"),
    (BitwiseAnd(), (T(2), T(2)), RuntimeError, "not implemented"),
    (Eq(), (T(2), T(2, dtype=I64)), RuntimeError, "f32, i64"),
    (Select(), (T(2), T(2), T(2)), RuntimeError, "boolean tensor"),
    (Select(), (T(2, dtype=I1), T(2), T(2, dtype=I64)), RuntimeError, "f32 and i64"),
    (Bitcast(I64), (T(2),), RuntimeError, "widths differ"),
    (Contract("ij", "jk", "ik"), (T(2, 3), T(4, 5)), RuntimeError, r"cannot be multiplied \(2x3 and 4x5\)"),
    (Contract("bij", "bjk", "bik"), (T(2, 3, 4), T(3, 4, 5)), RuntimeError, r"'b' differ in shapes \[2, 3, 4\]"),
    (Contract("ij", "jk", "ik"), (T(2, 3), T(3, 5, dtype=I64)), RuntimeError, "same dtype"),
    (Contract("ij", "jk", "ik"), (T(2, 3, 3), T(3, 5)), RuntimeError, r"\[2, 3, 3\] and \[3, 5\]"),
    (Sum((2,)), (T(2, 3),), IndexError, r"range of \[-2, 1\], but got 2"),
    (Sum((1, 0)), (T(2, 3),), RuntimeError, "in order"),
    (Max((1,)), (T(2, 0),), IndexError, "reduction dim 1 to have non-zero size"),
    (ArgMax(0), (T(0),), IndexError, "reduction dim 0 to have non-zero size"),
    (CumSum(0), (T(),), IndexError, "no dimensions"),
    (Take(0), (T(4), T(2)), IndexError, "int64"),
    (Gather(0), (T(3, 2), T(2, 3, dtype=I64)), RuntimeError, r"dimension 1 expected index \[2, 3\]"),
    (Gather(0), (T(3, 2), T(2, dtype=I64)), RuntimeError, "same number of dimensions"),
    (Put(0), (T(4, 2), T(3, dtype=I64), T(3, 3)), RuntimeError, r"takes \[3, 2\]"),
    (Scatter(0), (T(4), T(3, dtype=I64), T(3, dtype=I64)), RuntimeError, "dtypes of source and destination"),
    (Concat(0), (T(2, 3), T(3, 4)), RuntimeError, "Expected size 3 but got size 4 for tensor number 1"),
    (Concat(0), (T(2, 3), T(3)), RuntimeError, "got 2 and 1"),
    (SliceUpdate((0,), (2,), (1,)), (T(4), T(3)), RuntimeError, r"\[2\].*\[3\]"),
    (RandomBits((2,)), (T(), T()), RuntimeError, "0-d i64"),
    (Softmax(1), (T(3),), IndexError, "Dimension out of range"),
    (Softmax(0), (T(3, dtype=I64),), RuntimeError, "not implemented"),
    (Gelu(), (T(3, dtype=I64),), RuntimeError, "not implemented"),
    (LayerNorm(1), (T(2, 3), T(4), T(4)), RuntimeError, r"\[3\].*\[2, 3\], not \[4\]"),
    (Conv((1,), (0,), (1,)), (T(1, 2, 5), T(3, 1, 3)), RuntimeError, "to have 1 channels, but got 2 channels"),
    (Conv((1,), (0,), (1,)), (T(1, 2, 2), T(3, 2, 3)), RuntimeError, "larger than the padded input"),
    (Conv((1,), (0,), (1,)), (T(1, 2, 5, 5), T(3, 2, 3)), RuntimeError, "3 dims"),
    (Conv((1,), (0,), (1,)), (T(1, 2, 5), T(3, 2, 3), T(2)), RuntimeError, "1-dimensional with 3 elements"),
    (ConvTranspose((1,), (0,), (0,), (1,)), (T(1, 2, 5), T(3, 2, 3)), RuntimeError, "transposed=1.*3 channels"),
    (MaxPool((7,), (1,), ((0, 0),), (1,)), (T(1, 2, 5),), RuntimeError, r"\[7\].*\[1, 2, 5\]"),
    (Attention(), (T(2, 3, 4), T(2, 5, 3), T(2, 5, 4)), RuntimeError, r"\[2, 3, 4\], \[2, 5, 3\]"),
    (CrossEntropy(), (T(4, 3), T(5, dtype=I64)), ValueError, r"\[4, 3\] and \[5\]"),
    (CrossEntropy(), (T(4, 3), T(4)), RuntimeError, "int64"),
    (Grad(1, (False,)), (T(2), T(3), T(2)), RuntimeError, "seed"),
)


@pytest.mark.parametrize("operation, types, error, words", CASES, ids=[f"{c[0].name}-{i}" for i, c in enumerate(CASES)])
def test_refused(operation: Any, types: tuple[TensorType, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        operation.infer(*types)


@pytest.mark.parametrize("letters", [("ii", "i", "i"), ("ij", "jk", "i"), ("i", "i", "j"), ("ij", "k", "ik")])
def test_contractions_that_are_none(letters: tuple[str, str, str]) -> None:
    with pytest.raises(ValueError, match="contract"):
        Contract(*letters)


def test_what_symbols_leave_open_is_undecided() -> None:
    n, m = symbol("n"), symbol("m")
    with pytest.raises(Undecided):
        Contract("ij", "jk", "ik").infer(T(2, n), T(m, 3))
    with pytest.raises(Undecided):
        Reshape((n // 2, 2)).infer(T(n))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        Contract("ij", "jk", "ik").infer(T(2, n), T(n + 1, 3))


@pytest.mark.parametrize("operation", [Take(0), Gather(0)])
@pytest.mark.parametrize("index", [-1, 4])
def test_indices_out_of_range(operation: Any, index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is out of bounds for dimension 0 with size 4"):
        operation.reference(np.zeros(4), np.array([0, index]))


def test_call_binds_the_callee_symbols() -> None:
    n = symbol("n")
    x = Value(T(n, 3))
    y = Value(T(n))
    callee = Function("f", Block((x,), (), (y,)), symbols=("n",))
    assert Call(callee).infer(T(5, 3)) == (T(5),)
    m = symbol("m")
    assert Call(callee).infer(T(m * 2, 3)) == (T(m * 2),)
    with pytest.raises(TypeError, match="a parameter is"):
        Call(callee).infer(T(5, 4))
    with pytest.raises(TypeError, match="takes 1 operands"):
        Call(callee).infer()


def test_grad_has_the_types_of_its_wrt_values() -> None:
    assert Grad(1, (True, False)).infer(T(), T(), T(2), T(3)) == (T(2), T(3))
