"""Every registered graph op, by its samples: text, verifier and evaluation agree with the op's own reference."""

import dataclasses

import numpy as np
import pytest

from treadle.ir import dtypes
from treadle.ir.core import REGISTRY, Builder, Function, Value
from treadle.ir.evaluate import evaluate
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits
from treadle.ir.ops.base import Composite, Rule, Sample
from treadle.ir.parser import parse_function
from treadle.ir.printer import print_function
from treadle.ir.types import TensorType
from treadle.ir.verifier import verify

NAMES = sorted(name for name, cls in REGISTRY.items() if name.startswith("graph.") and issubclass(cls, Rule))


def samples_of(name: str) -> list[Sample]:
    cls = REGISTRY[name]
    assert issubclass(cls, Rule)
    return cls.samples(np.random.default_rng(0))


def function_of(sample: Sample) -> Function:
    """A function of one op."""
    params = [Value(TensorType(dtypes.from_numpy(a.dtype), np.shape(a))) for a in sample.operands]
    b = Builder()
    made = b.emit(sample.operation, *params)
    return Function("sample", b.block(params, made if isinstance(made, tuple) else (made,)))


def outside(a: np.ndarray, dtype: dtypes.DType) -> np.ndarray:
    """A reference's result in the form that `evaluate` returns."""
    return bits_from_float32(a) if dtype is dtypes.bfloat16 else np.asarray(a)


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    for sample in samples_of(name):
        fn = function_of(sample)
        verify(fn)
        text = print_function(fn)
        again = parse_function(text)
        assert print_function(again) == text
        verify(again)
        results = evaluate(again, *sample.operands)
        stated = getattr(type(sample.operation), "reference", None)
        if stated is None or stated is Rule.reference:
            continue
        with np.errstate(all="ignore"):
            expected = sample.operation.reference(*sample.operands)  # type: ignore[attr-defined]
        for got, want, v in zip(
            results, expected if isinstance(expected, tuple) else (expected,), fn.returns, strict=True
        ):
            np.testing.assert_array_equal(got, outside(want, v.dtype), err_msg=text)


@pytest.mark.parametrize("name", [n for n in NAMES if issubclass(REGISTRY[n], Composite)])
def test_decompositions_agree_with_references(name: str) -> None:
    if getattr(REGISTRY[name], "reference", None) is Rule.reference:
        pytest.skip("defined by its decomposition only")
    for sample in samples_of(name):
        fn = function_of(sample)
        b = Builder()
        composite = fn.ops[0].operation
        assert isinstance(composite, Composite)
        spelled_out = dataclasses.replace(fn, body=b.block(fn.params, composite.decompose(b, *fn.params)))
        verify(spelled_out)
        for got, want in zip(evaluate(spelled_out, *sample.operands), evaluate(fn, *sample.operands), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4 if got.dtype != np.float16 else 1e-2, atol=1e-5)


def test_bfloat16_crosses_the_boundary_as_bits() -> None:
    fn = parse_function("""
    graph.func @f(%x: tensor<4xbf16>) {
      %0 = "graph.add"(%x, %x) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
      %1 = "graph.mul"(%0, %x) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
      return %1 : tensor<4xbf16>
    }""")
    x = np.array([1.0, 1.0078125, -3.140625, np.nan], np.float32)
    (result,) = evaluate(fn, bits_from_float32(x))
    assert result.dtype == np.uint16
    doubled = float32_from_bits(bits_from_float32(x + x))
    np.testing.assert_array_equal(float32_from_bits(result), float32_from_bits(bits_from_float32(doubled * x)))


def test_symbols_are_bound_from_shapes() -> None:
    fn = parse_function("""
    graph.func @f(%x: tensor<[s0]x[2*s0 + 1]xf32>) symbols(s0, s1) {
      %0 = "graph.sum"(%x) {dims = [1]} : (tensor<[s0]x[2*s0 + 1]xf32>) -> tensor<[s0]xf32>
      %1 = "graph.dim"() {value = s0*s1} : () -> tensor<i64>
      return %0, %1 : tensor<[s0]xf32>, tensor<i64>
    }""")
    verify(fn)
    x = np.ones((3, 7), np.float32)
    total, dim = evaluate(fn, x, bindings={"s1": 5})
    np.testing.assert_array_equal(total, np.full(3, 7))
    assert dim == 15
    with pytest.raises(RuntimeError, match="do not determine s1"):
        evaluate(fn, x)
    with pytest.raises(RuntimeError, match=r"2\*s0 \+ 1"):
        evaluate(fn, np.ones((3, 6), np.float32), bindings={"s1": 5})


def test_wrong_dtype_is_refused() -> None:
    fn = parse_function("graph.func @f(%x: tensor<2xf32>) { return %x : tensor<2xf32> }")
    with pytest.raises(RuntimeError, match="takes float32, not float64"):
        evaluate(fn, np.zeros(2))
