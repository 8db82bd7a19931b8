"""The driver that joins the rooms, and the tools to look inside: stats, explain, dump, check_mode, visualize.

Start in driver.py (from a sealed trace to a Step that runs), then native.py (passes, codegen, program).
"""

from treadle.compiler.checking import CheckError, check_mode
from treadle.compiler.counters import Stats, reset_stats, stats
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
