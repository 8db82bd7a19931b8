"""expand-grad: adjoints in place, against finite differences in float64, first and second order."""

import numpy as np
import pytest

from tests.passes.gradients import numeric_vjp
from tests.passes.text import assert_text, body, graph, random_arrays
from treadle.ir.core import REGISTRY, Block, Builder, Function, Loc, Op, Value, operation
from treadle.ir.evaluate import EvaluationError, evaluate
from treadle.ir.ops.arithmetic import Mul, Square
from treadle.ir.ops.base import Composite
from treadle.passes.decompose import decompose
from treadle.passes.expand_grad import backward_function, expand_grad
from treadle.passes.simplify import simplify

S = "tensor<f64>"
T = "tensor<3xf64>"
ONE = f'  %one = "graph.constant"() {{value = 1.0, dtype = f64}} : () -> {S}\n'


@operation("graph.test_cube")
class Cube(Composite):
    """x ** 3, for want of a composite without a VJP that will stay so."""

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        return (b.emit(Mul(), b.emit(Square(), x), x),)


@operation("graph.test_pass_on")
class PassOn(Composite):
    """Gives its operands back, the second one twice: results that no op of the decomposition defines."""

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        doubled = b.emit(Mul(), operands[0], operands[1])
        return operands[1], doubled, doubled


MINE = {name: REGISTRY.pop(name) for name in (Cube.name, PassOn.name)}  # known to these tests only


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in MINE.items():
        monkeypatch.setitem(REGISTRY, name, cls)


def test_adjoint_text() -> None:
    fn = graph(f"""
    %x: {T}
    %y: {T}
    %seed: {T}
      %0 = "graph.mul"(%x, %y) : ({T}, {T}) -> {T}
      %1 = "graph.sin"(%0) : ({T}) -> {T}
      %gx, %gy = "graph.grad"(%1, %seed, %x, %y) {{outputs = 1, through = [false, false]}}
        : ({T}, {T}, {T}, {T}) -> ({T}, {T})
      return %gx, %gy : {T}, {T}""")
    assert_text(
        simplify(expand_grad(fn)),
        graph(f"""
    %x: {T}
    %y: {T}
    %seed: {T}
      %0 = "graph.mul"(%x, %y) : ({T}, {T}) -> {T}
      %2 = "graph.cos"(%0) : ({T}) -> {T}
      %3 = "graph.mul"(%seed, %2) : ({T}, {T}) -> {T}
      %4 = "graph.mul"(%3, %y) : ({T}, {T}) -> {T}
      %5 = "graph.mul"(%3, %x) : ({T}, {T}) -> {T}
      return %4, %5 : {T}, {T}"""),
    )


def test_grad_has_no_value_of_its_own() -> None:
    fn = graph(f"""
    %x: {S}
    {ONE}
      %g = "graph.grad"(%x, %one, %x) {{outputs = 1, through = [true]}} : ({S}, {S}, {S}) -> {S}
      return %g : {S}""")
    with pytest.raises(EvaluationError, match="expand-grad"):
        evaluate(fn, np.array(2.0))
    assert evaluate(expand_grad(fn), np.array(2.0)) == (1.0,)


def test_second_order() -> None:
    fn = graph(f"""
    %x: {T}
    {ONE}
      %0 = "graph.exp"(%x) : ({T}) -> {T}
      %1 = "graph.mul"(%0, %x) : ({T}, {T}) -> {T}
      %2 = "graph.sum"(%1) {{dims = [0]}} : ({T}) -> {S}
      %g = "graph.grad"(%2, %one, %x) {{outputs = 1, through = [true]}} : ({S}, {S}, {T}) -> {T}
      %3 = "graph.square"(%g) : ({T}) -> {T}
      %4 = "graph.sum"(%3) {{dims = [0]}} : ({T}) -> {S}
      %h = "graph.grad"(%4, %one, %x) {{outputs = 1, through = [true]}} : ({S}, {S}, {T}) -> {T}
      return %4, %g, %h : {S}, {T}, {T}""")
    expanded = expand_grad(fn)
    (x,) = random_arrays(fn)
    _, g, h = evaluate(expanded, x)
    np.testing.assert_allclose(g, np.exp(x) * (x + 1))
    (wanted,) = numeric_vjp(lambda a: evaluate(expanded, a)[:1], [x], [np.array(1.0)], [0])
    np.testing.assert_allclose(h, wanted, rtol=1e-6)
    np.testing.assert_allclose(evaluate(simplify(decompose(expanded)), x)[2], h, rtol=1e-12)


def test_stops_at_a_value_unless_the_gradient_passes_through() -> None:
    def run(through: str) -> list[float]:
        fn = graph(f"""
        %x: {S}
        {ONE}
          %h = "graph.square"(%x) : ({S}) -> {S}
          %y = "graph.mul"(%h, %x) : ({S}, {S}) -> {S}
          %gh, %gx = "graph.grad"(%y, %one, %h, %x) {{outputs = 1, through = [{through}, true]}}
            : ({S}, {S}, {S}, {S}) -> ({S}, {S})
          return %gh, %gx : {S}, {S}""")
        return [float(a) for a in evaluate(expand_grad(fn), np.array(3.0))]

    assert run("true") == [3.0, 27.0]  # d x^3
    assert run("false") == [3.0, 9.0]  # h held fixed


def test_several_outputs_and_shared_values() -> None:
    fn = graph(f"""
    %x: {S}
    %a: {S}
    %b: {S}
      %0 = "graph.square"(%x) : ({S}) -> {S}
      %1 = "graph.exp"(%0) : ({S}) -> {S}
      %g = "graph.grad"(%0, %1, %0, %a, %b, %a, %x) {{outputs = 3, through = [true]}}
        : ({S}, {S}, {S}, {S}, {S}, {S}, {S}) -> {S}
      return %g : {S}""")
    x, a, b = 0.5, 2.0, 3.0
    (g,) = evaluate(expand_grad(fn), *map(np.array, (x, a, b)))
    np.testing.assert_allclose(g, (2 * a + b * np.exp(x * x)) * 2 * x)


def test_unreached_wrt_is_zero_and_has_its_shape() -> None:
    fn = graph(f"""
    %x: {S}
    %y: tensor<2x3xf32>
      %g, %h = "graph.grad"(%x, %x, %x, %y) {{outputs = 1, through = [true, true]}}
        : ({S}, {S}, {S}, tensor<2x3xf32>) -> ({S}, tensor<2x3xf32>)
      return %g, %h : {S}, tensor<2x3xf32>""")
    g, h = evaluate(expand_grad(fn), np.array(4.0), np.ones((2, 3), np.float32))
    assert g == 4
    np.testing.assert_array_equal(h, np.zeros((2, 3), np.float32))


CUBE = f"""
%x: {T}
%seed: {T}
  %0 = "graph.test_cube"(%x) : ({T}) -> {T}
  %1 = "graph.exp"(%0) : ({T}) -> {T}
  %g = "graph.grad"(%1, %seed, %x) {{outputs = 1, through = [true]}} : ({T}, {T}, {T}) -> {T}
  return %g, %0 : {T}, {T}"""


def test_a_composite_without_a_vjp_is_decomposed_and_shared() -> None:
    fn = graph(CUBE)
    expanded = expand_grad(fn)
    assert body(expanded).count("square") == 1 and "test_cube" not in body(expanded)
    x, seed = random_arrays(fn)
    g, cube = evaluate(expanded, x, seed)
    np.testing.assert_allclose(g, seed * np.exp(x**3) * 3 * x**2)
    np.testing.assert_allclose(cube, x**3)


def test_inactive_composites_stay() -> None:
    fn = graph(f"""
    %x: {T}
    %y: {T}
      %0 = "graph.test_cube"(%y) : ({T}) -> {T}
      %1 = "graph.mul"(%x, %0) : ({T}, {T}) -> {T}
      %g = "graph.grad"(%1, %y, %x) {{outputs = 1, through = [true]}} : ({T}, {T}, {T}) -> {T}
      return %g : {T}""")
    assert body(expand_grad(fn)) == ["test_cube", "mul", "mul"]


def test_results_that_are_operands() -> None:
    fn = graph(f"""
    %x: {S}
    %y: {S}
    {ONE}
      %a, %b, %c = "graph.test_pass_on"(%x, %y) : ({S}, {S}) -> ({S}, {S}, {S})
      %0 = "graph.mul"(%a, %b) : ({S}, {S}) -> {S}
      %1 = "graph.add"(%0, %c) : ({S}, {S}) -> {S}
      %gx, %gy = "graph.grad"(%1, %one, %x, %y) {{outputs = 1, through = [true, true]}}
        : ({S}, {S}, {S}, {S}) -> ({S}, {S})
      return %gx, %gy, %a, %c : {S}, {S}, {S}, {S}""")
    x, y = 2.0, 5.0  # x y^2 + x y
    results = evaluate(expand_grad(fn), np.array(x), np.array(y))
    assert [float(a) for a in results] == [y * y + y, 2 * x * y + x, y, x * y]


def test_backward_function_of_a_composite_rewrites_the_forward() -> None:
    fn = graph(f'%x: {T}\n  %0 = "graph.test_cube"(%x) : ({T}) -> {T}\n  return %0 : {T}')
    plan = backward_function(fn, (0,), (0,))
    assert body(plan.forward) == ["square", "mul"]
    assert plan.forward.returns == fn.returns  # whoever knows the value still finds it
    known: set[Value] = {*plan.forward.params, *(v for op in plan.forward.ops for v in op.results)}
    assert set(plan.residuals) <= known


def test_locations_are_those_of_the_forward() -> None:
    fn = graph(CUBE)
    ops = tuple(Op(o.operation, o.operands, o.results, o.regions, Loc("m.py", 10 + i)) for i, o in enumerate(fn.ops))
    expanded = expand_grad(Function("f", Block(fn.params, ops, fn.returns)))
    lines = [op.loc.line for op in expanded.ops if op.loc]
    assert set(lines) == {10, 11} and len(lines) == len(expanded.ops)


def test_a_call_is_differentiated() -> None:
    callee = f"""graph.func @square(%a: {S}) {{
        %0 = "graph.square"(%a) : ({S}) -> {S}
        return %0 : {S}
      }}"""
    fn = graph(f"""
    %x: {S}
    {ONE}
      %y = "graph.call"(%x) {{callee = {callee}}} : ({S}) -> {S}
      %g = "graph.grad"(%y, %one, %x) {{outputs = 1, through = [true]}} : ({S}, {S}, {S}) -> {S}
      return %g : {S}""")
    assert evaluate(expand_grad(fn), np.array(3.0)) == (6.0,)
