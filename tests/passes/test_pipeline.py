"""Pipelines as text: arguments, levels, verification, switching off, hooks, reproducers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.passes.text import body, graph
from treadle.ir.core import Block, Function, Level
from treadle.ir.parser import parse_function
from treadle.ir.verifier import VerificationError
from treadle.passes import pipeline
from treadle.passes.__main__ import main
from treadle.passes.pipeline import Context, Step, compiler_pass, parse_pipeline, run_pipeline

T = "tensor<2xf32>"


@pytest.fixture
def fn() -> Function:
    return graph(f"""
    %x: {T}
      %0 = "graph.neg"(%x) : ({T}) -> {T}
      %1 = "graph.neg"(%0) : ({T}) -> {T}
      %2 = "graph.abs"(%1) : ({T}) -> {T}
      return %2 : {T}""")


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PASSES", dict(pipeline.PASSES))
    for name in ("TREADLE_VERIFY", "TREADLE_DISABLE", "TREADLE_DUMP"):
        monkeypatch.delenv(name, raising=False)


def test_text() -> None:
    steps = parse_pipeline(" expand-grad, schedule{cpu} ,simplify{budget=20,x} ")
    assert steps == (
        Step("expand-grad"),
        Step("schedule", ("cpu",)),
        Step("simplify", ("x",), (("budget", "20"),)),
    )
    assert ",".join(map(str, steps)) == "expand-grad,schedule{cpu},simplify{x,budget=20}"
    assert parse_pipeline("") == ()
    with pytest.raises(ValueError, match="malformed pipeline at"):
        parse_pipeline("simplify{")
    with pytest.raises(ValueError, match="malformed"):
        parse_pipeline("simplify decompose")


def test_passes_are_found_by_name(fn: Function) -> None:
    assert body(run_pipeline(fn, "inline,expand-grad,decompose,simplify{budget=50}")) == ["abs"]
    assert "expand-grad" in pipeline.PASSES and pipeline.PASSES["simplify"].promise.endswith(".")
    with pytest.raises(ValueError, match="no pass is called 'simplfy'"):
        run_pipeline(fn, "simplfy")


def test_switching_off(fn: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_DISABLE", "simplify, decompose")
    assert run_pipeline(fn, "decompose,simplify") is fn

    @compiler_pass("test-lower", before=Level.GRAPH, after=Level.LOOP)
    def lower(fn: Function, context: Context) -> Function:
        return fn

    monkeypatch.setenv("TREADLE_DISABLE", "test-lower")
    with pytest.raises(ValueError, match="cannot be switched off"):
        run_pipeline(fn, "test-lower")


def test_levels_are_kept(fn: Function) -> None:
    @compiler_pass("test-lower", before=Level.GRAPH, after=Level.LOOP)
    def lower(fn: Function, context: Context) -> Function:
        return fn

    with pytest.raises(ValueError, match="promised the loop level and gave graph"):
        run_pipeline(fn, "test-lower")
    with pytest.raises(ValueError, match="takes the graph level, not loop"):
        run_pipeline(Function("f", Block((), ()), Level.LOOP), "simplify")


def test_hooks_see_every_pass(fn: Function) -> None:
    seen: list[tuple[str, int]] = []

    def hook(name: str, fn: Function, seconds: float) -> None:
        assert seconds >= 0
        seen.append((name, len(fn.ops)))

    run_pipeline(fn, "decompose,simplify", Context(hooks=(hook,)))
    assert seen == [("decompose", 3), ("simplify", 1)]


def break_ssa(fn: Function, context: Context) -> Function:
    """Drop the first op."""
    return replace(fn, body=Block(fn.params, fn.ops[1:], fn.returns))


def test_verification_between_passes(fn: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_pass("test-break", before=None, after=None)(break_ssa)
    assert len(run_pipeline(fn, "test-break").ops) == 2
    with pytest.raises(VerificationError, match="not defined"):
        run_pipeline(fn, "test-break", Context(verify=True))
    monkeypatch.setenv("TREADLE_VERIFY", "1")
    with pytest.raises(VerificationError, match="not defined"):
        run_pipeline(fn, "test-break")


def test_a_crash_leaves_a_reproducer(
    fn: Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @compiler_pass("test-crash", before=None, after=None)
    def crash(fn: Function, context: Context, *arguments: str) -> Function:
        raise ZeroDivisionError("inside")

    monkeypatch.setenv("TREADLE_DUMP", str(tmp_path / "dumps"))
    with pytest.raises(ZeroDivisionError) as caught:
        run_pipeline(fn, "decompose,test-crash{a},simplify")
    note = caught.value.__notes__[0]
    assert "in pass test-crash{a}" in note
    found = re.search(r"python -m treadle.passes (\S+)", note)
    assert found is not None
    path = Path(found[1])
    assert path.parent == tmp_path / "dumps"
    text = path.read_text()
    assert text.startswith("// pipeline: test-crash{a},simplify\n")
    assert parse_function(text) == fn
    with pytest.raises(ZeroDivisionError):
        main([str(path)])
    assert main([str(path), "simplify"]) == 0
    assert '"graph.abs"' in capsys.readouterr().out
    assert main([]) == 2
