"""Graphs out of samples, evaluated and differentiated by a few lines of their own: passes are not what is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle.ir.ops  # noqa: F401
from treadle.ir import dtypes
from treadle.ir.core import REGISTRY, Block, Builder, Function, Op, Operation, Value
from treadle.ir.dtypes import DType
from treadle.ir.evaluate import evaluate
from treadle.ir.evaluate_scalars import run_scalar
from treadle.ir.ops.base import Composite, Rule, Sample
from treadle.ir.ops.build import emit, zeros_like
from treadle.ir.types import TensorType

Classes = dict[str, type[Rule]]


def graph_classes() -> Classes:
    return {n: c for n, c in REGISTRY.items() if n.startswith("graph.") and issubclass(c, Rule)}


def samples_of(cls: type[Rule]) -> list[Sample]:
    return cls.samples(np.random.default_rng(7))


def arrays_of(sample: Sample) -> list[np.ndarray]:
    return [np.asarray(a) for a in sample.operands]


def type_of(a: np.ndarray) -> TensorType:
    return TensorType(dtypes.from_numpy(a.dtype), a.shape)


def results_of(operation: Any, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The reference's results, as a tuple."""
    with np.errstate(all="ignore"):
        made = operation.reference(*arrays)
    return tuple(map(np.asarray, made)) if isinstance(made, tuple) else (np.asarray(made),)


def tolerance(dtype: np.dtype) -> float:
    return {"float16": 2e-3, "float32": 3e-5}.get(str(dtype), 1e-9)


def assert_close(got: np.ndarray, expected: np.ndarray, scale: float = 1.0, note: object = "") -> None:
    """Equal dtypes and shapes; floats to the precision of their dtype, all else exactly."""
    assert got.dtype == expected.dtype and got.shape == expected.shape, (
        got.dtype,
        got.shape,
        expected.dtype,
        expected.shape,
        note,
    )
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, err_msg=str(note))
        return
    tol = tolerance(got.dtype) * scale
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=tol, atol=tol, err_msg=str(note)
    )


# Differentiation ------------------------------------------------------------------------------------------------------


def emit_all(b: Builder, operation: Operation, operands: Sequence[Value]) -> tuple[Value, ...]:
    made = b.emit(operation, *operands)
    return made if isinstance(made, tuple) else (made,)


def expanded(ops: Sequence[Op], rule: str) -> tuple[list[Op], dict[Value, Value]]:
    """`ops` with composites that have no `rule` of their own decomposed, and what became of their results."""
    made: list[Op] = []
    moved: dict[Value, Value] = {}
    for op in ops:
        operands = tuple(moved.get(v, v) for v in op.operands)
        if isinstance(op.operation, Composite) and getattr(op.operation, rule) is None:
            inner = Builder()
            yields = op.operation.decompose(inner, *operands)
            more, also = expanded(inner.ops, rule)
            made += more
            moved.update(zip(op.results, (also.get(v, v) for v in yields), strict=True))
        else:
            made.append(Op(op.operation, operands, op.results, op.regions))
    return made, moved


def is_floating(v: Value) -> bool:
    return v.tensor.dtype.is_floating


def reverse(
    ops: list[Op], outputs: Sequence[Value], seeds: Sequence[Value], wrt: Sequence[Value], b: Builder
) -> list[Value]:
    """Appends adjoint ops to `b`, whose ops must be `ops`; a cotangent for each wrt."""
    new, moved = expanded(ops, "vjp")
    b.ops[:] = new
    varied = set(wrt)
    for op in new:
        if any(v in varied for v in op.operands):
            varied.update(v for v in op.results if is_floating(v))
    cts: dict[Value, Value] = {}

    def accumulate(v: Value, ct: Value) -> None:
        assert ct.type is v.type, (ct, v)
        cts[v] = emit(b, "add", cts[v], ct) if v in cts else ct

    for v, seed in zip(outputs, seeds, strict=True):
        accumulate(moved.get(v, v), seed)
    for op in reversed(new):
        given = tuple(cts.get(v) for v in op.results)
        needs = tuple(v in varied and is_floating(v) for v in op.operands)
        if any(g is not None for g in given) and any(needs):
            for v, ct, need in zip(op.operands, op.operation.vjp(b, op, given, needs), needs, strict=True):  # type: ignore[attr-defined]
                if ct is not None and need:
                    accumulate(v, ct)
    return [cts[v] if v in cts else zeros_like(b, v) for v in wrt]


def forward(ops: list[Op], outputs: Sequence[Value], tangents: dict[Value, Value], b: Builder) -> list[Value]:
    """Appends tangent ops to `b`, whose ops must be `ops`; a tangent for each output."""
    new, moved = expanded(ops, "jvp")
    b.ops[:] = new
    known = dict(tangents)
    for op in new:
        given = tuple(known.get(v) for v in op.operands)
        if any(t is not None for t in given) and any(is_floating(v) for v in op.results):
            for v, t in zip(op.results, op.operation.jvp(b, op, given), strict=True):  # type: ignore[attr-defined]
                if t is not None:
                    assert t.type is v.type, (t, v)
                    known[v] = t
    found = [moved.get(v, v) for v in outputs]
    return [known[v] if v in known else zeros_like(b, v) for v in found]


Run = Callable[..., list[np.ndarray]]


def run(params: Sequence[Value], b: Builder, yields: Sequence[Value], symbols: tuple[str, ...] = ()) -> Run:
    fn = Function("f", Block(tuple(params), tuple(b.ops), tuple(yields)), symbols=symbols)
    return lambda *arrays: list(evaluate(fn, *arrays))


class Linearised:
    """Of one op on float64 parameters: its value, JVP, VJP and the VJP of its VJP, as functions on arrays."""

    def __init__(self, operation: Operation, types: Sequence[TensorType], symbols: tuple[str, ...] = ()) -> None:
        params = [Value(t) for t in types]
        self.active = [i for i, t in enumerate(types) if t.dtype.is_floating]
        wrt = [params[i] for i in self.active]

        b = Builder()
        outputs = emit_all(b, operation, params)
        self.results = [i for i, v in enumerate(outputs) if is_floating(v)]
        outs = [outputs[i] for i in self.results]
        self.value = run(params, b, outs, symbols)

        tangents = [Value(v.type) for v in wrt]
        b = Builder()
        outputs = emit_all(b, operation, params)
        found = forward(b.ops, [outputs[i] for i in self.results], dict(zip(wrt, tangents, strict=True)), b)
        self.jvp = run([*params, *tangents], b, found, symbols)

        b = Builder()
        outputs = emit_all(b, operation, params)
        outs = [outputs[i] for i in self.results]
        seeds = [Value(v.type) for v in outs]
        cts = reverse(b.ops, outs, seeds, wrt, b)
        self.vjp = run([*params, *seeds], b, cts, symbols)
        self.vjp_ops = list(b.ops)

        seeds2 = [Value(v.type) for v in cts]
        cts2 = reverse(b.ops, cts, seeds2, [*wrt, *seeds], b)
        self.second = run([*params, *seeds, *seeds2], b, cts2, symbols)


def dot(xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]) -> float:
    return float(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)))


# Scalar bodies --------------------------------------------------------------------------------------------------------


def run_body(ops: Sequence[Op], env: dict[Value, Any], yields: Sequence[Value]) -> list[np.ndarray]:
    """Scalar ops on arrays of lanes."""
    with np.errstate(all="ignore"):
        for op in ops:
            kinds: tuple[DType, ...] = tuple(v.dtype for v in op.operands)
            env[op.result] = run_scalar(op.operation, kinds, [env[v] for v in op.operands])
    return [np.asarray(env[v]) for v in yields]


def named(classes: Classes) -> list[Any]:
    """Test parameters, one a class."""
    return [pytest.param(cls, id=name.split(".")[1]) for name, cls in classes.items()]
