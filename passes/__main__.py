"""`python -m treadle.passes FILE [PIPELINE]`: run a pipeline on an IR file and print the result.

Without PIPELINE, the one that the file states in a line `// pipeline: ...` (as reproducers do).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from treadle.ir.parser import parse_function
from treadle.ir.printer import print_function
from treadle.passes.pipeline import Context, run_pipeline


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    text = Path(arguments[0]).read_text()
    stated = re.search(r"^// pipeline: (.*)$", text, re.MULTILINE)
    pipeline = arguments[1] if len(arguments) == 2 else stated[1] if stated else ""
    print(print_function(run_pipeline(parse_function(text), pipeline, Context(verify=True))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
