"""The kernel level, and what the verifier refuses there and at the graph level."""

import numpy as np
import pytest

from treadle.ir import dtypes
from treadle.ir.core import Block, Function, Level, Loc, Op, Value
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.arithmetic import Neg
from treadle.ir.parser import parse_function
from treadle.ir.printer import print_function
from treadle.ir.types import TensorType
from treadle.ir.verifier import VerificationError, verify

KERNELS = """
kernel.func @step(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %b: tensor<5xf32>) {
  %h = "kernel.contract"(%x, %w, %b) ({
  ^(%0: tensor<4x3xf32>, %1: tensor<5x3xf32>, %2: tensor<5xf32>):
    %3 = "graph.contract"(%0, %1) {lhs = "ij", rhs = "kj", out = "ik"}
      : (tensor<4x3xf32>, tensor<5x3xf32>) -> tensor<4x5xf32>
    %4 = "graph.expand"(%2) {shape = [4, 5]} : (tensor<5xf32>) -> tensor<4x5xf32>
    %5 = "graph.add"(%3, %4) : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
    yield %5
  }) : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  %m, %e, %n = "kernel.fused"(%h) ({
  ^(%6: tensor<4x5xf32>):
    %7 = "graph.max"(%6) {dims = [1]} : (tensor<4x5xf32>) -> tensor<4xf32>
    %8 = "graph.exp"(%6) : (tensor<4x5xf32>) -> tensor<4x5xf32>
    yield %7, %8
  }, {
  ^(%9: tensor<4x5xf32>):
    %10 = "graph.neg"(%9) : (tensor<4x5xf32>) -> tensor<4x5xf32>
    yield %10
  }) : (tensor<4x5xf32>) -> (tensor<4xf32>, tensor<4x5xf32>, tensor<4x5xf32>)
  %v, %i = "kernel.host"(%n) {function = "sort_f32_desc", result_types = [tensor<4x5xf32>, tensor<4x5xi64>], ints = [5, 5],
                              tasks = 4} : (tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xi64>)
  return %m, %e, %v, %i : tensor<4xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xi64>
}
"""


def test_evaluate_and_round_trip() -> None:
    fn = parse_function(KERNELS)
    verify(fn)
    assert parse_function(print_function(fn)) == fn
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (5, 3), (5,)))
    m, e, v, i = evaluate(fn, x, w, b)
    h = x @ w.T + b
    np.testing.assert_allclose(m, h.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(e, np.exp(h), rtol=1e-5)
    np.testing.assert_allclose(v, -np.sort(h, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(i, np.argsort(h, axis=1))


def test_host_sorts_are_stable_and_order_nans() -> None:
    def sort(direction: str) -> tuple[np.ndarray, ...]:
        fn = parse_function(f"""
        kernel.func @f(%x: tensor<5xf32>) {{
          %v, %i = "kernel.host"(%x) {{function = "sort_f32_{direction}", result_types = [tensor<5xf32>, tensor<5xi64>],
                                       ints = [5, 5], tasks = 1}} : (tensor<5xf32>) -> (tensor<5xf32>, tensor<5xi64>)
          return %v, %i : tensor<5xf32>, tensor<5xi64>
        }}""")
        return evaluate(fn, np.array([1, np.nan, 0, 1, 0], np.float32))

    values, order = sort("asc")
    np.testing.assert_array_equal(values, np.array([0, 0, 1, 1, np.nan], np.float32))
    np.testing.assert_array_equal(order, [2, 4, 0, 3, 1])
    values, order = sort("desc")
    np.testing.assert_array_equal(values, np.array([np.nan, 1, 1, 0, 0], np.float32))
    np.testing.assert_array_equal(order, [1, 0, 3, 2, 4])


KERNEL_CASES = {
    "kind": ('"kernel.fused"(%h)', '"kernel.fused"(%h) {kind = "grid"}', "'grid' is none of loops, scatter, scan"),
    "mark": ('"graph.exp"(%6)', '"graph.leaf"(%6)', "graph.leaf is not a graph primitive"),
    "outside": ('"graph.neg"(%9)', '"graph.neg"(%h)', "%h: tensor<4x5xf32> is not defined in the region"),
    "nested": ('"graph.exp"(%6)', '"kernel.fused"(%6)', "kernel.fused is not a graph primitive"),
    "level": (
        "  return %m",
        '  %z = "graph.neg"(%n) : (tensor<4x5xf32>) -> tensor<4x5xf32>\n  return %m',
        "does not belong at the kernel level",
    ),
}


@pytest.mark.parametrize("case", KERNEL_CASES)
def test_refused_kernels(case: str) -> None:
    old, new, message = KERNEL_CASES[case]
    assert old in KERNELS
    with pytest.raises(VerificationError) as caught:
        verify(parse_function(KERNELS.replace(old, new)))
    assert message in str(caught.value)


def test_a_contraction_has_one_contract() -> None:
    fn = parse_function(KERNELS)
    launch = fn.ops[0]
    region = launch.regions[0]
    without = Block(region.params, (), (region.params[0],))
    op = Op(launch.operation, launch.operands, (Value(region.params[0].type),), (without,))
    with pytest.raises(VerificationError, match="one graph.contract"):
        verify(Function("f", Block(fn.params, (op,)), Level.KERNEL))


def test_yields_are_the_results() -> None:
    fn = parse_function(KERNELS)
    launch = fn.ops[0]
    op = Op(launch.operation, launch.operands, (Value(TensorType(dtypes.float64, (4, 5))),), launch.regions)
    with pytest.raises(VerificationError, match=r"\(tensor<4x5xf64>\) where \(tensor<4x5xf32>\) are inferred"):
        verify(Function("f", Block(fn.params, (op,)), Level.KERNEL))


T = TensorType(dtypes.float32, (2,))


def test_graph_types_are_inferred_again() -> None:
    x = Value(T, "x")
    op = Op(Neg(), (x,), (Value(TensorType(dtypes.float32, (3,))),), (), Loc("train.py", 41))
    with pytest.raises(VerificationError) as caught:
        verify(Function("f", Block((x,), (op,), op.results)))
    text = str(caught.value)
    assert '"graph.neg"(%x)' in text and "tensor<2xf32>" in text and "train.py:41" in text


def test_regions_returns_and_symbols_of_a_graph() -> None:
    x, y = Value(T, "x"), Value(T, "y")
    with pytest.raises(VerificationError, match="returned and not defined"):
        verify(Function("f", Block((x,), (), (y,))))
    with pytest.raises(VerificationError, match="defined twice"):
        verify(Function("f", Block((x, x), (), ())))
    op = Op(Neg(), (x,), (y,), (Block((), ()),))
    with pytest.raises(VerificationError, match="a graph op has no regions"):
        verify(Function("f", Block((x,), (op,))))
    with pytest.raises(VerificationError, match="declared twice"):
        verify(Function("f", Block((x,), ()), symbols=("s0", "s0")))
