"""treadle.compiler.stats()."""

import treadle as torch
from treadle.compiler import Stats, reset_stats, stats


def test_counts_what_a_loop_does() -> None:
    x = torch.tensor([1.0, 2.0])
    reset_stats()
    assert stats() == Stats()
    for _ in range(5):
        (x * 3).sum().item()
    found = stats()
    assert found.trace_misses == 1
    assert found.trace_hits == 4
    assert found.programs == 1
    reset_stats()
    assert stats() == Stats()


def test_snapshots_subtract_and_read_well() -> None:
    assert Stats(3, 2, 9) - Stats(1, 2, 3) == Stats(2, 0, 6)
    text = repr(Stats(programs=12, launches=34567))
    assert "programs" in text and "12" in text and "34,567" in text and len(text.splitlines()) == 6
