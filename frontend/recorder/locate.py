"""Where in the user's program an op was recorded. Called only for new edges of the tree and for errors."""

from __future__ import annotations

import os
import sys

from treadle.ir.core import Loc

__all__ = ["user_location", "PACKAGE"]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_location() -> Loc | None:
    """The innermost frame outside treadle (the examples count as user code)."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file.startswith(PACKAGE + "examples"):
            return Loc(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None
