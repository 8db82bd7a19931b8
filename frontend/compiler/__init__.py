"""The driver that joins the rooms, and the tools to look inside: stats, explain, dump, check_mode, visualize.

Start in driver.py (from a sealed trace to a Step that runs), then native.py (passes, codegen, program).
"""

from treadle.compiler import counters, dumps
from treadle.compiler.checking import CheckError, check_mode
from treadle.compiler.counters import COUNTERS, Stats, reset_stats, stats
from treadle.compiler.dumps import Artifact, Artifacts, dump
from treadle.compiler.explanation import Explanation, explain
from treadle.compiler.picture import Picture, visualize

__all__ = [
    "Artifact",
    "Artifacts",
    "CheckError",
    "Explanation",
    "Picture",
    "Stats",
    "check_mode",
    "dump",
    "explain",
    "reset_stats",
    "stats",
    "visualize",
]

# The driver may use these by the names of the public functions.
stats.COUNTERS = COUNTERS  # type: ignore[attr-defined]
for _name in ("active", "wanted", "hooks", "functions", "module"):
    setattr(dump, _name, getattr(dumps, _name))
assert counters.COUNTERS is COUNTERS
