"""The loop-level interpreter on hand-written kernels."""

import numpy as np
import pytest

from tests.ir.loop_texts import CONTRACT, GATHER, PREFIX, ROW_MAX, SUM_OF_EXP
from treadle.ir.evaluate import EvaluationError, evaluate
from treadle.ir.evaluate_loops import CheckFailed
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits
from treadle.ir.parser import parse_function


@pytest.mark.parametrize("kind", ["vector", "serial"])
def test_carried_sum_and_bfloat16_store(kind: str) -> None:
    fn = parse_function(SUM_OF_EXP.replace('"vector"', f'"{kind}"'))
    x = np.linspace(-1, 1, 11, dtype=np.float32)
    y, total = np.zeros(11, np.uint16), np.zeros(1, np.float32)
    assert evaluate(fn, x, y, total) == ()
    np.testing.assert_allclose(total[0], np.exp(x).sum(), rtol=1e-6)
    np.testing.assert_array_equal(y, bits_from_float32(np.exp(x)))


def test_empty_loop_gives_the_initial_values() -> None:
    total = np.ones(1, np.float32)
    evaluate(parse_function(SUM_OF_EXP), np.zeros(0, np.float32), np.zeros(0, np.uint16), total)
    assert total[0] == 0


def test_parallel_rows_with_scratch() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    y = np.zeros_like(x)
    evaluate(parse_function(ROW_MAX), x, y)  # buffers may be given in any contiguous shape
    np.testing.assert_array_equal(y, x - x.max(axis=1, keepdims=True))


def test_iterations_that_depend_on_memory_run_in_order() -> None:
    x = np.arange(8, dtype=np.int32)
    evaluate(parse_function(PREFIX), x)
    np.testing.assert_array_equal(x, np.cumsum(np.arange(8)))


def test_aliased_buffers_run_in_order() -> None:
    text = PREFIX.replace("(%x: buffer<8xi32, global>)", "(%x: buffer<8xi32, global>, %z: buffer<8xi32, global>)")
    text = text.replace('"loop.store"(%x', '"loop.store"(%z')
    x = np.arange(8, dtype=np.int32)
    evaluate(parse_function(text), x, x)
    np.testing.assert_array_equal(x, np.cumsum(np.arange(8)))


def test_gather_masks_and_checks() -> None:
    fn = parse_function(GATHER)
    x, y = np.arange(5, dtype=np.float32), np.full(3, 9, np.float32)
    evaluate(fn, x, np.array([4, -1, 2]), y)
    np.testing.assert_array_equal(y, [4, 9, 2])
    with pytest.raises(CheckFailed, match="index out of range") as caught:
        evaluate(fn, x, np.array([0, 5, 0]), y)
    assert caught.value.number == 7


def test_reading_outside_a_buffer_is_an_error() -> None:
    text = PREFIX.replace("offset = -1", "offset = -2")
    with pytest.raises(IndexError, match="loop.load"):
        evaluate(parse_function(text), np.arange(8, dtype=np.int32))


@pytest.mark.parametrize("extra", ["", '%q = "loop.alloc"() {dtype = f32, size = 1} : () -> buffer<1xf32, local>'])
def test_contraction_with_epilogue(extra: str) -> None:
    # An allocation in the epilogue keeps it from being run with lanes: both ways must agree.
    text = CONTRACT.replace("%two =", f"{extra}\n    %two =")
    rng = np.random.default_rng(1)
    a, w = rng.standard_normal((2, 3, 4)).astype(np.float32), rng.standard_normal((4, 5)).astype(np.float32)
    out = np.zeros(30, np.float32)
    evaluate(parse_function(text), a, w, out)
    np.testing.assert_allclose(out.reshape(2, 5, 3), 2 * (a @ w).transpose(0, 2, 1), rtol=1e-5)


def test_wrong_buffers_are_refused() -> None:
    fn = parse_function(ROW_MAX)
    with pytest.raises(TypeError, match="float32"):
        evaluate(fn, np.zeros(8), np.zeros(8, np.float32))
    with pytest.raises(EvaluationError, match="s0"):
        evaluate(fn, np.zeros(6, np.float32), np.zeros(6, np.float32))


def scalar(fn: str, dtype: str, *values: float) -> np.ndarray:
    """The value of a scalar function, through a kernel of one element."""
    consts = "".join(
        f'  %x{i} = "scalar.const"() {{value = {v}, dtype = {dtype}}} : () -> {dtype}\n' for i, v in enumerate(values)
    )
    types = ", ".join(dtype for _ in values)
    names = ", ".join(f"%x{i}" for i in range(len(values)))
    fn_text = f'  %r = "scalar.fn"({names}) {{fn = "{fn}"}} : ({types}) -> {dtype}\n'
    text = (
        f"loop.func @f(%out: buffer<1x{dtype}, global>) {{\n{consts}{fn_text}"
        f'  "loop.store"(%out, %r) : (buffer<1x{dtype}, global>, {dtype}) -> ()\n  return\n}}'
    )
    parsed = parse_function(text)
    out = np.zeros(1, parsed.params[0].dtype.numpy)
    evaluate(parsed, out)
    return float32_from_bits(out)[0] if dtype == "bf16" else out[0]


@pytest.mark.parametrize(
    ("fn", "dtype", "values", "expected"),
    [
        ("idiv", "i32", (7, -2), -3),
        ("idiv", "i32", (-7, 2), -3),
        ("idiv", "i32", (7, 0), 0),
        ("idiv", "i32", (-(2**31), -1), -(2**31)),
        ("idiv", "u8", (200, 7), 28),
        ("irem", "i32", (-7, 2), -1),
        ("irem", "i32", (7, 0), 7),
        ("irem", "i64", (-(2**63), -1), 0),
        ("add", "i8", (127, 1), -128),
        ("add", "u8", (255, 1), 0),
        ("abs", "i8", (-128,), -128),
        ("shl", "i32", (1, 31), -(2**31)),
        ("shl", "i32", (1, 32), 0),
        ("shr", "i32", (-8, 1), -4),
        ("shr", "i32", (-8, 40), -1),
        ("lshr", "i32", (-1, 28), 15),
        ("mulhi", "i32", (-1, -1), -2),  # 0xFFFFFFFF squared, high half: 0xFFFFFFFE
        ("mulhi", "i64", (-1, 2), 1),
        ("not", "i32", (5,), -6),
        ("minimum", "f32", ("nan", 1.0), np.nan),
        ("fmin", "f32", ("nan", 1.0), 1.0),
        ("rint", "f32", (2.5,), 2.0),
        ("add", "bf16", (256.0, 1.0), 256.0),  # rounds to nearest even
        ("add", "f16", (65504.0, 65504.0), np.inf),
        ("fma", "f32", (1.0 + 2.0**-12, 1.0 + 2.0**-12, -1.0), 2.0**-11 + 2.0**-24),
        ("fma", "f64", (1.0 + 2.0**-30, 1.0 + 2.0**-30, -1.0), 2.0**-29 + 2.0**-60),
        ("nextafter", "bf16", (1.0, 2.0), 1.0078125),
        ("nextafter", "bf16", (0.0, -1.0), -9.183549615799121e-41),
        ("sigmoid", "f32", (-200.0,), 0.0),
        ("pow", "i32", (3, 4), 81),
        ("erf", "f64", (0.5,), 0.5204998778130465),
        ("erfinv", "f64", (0.5204998778130465,), 0.5),
        ("erfinv", "f64", (1.0 - 1e-15,), 5.675915739744712),
        ("lgamma", "f64", (0.0,), np.inf),
        ("digamma", "f64", (1.0,), -0.5772156649015329),
        ("digamma", "f64", ("-inf",), np.nan),
        ("lgamma", "f64", (1e308,), np.inf),
        ("digamma", "f64", (-0.5,), 0.03648997397857652),
    ],
)
def test_scalar_functions(fn: str, dtype: str, values: tuple, expected: float) -> None:
    result = scalar(fn, dtype, *values)
    if fn in ("erf", "erfinv", "lgamma", "digamma"):
        np.testing.assert_allclose(result, expected, rtol=1e-8)
    else:
        np.testing.assert_array_equal(result, expected)


def test_casts_saturate() -> None:
    def cast(value: str, source: str, target: str) -> np.ndarray:
        text = f"""
        loop.func @f(%out: buffer<1x{target}, global>) {{
          %x = "scalar.const"() {{value = {value}, dtype = {source}}} : () -> {source}
          %r = "scalar.cast"(%x) {{dtype = {target}}} : ({source}) -> {target}
          "loop.store"(%out, %r) : (buffer<1x{target}, global>, {target}) -> ()
          return
        }}"""
        fn = parse_function(text)
        out = np.zeros(1, fn.params[0].dtype.numpy)
        evaluate(fn, out)
        return out[0]

    assert cast("-3.7", "f32", "i32") == -3
    assert cast("1e30", "f32", "i64") == 2**63 - 1
    assert cast("-inf", "f64", "i8") == -128
    assert cast("nan", "f32", "i32") == 0
    assert cast("-1.0", "f32", "u8") == 0
    assert cast("300", "i32", "u8") == 44
    assert cast("0.5", "f32", "i1")
    assert cast("1e300", "f64", "f32") == np.inf
