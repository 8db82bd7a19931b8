"""Index maps, writes through views, and the neighbours of views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.ops.support import arrays_of, graph_classes, named, results_of, run, samples_of, type_of
from treadle.ir import dtypes
from treadle.ir.core import Builder, Value
from treadle.ir.dims import Dim, evaluate, symbol
from treadle.ir.ops.base import View
from treadle.ir.ops.padding import Condition, Fold, Pad, SliceUpdate
from treadle.ir.ops.view_put import ViewPut
from treadle.ir.ops.views import AsStrided, Expand, Flip, Permute, Reshape, Slice, Window
from treadle.ir.types import TensorType

VIEWS = {n: c for n, c in graph_classes().items() if issubclass(c, View)}


def index_symbols(shape: tuple[int, ...]) -> tuple[Dim, ...]:
    """Symbols for the indices; 0 where there is only one."""
    return tuple(0 if d == 1 else symbol(f"i{k}") for k, d in enumerate(shape))


def holds(condition: Condition, bindings: dict[str, int]) -> bool:
    lhs, relation, rhs = condition
    a, b = evaluate(lhs, bindings), evaluate(rhs, bindings)
    return {"ge": a >= b, "lt": a < b, "eq": a == b}[relation]


def points(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], dict[str, int]]]:
    return [(p, {f"i{k}": v for k, v in enumerate(p)}) for p in np.ndindex(*shape)]


@pytest.mark.parametrize("cls", named(VIEWS))
def test_index_map_is_the_reference(cls: Any) -> None:
    for sample in samples_of(cls):
        (x,) = arrays_of(sample)
        (expected,) = results_of(sample.operation, [x])
        place = sample.operation.index_map(index_symbols(expected.shape), x.shape)  # type: ignore[attr-defined]
        assert len(place) == x.ndim
        for p, bindings in points(expected.shape):
            assert x[tuple(evaluate(d, bindings) for d in place)] == expected[p], (sample, p)


@pytest.mark.parametrize("cls", named(VIEWS))
def test_put_replaces_what_is_seen(cls: Any) -> None:
    for sample in samples_of(cls):
        (x,) = arrays_of(sample)
        if not x.size:
            continue
        positions = np.arange(x.size).reshape(x.shape)
        (seen,) = results_of(sample.operation, [positions])
        new = np.arange(seen.size, dtype=x.dtype).reshape(seen.shape) + 100
        params = [Value(type_of(a)) for a in (x, new)]
        b = Builder()
        overlapping = len(np.unique(seen)) < seen.size
        if overlapping:
            with pytest.raises(RuntimeError, match="single memory location"):
                sample.operation.put(b, *params)  # type: ignore[attr-defined]
            continue
        try:
            result = sample.operation.put(b, *params)  # type: ignore[attr-defined]
        except RuntimeError:
            assert isinstance(
                sample.operation, AsStrided
            )  # strides that interleave are refused although they do not overlap
            continue
        expected = x.copy()
        expected.reshape(-1)[seen.reshape(-1)] = new.reshape(-1)
        np.testing.assert_array_equal(run(params, b, [result])(x, new)[0], expected)


@pytest.mark.parametrize(
    "source, target, text",
    [
        ((2, 3, 4), (6, 4), None),
        ((6, 4), (2, 3, 4), ("i0*3 + i1", "i2")),
        ((1, 6, 1, 4), (6, 1, 4), ("0", "i0", "0", "i2")),
        ((2, 3), (6,), ("(i0) // (3)", "(i0) % (3)")),
        (("n", 12), ("n", 3, 4), ("i0", "4*i1 + i2")),
        (("n", 3, 4), ("n", 12), ("i0", "((i1) // (4))", "((i1) % (4))")),
        (("n", "m", 8), ("n*m", 8), None),
        (("n*m", 8), ("n", "m", 8), ("i0*m + i1", "i2")),
        (("n", 64), ("n", 4, 16), ("i0", "16*i1 + i2")),
        (("n", 4, 16), ("n*4", 16), None),
        ((5, "n"), (5, "n", 1), ("i0", "i1")),
        (("2*n",), ("n", 2), ("2*i0 + i1",)),
    ],
)
def test_reshape_avoids_division(source: Any, target: Any, text: tuple[str, ...] | None) -> None:
    n, m = symbol("n"), symbol("m")
    table: dict[str, Dim] = {"n": n, "m": m, "n*m": n * m, "n*4": n * 4, "2*n": n * 2}
    of, to = (tuple(table.get(d, d) for d in shape) for shape in (source, target))
    op = Reshape(to)
    op.infer(TensorType(dtypes.float32, of))
    place = op.index_map(tuple(0 if d == 1 else symbol(f"i{k}") for k, d in enumerate(to)), of)
    sizes = {"n": 6, "m": 5}
    shape = tuple(evaluate(d, sizes) for d in of)
    out = tuple(evaluate(d, sizes) for d in to)
    x = np.arange(np.prod(shape)).reshape(shape)
    for p, bindings in points(out):
        assert x[tuple(evaluate(d, {**bindings, **sizes}) for d in place)] == x.reshape(out)[p]
    clean = len(of) <= len(to)
    assert (
        not clean
        or len(of) == 1
        or not any("//" in str(d) or "%" in str(d) for d in place[1:])
        or text is None
        or any("%" in t for t in text)
    )
    if text is not None and not any("/" in t for t in text):
        assert not any("//" in str(d) or "%" in str(d) for d in place), place


def test_pad_index_map() -> None:
    for sample in samples_of(Pad):
        (x,) = arrays_of(sample)
        operation = sample.operation
        assert isinstance(operation, Pad)
        (expected,) = results_of(operation, [x])
        place, conditions = operation.index_map(tuple(symbol(f"i{k}") for k in range(x.ndim)), x.shape)
        for p, bindings in points(expected.shape):
            inside = all(holds(c, bindings) for c in conditions)
            value = x[tuple(evaluate(d, bindings) for d in place)] if inside else operation.value
            assert value == expected[p], (sample, p)


def test_slice_update_index_map() -> None:
    for sample in samples_of(SliceUpdate):
        base, new = arrays_of(sample)
        operation = sample.operation
        assert isinstance(operation, SliceUpdate)
        (expected,) = results_of(operation, [base, new])
        place, conditions = operation.index_map(tuple(symbol(f"i{k}") for k in range(base.ndim)), base.shape)
        for p, bindings in points(base.shape):
            inside = all(holds(c, bindings) for c in conditions)
            value = new[tuple(evaluate(d, bindings) for d in place)] if inside else base[p]
            assert value == expected[p], (sample, p)


def test_fold_index_map() -> None:
    for sample in samples_of(Fold):
        (x,) = arrays_of(sample)
        operation = sample.operation
        assert isinstance(operation, Fold)
        (expected,) = results_of(operation, [x])
        n = len(operation.shape)
        elements = tuple(symbol(f"k{k}") for k in range(n))
        place, conditions = operation.index_map(tuple(symbol(f"i{k}") for k in range(expected.ndim)), elements, x.shape)
        for p, bindings in points(expected.shape):
            total = 0.0
            for k in np.ndindex(*x.shape[x.ndim - n :]):
                known = {**bindings, **{f"k{i}": v for i, v in enumerate(k)}}
                if all(holds(c, known) for c in conditions):
                    total += float(x[tuple(evaluate(d, known) for d in place)])
            assert total == pytest.approx(float(expected[p]), rel=1e-5), (sample, p)


def test_pad_with_symbols_has_few_conditions() -> None:
    n = symbol("n")
    place, conditions = Pad((0, 1), (2, 1), (0, 0)).index_map((symbol("i"), symbol("j")), (n, 5))
    assert place == (symbol("i"), symbol("j") - 1)
    assert conditions == [(symbol("i"), "lt", n), (symbol("j") - 1, "ge", 0), (symbol("j") - 1, "lt", 5)]


def test_gradient_of_a_symbolic_slice_and_back() -> None:
    """x[:5] of a symbolic dim: its transpose pads by n - 5, whose own transpose must need no decision."""
    n = symbol("n")
    x, ct = Value(TensorType(dtypes.float64, (n,))), Value(TensorType(dtypes.float64, (5,)))
    b = Builder()
    op = Slice((0,), (5,), (1,))
    b.emit(op, x)
    back = op.transpose(b, b.ops[-1], ct)
    assert back.shape == (n,)
    pad = b.ops[-1]
    again = pad.operation.transpose(b, pad, x, 0)  # type: ignore[attr-defined]
    got = run([x, ct], b, [back, again], symbols=("n",))(np.arange(8.0), np.arange(1.0, 6.0))
    np.testing.assert_array_equal(got[0], [1, 2, 3, 4, 5, 0, 0, 0])
    np.testing.assert_array_equal(got[1], np.arange(5.0))


def test_put_through_a_chain() -> None:
    for sample in samples_of(ViewPut):
        arrays = arrays_of(sample)
        params = [Value(type_of(a)) for a in arrays]
        b = Builder()
        yields = sample.operation.decompose(b, *params)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(run(params, b, yields)(*arrays)[0], results_of(sample.operation, arrays)[0])


def test_window_of_symbolic_size() -> None:
    n = symbol("n")
    (t,) = Window((3,), (2,), (1,)).infer(TensorType(dtypes.float32, (4, n)))
    assert evaluate(t.shape[1], {"n": 11}) == 5 and t.shape[2] == 3


@pytest.mark.parametrize(
    "op, shape, error, words",
    [
        (Reshape((4,)), (2, 3), RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
        (Permute((0, 0)), (2, 3), RuntimeError, r"\[0, 0\].*\[2, 3\]"),
        (Expand((4, 3)), (2, 3), RuntimeError, r"expanded size of the tensor \(4\) must match the existing size \(2\)"),
        (Expand((3,)), (2, 3), RuntimeError, "number of sizes"),
        (Slice((0,), (9,), (1,)), (5,), IndexError, "0:9:1 of a dim of 5"),
        (Slice((0,), (9,), (1,)), (5, 5), IndexError, r"\[5, 5\]"),
        (Flip((2,)), (2, 3), IndexError, "Dimension out of range"),
        (Window((7,), (1,), (1,)), (5,), RuntimeError, "kernel of 7"),
        (AsStrided((3, 3), (3, 1), 1), (3, 3), RuntimeError, "reach element 9"),
        (Pad((-3,), (-3,), (0,)), (5,), RuntimeError, "negative size"),
        (Fold((7,), (1,), (1,)), (4, 3), RuntimeError, "windows"),
    ],
)
def test_errors_name_the_shapes(op: Any, shape: tuple[int, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        op.infer(TensorType(dtypes.float32, shape))
