"""Properties of passes over random programs."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.passes.gradients import numeric_vjp
from tests.passes.programs import programs
from treadle.ir import dtypes
from treadle.ir.core import Block, Function
from treadle.ir.evaluate import evaluate
from treadle.ir.parser import parse_function
from treadle.ir.printer import print_function
from treadle.ir.verifier import verify
from treadle.passes.expand_grad import backward_function
from treadle.passes.simplify import simplify

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.float16])
@given(data=st.data())
@SETTINGS
def test_simplify_keeps_values(dtype: dtypes.DType, data: st.DataObject) -> None:
    fn = data.draw(programs(dtype))
    verify(fn)
    new = simplify(fn)
    verify(new)
    assert simplify(new) == new
    rng = np.random.default_rng(0)
    # Small integers: sums of a few of them are exact in any order.
    arrays = [rng.integers(-2, 3, (2, 3)).astype(dtype.numpy) for _ in fn.params]
    for a, b in zip(evaluate(fn, *arrays), evaluate(new, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2 if dtype is dtypes.float16 else 1e-5, err_msg=print_function(new))


@given(data=st.data())
@SETTINGS
def test_text_round_trip(data: st.DataObject) -> None:
    fn = data.draw(programs(dtypes.bfloat16))
    assert parse_function(print_function(fn)) == fn


@given(data=st.data())
@SETTINGS
def test_adjoint_against_finite_differences(data: st.DataObject) -> None:
    fn = data.draw(programs(dtypes.float64, steps=6, smooth=True))
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.5, 1.5, (2, 3)) for _ in fn.params]
    seeds = [rng.uniform(0.5, 1.5, v.shape) for v in fn.returns]
    plan = backward_function(fn, (0, 1), (0, 1))
    verify(plan.function)
    keeping = Function("keeping", Block(fn.params, plan.forward.ops, plan.residuals))
    got = evaluate(plan.function, *seeds, *evaluate(keeping, *arrays))
    wanted = numeric_vjp(lambda *a: evaluate(fn, *a), arrays, seeds, (0, 1))
    for g, w in zip(got, wanted, strict=True):
        scale = np.maximum(np.abs(w), np.abs(w).max(initial=1.0) * 1e-3)  # differences lose digits beside large values
        np.testing.assert_array_less(np.abs(g - w), 1e-3 * scale + 1e-6, err_msg=print_function(fn))
