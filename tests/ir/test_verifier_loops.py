"""What the verifier refuses at the loop level. Each case is a valid kernel with one thing wrong."""

import pytest

from tests.ir.loop_texts import CONTRACT, GATHER, LOOP_TEXTS, PREFIX, ROW_MAX, SUM_OF_EXP
from treadle.ir import dtypes
from treadle.ir.core import Block, Function, Level, Loc, Op, Value
from treadle.ir.loops import IndexConst
from treadle.ir.parser import parse_function
from treadle.ir.scalar import Scalar
from treadle.ir.types import INDEX, ScalarType
from treadle.ir.verifier import VerificationError, verify

CASES = {
    "unknown kind": (ROW_MAX, 'kind = "parallel"', 'kind = "grid"', "'grid' is none of serial, parallel, vector"),
    "combiner": (SUM_OF_EXP, 'combiners = ["add"]', 'combiners = ["plus"]', "combiner 'plus' is none of"),
    "last": (SUM_OF_EXP, 'combiners = ["add"]', 'combiners = ["last"]', "needs a serial loop"),
    "no combiner": (SUM_OF_EXP, ', combiners = ["add"]', "", "one combiner for each carried value"),
    "step": (SUM_OF_EXP, "unroll = 2", "unroll = 0", "at least 1"),
    "nested parallel": (ROW_MAX, 'kind = "vector", width = 4}', 'kind = "parallel"}', "top level only"),
    "symbol": (ROW_MAX, "%n: index) symbols(s0)", "%n: index)", "symbol s0 is used and not declared"),
    "sizes": (ROW_MAX, ", %n: index) symbols(s0)", ") symbols(s0)", "0 size parameters for 1 symbols"),
    "if in vector": (GATHER, '"loop.for"(%zero, %end)', '"loop.for"(%zero, %end) {kind = "vector"}', "use masks"),
    "check": (GATHER, "number = 7", "number = 0", "positive"),
    "beside parallel": (
        ROW_MAX,
        '  "loop.for"(%zero, %rows)',
        '  %s = "loop.alloc"() {dtype = f32, size = 4} : () -> buffer<4xf32, local>\n  "loop.for"(%zero, %rows)',
        "only index arithmetic",
    ),
    "strides": (CONTRACT, "a_m = [4]", "a_m = [4, 1]", "a_m has not one stride"),
    "epilogue": (CONTRACT, "accumulate = f32", "accumulate = f64", "the region's parameters are"),
    "divisor": (
        PREFIX,
        '%end = "loop.index"() {value = 8} : () -> index',
        '%end = "loop.index_div"(%one) {divisor = 0} : (index) -> index',
        "divisor must be positive",
    ),
}


@pytest.mark.parametrize("name", LOOP_TEXTS)
def test_valid(name: str) -> None:
    verify(parse_function(LOOP_TEXTS[name]))


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    text, old, new, message = CASES[case]
    assert old in text
    with pytest.raises(VerificationError) as caught:
        verify(parse_function(text.replace(old, new)))
    assert message in str(caught.value)


def loop_function(*ops: Op, params: tuple[Value, ...] = (), symbols: tuple[str, ...] = ()) -> Function:
    return Function("f", Block(params, ops), Level.LOOP, symbols)


def test_use_before_definition() -> None:
    v = Value(INDEX, "v")
    op = Op(IndexConst(1), (), (Value(INDEX),), (), Loc("model.py", 3))
    use = Op(IndexConst(1), (v,), (Value(INDEX),), (), Loc("model.py", 4))
    with pytest.raises(VerificationError, match=r"(?s)%v: index is not defined before its use.*loop.index.*model.py:4"):
        verify(loop_function(op, use))


def test_defined_twice() -> None:
    v = Value(INDEX)
    with pytest.raises(VerificationError, match="defined twice"):
        verify(loop_function(Op(IndexConst(1), (), (v,)), Op(IndexConst(2), (), (v,))))


def test_recorded_type_must_be_the_inferred_one() -> None:
    x = Value(ScalarType(dtypes.float32))
    with pytest.raises(VerificationError, match=r"results have types \(f64\) where \(index\) are inferred"):
        verify(loop_function(Op(IndexConst(1), (), (Value(ScalarType(dtypes.float64)),))))
    with pytest.raises(VerificationError, match="scalar.fn rejects its operands: TypeError"):
        one = Op(IndexConst(1), (), (Value(INDEX),))
        verify(loop_function(one, Op(Scalar("add"), (one.result,), (x,))))


def test_values_of_a_region_stay_inside() -> None:
    fn = parse_function(PREFIX)
    loop = fn.ops[2]
    inner = loop.regions[0].ops[0].result
    escaped = Op(Scalar("neg"), (inner,), (Value(inner.type),))
    with pytest.raises(VerificationError, match="not defined before its use"):
        verify(Function("f", Block(fn.params, (*fn.ops, escaped)), Level.LOOP))
