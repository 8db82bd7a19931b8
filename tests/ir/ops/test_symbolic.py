"""Rules with symbolic dims: an operand's sizes become symbols, and results stay what they are for numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.ops.support import (
    Linearised,
    arrays_of,
    assert_close,
    emit_all,
    graph_classes,
    named,
    results_of,
    run,
    samples_of,
    type_of,
)
from treadle.ir.core import Builder, Value
from treadle.ir.dims import Undecided, symbol
from treadle.ir.dtypes import bfloat16
from treadle.ir.ops.base import Absent, Composite, Elementwise, Sample
from treadle.ir.ops.composites import (
    Attention,
    AvgPool,
    Conv,
    ConvTranspose,
    CrossEntropy,
    LayerNorm,
    MaxPool,
    Mean,
    Var,
)
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.reductions import Reduction
from treadle.ir.ops.scans import Scan
from treadle.ir.types import TensorType

# Ops whose attributes name no sizes, so that operands alone can become symbolic.
FREE = (Elementwise, Reduction, Scan, Contract, Composite)
NAMED = (
    "argmax",
    "argmin",
    "take",
    "put",
    "gather",
    "scatter",
    "sort",
    "concat",
    "pad",
    "permute",
    "flip",
    "window",
    "slice",
)
SIZED = ("fill", "view_put", "recurrence")  # recurrence: the number of steps has to be known
CLASSES = {
    n: c
    for n, c in graph_classes().items()
    if (issubclass(c, FREE) or n.split(".")[1] in NAMED) and n.split(".")[1] not in SIZED
}


def symbolic(sample: Sample) -> tuple[list[TensorType], tuple[str, ...]] | None:
    """Types of the operands with the size of the first operand's first dim, where it is 2 or more, replaced by a
    symbol."""
    shapes = [np.shape(a) for a in sample.operands]
    size = next((s[0] for s in shapes if s), 0)
    if size < 2 or not any(np.size(a) for a in sample.operands):
        return None
    n = symbol("n")
    types = []
    for i, a in enumerate(arrays_of(sample)):
        t = type_of(a)
        # Operands that share the size share the symbol in their first dim; parameters of last dims stay numbers.
        shares = i == 0 or t.rank > 1 or len(shapes[0]) == 1 or sample.operation.name == "graph.cross_entropy"
        types.append(t.with_shape((n, *t.shape[1:])) if t.shape[:1] == (size,) and shares else t)
    return (types, ("n",)) if any(n in t.shape for t in types) else None


@pytest.mark.parametrize("cls", named(CLASSES))
def test_symbolic_sizes(cls: Any) -> None:
    tried = done = 0
    for sample in samples_of(cls):
        made = symbolic(sample)
        if made is None:
            continue
        types, symbols = made
        params = [Value(t) for t in types]
        b = Builder()
        tried += 1
        try:
            outputs = emit_all(b, sample.operation, params)
        except (Undecided, RuntimeError, IndexError, ValueError):
            continue  # this size is tied to another by more than equality
        done += 1
        arrays = arrays_of(sample)
        if isinstance(sample.operation, Composite):
            inner = Builder()
            yields = sample.operation.decompose(inner, *params)
            assert tuple(v.type for v in yields) == tuple(v.type for v in outputs), sample
            b, outputs = inner, yields
        if any(v.dtype is bfloat16 for v in outputs):
            continue
        made_arrays = run(params, b, outputs, symbols)(*arrays)
        for got, expected in zip(made_arrays, results_of(sample.operation, arrays), strict=True):
            assert_close(got, expected, note=sample)
        if isinstance(cls.vjp, Absent) or any(a.dtype == np.float16 for a in arrays):
            continue
        # Derivatives too, which only must not depend on knowing the size.
        concrete = Linearised(sample.operation, [type_of(a) for a in arrays])
        general = Linearised(sample.operation, types, symbols)
        if concrete.results and concrete.active:
            seeds = concrete.value(*arrays)
            for got, expected in zip(general.vjp(*arrays, *seeds), concrete.vjp(*arrays, *seeds), strict=True):
                assert_close(got, expected, note=sample)
    assert done * 2 >= tried, f"only {done} of {tried}"


SPATIAL: tuple[tuple[Any, list[tuple[Any, ...]], int], ...] = (
    (Conv((1,), (1,), (1,)), [(2, 3, "n"), (4, 3, 3)], 7),
    (Conv((2, 1), (1, 0), (1, 2), 2), [("n", 4, "n", 7), (2, 2, 3, 2)], 6),
    (ConvTranspose((2,), (1,), (1,), (1,)), [(2, 3, "n"), (3, 2, 3), (2,)], 5),
    (MaxPool((2,), (2,), ((0, 0),), (1,)), [(2, "n")], 7),
    (MaxPool((3, 2), (2, 1), ((1, 1), (0, 0)), (1, 1)), [(2, "n", "n")], 6),
    (AvgPool((3,), (2,), ((1, 1),), (1,), False), [(2, "n")], 7),
    (AvgPool((2, 2), (2, 2), ((0, 1), (0, 0)), (0, 0)), [("n", 5, 4)], 3),
    (Mean((0, 1)), [("n", 3)], 4),
    (Var((1,), 1.0), [(3, "n")], 5),
    (LayerNorm(2), [(2, "n", 3), ("n", 3), ("n", 3)], 4),
    (Attention(True, 0.5), [(2, "n", 3), (2, "n", 3), (2, "n", 4)], 5),
    (CrossEntropy(-100, 0.1), [("n", 5), ("n",)], 4),
)


@pytest.mark.parametrize("operation, shapes, size", SPATIAL, ids=[f"{o.name}-{i}" for i, (o, *_) in enumerate(SPATIAL)])
def test_symbolic_sizes_inside(operation: Any, shapes: list[tuple[Any, ...]], size: int) -> None:
    """Also sizes that windows, means and attention run over; value and both derivatives."""
    rng = np.random.default_rng(2)
    n = symbol("n")
    arrays: list[np.ndarray] = [rng.standard_normal([size if d == "n" else d for d in s]) for s in shapes]
    types = [
        TensorType(type_of(a).dtype, tuple(n if d == "n" else d for d in s))
        for a, s in zip(arrays, shapes, strict=True)
    ]
    if isinstance(operation, CrossEntropy):
        arrays[1] = rng.integers(0, 5, size)
        types[1] = types[1].with_dtype(type_of(arrays[1]).dtype)
    general = Linearised(operation, types, ("n",))
    concrete = Linearised(operation, [type_of(a) for a in arrays])
    value = concrete.value(*arrays)
    assert_close(general.value(*arrays)[0], value[0])
    seeds = [rng.standard_normal(v.shape) for v in value]
    cts = concrete.vjp(*arrays, *seeds)
    for got, expected in zip(general.vjp(*arrays, *seeds), cts, strict=True):
        assert_close(got, expected)
    for got, expected in zip(
        general.second(*arrays, *seeds, *cts), concrete.second(*arrays, *seeds, *cts), strict=True
    ):
        assert_close(got, expected)
