"""fuse: launches of well-known programs, the text of small ones, refusals, how much it tries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.passes.kernel_runs import build, launches
from tests.passes.text import body, graph
from tests.passes.training import layer_norm_backward, mlp_step
from treadle.ir import dtypes
from treadle.ir.core import Block, Builder, Function, Value
from treadle.ir.kernels import Contraction, Fused
from treadle.ir.ops.arithmetic import Add, Mul
from treadle.ir.ops.build import Term
from treadle.ir.ops.composites.activations import Relu
from treadle.ir.ops.composites.losses import CrossEntropy
from treadle.ir.ops.composites.normalisation import LayerNorm, LogSoftmax, Softmax
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.identity import Barrier
from treadle.ir.ops.indexing import Take
from treadle.ir.ops.padding import Concat, Pad, SliceUpdate
from treadle.ir.ops.reductions import Sum
from treadle.ir.ops.views import Expand, Permute, Reshape, Slice
from treadle.ir.printer import print_function
from treadle.ir.types import TensorType
from treadle.ir.verifier import verify
from treadle.passes.fuse import fuse, fuse_with_report
from treadle.passes.fuse_groups import Groups
from treadle.passes.lower import lower_kernel

I64 = TensorType(dtypes.int64, (64,))


def chain(length: int) -> Function:
    def make(b: Builder, x: Value, a: Value, c: Value) -> Value:
        for _ in range(length):
            scaled = b.emit(Mul(), x, b.emit(Expand(x.shape), a))
            x = b.emit(Relu(), b.emit(Add(), scaled, b.emit(Expand(x.shape), c)))
        return x

    return build(make, (128, 96), (96,), (128, 1))


@pytest.mark.parametrize("length", [1, 3, 40])
def test_elementwise_chains_are_one_kernel(length: int) -> None:
    assert launches(chain(length)) == ["fused 1"]


@pytest.mark.parametrize("shape", [(64, 100), (64, 10), (4, 8, 33)])
@pytest.mark.parametrize("op", [Softmax(1), LogSoftmax(1), Softmax(0)])
def test_softmax_is_one_kernel(op: Softmax | LogSoftmax, shape: tuple[int, ...]) -> None:
    assert launches(build(lambda b, x: b.emit(op, x), shape)) == ["fused 1"]


def test_layer_norm_is_one_kernel() -> None:
    assert launches(build(lambda b, *x: b.emit(LayerNorm(1), *x), (64, 96), (96,), (96,))) == ["fused 1"]
    assert launches(build(lambda b, *x: b.emit(LayerNorm(2), *x), (64, 6, 16), (6, 16), (6, 16))) == ["fused 1"]


def test_cross_entropy_is_one_kernel() -> None:
    assert launches(build(lambda b, x, t: b.emit(CrossEntropy(), x, t), (64, 10), I64)) == ["fused 1"]


def test_layer_norm_backward() -> None:
    """dx by rows; the gradients of both parameters by columns, in one nest."""
    kernels = fuse(layer_norm_backward())
    regions = [r for op in kernels.ops for r in op.regions]
    assert sorted(len(r.yields) for r in regions) == [2, 3]  # the rows' sums are read by the columns
    assert len(kernels.ops) <= 2


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_step(optimizer: str) -> None:
    fn = mlp_step(optimizer)
    assert len(launches(fn)) <= 11


def test_attempts_to_merge_are_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    can_fuse = Groups.can_fuse
    monkeypatch.setattr(Groups, "can_fuse", lambda *args: calls.append(1) or can_fuse(*args))

    def attempts(depth: int) -> int:
        calls.clear()
        fuse(mlp_step("adam", (32,) * depth + (10,), 64))
        return len(calls)

    assert attempts(20) < 5 * attempts(5)


# Contractions --------------------------------------------------------------------------------------------------------


def contractions(fn: Function) -> list[list[str]]:
    """Ops in the regions of the contractions of the fused `fn`."""
    kernels = fuse(fn)
    verify(kernels)
    regions = [op.regions[0] for op in kernels.ops if isinstance(op.operation, Contraction)]
    return [body(Function("r", r)) for r in regions]


def test_epilogue() -> None:
    def make(b: Builder, x: Value, w: Value, c: Value, rest: Value) -> list[Value]:
        y = b.emit(Contract("ij,"[:2], "kj", "ik"), x, w)
        y = b.emit(Add(), y, b.emit(Expand(y.shape), c))
        return [b.emit(Relu(), y), b.emit(Mul(), y, rest)]

    fn = build(make, (64, 48), (32, 48), (32,), (64, 32))
    assert launches(fn) == ["contract 1"]


def test_operands_keep_their_views() -> None:
    def make(b: Builder, q: Value, k: Value) -> Value:
        heads = [b.emit(Permute((0, 2, 1, 3)), b.emit(Reshape((2, 32, 4, 16)), v)) for v in (q, k)]
        return b.emit(Contract("bhid", "bhjd", "bhij"), *heads)

    assert launches(build(make, (2, 32, 64), (2, 32, 64))) == ["contract 1"]


def test_merged_heads_are_strides() -> None:
    def make(b: Builder, a: Value, w: Value) -> Value:
        flat = b.emit(Reshape((64, 64)), b.emit(Permute((0, 2, 1, 3)), a))
        return b.emit(Contract("ij", "kj", "ik"), flat, w)

    assert launches(build(make, (2, 4, 32, 16), (32, 64))) == ["contract 1"]


def test_computed_operands_are_kept() -> None:
    def make(b: Builder, x: Value, w: Value) -> Value:
        return b.emit(Contract("ij", "kj", "ik"), b.emit(Pad((1, 0), (1, 0), (0, 0)), x), w)

    fn = build(make, (62, 48), (32, 48))
    assert launches(fn) == ["fused 1", "contract 1"]
    assert contractions(fn) == [["contract"]]


def test_small_contractions_are_nests() -> None:
    assert launches(build(lambda b, x, y: b.emit(Contract("ij", "j", "i"), x, y), (64, 512), (512,))) == ["fused 1"]
    assert launches(build(lambda b, x, y: b.emit(Contract("bij", "bjk", "bik"), x, y), (64, 4, 4), (64, 4, 4))) == [
        "fused 1"
    ]


# Order and company ---------------------------------------------------------------------------------------------------


def test_independent_nests_share_a_launch() -> None:
    def make(b: Builder, x: Value, y: Value, z: Value) -> list[Value]:
        return [(Term(b, v).exp() + 1.0).v for v in (x, y, z)]

    assert launches(build(make, (640, 30), (77,), (20, 20, 20))) == ["fused 3"]


def test_small_nests_follow_behind_a_launch() -> None:
    def make(b: Builder, x: Value) -> Value:
        rows = b.emit(Sum((1,)), x)
        return b.emit(Sum((0,)), (Term(b, rows).exp()).v)

    (op,) = fuse(build(make, (64, 4096))).ops
    assert isinstance(op.operation, Fused) and op.operation.parallel == 1 and len(op.regions) == 2


def test_long_sums_are_cut_by_size_only() -> None:
    (op,) = fuse(build(lambda b, x: b.emit(Sum((0,)), x), (1 << 20,))).ops
    assert [len(r.yields) for r in op.regions] == [1, 1]
    assert op.results[0].shape == (128,)


def test_barrier() -> None:
    def make(b: Builder, x: Value) -> Value:
        y = Term(b, x).exp()
        return (Term(b, b.emit(Barrier(), y.v)) + 1.0).v

    assert len([r for op in fuse(build(make, (300, 300))).ops for r in op.regions]) == 2


def test_gathers_are_loads() -> None:
    i64 = TensorType(dtypes.int64, (40,))
    fn = build(lambda b, x, i: (Term(b, b.emit(Take(0), x, i)) * 2.0).v, (100, 16), i64)
    assert launches(fn) == ["fused 1"]


def _rolled(b: Builder, h: Value) -> Value:
    """h at the element before, the first element behind the last."""
    last, rest = b.emit(Slice((63,), (64,), (1,)), h), b.emit(Slice((0,), (63,), (1,)), h)
    return b.emit(Concat(0), last, rest)


def _rolls(b: Builder, h: Value) -> Value:
    return (Term(b, h).tanh() + Term(b, _rolled(b, h)) * 0.5).v


def _updates(b: Builder, h: Value) -> Value:
    new = Term(b, b.emit(Slice((3,), (35,), (1,)), h)).tanh()
    return b.emit(SliceUpdate((7,), (39,), (1,)), h, new.v)


def _transposes(b: Builder, h: Value) -> Value:
    square = b.emit(Reshape((8, 8)), h)
    return b.emit(Reshape((64,)), b.emit(Add(), square, b.emit(Permute((1, 0)), square)))


@pytest.mark.parametrize("step", [_rolls, _updates, _transposes])
def test_values_read_at_many_places_are_not_computed_for_each(step: Callable[[Builder, Value], Value]) -> None:
    """What is read at two places by what is read at two places ... would be computed 2^n times."""

    def size(n: int) -> int:
        def make(b: Builder, h: Value) -> Value:
            for _ in range(n):
                h = step(b, h)
            return h

        kernels = fuse(build(make, (64,))).ops
        return sum(len(print_function(lower_kernel(op).function).splitlines()) for op in kernels)

    assert size(24) < 3 * size(12)


def test_refusals_have_reasons() -> None:
    def make(b: Builder, x: Value) -> Value:
        column = b.emit(Reshape((64, 1)), b.emit(Sum((0,)), x))
        return (Term(b, x) * Term(b, b.emit(Expand((64, 64)), column))).v

    report = fuse_with_report(build(make, (64, 64)))
    assert "out of order" in report.refusals[0][2].reason
    transposed = build(lambda b, x: b.emit(Add(), x, b.emit(Permute((1, 0)), _row_sums(b, x))), (64, 64))
    report = fuse_with_report(transposed)
    assert report.refusals and all(no.reason for _, _, no in report.refusals)


def _row_sums(b: Builder, x: Value) -> Value:
    return b.emit(Expand((64, 64)), b.emit(Reshape((64, 1)), b.emit(Sum((1,)), x)))


def test_text() -> None:
    fn = graph("""
    %x: tensor<64x16xf32>
    %s: tensor<16xf32>
      %0 = "graph.exp"(%x) : (tensor<64x16xf32>) -> tensor<64x16xf32>
      %1 = "graph.sum"(%0) {dims = [1]} : (tensor<64x16xf32>) -> tensor<64xf32>
      %2 = "graph.expand"(%s) {shape = [64, 16]} : (tensor<16xf32>) -> tensor<64x16xf32>
      %3 = "graph.mul"(%0, %2) : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
      return %1, %3 : tensor<64xf32>, tensor<64x16xf32>""")
    assert (
        print_function(fuse(fn))
        == """\
kernel.func @f(%arg0: tensor<64x16xf32>, %arg1: tensor<16xf32>) {
  %6, %7 = "kernel.fused"(%arg0, %arg1) ({
  ^(%0: tensor<64x16xf32>, %1: tensor<16xf32>):
    %2 = "graph.exp"(%0) : (tensor<64x16xf32>) -> tensor<64x16xf32>
    %3 = "graph.sum"(%2) {dims = [1]} : (tensor<64x16xf32>) -> tensor<64xf32>
    %4 = "graph.expand"(%1) {shape = [64, 16]} : (tensor<16xf32>) -> tensor<64x16xf32>
    %5 = "graph.mul"(%2, %4) : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
    yield %3, %5
  }) : (tensor<64x16xf32>, tensor<16xf32>) -> (tensor<64xf32>, tensor<64x16xf32>)
  return %6, %7 : tensor<64xf32>, tensor<64x16xf32>
}
"""
    )


def test_results_that_are_inputs() -> None:
    x = Value(TensorType(dtypes.float32, (3,)))
    fn = Function("f", Block((x,), (), (x, x)))
    assert fuse(fn).returns == (x, x)
