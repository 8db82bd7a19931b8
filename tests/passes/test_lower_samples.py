"""Every op's samples through fuse, lower and plan: by the loop evaluator, and some by machine code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.kernel_runs import run_compiled, run_loops
from treadle.ir.core import REGISTRY, Builder, Function, Level, Value
from treadle.ir.dtypes import from_numpy
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.base import Rule, Sample
from treadle.ir.types import TensorType
from treadle.passes.decompose import decompose
from treadle.passes.simplify import simplify

NOT_HERE = ("graph.grad", "graph.call", "graph.test_")
NAMES = sorted(
    name
    for name, cls in REGISTRY.items()
    if cls.level is Level.GRAPH and not name.startswith(NOT_HERE) and cls.samples is not Rule.samples  # type: ignore[attr-defined]
)
TOLERANCE = {2: 5e-3, 4: 3e-4, 8: 1e-8}


def samples_of(name: str, step: int) -> list[Sample]:
    return REGISTRY[name].samples(np.random.default_rng(0))[::step]  # type: ignore[attr-defined]


def function_of(sample: Sample) -> Function:
    b = Builder()
    params = [Value(TensorType(from_numpy(np.asarray(a).dtype), np.shape(a))) for a in sample.operands]
    made = b.emit(sample.operation, *params)
    return Function("f", b.block(params, [made] if isinstance(made, Value) else made))


def check(sample: Sample, run: Callable[..., list[np.ndarray]]) -> None:
    fn = function_of(sample)
    wanted = evaluate(fn, *sample.operands)
    for got, want in zip(run(simplify(decompose(fn)), *sample.operands), wanted, strict=True):
        if got.dtype.kind == "f":
            tol = TOLERANCE[got.dtype.itemsize]
            np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), tol, tol, err_msg=repr(sample.operation))
        else:
            np.testing.assert_array_equal(got, want, err_msg=repr(sample.operation))


@pytest.mark.parametrize("name", NAMES)
def test_samples_in_loops(name: str) -> None:
    with np.errstate(all="ignore"):
        for sample in samples_of(name, 2):
            check(sample, run_loops)


@pytest.mark.parametrize("name", NAMES)
def test_samples_compiled(name: str) -> None:
    with np.errstate(all="ignore"):
        for sample in samples_of(name, 7):
            check(sample, run_compiled)
