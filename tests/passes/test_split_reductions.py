"""split_reductions: which reductions and contractions are made in two steps, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.text import body, graph
from treadle.ir.evaluate import evaluate
from treadle.passes.split_reductions import split_reductions


def contraction(m: int, k: int, n: int, dtype: str = "f32") -> str:
    return f"""
    %x: tensor<{m}x{k}x{dtype}>
    %y: tensor<{k}x{n}x{dtype}>
      %0 = "graph.contract"(%x, %y) {{lhs = "mk", rhs = "kn", out = "mn"}} : (tensor<{m}x{k}x{dtype}>, tensor<{k}x{n}x{dtype}>) -> tensor<{m}x{n}x{dtype}>
      return %0 : tensor<{m}x{n}x{dtype}>"""


def test_a_long_contraction_to_few_elements() -> None:
    fn = graph(contraction(6, 8192, 5))
    new = split_reductions(fn)
    assert body(new) == ["reshape", "reshape", "contract", "sum"]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 8192)), rng.standard_normal((8192, 5))
    arrays = [x.astype(np.float32), y.astype(np.float32)]
    (got,) = evaluate(new, *arrays)
    np.testing.assert_allclose(got, x @ y, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    "text",
    [contraction(6, 4095, 5), contraction(128, 8192, 128), contraction(6, 8191, 5), contraction(6, 8192, 5, "f16")],
)
def test_contractions_that_stay(text: str) -> None:
    assert body(split_reductions(graph(text))) == ["contract"]


def test_a_summed_dim_of_a_convolution() -> None:
    """The weight gradient: the batch is cut, the positions stay together."""
    fn = graph("""
    %c: tensor<8x6x28x28xf32>
    %w: tensor<8x2x28x28x3x3xf32>
      %0 = "graph.contract"(%c, %w) {lhs = "NOab", rhs = "NCabcd", out = "OCcd"} : (tensor<8x6x28x28xf32>, tensor<8x2x28x28x3x3xf32>) -> tensor<6x2x3x3xf32>
      return %0 : tensor<6x2x3x3xf32>""")
    new = split_reductions(fn)
    assert body(new) == ["reshape", "reshape", "contract", "sum"]
    assert new.ops[0].result.shape == (2, 4, 6, 28, 28)
