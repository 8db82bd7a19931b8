"""treadle.compiler.explain(): branches, programs, and why each was new."""

import os
from typing import Any

import treadle as torch
from treadle.compiler import Explanation, explain


def run(n: int) -> float:
    x = torch.ones(n, 3)
    torch.sync()
    return (x.exp() * 2).sum().item()


def programs() -> list[Any]:
    """Programs but those that only fill."""
    return [p for p in explain().programs if p.events > 2]


def test_hits_and_places() -> None:
    for _ in range(4):
        run(5)
    (program,) = programs()
    assert program.runs == 4
    assert program.place is not None and os.path.basename(program.place.file) == os.path.basename(__file__)
    assert program.seconds > 0
    assert program.reason


def test_a_second_size_makes_it_general() -> None:
    run(5)
    run(6)
    run(7)
    first, general = programs()
    assert general.symbols and not first.symbols
    assert general.runs == 2
    assert general.novelty.nearest == first.number
    assert "serves them all" in general.novelty.why
    assert "[s0]" in general.novelty.now and "5x3" in general.novelty.earlier


def test_other_events_are_named() -> None:
    x = torch.tensor([1.0, 2.0])
    x.exp().sin().sum().item()
    x.exp().cos().sum().item()
    second = explain().programs[-1]
    assert second.novelty.now.startswith("cos")
    assert second.novelty.earlier.startswith("sin")
    assert second.novelty.place is not None and second.novelty.place.file == __file__


def test_other_live_values_are_named() -> None:
    x = torch.tensor([1.0, 2.0])
    a = x.exp()
    a.sum().item()
    del a
    x.exp().sum().item()
    second = explain().programs[-1]
    assert "still alive" in second.novelty.why and "-1" in second.novelty.why


def test_the_report_reads_as_text() -> None:
    run(5)
    (torch.ones(2) + 1).tolist()
    report = explain()
    assert isinstance(report, Explanation)
    text = str(report)
    assert repr(report) == text
    assert "tree (default dtype " in text
    assert "-> program" in text
    assert "new because: it is the first program" in text
    assert os.path.basename(__file__) in text
