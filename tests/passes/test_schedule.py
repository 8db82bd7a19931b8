"""Schedules: what is chosen, and that directives are checked."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.kernel_runs import build
from treadle.ir.core import Function, Level, Value
from treadle.ir.evaluate import evaluate
from treadle.ir.loops import For
from treadle.ir.ops.build import Term
from treadle.ir.ops.composites.normalisation import Softmax
from treadle.ir.ops.reductions import Sum
from treadle.ir.ops.views import Permute
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import BufferType
from treadle.ir.verifier import verify
from treadle.passes.fuse import fuse
from treadle.passes.lower import lower_kernel
from treadle.passes.lower.loops import write_nest
from treadle.passes.lower.nest import trace_nest
from treadle.passes.lower.nodes import all_nodes
from treadle.passes.lower.write import Scope, Writer
from treadle.passes.machine import HOST
from treadle.passes.schedule import NestSchedule, ScheduleError, check, choose


def region_of(fn: Function):  # type: ignore[no-untyped-def]
    (op,) = fuse(fn).ops
    return op


def chosen(fn: Function) -> NestSchedule:
    nest = trace_nest(region_of(fn).regions[0])
    nodes = all_nodes([*nest.reduces, *(s.node for s in nest.stores)])
    return choose(nest, nodes, nest.outer[-1] if nest.outer else None, HOST)


@pytest.mark.parametrize(
    ("shape", "dims", "wanted"),
    [((64, 100), (1,), "rows"), ((64, 100), (0,), "columns"), ((64, 20), (1,), "rows"), ((640, 7), (1,), "map"),
     ((64, 17, 16), (1,), "columns"), ((1000,), (0,), "rows"),
     ((8, 30, 64), (0, 1), "columns"), ((8, 30, 64), (0, 2), "rows")],
)  # fmt: skip
def test_shape(shape: tuple[int, ...], dims: tuple[int, ...], wanted: str) -> None:
    assert chosen(build(lambda b, x: b.emit(Sum(dims), x), shape)).shape == wanted


def test_wrong_directives_are_refused() -> None:
    nest = trace_nest(region_of(build(lambda b, x: b.emit(Sum((1,)), x), (8, 64))).regions[0])
    for wrong in (NestSchedule("map", 16), NestSchedule("rows", 12), NestSchedule("columns", 16), NestSchedule("x", 1),
                  NestSchedule("rows", 16, tile=8), NestSchedule("rows", 16, unroll=0)):  # fmt: skip
        with pytest.raises(ScheduleError):
            check(wrong, nest)


@pytest.mark.parametrize(
    "schedule", [NestSchedule("rows", 1), NestSchedule("rows", 8, unroll=2), NestSchedule("columns", 4, block=8)]
)
def test_any_legal_schedule_computes_the_same(schedule: NestSchedule) -> None:
    op = region_of(build(lambda b, x: b.emit(Softmax(1), x), (19, 23)))
    buffers = [Value(BufferType(v.dtype, v.tensor.numel)) for v in (*op.operands, *op.results)]
    w = Writer(1, buffers, [])
    w.scopes.append(Scope(ScalarBuilder()))
    write_nest(w, trace_nest(op.regions[0]), buffers[1:], HOST, schedule)
    fn = Function("k", w.s.block(buffers, ()), Level.LOOP)
    verify(fn)
    x = np.random.default_rng(0).standard_normal((19, 23)).astype("f4")
    out = np.empty_like(x)
    evaluate(fn, x, out)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), 1e-5, 1e-6)


def loops(fn: Function) -> list[tuple[str, int]]:
    """(kind, width) of every loop, outermost first."""
    found: list[tuple[str, int]] = []

    def visit(block) -> None:  # type: ignore[no-untyped-def]
        for op in block.ops:
            if isinstance(op.operation, For):
                found.append((op.operation.kind, op.operation.width))
            for r in op.regions:
                visit(r)

    visit(lower_kernel(region_of(fn)).function.body)
    return found


def test_flat_maps_are_one_loop() -> None:
    fn = build(lambda b, x, y: (Term(b, x).exp() + Term(b, y)).v, (12, 5, 7), (12, 5, 7))
    assert loops(fn) == [("parallel", 1), ("vector", 16)]


def test_transposes_are_tiled() -> None:
    fn = build(lambda b, x: b.emit(Permute((1, 0)), x), (200, 300))
    assert loops(fn) == [("parallel", 1), ("serial", 1)] + 2 * [("serial", 1), ("vector", 16)]


def test_dear_values_of_rows_are_kept() -> None:
    """exp is computed once, although a later pass reads it too."""
    (op,) = fuse(build(lambda b, x: b.emit(Softmax(1), x), (16, 64))).ops
    text = repr(lower_kernel(op).function.body)
    assert text.count("fn='exp'") == 1


def test_work_is_estimated() -> None:
    few = lower_kernel(region_of(build(lambda b, x: (Term(b, x) + 1.0).v, (1 << 12,))))
    many = lower_kernel(region_of(build(lambda b, x: Term(b, x).exp().v, (1 << 20,))))
    assert few.tasks == 1 and many.tasks == 128
    assert 0 < few.work_per_task < 10 * many.work_per_task
