"""Every graph op has every rule; references give what the type rules say; composites are their decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.ops.support import (
    arrays_of,
    assert_close,
    graph_classes,
    named,
    results_of,
    run,
    samples_of,
    type_of,
)
from treadle.ir import dtypes
from treadle.ir.core import Builder, Operation, Value
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits, round_bfloat16
from treadle.ir.ops.base import Absent, Composite, Elementwise, Rule, Structured, View

CLASSES = graph_classes()
NO_SAMPLES = {"graph.grad"}  # it stands for what a pass expands


def states(cls: type, rule: str, *bases: type) -> bool:
    """Does a class below `bases` define `rule`?"""
    return next(c for c in cls.__mro__ if rule in vars(c)) not in (Rule, Operation, *bases)


@pytest.mark.parametrize("cls", named(CLASSES))
def test_no_rule_is_missing(cls: Any) -> None:
    assert states(cls, "reference"), "no reference"
    assert states(cls, "samples"), "no samples"
    if issubclass(cls, Composite):
        assert states(cls, "decompose", Composite)
        return  # derivatives come from the decomposition
    for rule in ("jvp", "vjp"):
        assert isinstance(getattr(cls, rule), Absent) or states(cls, rule), f"no {rule}"
    if issubclass(cls, Elementwise):
        assert states(cls, "scalar", Elementwise) and states(cls, "partials", Elementwise)
    elif issubclass(cls, View):
        assert states(cls, "infer") and states(cls, "index_map", View)
        assert states(cls, "transpose", View) and states(cls, "put", View)
    else:
        assert states(cls, "infer")
        derived = issubclass(cls, Structured) and not states(cls, "vjp", Structured) and cls.linear_in
        assert not derived or states(cls, "transpose", Structured)


@pytest.mark.parametrize("cls", named(CLASSES))
def test_has_a_docstring(cls: Any) -> None:
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")


@pytest.mark.parametrize("cls", named(CLASSES))
def test_reference_has_the_inferred_type(cls: Any) -> None:
    samples = samples_of(cls)
    assert samples or cls.name in NO_SAMPLES
    for sample in samples:
        operation, arrays = sample.operation, arrays_of(sample)
        types = operation.infer(*map(type_of, arrays))
        for t, a in zip(types, results_of(operation, arrays), strict=True):
            expected = np.dtype(np.float32) if t.dtype.name == "bfloat16" else t.dtype.numpy
            assert a.dtype == expected and a.shape == t.shape, (sample, a, t)


@pytest.mark.parametrize("cls", named(CLASSES))
def test_references_leave_their_operands_alone(cls: Any) -> None:
    for sample in samples_of(cls):
        before = [a.copy() for a in arrays_of(sample)]
        results_of(sample.operation, arrays_of(sample))
        for a, b in zip(arrays_of(sample), before, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cls", named({n: c for n, c in CLASSES.items() if issubclass(c, Composite)}))
def test_decomposition_is_the_reference(cls: Any) -> None:
    for sample in samples_of(cls):
        operation, arrays = sample.operation, arrays_of(sample)
        params = [Value(type_of(a)) for a in arrays]
        b = Builder()
        yields = operation.decompose(b, *params)  # type: ignore[attr-defined]
        assert tuple(v.type for v in yields) == tuple(operation.infer(*(v.type for v in params))), sample
        for got, expected in zip(run(params, b, yields)(*arrays), results_of(operation, arrays), strict=True):
            assert_close(got, expected, note=sample)


@pytest.mark.parametrize("cls", named({n: c for n, c in CLASSES.items() if issubclass(c, Composite)}))
def test_decomposition_in_bfloat16(cls: Any) -> None:
    """The types of the decomposition are the inferred ones, and the values agree to the eight bits there are."""
    for sample in samples_of(cls):
        arrays = arrays_of(sample)
        if not any(a.dtype == np.float32 for a in arrays) or cls.name in ("graph.fill", "graph.view_put"):
            continue
        wide = [round_bfloat16(a) if a.dtype == np.float32 else a for a in arrays]
        types = [t.with_dtype(dtypes.bfloat16) if t.dtype is dtypes.float32 else t for t in map(type_of, arrays)]
        params = [Value(t) for t in types]
        b = Builder()
        yields = sample.operation.decompose(b, *params)  # type: ignore[attr-defined]
        inferred = sample.operation.infer(*types)
        assert tuple(v.type for v in yields) == tuple(inferred), sample
        bits = [bits_from_float32(a) if a.dtype == np.float32 else a for a in wide]
        results = zip(run(params, b, yields)(*bits), inferred, results_of(sample.operation, wide), strict=True)
        for got, t, expected in results:
            if t.dtype is not dtypes.bfloat16:
                np.testing.assert_array_equal(got, expected)
                continue
            scale = max(1.0, float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0)))
            np.testing.assert_allclose(float32_from_bits(got), expected, rtol=2.0**-6, atol=2.0**-6 * scale)


def test_names_follow_the_classes() -> None:
    for name, cls in CLASSES.items():
        plain = name.split(".")[1].replace("_", "")
        assert plain in (cls.__name__.lower(), cls.__name__.lower().removesuffix("value")), (name, cls)
