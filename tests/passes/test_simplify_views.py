"""simplify on views, reductions and contractions."""

import numpy as np
import pytest

from tests.passes.text import assert_same_values, assert_text, body, graph, random_arrays
from treadle.ir.evaluate import evaluate
from treadle.passes.simplify import simplify


def test_view_chains_become_one_view() -> None:
    fn = graph("""
    %x: tensor<2x3x4xf32>
      %0 = "graph.reshape"(%x) {shape = [6, 4]} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
      %1 = "graph.reshape"(%0) {shape = [24]} : (tensor<6x4xf32>) -> tensor<24xf32>
      %2 = "graph.permute"(%x) {dims = [2, 0, 1]} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
      %3 = "graph.permute"(%2) {dims = [0, 2, 1]} : (tensor<4x2x3xf32>) -> tensor<4x3x2xf32>
      %4 = "graph.flip"(%x) {dims = [0, 1]} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
      %5 = "graph.flip"(%4) {dims = [1, 2]} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
      return %1, %3, %5 : tensor<24xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>""")
    assert_text(
        assert_same_values(fn, simplify),
        graph("""
    %x: tensor<2x3x4xf32>
      %1 = "graph.reshape"(%x) {shape = [24]} : (tensor<2x3x4xf32>) -> tensor<24xf32>
      %3 = "graph.permute"(%x) {dims = [2, 1, 0]} : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>
      %5 = "graph.flip"(%x) {dims = [0, 2]} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
      return %1, %3, %5 : tensor<24xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>"""),
    )


def test_views_that_undo_each_other_go() -> None:
    fn = graph(
        """
    %x: tensor<[s0]x4xf32>
      %0 = "graph.permute"(%x) {dims = [1, 0]} : (tensor<[s0]x4xf32>) -> tensor<4x[s0]xf32>
      %1 = "graph.permute"(%0) {dims = [1, 0]} : (tensor<4x[s0]xf32>) -> tensor<[s0]x4xf32>
      %2 = "graph.reshape"(%1) {shape = [4*s0]} : (tensor<[s0]x4xf32>) -> tensor<[4*s0]xf32>
      %3 = "graph.reshape"(%2) {shape = [s0, 4]} : (tensor<[4*s0]xf32>) -> tensor<[s0]x4xf32>
      %4 = "graph.slice"(%3) {starts = [0, 0], limits = [s0, 4], steps = [1, 1]} : (tensor<[s0]x4xf32>)
        -> tensor<[s0]x4xf32>
      %5 = "graph.expand"(%4) {shape = [s0, 4]} : (tensor<[s0]x4xf32>) -> tensor<[s0]x4xf32>
      %6 = "graph.pad"(%5) {low = [0, 0], high = [0, 0], interior = [0, 0]} : (tensor<[s0]x4xf32>)
        -> tensor<[s0]x4xf32>
      return %6 : tensor<[s0]x4xf32>""",
        symbols="s0",
    )
    assert body(assert_same_values(fn, simplify, {"s0": 3})) == []


def test_slices_compose() -> None:
    fn = graph("""
    %x: tensor<20xf32>
      %0 = "graph.slice"(%x) {starts = [1], limits = [20], steps = [3]} : (tensor<20xf32>) -> tensor<7xf32>
      %1 = "graph.slice"(%0) {starts = [1], limits = [6], steps = [2]} : (tensor<7xf32>) -> tensor<3xf32>
      return %1 : tensor<3xf32>""")
    assert_text(
        assert_same_values(fn, simplify),
        graph("""
    %x: tensor<20xf32>
      %1 = "graph.slice"(%x) {starts = [4], limits = [17], steps = [6]} : (tensor<20xf32>) -> tensor<3xf32>
      return %1 : tensor<3xf32>"""),
    )


def test_what_was_written_is_read() -> None:
    region = "{starts = [1], limits = [3], steps = [1]}"
    fn = graph(f"""
    %x: tensor<4xf32>
    %y: tensor<2xf32>
    %z: tensor<2xf32>
      %0 = "graph.slice_update"(%x, %y) {region} : (tensor<4xf32>, tensor<2xf32>) -> tensor<4xf32>
      %1 = "graph.slice_update"(%0, %z) {region} : (tensor<4xf32>, tensor<2xf32>) -> tensor<4xf32>
      %2 = "graph.slice"(%1) {region} : (tensor<4xf32>) -> tensor<2xf32>
      return %1, %2 : tensor<4xf32>, tensor<2xf32>""")
    new = assert_same_values(fn, simplify)
    assert body(new) == ["slice_update"] and new.returns[1] is new.params[2]


def test_a_slice_of_one_piece() -> None:
    fn = graph("""
    %x: tensor<2x3xf32>
    %y: tensor<2x4xf32>
      %0 = "graph.concat"(%x, %y) {dim = 1} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
      %1 = "graph.slice"(%0) {starts = [0, 3], limits = [2, 7], steps = [1, 1]} : (tensor<2x7xf32>) -> tensor<2x4xf32>
      %2 = "graph.slice"(%0) {starts = [0, 2], limits = [2, 4], steps = [1, 1]} : (tensor<2x7xf32>) -> tensor<2x2xf32>
      return %1, %2 : tensor<2x4xf32>, tensor<2x2xf32>""")
    new = assert_same_values(fn, simplify)
    assert body(new) == ["concat", "slice"] and new.returns[0] is new.params[1]


def test_views_of_a_splat_are_a_splat() -> None:
    fn = graph("""
    %s: tensor<f32>
      %0 = "graph.expand"(%s) {shape = [2, 3]} : (tensor<f32>) -> tensor<2x3xf32>
      %1 = "graph.permute"(%0) {dims = [1, 0]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %2 = "graph.reshape"(%1) {shape = [6]} : (tensor<3x2xf32>) -> tensor<6xf32>
      return %2 : tensor<6xf32>""")
    new = assert_same_values(fn, simplify)
    assert body(new) == ["expand"] and new.ops[0].operands == new.params


def test_reductions_over_one_element_and_over_nothing() -> None:
    fn = graph("""
    %x: tensor<2x1x3xf32>
      %0 = "graph.sum"(%x) {dims = [1]} : (tensor<2x1x3xf32>) -> tensor<2x3xf32>
      %1 = "graph.max"(%0) {dims = []} : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %2 = "graph.sum"(%x) {dims = [0, 1]} : (tensor<2x1x3xf32>) -> tensor<3xf32>
      return %1, %2 : tensor<2x3xf32>, tensor<3xf32>""")
    assert body(assert_same_values(fn, simplify)) == ["reshape", "sum"]


def test_sum_of_repeated_elements_is_a_product() -> None:
    fn = graph("""
    %x: tensor<3x1xf32>
      %0 = "graph.expand"(%x) {shape = [5, 3, 4]} : (tensor<3x1xf32>) -> tensor<5x3x4xf32>
      %1 = "graph.sum"(%0) {dims = [0, 1]} : (tensor<5x3x4xf32>) -> tensor<4xf32>
      %2 = "graph.max"(%0) {dims = [0, 2]} : (tensor<5x3x4xf32>) -> tensor<3xf32>
      return %1, %2 : tensor<4xf32>, tensor<3xf32>""")
    new = simplify(fn)
    assert body(new).count("sum") == 1 and "max" not in body(new)
    assert max(v.tensor.numel for op in new.ops for v in op.results) == 12
    arrays = random_arrays(fn)
    for a, b in zip(evaluate(fn, *arrays), evaluate(new, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_count_that_the_dtype_does_not_hold_stays_a_sum(dtype: str) -> None:
    fn = graph(f"""
    %x: tensor<{dtype}>
      %0 = "graph.expand"(%x) {{shape = [2049]}} : (tensor<{dtype}>) -> tensor<2049x{dtype}>
      %1 = "graph.sum"(%0) {{dims = [0]}} : (tensor<2049x{dtype}>) -> tensor<{dtype}>
      return %1 : tensor<{dtype}>""")
    assert body(simplify(fn)) == ["expand", "sum"]


def test_transposes_become_letters() -> None:
    fn = graph("""
    %x: tensor<3x2xf32>
    %y: tensor<4x3xf32>
      %0 = "graph.permute"(%x) {dims = [1, 0]} : (tensor<3x2xf32>) -> tensor<2x3xf32>
      %1 = "graph.permute"(%y) {dims = [1, 0]} : (tensor<4x3xf32>) -> tensor<3x4xf32>
      %2 = "graph.contract"(%0, %1) {lhs = "ij", rhs = "jk", out = "ik"}
        : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %3 = "graph.permute"(%2) {dims = [1, 0]} : (tensor<2x4xf32>) -> tensor<4x2xf32>
      return %3 : tensor<4x2xf32>""")
    assert_text(
        assert_same_values(fn, simplify),
        graph("""
    %x: tensor<3x2xf32>
    %y: tensor<4x3xf32>
      %2 = "graph.contract"(%x, %y) {lhs = "ji", rhs = "kj", out = "ki"}
        : (tensor<3x2xf32>, tensor<4x3xf32>) -> tensor<4x2xf32>
      return %2 : tensor<4x2xf32>"""),
    )


def test_a_result_that_is_read_twice_is_not_computed_twice() -> None:
    fn = graph("""
    %x: tensor<2x3xf32>
    %y: tensor<3x4xf32>
      %2 = "graph.contract"(%x, %y) {lhs = "ij", rhs = "jk", out = "ik"}
        : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %3 = "graph.permute"(%2) {dims = [1, 0]} : (tensor<2x4xf32>) -> tensor<4x2xf32>
      return %2, %3 : tensor<2x4xf32>, tensor<4x2xf32>""")
    assert body(assert_same_values(fn, simplify)) == ["contract", "permute"]


def test_a_repeated_batch_is_dropped() -> None:
    fn = graph("""
    %x: tensor<3x2xf32>
    %y: tensor<5x2x4xf32>
      %0 = "graph.expand"(%x) {shape = [5, 3, 2]} : (tensor<3x2xf32>) -> tensor<5x3x2xf32>
      %1 = "graph.contract"(%0, %y) {lhs = "bij", rhs = "bjk", out = "bik"}
        : (tensor<5x3x2xf32>, tensor<5x2x4xf32>) -> tensor<5x3x4xf32>
      return %1 : tensor<5x3x4xf32>""")
    assert_text(
        assert_same_values(fn, simplify),
        graph("""
    %x: tensor<3x2xf32>
    %y: tensor<5x2x4xf32>
      %1 = "graph.contract"(%x, %y) {lhs = "ij", rhs = "bjk", out = "bik"}
        : (tensor<3x2xf32>, tensor<5x2x4xf32>) -> tensor<5x3x4xf32>
      return %1 : tensor<5x3x4xf32>"""),
    )
