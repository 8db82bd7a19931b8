"""plan_memory: lifetimes in the arena, donated inputs, order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.kernel_runs import build, run_loops
from tests.passes.text import random_arrays
from tests.passes.training import mlp_step
from treadle.ir import dtypes
from treadle.ir.core import Builder, Function, Value
from treadle.ir.dims import symbol
from treadle.ir.evaluate import evaluate
from treadle.ir.ops.build import Term
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.identity import Barrier
from treadle.ir.ops.indexing import Put, Take
from treadle.ir.ops.views import Flip, Permute
from treadle.ir.types import TensorType
from treadle.passes.fuse import fuse
from treadle.passes.plan_memory import MemoryPlan, plan_memory

I64 = TensorType(dtypes.int64, (4,))


def plan(fn: Function, *donated: int) -> MemoryPlan:
    return plan_memory(fuse(fn), frozenset(donated))


def aliases(fn: Function, *donated: int) -> list[int]:
    kernels = fuse(fn)
    places = plan_memory(kernels, frozenset(donated)).places
    return [places[v].alias for v in kernels.returns]


def behind(b: Builder, v: Value) -> Term:
    """In another kernel."""
    return Term(b, b.emit(Barrier(), v))


def test_temporaries_share_memory() -> None:
    def make(b: Builder, x: Value) -> Value:
        for _ in range(6):
            x = behind(b, (Term(b, x).exp() * 2.0).v).v
        return (Term(b, x) + 1.0).v

    assert plan(build(make, (256, 256))).arena == 256 * 256 * 4  # in place


def test_symbolic_temporaries() -> None:
    def make(b: Builder, x: Value) -> Value:
        for _ in range(6):
            x = behind(b, (Term(b, x).exp() * 2.0).v).v
        return (Term(b, x) + 1.0).v

    from treadle.ir.dims import evaluate as size

    fn = build(make, (symbol("s0"), 512), symbols=("s0",))
    assert size(plan(fn).arena, {"s0": 16}) == 16 * 512 * 4


def test_temporaries_that_are_read_elsewhere() -> None:
    def make(b: Builder, x: Value) -> Value:
        for _ in range(6):
            x = behind(b, b.emit(Permute((1, 0)), (Term(b, x).exp() * 2.0).v)).v
        return (Term(b, x) + 1.0).v

    assert plan(build(make, (256, 256))).arena == 2 * 256 * 256 * 4


def test_elementwise_updates_in_place() -> None:
    fn = build(lambda b, p, g: (Term(b, p) - Term(b, g) * 0.5).v, (8, 8), (8, 8))
    assert aliases(fn, 0) == [0] and aliases(fn, 1) == [1] and aliases(fn) == [-1]


def test_rows_in_place() -> None:
    from treadle.ir.ops.composites.normalisation import Softmax

    assert aliases(build(lambda b, x: b.emit(Softmax(1), x), (8, 32)), 0) == [0]


@pytest.mark.parametrize("view", [Flip((0,)), Permute((1, 0))])
def test_other_elements_are_not_overwritten(view: Flip | Permute) -> None:
    assert aliases(build(lambda b, x: (Term(b, b.emit(view, x)) + Term(b, x)).v, (8, 8)), 0) == [-1]


def test_readers_run_before_the_overwrite() -> None:
    """The new parameter must wait for the contraction that reads the old one."""

    def make(b: Builder, x: Value, w: Value) -> list[Value]:
        new = (Term(b, w) * 0.5).v
        return [new, b.emit(Contract("ij", "kj", "ik"), x, w)]

    fn = build(make, (64, 64), (64, 64))
    assert aliases(fn, 1)[0] == 1
    order = [op.operation.name for op in plan(fn, 1).order]
    assert order == ["kernel.contract", "kernel.fused"]
    arrays = random_arrays(fn)
    for got, want in zip(run_loops(fn, *arrays, donated=frozenset({1})), evaluate(fn, *arrays), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_contractions_do_not_overwrite_their_operands() -> None:
    fn = build(lambda b, x, w: b.emit(Contract("ij", "kj", "ik"), x, w), (64, 64), (64, 64))
    assert aliases(fn, 0, 1) == [-1]


def test_nothing_fails_after_an_overwrite() -> None:
    def make(b: Builder, p: Value, i: Value) -> list[Value]:
        return [behind(b, (Term(b, p) + 1.0).v).exp().v, b.emit(Take(0), b.emit(Barrier(), p), i)]

    fn = build(make, (16, 16), I64)
    found = plan(fn, 0)
    failing = [
        k for k, op in enumerate(found.order) for r in op.regions for o in r.ops if o.operation.name == "graph.take"
    ]
    writing = [k for k, op in enumerate(found.order) if any(found.places[v].alias == 0 for v in op.results)]
    assert all(f < w for f in failing for w in writing)
    own = build(lambda b, p, i: (Term(b, p) + Term(b, b.emit(Take(0), p, i))).v, (4, 4), I64)
    assert aliases(own, 0) == [-1]


def test_scatter_is_not_in_place_where_it_may_fail() -> None:
    fn = build(lambda b, x, i, s: b.emit(Put(0, "add"), x, i, s), (16, 8), I64, (4, 8))
    assert aliases(fn, 0) == [-1]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_steps_on_donated_parameters(optimizer: str) -> None:
    fn = mlp_step(optimizer, (24, 16, 16, 10), 32)
    kernels = fuse(fn)
    donated = frozenset(i for i, p in enumerate(fn.params) if i >= 3 and p.rank)
    places = plan_memory(kernels, donated).places
    kept = [places[v].alias for v in kernels.returns[1:]]
    assert all(a >= 0 for a in kept) and len(set(kept)) == len(kept)
    arrays = random_arrays(fn)
    arrays = [np.abs(a) if a.dtype.kind == "f" else a for a in arrays]
    for got, want in zip(run_loops(fn, *arrays, donated=donated), evaluate(fn, *arrays), strict=True):
        np.testing.assert_allclose(got, want, 1e-3, 1e-3)
