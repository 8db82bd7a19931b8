"""Random graph programs for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from treadle.ir import dtypes
from treadle.ir.core import Builder, Function, Value
from treadle.ir.dtypes import DType
from treadle.ir.ops.arithmetic import Abs, Add, Div, Maximum, Minimum, Mul, Neg, Pow, Square, Sub
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.logic import Cast, Gt, LogicalNot, Select
from treadle.ir.ops.padding import Concat, SliceUpdate
from treadle.ir.ops.reductions import Max, Sum
from treadle.ir.ops.sources import Constant
from treadle.ir.ops.views import Expand, Flip, Permute, Reshape, Slice
from treadle.ir.types import TensorType

__all__ = ["programs"]

Draw = st.DrawFn
NUMBERS = (0, 1, -1, 2, 4, 3)


def _constant(draw: Draw, b: Builder, like: Value) -> Value:
    """A filled tensor, often of a number that rules look for."""
    n = draw(st.sampled_from(NUMBERS))
    value = float(n) * draw(st.sampled_from((1.0, 0.5, -1.0))) if like.dtype.is_floating else abs(n)
    scalar = b.emit(Constant(value, like.dtype))
    return b.emit(Expand(like.shape), scalar) if like.shape else scalar


def _partner(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    """A second operand for `x`: a value of its type, or a constant."""
    same = [v for v in values if v.type is x.type]
    return draw(st.sampled_from(same)) if draw(st.booleans()) else _constant(draw, b, x)


def _kinked(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    if draw(st.booleans()):
        return b.emit(Abs(), x)
    return b.emit(draw(st.sampled_from((Maximum(), Minimum()))), x, _partner(draw, b, x, values))


def _elementwise(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    if draw(st.booleans()):
        return b.emit(draw(st.sampled_from((Neg(), Square()))), x)
    y = _partner(draw, b, x, values)
    if x.dtype.is_floating and draw(st.integers(0, 4)) == 0:
        exponent = b.emit(Constant(float(draw(st.sampled_from((0, 1, 2)))), x.dtype))
        return b.emit(Pow(), x, b.emit(Expand(x.shape), exponent))
    kinds = (Add(), Sub(), Mul())
    operands = (x, y) if draw(st.booleans()) else (y, x)
    if x.dtype.is_floating and draw(st.integers(0, 3)) == 0:
        divisor = b.emit(Constant(draw(st.sampled_from((1.0, 2.0, 0.25, 3.0, -1.0))), x.dtype))
        return b.emit(Div(), x, b.emit(Expand(x.shape), divisor))
    return b.emit(draw(st.sampled_from(kinds)), *operands)


def _select(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    condition = b.emit(Gt(), x, _partner(draw, b, x, values))
    if draw(st.booleans()):
        condition = b.emit(LogicalNot(), condition)
    return b.emit(Select(), condition, x, _partner(draw, b, x, values))


def _cast(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    wide = dtypes.float64 if x.dtype.is_floating else dtypes.int64
    return b.emit(Cast(x.dtype), b.emit(Cast(wide), x))


def _view(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    kind = draw(st.sampled_from(("permute", "flip", "flat", "ones", "slice", "expand")))
    if kind == "permute":
        return b.emit(Permute(tuple(draw(st.permutations(range(x.rank))))), x)
    if kind == "flip":
        return b.emit(Flip(tuple(d for d in range(x.rank) if draw(st.booleans()))), x)
    if kind == "flat":
        return b.emit(Reshape((x.tensor.numel,)), x)
    if kind == "ones":
        at = draw(st.integers(0, x.rank))
        return b.emit(Reshape((*x.shape[:at], 1, *x.shape[at:])), x)
    if kind == "slice":
        starts = tuple(draw(st.integers(0, d - 1)) for d in x.shape)
        limits = tuple(draw(st.integers(s + 1, d)) for s, d in zip(starts, x.shape, strict=True))
        return b.emit(Slice(starts, limits, tuple(draw(st.integers(1, 2)) for _ in x.shape)), x)
    shape = tuple(draw(st.integers(2, 3)) if d == 1 else d for d in x.shape)
    return b.emit(Expand((2, *shape) if draw(st.booleans()) else shape), x)


def _reduce(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    dims = tuple(d for d in range(x.rank) if draw(st.booleans()))
    return b.emit(Sum(dims), x)


def _max(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    return b.emit(Max(tuple(d for d in range(x.rank) if draw(st.booleans()))), x)


def _contract(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    letters = "abcdefgh"[: x.rank]
    partner = _partner(draw, b, x, values)
    out = "".join(draw(st.permutations([c for c in letters if draw(st.booleans())])))
    return b.emit(Contract(letters, letters, out), x, partner)


def _join(draw: Draw, b: Builder, x: Value, values: list[Value]) -> Value:
    if x.rank == 0:
        return x
    dim = draw(st.integers(0, x.rank - 1))
    joined = b.emit(Concat(dim), x, _partner(draw, b, x, values))
    start = draw(st.integers(0, x.shape[dim]))
    starts = tuple(start if d == dim else 0 for d in range(x.rank))
    limits = tuple(start + n if d == dim else n for d, n in enumerate(x.shape))
    region = (starts, limits, (1,) * x.rank)
    if draw(st.booleans()):
        joined = b.emit(SliceUpdate(*region), joined, x)
    return b.emit(Slice(*region), joined)


SMOOTH = (_elementwise, _elementwise, _view, _view, _view, _reduce, _contract, _join)
STEPS = (*SMOOTH, _elementwise, _kinked, _select, _cast, _max)


@st.composite
def programs(draw: Draw, dtype: DType, steps: int = 10, smooth: bool = False) -> Function:
    """A function of two matrices that returns its last values; a `smooth` one has derivatives everywhere."""
    params = [Value(TensorType(dtype, (2, 3))), Value(TensorType(dtype, (2, 3)))]
    values = list(params)
    b = Builder()
    for _ in range(draw(st.integers(1, steps))):
        small = [v for v in values if v.tensor.numel <= 48 and v.rank <= 4]
        x = draw(st.sampled_from(small[-4:]))
        values.append(draw(st.sampled_from(SMOOTH if smooth else STEPS))(draw, b, x, values))
    returns = values[-2:]
    return Function("random", b.block(params, returns))
