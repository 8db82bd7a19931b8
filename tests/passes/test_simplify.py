"""simplify, rule by rule: what it rewrites, and what it must leave alone because a number would change."""

import numpy as np
import pytest

from tests.passes.text import assert_same_values, assert_text, body, graph
from treadle.ir.core import Function, Op
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.arithmetic import Neg
from treadle.passes import simplify_engine
from treadle.passes.simplify import simplify
from treadle.passes.simplify_engine import RewriteBudgetExceeded, Simplifier

F = "tensor<2x3xf32>"


def unary(name: str, attributes: str = "", x: str = "%x", t: str = F) -> str:
    return f'"graph.{name}"({x}){attributes} : ({t}) -> {t}'


def constant(name: str, value: str, t: str = F) -> str:
    """Lines that define %name as a filled tensor of type `t`."""
    dtype = t.removesuffix(">").split("x")[-1].removeprefix("tensor<")
    shape = t.removeprefix("tensor<").removesuffix(">").split("x")[:-1]
    lines = f'  %{name}0 = "graph.constant"() {{value = {value}, dtype = {dtype}}} : () -> tensor<{dtype}>\n'
    attributes = f"{{shape = [{', '.join(shape)}]}}"
    return lines + f'  %{name} = "graph.expand"(%{name}0) {attributes} : (tensor<{dtype}>) -> {t}\n'


def binary(name: str, operands: str, value: str, t: str = F) -> Function:
    """A function of %x: an op on `operands`, of which %c is filled with `value`."""
    op = f'  %r = "graph.{name}"({operands}) : ({t}, {t}) -> {t}\n'
    return graph(f"%x: {t}\n{constant('c', value, t)}{op}  return %r : {t}")


IDENTITIES = [
    ("add", "%x, %c", "-0.0", F),
    ("add", "%c, %x", "-0.0", F),
    ("sub", "%x, %c", "0.0", F),
    ("mul", "%x, %c", "1.0", F),
    ("mul", "%c, %x", "1.0", F),
    ("div", "%x, %c", "1.0", F),
    ("pow", "%x, %c", "1.0", F),
    ("add", "%x, %c", "0", "tensor<4xi32>"),
    ("sub", "%x, %c", "0", "tensor<4xi32>"),
    ("mul", "%x, %c", "1", "tensor<4xu8>"),
    ("logical_and", "%x, %c", "true", "tensor<4xi1>"),
    ("logical_or", "%c, %x", "false", "tensor<4xi1>"),
]


@pytest.mark.parametrize(("name", "operands", "value", "t"), IDENTITIES)
def test_identities(name: str, operands: str, value: str, t: str) -> None:
    fn = binary(name, operands, value, t)
    assert body(assert_same_values(fn, simplify)) == []


KEPT = [
    ("add", "%x, %c", "0.0"),  # -0.0 + 0.0 is 0.0
    ("sub", "%x, %c", "-0.0"),
    ("mul", "%x, %c", "0.0"),  # NaN and infinity, and the sign
    ("sub", "%x, %x", "1.0"),
    ("div", "%x, %x", "1.0"),
    ("div", "%x, %c", "3.0"),
    ("div", "%x, %c", "1e-45"),  # its reciprocal is not a float32
    ("pow", "%x, %c", "0.5"),  # sqrt differs at -inf
]


@pytest.mark.parametrize(("name", "operands", "value"), KEPT)
def test_numbers_that_would_change_are_left_alone(name: str, operands: str, value: str) -> None:
    fn = binary(name, operands, value)
    new = simplify(fn)
    assert body(new)[-1] == name
    x = np.array([[-0.0, np.inf, np.nan], [-np.inf, 1e-40, 3.0]], np.float32)
    np.testing.assert_array_equal(evaluate(new, x)[0], evaluate(fn, x)[0])


def test_integer_times_zero() -> None:
    fn = binary("mul", "%x, %c", "0", "tensor<4xi32>")
    assert body(assert_same_values(fn, simplify)) == ["constant", "expand"]


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "f32"])
@pytest.mark.parametrize("second", ["abs", "square"])
@pytest.mark.parametrize("first", ["abs", "neg"])
def test_even_functions_of_signs(first: str, second: str, dtype: str) -> None:
    t = f"tensor<12x{dtype}>"
    fn = graph(f"""
    %x: {t}
      %0 = "graph.{first}"(%x) : ({t}) -> {t}
      %1 = "graph.{second}"(%0) : ({t}) -> {t}
      return %1 : {t}""")
    assert_same_values(fn, simplify)


REWRITES = [
    ("div", "4.0", "mul"),
    ("div", "-0.5", "mul"),
    ("div", "-1.0", "neg"),
    ("mul", "-1.0", "neg"),
    ("pow", "2.0", "square"),
    ("pow", "-1.0", "reciprocal"),
    ("pow", "0.0", "expand"),
]


@pytest.mark.parametrize(("name", "value", "becomes"), REWRITES)
def test_cheaper_ops(name: str, value: str, becomes: str) -> None:
    fn = binary(name, "%x, %c", value)
    assert body(assert_same_values(fn, simplify))[-1] == becomes


def test_constants_fold_to_a_splat() -> None:
    fn = graph(f"""
    %x: {F}
    {constant("a", "3.0")}{constant("b", "0.1")}
      %0 = "graph.mul"(%a, %b) : ({F}, {F}) -> {F}
      %1 = "graph.neg"(%0) : ({F}) -> {F}
      %2 = "graph.add"(%x, %1) : ({F}, {F}) -> {F}
      return %2 : {F}""")
    value = -float(np.float32(3) * np.float32(0.1))
    assert_text(
        assert_same_values(fn, simplify),
        graph(f"""
    %x: {F}
    {constant("c", repr(value))}
      %2 = "graph.add"(%x, %c) : ({F}, {F}) -> {F}
      return %2 : {F}"""),
    )


def test_folding_rounds_to_bfloat16() -> None:
    t = "tensor<bf16>"
    fn = graph(f"""
    %x: {t}
      %a = "graph.constant"() {{value = 256.0, dtype = bf16}} : () -> {t}
      %b = "graph.constant"() {{value = 1.0, dtype = bf16}} : () -> {t}
      %c = "graph.add"(%a, %b) : ({t}, {t}) -> {t}
      return %c : {t}""")
    assert [op.operation.attributes["value"] for op in simplify(fn).ops] == [256.0]


def test_signed_zeros_are_not_merged() -> None:
    fn = graph("""
    %x: tensor<f32>
      %a = "graph.constant"() {value = 0.0, dtype = f32} : () -> tensor<f32>
      %b = "graph.constant"() {value = -0.0, dtype = f32} : () -> tensor<f32>
      %c = "graph.copysign"(%x, %a) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %d = "graph.copysign"(%x, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %c, %d : tensor<f32>, tensor<f32>""")
    assert body(assert_same_values(fn, simplify)).count("constant") == 2


def test_common_subexpressions_and_dead_code() -> None:
    fn = graph(f"""
    %x: {F}
    %y: {F}
      %0 = "graph.exp"(%x) : ({F}) -> {F}
      %1 = "graph.exp"(%x) : ({F}) -> {F}
      %2 = "graph.mul"(%0, %1) : ({F}, {F}) -> {F}
      %3 = "graph.log"(%y) : ({F}) -> {F}
      return %2 : {F}""")
    assert_text(
        assert_same_values(fn, simplify),
        graph(f"""
    %x: {F}
    %y: {F}
      %0 = "graph.exp"(%x) : ({F}) -> {F}
      %2 = "graph.mul"(%0, %0) : ({F}, {F}) -> {F}
      return %2 : {F}"""),
    )


def test_equal_up_to_order() -> None:
    fn = graph(f"""
    %x: {F}
    %y: {F}
      %0 = "graph.add"(%x, %y) : ({F}, {F}) -> {F}
      %1 = "graph.add"(%y, %x) : ({F}, {F}) -> {F}
      %2 = "graph.div"(%0, %1) : ({F}, {F}) -> {F}
      %3 = "graph.div"(%x, %y) : ({F}, {F}) -> {F}
      %4 = "graph.div"(%y, %x) : ({F}, {F}) -> {F}
      return %2, %3, %4 : {F}, {F}, {F}""")
    assert body(assert_same_values(fn, simplify)) == ["add", "div", "div", "div"]


def test_ops_sink_below_expand() -> None:
    fn = graph(f"""
    %x: tensor<3xf32>
    %y: tensor<3xf32>
    {constant("c", "0.3")}
      %0 = "graph.expand"(%x) {{shape = [2, 3]}} : (tensor<3xf32>) -> {F}
      %1 = "graph.expand"(%y) {{shape = [2, 3]}} : (tensor<3xf32>) -> {F}
      %2 = "graph.mul"(%0, %1) : ({F}, {F}) -> {F}
      %3 = "graph.add"(%2, %c) : ({F}, {F}) -> {F}
      %4 = "graph.exp"(%c) : ({F}) -> {F}
      return %3, %4 : {F}, {F}""")
    new = assert_same_values(fn, simplify)
    assert all(v.rank < 2 for op in new.ops if op.operation.name != "graph.expand" for v in op.results)


def test_known_dims_are_constants() -> None:
    fn = graph("""
    %x: tensor<f32>
      %0 = "graph.dim"() {value = 12} : () -> tensor<i64>
      %1 = "graph.cast"(%0) {dtype = f32} : (tensor<i64>) -> tensor<f32>
      %2 = "graph.div"(%x, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %2 : tensor<f32>""")
    assert body(assert_same_values(fn, simplify)) == ["constant", "div"]


def test_barriers_are_opaque() -> None:
    fn = graph(f"""
    %x: {F}
      %0 = {unary("neg")}
      %1 = {unary("barrier", x="%0")}
      %2 = {unary("barrier", x="%0")}
      %3 = {unary("neg", x="%1")}
      return %3, %2 : {F}, {F}""")
    assert body(assert_same_values(fn, simplify)) == ["neg", "barrier", "barrier", "neg"]


@pytest.mark.parametrize(
    ("source", "middle", "target", "ops"),
    [
        ("f16", "f32", "f64", ["cast"]),
        ("i8", "i32", "u8", ["cast"]),
        ("i1", "f32", "i64", ["cast"]),
        ("i16", "f32", "i8", ["cast", "cast"]),  # a float saturates where an integer wraps
        ("i32", "f32", "f64", ["cast", "cast"]),  # float32 does not hold every int32
        ("f64", "f32", "f64", ["cast", "cast"]),
        ("u8", "i8", "i32", ["cast", "cast"]),
        ("f32", "f64", "f32", []),
        ("i32", "i64", "i32", []),
        ("bf16", "f32", "bf16", []),
    ],
)
def test_cast_chains(source: str, middle: str, target: str, ops: list[str]) -> None:
    fn = graph(f"""
    %x: tensor<5x{source}>
      %0 = "graph.cast"(%x) {{dtype = {middle}}} : (tensor<5x{source}>) -> tensor<5x{middle}>
      %1 = "graph.cast"(%0) {{dtype = {target}}} : (tensor<5x{middle}>) -> tensor<5x{target}>
      return %1 : tensor<5x{target}>""")
    assert body(assert_same_values(fn, simplify)) == ops


def test_select() -> None:
    fn = graph(f"""
    %x: {F}
    %y: {F}
    %c: tensor<2x3xi1>
    {constant("t", "true", "tensor<2x3xi1>")}
      %0 = "graph.select"(%t, %x, %y) : (tensor<2x3xi1>, {F}, {F}) -> {F}
      %1 = "graph.select"(%c, %x, %0) : (tensor<2x3xi1>, {F}, {F}) -> {F}
      %n = "graph.logical_not"(%c) : (tensor<2x3xi1>) -> tensor<2x3xi1>
      %2 = "graph.select"(%n, %1, %y) : (tensor<2x3xi1>, {F}, {F}) -> {F}
      return %2 : {F}""")
    assert_text(
        assert_same_values(fn, simplify),
        graph(f"""
    %x: {F}
    %y: {F}
    %c: tensor<2x3xi1>
      %2 = "graph.select"(%c, %y, %x) : (tensor<2x3xi1>, {F}, {F}) -> {F}
      return %2 : {F}"""),
    )


def test_scalar_work_is_done_once() -> None:
    s = "tensor<f32>"
    fn = graph(f"""
    %x: {F}
    %lr: {s}
    {constant("c", "3.0")}
      %0 = "graph.expand"(%lr) {{shape = [2, 3]}} : ({s}) -> {F}
      %1 = "graph.mul"(%0, %c) : ({F}, {F}) -> {F}
      %2 = "graph.exp"(%1) : ({F}) -> {F}
      %3 = "graph.mul"(%x, %2) : ({F}, {F}) -> {F}
      return %3 : {F}""")
    assert_text(
        assert_same_values(fn, simplify),
        graph(f"""
    %x: {F}
    %lr: {s}
      %c = "graph.constant"() {{value = 3.0, dtype = f32}} : () -> {s}
      %1 = "graph.mul"(%lr, %c) : ({s}, {s}) -> {s}
      %2 = "graph.exp"(%1) : ({s}) -> {s}
      %0 = "graph.expand"(%2) {{shape = [2, 3]}} : ({s}) -> {F}
      %3 = "graph.mul"(%x, %0) : ({F}, {F}) -> {F}
      return %3 : {F}"""),
    )


def test_rules_that_cycle_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.ir.ops.arithmetic import Abs

    def neg_to_abs(s: Simplifier, op: Op):  # type: ignore[no-untyped-def]
        return s.emit(Abs(), *op.operands)

    def abs_to_neg(s: Simplifier, op: Op):  # type: ignore[no-untyped-def]
        return s.emit(Neg(), *op.operands)

    simplify_engine.rules_for.cache_clear()
    monkeypatch.setitem(simplify_engine.RULES, Neg, [neg_to_abs])
    monkeypatch.setitem(simplify_engine.RULES, Abs, [abs_to_neg])
    fn = graph(f"%x: {F}\n  %0 = {unary('neg')}\n  return %0 : {F}")
    try:
        with pytest.raises(RewriteBudgetExceeded, match="neg_to_abs, abs_to_neg|abs_to_neg, neg_to_abs"):
            simplify(fn)
    finally:
        simplify_engine.rules_for.cache_clear()
