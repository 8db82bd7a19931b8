"""inline and decompose."""

import numpy as np
import pytest

from tests.passes.text import assert_text, body, graph, random_arrays
from treadle.ir.core import REGISTRY, Builder, Value, operation
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.arithmetic import Add, Square
from treadle.ir.ops.base import Composite
from treadle.ir.verifier import verify
from treadle.passes.decompose import decompose
from treadle.passes.inline import inline

T = "tensor<2x3xf32>"


@operation("graph.test_inner")
class Inner(Composite):
    """x * x."""

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        return (b.emit(Square(), *operands),)


@operation("graph.test_outer")
class Outer(Composite):
    """x * x + x, with a composite inside; its second result is its operand."""

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        return b.emit(Add(), b.emit(Inner(), x), x), x


MINE = {name: REGISTRY.pop(name) for name in (Inner.name, Outer.name)}  # known to these tests only


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in MINE.items():
        monkeypatch.setitem(REGISTRY, name, cls)


def test_decompose_is_recursive() -> None:
    fn = graph(f"""
    %x: {T}
      %0, %1 = "graph.test_outer"(%x) : ({T}) -> ({T}, {T})
      %2 = "graph.mul"(%0, %1) : ({T}, {T}) -> {T}
      return %2 : {T}""")
    new = decompose(fn)
    assert_text(
        new,
        graph(f"""
    %x: {T}
      %0 = "graph.square"(%x) : ({T}) -> {T}
      %1 = "graph.add"(%0, %x) : ({T}, {T}) -> {T}
      %2 = "graph.mul"(%1, %x) : ({T}, {T}) -> {T}
      return %2 : {T}"""),
    )
    arrays = random_arrays(fn)
    np.testing.assert_array_equal(evaluate(fn, *arrays)[0], evaluate(new, *arrays)[0])


def test_marks_go_when_no_grad_is_left() -> None:
    marks = f"""
    %x: {T}
      %0 = "graph.leaf"(%x) : ({T}) -> {T}
      %1 = "graph.stop_gradient"(%0) : ({T}) -> {T}
      %2 = "graph.neg"(%1) : ({T}) -> {T}
    """
    assert body(decompose(graph(f"{marks}  return %2 : {T}"))) == ["neg"]
    grad = f'  %g = "graph.grad"(%2, %2, %x) {{outputs = 1, through = [true]}} : ({T}, {T}, {T}) -> {T}\n'
    assert body(decompose(graph(f"{marks}{grad}  return %g : {T}"))) == ["leaf", "stop_gradient", "neg", "grad"]


def test_inline_binds_symbols_and_nests() -> None:
    inner = """graph.func @inner(%a: tensor<[s0]xf32>) symbols(s0) {
          %0 = "graph.expand"(%a) {shape = [s0, s0]} : (tensor<[s0]xf32>) -> tensor<[s0]x[s0]xf32>
          return %0 : tensor<[s0]x[s0]xf32>
        }"""
    outer = f"""graph.func @outer(%a: tensor<[s1]xf32>) symbols(s1) {{
        %0 = "graph.neg"(%a) : (tensor<[s1]xf32>) -> tensor<[s1]xf32>
        %1 = "graph.call"(%0) {{callee = {inner}}} : (tensor<[s1]xf32>) -> tensor<[s1]x[s1]xf32>
        return %1 : tensor<[s1]x[s1]xf32>
      }}"""
    fn = graph(
        f"""
    %x: tensor<[2*s0]xf32>
      %0 = "graph.call"(%x) {{callee = {outer}}} : (tensor<[2*s0]xf32>) -> tensor<[2*s0]x[2*s0]xf32>
      return %0 : tensor<[2*s0]x[2*s0]xf32>""",
        symbols="s0",
    )
    new = inline(fn)
    verify(new)
    assert_text(
        new,
        graph(
            """
    %x: tensor<[2*s0]xf32>
      %0 = "graph.neg"(%x) : (tensor<[2*s0]xf32>) -> tensor<[2*s0]xf32>
      %1 = "graph.expand"(%0) {shape = [2*s0, 2*s0]} : (tensor<[2*s0]xf32>) -> tensor<[2*s0]x[2*s0]xf32>
      return %1 : tensor<[2*s0]x[2*s0]xf32>""",
            symbols="s0",
        ),
    )
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(fn, x)[0], evaluate(new, x)[0])
