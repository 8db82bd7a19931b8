"""A trace tree of its own for each test, so that programs and their notes do not depend on the order of tests."""

from collections.abc import Iterator

import pytest

import treadle as torch
from treadle.recorder import trace
from treadle.recorder.flush import forget_programs


@pytest.fixture(autouse=True)
def fresh_tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.sync()
    monkeypatch.setattr(trace, "roots", {})
    monkeypatch.setattr(trace.state, "trace", trace.Trace(0))
    forget_programs()
    torch.manual_seed(0)
    yield
    torch.sync()
    forget_programs()
    trace.state.trace = trace.Trace(0)
