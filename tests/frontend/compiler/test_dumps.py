"""Dumps: levels, folders, the environment, and that they see programs that are already compiled."""

import io
from pathlib import Path

import pytest

import treadle as torch
from treadle.compiler import dump, dumps
from treadle.ir.parser import parse_function
from treadle.passes.pipeline import Context, run_pipeline

GRAPH = """
graph.func @f(%x: tensor<4xf32>) {
  %0 = "graph.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("train.py":7)
  return %0 : tensor<4xf32>
}
"""


def compile_graph(reason: str = "test") -> None:
    """What the driver does for the graph level."""
    run_pipeline(parse_function(GRAPH), "decompose,simplify", Context(hooks=dumps.hooks(reason)))


def test_nothing_is_active_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_DUMP", raising=False)
    assert not dumps.active()
    assert dumps.hooks("test") == ()


def test_collects_after_every_pass_with_lines() -> None:
    with dump("graph") as artifacts:
        assert dumps.active() and dumps.wanted("graph") and not dumps.wanted("llvm")
        compile_graph()
    assert [a.step for a in artifacts] == ["decompose", "simplify"]
    assert all('loc("train.py":7)' in a.text for a in artifacts)
    assert parse_function(artifacts[0].text) == parse_function(GRAPH)
    assert len(artifacts.select(step="simplify")) == 1
    assert "graph after simplify" in str(artifacts)
    assert not dumps.bypassing


def test_other_levels_are_left_out() -> None:
    with dump("llvm", "asm") as artifacts:
        compile_graph()
        dumps.text("test", "llvm", "codegen", "define void @k() { ret void }")
    assert [a.level for a in artifacts] == ["llvm"]


def test_folder_gets_numbered_files(tmp_path: Path) -> None:
    with dump(folder=tmp_path / "out"):
        compile_graph()
        dumps.text("test", "asm", "codegen", "ret")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["000-001-decompose.graph.ir", "000-002-simplify.graph.ir", "000-003-codegen.s"]


def test_stream() -> None:
    stream = io.StringIO()
    with dump("graph", stream=stream):
        compile_graph("a reason")
    assert "program 0 (a reason): graph after decompose" in stream.getvalue()


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TREADLE_DUMP", "graph,llvm")
    assert dumps.wanted("graph") and not dumps.wanted("asm")
    compile_graph()
    assert "graph.neg" in capsys.readouterr().err
    monkeypatch.setenv("TREADLE_DUMP", str(tmp_path / "folder"))
    compile_graph()
    assert len(list((tmp_path / "folder").iterdir())) == 2
    monkeypatch.setenv("TREADLE_DUMP", "graph,kernal")
    with pytest.raises(ValueError, match="the levels are graph, kernel"):
        dumps.active()


def test_unknown_level() -> None:
    with pytest.raises(ValueError, match="no level 'lop'"), dump("lop"):
        pass


def test_sees_programs_that_are_compiled_already() -> None:
    def run() -> float:
        return (torch.ones(3).exp() * 2).sum().item()

    run()
    with dump("graph") as artifacts:
        run()
        run()
    programs = {a.program for a in artifacts}
    assert len(programs) == 1
    assert Path(__file__).name in artifacts[0].text
