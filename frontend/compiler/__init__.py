"""The driver that joins the rooms, and the tools to look inside: stats, explain, dump, check_mode, visualize.

Start in driver.py (from a sealed trace to a Step that runs), then native.py (passes, codegen, program).
"""

from treadle.compiler import counters, dumps
from treadle.compiler.counters import COUNTERS, Stats, reset_stats, stats
from treadle.compiler.dumps import Artifact, Artifacts, dump

__all__ = ["Artifact", "Artifacts", "Stats", "dump", "reset_stats", "stats"]

# The driver may use these by the names of the public functions.
stats.COUNTERS = COUNTERS  # type: ignore[attr-defined]
for _name in ("active", "wanted", "hooks", "functions", "module"):
    setattr(dump, _name, getattr(dumps, _name))
assert counters.COUNTERS is COUNTERS
