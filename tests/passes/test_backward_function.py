"""backward_function: the adjoint as a function of its own, of seeds and residuals."""

import numpy as np
import pytest

from tests.passes.gradients import numeric_vjp
from tests.passes.text import assert_text, body, graph, random_arrays
from treadle.ir.core import Block, Function, Value
from treadle.ir.evaluate import evaluate
from treadle.ir.verifier import verify
from treadle.passes.expand_grad import BackwardPlan, backward_function, reachable_wrt

T = "tensor<2x3xf64>"

MLP = """
%x: tensor<4x3xf64>
%w: tensor<3x5xf64>
%b: tensor<5xf64>
  %0 = "graph.contract"(%x, %w) {lhs = "ij", rhs = "jk", out = "ik"}
    : (tensor<4x3xf64>, tensor<3x5xf64>) -> tensor<4x5xf64>
  %1 = "graph.expand"(%b) {shape = [4, 5]} : (tensor<5xf64>) -> tensor<4x5xf64>
  %2 = "graph.add"(%0, %1) : (tensor<4x5xf64>, tensor<4x5xf64>) -> tensor<4x5xf64>
  %3 = "graph.square"(%2) : (tensor<4x5xf64>) -> tensor<4x5xf64>
  %4 = "graph.sum"(%3) {dims = [0, 1]} : (tensor<4x5xf64>) -> tensor<f64>
  return %4, %2 : tensor<f64>, tensor<4x5xf64>"""


def run_backward(plan: BackwardPlan, arrays: list[np.ndarray], seeds: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Run the forward for its residuals, then the backward."""
    forward = plan.forward
    verify(forward)
    verify(plan.function)
    keeping = Function("keeping", Block(forward.params, forward.ops, plan.residuals), symbols=forward.symbols)
    return evaluate(plan.function, *seeds, *evaluate(keeping, *arrays))


@pytest.mark.parametrize("outputs", [(0,), (1,), (0, 1)])
def test_against_finite_differences(outputs: tuple[int, ...]) -> None:
    fn = graph(MLP)
    arrays = random_arrays(fn)
    plan = backward_function(fn, outputs, (0, 1, 2))
    assert plan.forward is fn
    rng = np.random.default_rng(1)
    seeds = [rng.standard_normal(fn.returns[i].shape) for i in outputs]
    got = run_backward(plan, arrays, seeds)
    wanted = numeric_vjp(lambda *a: [evaluate(fn, *a)[i] for i in outputs], arrays, seeds, (0, 1, 2))
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-7)


def test_residuals_are_what_the_backward_reads() -> None:
    fn = graph(MLP)
    plan = backward_function(fn, (0,), (1,))
    x, _, _ = fn.params
    assert set(plan.residuals) == {x, fn.ops[2].result}
    assert plan.function.params[0].type is fn.returns[0].type
    assert "expand" not in [op.operation.name for op in plan.forward.ops if op.result in plan.residuals]


def test_views_and_constants_are_repeated_rather_than_kept() -> None:
    fn = graph(f"""
    %x: {T}
    %s: tensor<3xf64>
      %0 = "graph.expand"(%s) {{shape = [2, 3]}} : (tensor<3xf64>) -> {T}
      %1 = "graph.mul"(%x, %0) : ({T}, {T}) -> {T}
      return %1 : {T}""")
    plan = backward_function(fn, (0,), (0,))
    assert plan.residuals == (fn.params[1],)
    assert_text(
        Function("f", plan.function.body),
        graph(f"""
    %ct: {T}
    %s: tensor<3xf64>
      %0 = "graph.expand"(%s) {{shape = [2, 3]}} : (tensor<3xf64>) -> {T}
      %1 = "graph.mul"(%ct, %0) : ({T}, {T}) -> {T}
      return %1 : {T}"""),
    )


def test_no_path_gives_zeros() -> None:
    fn = graph(f"""
    %x: {T}
    %y: {T}
      %0 = "graph.stop_gradient"(%x) : ({T}) -> {T}
      %1 = "graph.mul"(%0, %y) : ({T}, {T}) -> {T}
      return %1 : {T}""")
    plan = backward_function(fn, (0,), (0, 1))
    arrays = random_arrays(fn)
    seed = np.ones((2, 3))
    gx, gy = run_backward(plan, arrays, [seed])
    np.testing.assert_array_equal(gx, np.zeros((2, 3)))
    np.testing.assert_array_equal(gy, arrays[0])
    assert reachable_wrt(fn.ops, fn.returns, set(fn.params)) == [fn.params[1]]


def test_an_output_that_is_a_parameter() -> None:
    fn = graph(f"%x: {T}\n  return %x : {T}")
    plan = backward_function(fn, (0,), (0,))
    assert body(plan.function) == [] and plan.residuals == ()
    (ct,) = evaluate(plan.function, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(ct, np.full((2, 3), 2.0))


def test_integers_cut() -> None:
    fn = graph(f"""
    %x: {T}
      %0 = "graph.cast"(%x) {{dtype = i64}} : ({T}) -> tensor<2x3xi64>
      %1 = "graph.cast"(%0) {{dtype = f64}} : (tensor<2x3xi64>) -> {T}
      %2 = "graph.mul"(%x, %1) : ({T}, {T}) -> {T}
      return %2 : {T}""")
    arrays = random_arrays(fn)
    (ct,) = run_backward(backward_function(fn, (0,), (0,)), arrays, [np.ones((2, 3))])
    np.testing.assert_array_equal(ct, np.trunc(arrays[0]))


def test_the_backward_has_values_of_its_own() -> None:
    fn = graph(MLP)
    plan = backward_function(fn, (0,), (0, 1, 2))
    mine: set[Value] = {*plan.function.params, *(v for op in plan.function.ops for v in op.results)}
    assert not mine & {*fn.params, *(v for op in fn.ops for v in op.results)}


def test_symbols() -> None:
    fn = graph(
        """
    %x: tensor<[s0]xf64>
    %y: tensor<[s1]xf64>
      %0 = "graph.exp"(%x) : (tensor<[s0]xf64>) -> tensor<[s0]xf64>
      %1 = "graph.sum"(%0) {dims = [0]} : (tensor<[s0]xf64>) -> tensor<f64>
      return %1 : tensor<f64>""",
        symbols="s0, s1",
    )
    plan = backward_function(fn, (0,), (0,))
    assert plan.function.symbols == ("s0",)
    arrays = random_arrays(fn, bindings={"s0": 4, "s1": 2})
    (ct,) = run_backward(plan, arrays, [np.array(2.0)])
    np.testing.assert_allclose(ct, 2 * np.exp(arrays[0]))
