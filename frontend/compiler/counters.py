"""Numbers that say whether the compiler did too much: programs, kernels, launches, hits and misses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from treadle.recorder import trace
from treadle.runtime import executor_stats

__all__ = ["COUNTERS", "Counters", "Stats", "reset_stats", "stats"]


@dataclass
class Counters:
    """What the driver counts as it goes, since the process started."""

    programs: int = 0
    kernels: int = 0
    cache_hits: int = 0


COUNTERS = Counters()


@dataclass(frozen=True)
class Stats:
    """A snapshot of the counts since the process started or `reset_stats()` was called."""

    programs: int = 0  # programs compiled, or loaded from the disk cache
    kernels: int = 0  # kernels in them
    launches: int = 0  # kernel launches that ran
    cache_hits: int = 0  # kernels and programs found compiled, in this process or on disk
    trace_hits: int = 0  # ends of a trace that found their program in the trace tree
    trace_misses: int = 0  # ends of a trace that had to make one

    def __sub__(self, other: Stats) -> Stats:
        return Stats(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})

    def __repr__(self) -> str:
        return "\n".join(f"{name.replace('_', ' '):<13}{value:>9,}" for name, value in asdict(self).items())


_baseline = Stats()


def _totals() -> Stats:
    return Stats(
        programs=COUNTERS.programs,
        kernels=COUNTERS.kernels,
        launches=executor_stats()["launches"],
        cache_hits=COUNTERS.cache_hits,
        trace_hits=trace.hits,
        trace_misses=trace.misses,
    )


def stats() -> Stats:
    """Counts since the process started, or since `reset_stats()`. Two snapshots may be subtracted."""
    return _totals() - _baseline


def reset_stats() -> None:
    """Let `stats()` count from now on."""
    global _baseline
    _baseline = _totals()
