"""Random programs: fused, lowered and run on planned memory, they give what the graph gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.passes.kernel_runs import run_compiled, run_loops
from tests.passes.programs import programs
from tests.passes.text import random_arrays
from treadle.ir import dtypes
from treadle.ir.core import Builder, Function, Value
from treadle.ir.dims import Dim, symbol
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.arithmetic import Add, Mul, Sub
from treadle.ir.ops.indexing import Gather, Put, Take
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.padding import Concat, Pad, SliceUpdate
from treadle.ir.ops.reductions import ArgMax, Max, Sum
from treadle.ir.ops.scans import CumSum
from treadle.ir.ops.sources import Constant, Iota
from treadle.ir.ops.transcendental import Exp
from treadle.ir.ops.views import Expand, Flip, Permute, Reshape, Slice, Window
from treadle.ir.printer import print_function
from treadle.ir.types import TensorType
from treadle.passes.simplify import simplify

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def assert_agrees(fn: Function, compiled: bool = False, tol: float = 1e-4, **bindings: int) -> None:
    arrays = random_arrays(fn, bindings=bindings)
    wanted = evaluate(fn, *arrays, bindings=bindings)
    donated = frozenset(range(len(fn.params)))
    got = (run_compiled if compiled else run_loops)(fn, *arrays, bindings=bindings, donated=donated)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, tol, tol, err_msg=print_function(fn))


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.int32])
@given(data=st.data())
@SETTINGS
def test_random_programs(dtype: dtypes.DType, data: st.DataObject) -> None:
    assert_agrees(simplify(data.draw(programs(dtype, steps=12))))


# Programs on [s0, s1] with everything that has an index map ----------------------------------------------------------

S0, S1 = symbol("s0"), symbol("s1")


def _full(b: Builder, value: float, like: Value) -> Value:
    return b.emit(Expand(like.shape), b.emit(Constant(value, like.dtype)))


def _index(b: Builder, x: Value, shape: tuple[Dim, ...], dim: int) -> Value:
    """Valid indices of a dim of at least 2: alternating 0 and 1."""
    n = b.emit(Iota(shape, len(shape) - 1, dtypes.int64))
    return b.emit(Sub(), n, b.emit(Mul(), _half(b, n), b.emit(Expand(shape), b.emit(Constant(2, dtypes.int64)))))


def _half(b: Builder, n: Value) -> Value:
    from treadle.ir.ops.arithmetic import FloorDiv

    return b.emit(FloorDiv(), n, b.emit(Expand(n.shape), b.emit(Constant(2, dtypes.int64))))


def _step(draw: st.DrawFn, b: Builder, x: Value) -> Value:
    """Another value of the type of `x`, [s0, s1]."""
    kind = draw(
        st.sampled_from(
            ("exp", "add", "flip", "softmax", "centre", "roll", "pad", "update", "take", "gather", "put", "window",
             "split", "scan", "transpose", "argmax", "columns", "concat")
        )
    )  # fmt: skip
    n, m = x.shape
    if kind == "exp":
        return b.emit(Exp(), b.emit(Mul(), x, _full(b, 0.125, x)))
    if kind == "add":
        return b.emit(Add(), x, _full(b, 1.5, x))
    if kind == "flip":
        return b.emit(Flip((draw(st.integers(0, 1)),)), x)
    if kind in ("softmax", "centre", "columns"):
        dim = 0 if kind == "columns" else 1
        kept = (1, m) if dim == 0 else (n, 1)
        top = b.emit(Expand((n, m)), b.emit(Reshape(kept), b.emit(Max((dim,)), x)))
        y = b.emit(Sub(), x, top)
        if kind == "centre":
            return y
        return b.emit(Mul(), b.emit(Exp(), y), b.emit(Expand((n, m)), b.emit(Reshape(kept), b.emit(Sum((dim,)), y))))
    if kind == "roll":
        parts = [b.emit(Slice((0, 1), (n, m), (1, 1)), x), b.emit(Slice((0, 0), (n, 1), (1, 1)), x)]
        return b.emit(Concat(1), *parts)
    if kind == "pad":
        return b.emit(Pad((1, -1), (-1, 1), (0, 0), 2.0), x)
    if kind == "update":
        return b.emit(SliceUpdate((0, 1), (n, m), (1, 1)), x, b.emit(Slice((0, 0), (n, m - 1), (1, 1)), x))
    if kind == "take":
        return b.emit(Take(0), x, _index(b, x, (n,), 0))
    if kind == "gather":
        return b.emit(Gather(1), x, _index(b, x, (n, m), 1))
    if kind == "put":
        return b.emit(Put(0, draw(st.sampled_from(("add", "set")))), x, _index(b, x, (3,), 0), _full3(b, x))
    if kind == "window":
        padded = b.emit(Pad((0, 1), (0, 1), (0, 0), 0.0), x)
        return b.emit(Sum((2,)), b.emit(Window((3,), (1,), (1,)), padded))
    if kind == "split":
        y = b.emit(Exp(), b.emit(Reshape((n * m,)), b.emit(Mul(), x, _full(b, -0.25, x))))
        return b.emit(Reshape((n, m)), y)
    if kind == "scan":
        return b.emit(CumSum(draw(st.integers(0, 1))), b.emit(Mul(), x, _full(b, 0.25, x)))
    if kind == "transpose":
        y = b.emit(Reshape((m, n)), b.emit(Permute((1, 0)), x))
        return b.emit(Permute((1, 0)), b.emit(Add(), y, b.emit(Expand((m, n)), b.emit(Constant(0.5, x.dtype)))))
    at = b.emit(Cast(x.dtype), b.emit(ArgMax(1), x))
    return b.emit(Add(), x, b.emit(Expand((n, m)), b.emit(Reshape((n, 1)), at)))


def _full3(b: Builder, x: Value) -> Value:
    return b.emit(Take(0), x, b.emit(Expand((3,)), b.emit(Constant(1, dtypes.int64))))


@st.composite
def indexed_programs(draw: st.DrawFn) -> Function:
    x = Value(TensorType(dtypes.float64, (S0, S1)))
    b, values = Builder(), [x]
    for _ in range(draw(st.integers(1, 6))):
        y = _step(draw, b, draw(st.sampled_from(values[-2:])))
        if draw(st.booleans()):
            y = b.emit(Add(), y, draw(st.sampled_from(values)))
        values.append(y)
    return simplify(Function("indexed", b.block([x], values[-2:]), symbols=("s0", "s1")))


@given(fn=indexed_programs(), s0=st.integers(2, 40), s1=st.integers(2, 40))
@SETTINGS
def test_indexed_programs_with_symbols(fn: Function, s0: int, s1: int) -> None:
    assert_agrees(fn, tol=1e-6, s0=s0, s1=s1)


@given(fn=indexed_programs(), s0=st.integers(2, 40), s1=st.integers(2, 40))
@settings(SETTINGS, max_examples=25)
def test_indexed_programs_compiled(fn: Function, s0: int, s1: int) -> None:
    assert_agrees(fn, True, 1e-6, s0=s0, s1=s1)
