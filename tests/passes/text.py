"""Tests of passes in the IR's own text: input, pass, expected output."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from treadle.ir.core import Function
from treadle.ir.evaluate import evaluate
from treadle.ir.parser import parse_function
from treadle.ir.printer import print_function
from treadle.ir.types import TensorType
from treadle.ir.verifier import verify

__all__ = ["assert_same_values", "assert_text", "body", "graph", "random_arrays"]


def graph(text: str, symbols: str = "") -> Function:
    """A graph function from its parameters and body: `%x: tensor<..>` lines, then ops, then a return."""
    *heads, rest = re.split(r"(?m)^\s*(%\w+: .*)$", text.strip("\n"))
    params = ", ".join(h.strip() for h in heads if h.strip())
    declared = f" symbols({symbols})" if symbols else ""
    fn = parse_function(f"graph.func @f({params}){declared} {{\n{rest}\n}}")
    verify(fn)
    return fn


def assert_text(got: Function, expected: Function) -> None:
    """Equal, or a failure that shows both texts."""
    verify(got)
    assert print_function(got) == print_function(expected)


def body(fn: Function) -> list[str]:
    """Names of a function's ops, without their level."""
    return [op.operation.name.split(".")[1] for op in fn.ops]


def random_arrays(fn: Function, seed: int = 0, bindings: dict[str, int] | None = None) -> list[np.ndarray]:
    """An array for each parameter."""
    rng = np.random.default_rng(seed)
    arrays = []
    for v in fn.params:
        assert isinstance(v.type, TensorType)
        shape, dtype = v.type.concrete_shape(bindings or {}), v.dtype.numpy
        if dtype.kind == "f":
            arrays.append(rng.uniform(-2, 2, shape).astype(dtype))
        elif dtype.kind == "b":
            arrays.append(rng.integers(0, 2, shape) == 1)
        else:
            arrays.append(rng.integers(0, 4, shape).astype(dtype))
    return arrays


def assert_same_values(
    fn: Function, transform: Callable[[Function], Function], bindings: dict[str, int] | None = None
) -> Function:
    """`transform` keeps every bit that `fn` computes (any NaN is as good as another); the transformed function."""
    new = transform(fn)
    verify(new)
    arrays = random_arrays(fn, bindings=bindings)
    for a, b in zip(evaluate(fn, *arrays, bindings=bindings), evaluate(new, *arrays, bindings=bindings), strict=True):
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
    return new
