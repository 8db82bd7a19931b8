"""Replacing and finding symbols in dims, types and operations."""

import pytest

from treadle.ir import dims, dtypes
from treadle.ir.core import Block, Op, Value
from treadle.ir.loops import Load
from treadle.ir.ops.sources import DimValue
from treadle.ir.ops.view_put import ViewPut
from treadle.ir.ops.views import Expand, Reshape
from treadle.ir.substitute import substitute, substitute_dim, used_symbols
from treadle.ir.types import BufferType, TensorType

S0, S1 = dims.symbol("s0"), dims.symbol("s1")


@pytest.mark.parametrize("d", [S0 * 2 + 1, (S0 + 3) // 2, S0 % 3, dims.maximum(S0, 4), dims.minimum(S0 * S1, 9), 7])
def test_integers_agree_with_evaluation(d: dims.Dim) -> None:
    bindings = {"s0": 5, "s1": 3}
    result = substitute_dim(d, bindings)
    assert result == dims.evaluate(d, bindings) and isinstance(result, int)


def test_dims_for_symbols() -> None:
    assert substitute_dim(S0 * S0 + S1, {"s0": S1 + 1, "s1": 2}) == (S1 + 1) * (S1 + 1) + 2
    assert substitute_dim(5 // S0, {"s0": S1}) == 5 // S1
    with pytest.raises(KeyError):
        substitute_dim(S0, {})


def test_operations_and_types() -> None:
    bindings = {"s0": 4, "s1": 6}
    assert substitute(Reshape((S0, S1 * 2)), bindings) == Reshape((4, 12))
    assert substitute(ViewPut((Expand((S0, 3)), Reshape((S1,)))), bindings) == ViewPut((Expand((4, 3)), Reshape((6,))))
    assert substitute(TensorType(dtypes.float32, (S0, 2)), bindings) is TensorType(dtypes.float32, (4, 2))
    assert substitute(BufferType(dtypes.int8, S0 + 1, "local"), bindings) is BufferType(dtypes.int8, 5, "local")
    unchanged = Load((1, 2), 3)
    assert substitute(unchanged, bindings) is unchanged


def test_used_symbols_in_order() -> None:
    x = Value(TensorType(dtypes.float32, (2, S1)))
    op = Op(DimValue(S0 // 2), (), (Value(TensorType(dtypes.int64)),))
    assert used_symbols(Block((x,), (op,))) == ("s1", "s0")
