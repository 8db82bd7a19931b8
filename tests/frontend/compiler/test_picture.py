"""treadle.compiler.visualize(): DOT text of lazy tensors, modules and functions."""

import re
import shutil
from pathlib import Path

import pytest

import treadle as torch
from treadle import nn
from treadle.compiler import stats, visualize
from treadle.compiler.picture_graph import draw
from treadle.ir.core import Function, Level
from treadle.ir.parser import parse_function

KERNELS = """
kernel.func @step(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %b: tensor<5xf32>) {
  %h = "kernel.contract"(%x, %w, %b) ({
  ^(%0: tensor<4x3xf32>, %1: tensor<5x3xf32>, %2: tensor<5xf32>):
    %3 = "graph.contract"(%0, %1) {lhs = "ij", rhs = "kj", out = "ik"}
      : (tensor<4x3xf32>, tensor<5x3xf32>) -> tensor<4x5xf32> loc("train.py":3)
    %4 = "graph.expand"(%2) {shape = [4, 5]} : (tensor<5xf32>) -> tensor<4x5xf32>
    %5 = "graph.add"(%3, %4) : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32> loc("train.py":3)
    yield %5
  }) : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  %e = "kernel.fused"(%h) ({
  ^(%6: tensor<4x5xf32>):
    %c = "graph.constant"() {value = 0.5, dtype = f32} : () -> tensor<f32>
    %d = "graph.expand"(%c) {shape = [4, 5]} : (tensor<f32>) -> tensor<4x5xf32>
    %7 = "graph.mul"(%6, %d) : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
    %8 = "graph.exp"(%7) : (tensor<4x5xf32>) -> tensor<4x5xf32> loc("train.py":4)
    yield %8
  }) : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return %e : tensor<4x5xf32>
}
"""
INPUTS = (("input", "x"), ("parameter", "w"), ("parameter", "b"))


def nodes(source: str) -> dict[str, str]:
    """Labels by node name."""
    return dict(re.findall(r'^\t+(p\w+) \[label="?((?:[^"\\]|\\.)*?)"?(?: \w+=.*)?\]$', source, re.MULTILINE))


def edges(source: str) -> list[tuple[str, str]]:
    return re.findall(r"^\t+(\w+) -> (\w+)", source, re.MULTILINE)


def test_kernels_are_clusters() -> None:
    fn = parse_function(KERNELS)
    assert fn.level is Level.KERNEL
    source = draw([("step", fn, INPUTS)], "a title").source
    assert source.count("subgraph cluster_") == 2
    assert "kernel 0: contract" in source and "kernel 1: fused loops" in source
    labels = nodes(source)
    assert labels["p0_in1"].startswith("w")
    assert any(label.startswith("mul 0.5") for label in labels.values())  # constants are in the ops that read them
    assert not any(label.startswith("constant") for label in labels.values())
    assert "train.py:4" in source and "4x5" in source
    add = next(n for n, label in labels.items() if label.startswith("add"))
    mul = next(n for n, label in labels.items() if label.startswith("mul"))
    assert (add, mul) in edges(source)  # across kernels, from op to op
    assert ("p0_in0", next(n for n, label in labels.items() if label.startswith("contract"))) in edges(source)


def test_several_programs_have_a_frame_each() -> None:
    fn: Function = parse_function(KERNELS)
    source = draw([("one", fn, INPUTS), ("two", fn, INPUTS)], "both").source
    assert source.count("cluster_program") == 2 and "label=one" in source


def test_large_programs_are_drawn_by_line() -> None:
    x = torch.ones(3)
    y = x
    for _ in range(150):
        y = y.exp()
        y = y.sin()
        y = y.cos()
    source = visualize(y, level="graph").source
    assert "drawn by line of the program" in source
    assert len(nodes(source)) < 20
    assert "x150" in source


def test_a_lazy_tensor_stays_lazy() -> None:
    x = torch.ones(2, 3)
    torch.sync()
    y = (x * 2).relu().sum()
    before = stats()
    source = visualize(y, level="graph").source
    assert stats() == before
    labels = nodes(source)
    assert any(label.startswith("relu") for label in labels.values())
    assert any(label.startswith("mul 2") for label in labels.values())
    assert [label for name, label in labels.items() if "out" in name] == ["output\\nf32[]"]
    assert Path(__file__).name in source
    assert y.item() == 12.0


def test_what_is_not_needed_is_left_out() -> None:
    x = torch.ones(3)
    x.cos()
    labels = nodes(visualize(x.sin(), level="graph").source).values()
    assert not any(label.startswith("cos") for label in labels)


def test_module_names_its_parameters() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = torch.ones(2, 3)
    torch.sync()
    source = visualize(net, x, level="graph").source
    assert "0.weight" in source and "0.bias" in source and "#cfe3f7" in source
    assert "Sequential" in source


def test_a_training_step_is_drawn_as_it_ran() -> None:
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(4, 3)
    torch.sync()

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):  # the second time the program is in the tree
        source = visualize(step, x, level="graph").source
        assert "step" in source and "grad" in source


def test_kernel_level_of_a_step() -> None:
    net = nn.Sequential(nn.Linear(33, 64), nn.ReLU(), nn.Linear(64, 32))
    x = torch.ones(65, 33)
    torch.sync()
    source = visualize(net, x).source
    assert source.count("subgraph cluster_") >= 2
    assert "kernel 0" in source


def test_files(tmp_path: Path) -> None:
    picture = visualize(torch.ones(3).exp(), level="graph", path=tmp_path / "deep" / "net.svg")
    assert (tmp_path / "deep" / "net.dot").read_text() == picture.source
    if shutil.which("dot") is None:
        assert "not installed" in picture.notes[0]
    else:
        assert "<svg" in (tmp_path / "deep" / "net.svg").read_text()


def test_dot_text_survives_awkward_text() -> None:
    s = 'quote " and backslash \\'
    assert s
    source = visualize(torch.ones(3).exp(), level="graph").source  # the tooltip holds the line above this comment
    assert source.count("{") == source.count("}")


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="level"):
        visualize(torch.ones(3), level="loop")
    with pytest.raises(TypeError, match="a tensor, a module or a function"):
        visualize(3)
    x = torch.tensor([1.0])
    with pytest.raises(ValueError, match="nothing to draw"):
        visualize(x, level="graph")
