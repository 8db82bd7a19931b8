"""Derivative rules against finite differences in float64, each other, and once more for second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.ops.support import Linearised, arrays_of, dot, graph_classes, named, results_of, samples_of, type_of
from treadle.ir.ops.base import Absent, Sample

STEP = 1e-5


def is_differentiable(cls: Any) -> bool:
    return not isinstance(cls.vjp, Absent) and cls.name != "graph.stop_gradient"


# Ops whose slope, or its slope, jumps where two elements are equal, and at 0.
MEETING = {"max", "min", "cummax", "cummin", "sort", "put", "scatter", "max_pool"}
AT_ZERO = {"leaky_relu", "elu"}


def is_smooth(cls: Any, floats: list[np.ndarray]) -> bool:
    name = cls.name.split(".")[1]
    elements = np.concatenate([np.zeros(0), *(a.ravel() for a in floats)])
    if name in MEETING and len(np.unique(elements)) < elements.size:
        return False
    return name not in AT_ZERO or bool(np.all(elements != 0))


def smooth_samples(cls: Any) -> list[Sample]:
    """Samples in float64, results included, at which the op has a derivative."""
    found = []
    for sample in samples_of(cls):
        arrays = arrays_of(sample)
        floats = [a for a in (*arrays, *results_of(sample.operation, arrays)) if a.dtype.kind == "f"]
        if floats and all(a.dtype == np.float64 and np.all(np.isfinite(a)) for a in floats):
            if is_smooth(cls, [a for a in arrays if a.dtype.kind == "f"]):
                found.append(sample)
    return found


# Ops with a value of zero everywhere for the derivative, although they jump.
STEPS = {"graph.floor", "graph.ceil", "graph.round", "graph.trunc", "graph.sign", "graph.floor_div", "graph.trunc_div"}
# Loose: derivatives in float32, or second differences of large numbers.
SCALE = {"graph.prod": 10.0, "graph.trigamma": 10.0}

CLASSES = {n: c for n, c in graph_classes().items() if is_differentiable(c)}


def directions(rng: np.random.Generator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [rng.standard_normal(a.shape) for a in arrays]


def moved(arrays: list[np.ndarray], active: list[int], v: list[np.ndarray], step: float) -> list[np.ndarray]:
    out = list(arrays)
    for i, d in zip(active, v, strict=True):
        out[i] = np.asarray(out[i] + step * d)
    return out


@pytest.mark.parametrize("cls", named(CLASSES))
def test_first_and_second_derivatives(cls: Any) -> None:
    rng = np.random.default_rng(3)
    scale = SCALE.get(cls.name, 1.0)
    for sample in smooth_samples(cls):
        arrays = arrays_of(sample)
        f = Linearised(sample.operation, [type_of(a) for a in arrays])
        if not f.active or not f.results:
            continue
        v = directions(rng, [arrays[i] for i in f.active])
        u = directions(rng, f.value(*arrays))
        jv, jtu = f.jvp(*arrays, *v), f.vjp(*arrays, *u)
        # <u, J v> = <J' u, v>
        assert dot(u, jv) == pytest.approx(dot(jtu, v), rel=1e-9, abs=1e-9), sample
        if cls.name not in STEPS:
            high, low = (f.value(*moved(arrays, f.active, v, s)) for s in (STEP, -STEP))
            for t, a, b in zip(jv, high, low, strict=True):
                np.testing.assert_allclose(
                    t, (a - b) / (2 * STEP), rtol=1e-5 * scale, atol=1e-6 * scale, err_msg=str(sample)
                )
        # The VJP as a function of operands and cotangents: w' d(J'u) along (v, du).
        w, du = directions(rng, jtu), directions(rng, u)
        found = f.second(*arrays, *u, *w)
        slope = dot(found[: len(v)], v) + dot(found[len(v) :], du)
        ends = []
        for s in (STEP, -STEP):
            seeds = [a + s * d for a, d in zip(u, du, strict=True)]
            ends.append(dot(w, f.vjp(*moved(arrays, f.active, v, s), *seeds)))
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=2e-5 * scale, abs=2e-6 * scale), sample


@pytest.mark.parametrize("cls", named(CLASSES))
def test_half_precision_types_agree(cls: Any) -> None:
    """Cotangents have the types of operands in every dtype (checked where they are accumulated)."""
    for sample in samples_of(cls):
        arrays = arrays_of(sample)
        if any(a.dtype == np.float16 for a in arrays):
            Linearised(sample.operation, [type_of(a) for a in arrays])
