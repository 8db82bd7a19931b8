"""Text of loop-level functions: round trips, canonical form, precise errors."""

import dataclasses

import pytest

from tests.ir.loop_texts import LOOP_TEXTS, ROW_MAX, SUM_OF_EXP
from treadle.ir import dims, dtypes
from treadle.ir.core import Block, Function, Level, Loc, Op, Value
from treadle.ir.loops import IndexConst
from treadle.ir.parser import ParseError, parse_function
from treadle.ir.printer import attribute_text, digest, operation_key, print_function, print_op
from treadle.ir.scalar import ScalarConst
from treadle.ir.types import INDEX, BufferType, ScalarType
from treadle.ir.verifier import verify


@pytest.mark.parametrize("name", LOOP_TEXTS)
def test_round_trip(name: str) -> None:
    fn = parse_function(LOOP_TEXTS[name])
    verify(fn)
    text = print_function(fn)
    again = parse_function(text)
    assert again == fn
    assert print_function(again) == text
    hinted = parse_function(print_function(fn, hints=True))
    assert hinted == fn


def test_hints_do_not_count() -> None:
    fn = parse_function(SUM_OF_EXP)
    renamed = parse_function(SUM_OF_EXP.replace("%acc", "%other").replace("%x", "%input"))
    assert renamed == fn
    assert print_function(renamed, hints=True) != print_function(fn, hints=True)
    assert digest(renamed) == digest(fn)


def test_digest_may_leave_out_the_name() -> None:
    a = parse_function(ROW_MAX)
    b = dataclasses.replace(a, name="other")
    assert a != b and digest(a) != digest(b)
    assert digest(a, named=False) == digest(b, named=False)


def test_locations() -> None:
    t = ScalarType(dtypes.float32)
    op = Op(ScalarConst(0.5, dtypes.float32), (), (Value(t),), (), Loc('a "b".py', 12, "step"))
    fn = Function("f", Block((), (op,)), Level.LOOP)
    text = print_function(fn, locations=True)
    assert '-> f32 loc("a \\"b\\".py":12, "step")' in text
    assert parse_function(text).ops[0].loc == op.loc
    assert parse_function(text) == fn and "loc(" not in print_function(fn)


NUMBERS = [0, -3, 10**30, True, False, None, 0.1, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]


def reread(value: object) -> object:
    """An attribute value, printed and parsed."""
    attributes = f"{{value = {attribute_text(value)}, dtype = f32}}"
    text = f'loop.func @f() {{ %0 = "scalar.const"() {attributes} : () -> f32 return }}'
    return parse_function(text).ops[0].operation.value  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [*NUMBERS, 'q"\n\\ü', "", (), (1,), ((1, 2.0), ("a",))])
def test_attribute_values_come_back_exactly(value: object) -> None:
    again = reread(value)
    assert repr(again) == repr(value) and type(again) is type(value)


@pytest.mark.parametrize(
    "value", [dtypes.bfloat16, INDEX, ScalarType(dtypes.int8), BufferType(dtypes.float16, 3, "local")]
)
def test_types_as_attributes(value: object) -> None:
    assert reread(value) is value


def test_dim_expressions() -> None:
    a, b = dims.symbol("s0"), dims.symbol("s1")
    bounds = (dims.maximum(a, b), dims.minimum(a // 2, 5) + 1)
    for d in (a, -a, a * 3 - 1, a * b + b * 2 + 7, (a + 1) // 2, a % 3 * b, *bounds):
        text = f'loop.func @f() {{ %0 = "loop.index"() {{value = {d}}} : () -> index return }}'
        operation = parse_function(text).ops[0].operation
        assert isinstance(operation, IndexConst) and operation.value == d, text


def test_operation_key_tells_numbers_apart() -> None:
    values = (0.0, -0.0, 1.0, 1, True, float("nan"), float("nan"))
    keys = {operation_key(ScalarConst(v, dtypes.float32)) for v in values}
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph.fun @f() { return }", "line 1, column 1: expected graph.func"),
        ("loop.func @f() {\n  return %x : f32 }", "line 2, column 10: %x is not defined"),
        ('loop.func @f() {\n  %0 = "loop.nothing"() : () -> index\n  return }', "line 2, column 8: no operation"),
        ('loop.func @f() { %0 = "loop.index"() : () -> index return }', "needs the attribute 'value'"),
        ('loop.func @f() { %0 = "loop.index"() {v = 1} : () -> index return }', "has no attribute 'v'; it has value"),
        ('loop.func @f() { %0 = "loop.index"() {value = 1} : () -> i65 return }', "no dtype is called 'i65'"),
        ('loop.func @f() { %0, %1 = "loop.index"() {value = 1} : () -> index return }', "2 results are named and 1"),
        (
            'loop.func @f(%a: index) {\n  %0 = "loop.index_div"(%a) {divisor = 2} : (f32) -> index return }',
            "line 2, column 46: the value has type index, not f32",
        ),
        ("loop.func @f(%a: index, %a: index) { return }", "%a is defined twice"),
        ("loop.func @f() { return } more", "expected the end"),
        ("loop.func @f() { %0 = ", "expected a string"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_function(text)
    assert message in str(caught.value)


def test_comments() -> None:
    fn = parse_function("// pipeline: simplify\n" + ROW_MAX.replace("  %zero", "  // the bounds\n  %zero", 1))
    assert fn == parse_function(ROW_MAX)


def test_print_op() -> None:
    fn = parse_function(ROW_MAX)
    assert print_op(fn.ops[2]) == '%cols = "loop.index"() {value = 4} : () -> index'
