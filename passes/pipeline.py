"""Passes by name, and pipelines of them as text.

    @compiler_pass("simplify", before=Level.GRAPH, after=Level.GRAPH)
    def simplify(fn: Function, context: Context) -> Function: ...

    run_pipeline(fn, "expand-grad,decompose,simplify", Context(target="cpu"))

A pass called `expand-grad` lives in `passes/expand_grad.py` and is found there by its name. `name{a,b=c}` passes the
arguments "a" and b="c". Environment: TREADLE_VERIFY=1 verifies between passes, TREADLE_DISABLE=a,b switches passes off,
TREADLE_DUMP=<folder> takes the reproducers that a crashing pass writes (else the system's folder for temporary files).
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle.ir.core import Function, Level
from treadle.ir.dims import Undecided
from treadle.ir.printer import digest, print_function
from treadle.ir.verifier import verify

__all__ = ["PASSES", "Context", "Pass", "Step", "compiler_pass", "parse_pipeline", "run_pipeline"]

Hook = Callable[[str, Function, float], None]
Transform = Callable[..., Function]


@dataclass(frozen=True)
class Context:
    """What passes may ask. `hooks` are called after each pass with its name, the function and the seconds it took."""

    target: str = "cpu"
    flags: frozenset[str] = frozenset()
    verify: bool = False
    hooks: tuple[Hook, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Pass:
    """A named transform with the levels it takes and gives (None: any, and the same)."""

    name: str
    before: Level | None
    after: Level | None
    transform: Transform

    @property
    def promise(self) -> str:
        """The first line of the pass's documentation."""
        return (self.transform.__doc__ or "").strip().split("\n")[0]


PASSES: dict[str, Pass] = {}


def compiler_pass(name: str, before: Level | None, after: Level | None) -> Callable[[Transform], Transform]:
    """Decorator: enter a function of (Function, Context, *arguments) as the pass `name`."""

    def register(transform: Transform) -> Transform:
        if name in PASSES:
            raise ValueError(f"pass {name} is defined twice")
        PASSES[name] = Pass(name, before, after, transform)
        return transform

    return register


def find_pass(name: str) -> Pass:
    """The pass `name`, importing its module by the naming convention where it is not known yet."""
    if name not in PASSES:
        module = f"treadle.passes.{name.replace('-', '_')}"
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    if name not in PASSES:
        raise ValueError(f"no pass is called {name!r}; known are {', '.join(sorted(PASSES))}")
    return PASSES[name]


@dataclass(frozen=True)
class Step:
    """One entry of a pipeline: a pass's name and its textual arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inner = ",".join([*self.arguments, *(f"{k}={v}" for k, v in self.named)])
        return f"{self.name}{{{inner}}}" if inner else self.name


def parse_pipeline(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline's text. Raises ValueError where it is malformed."""
    steps = []
    rest = text.strip()
    while rest:
        match = re.match(r"([a-z][a-z0-9-]*)\s*(?:\{([^{}]*)\})?\s*(?:,\s*|$)", rest)
        if match is None:
            raise ValueError(f"malformed pipeline at {rest!r}")
        parts = [p.strip() for p in (match[2] or "").split(",") if p.strip()]
        named = tuple((k.strip(), v.strip()) for k, v in (p.split("=", 1) for p in parts if "=" in p))
        steps.append(Step(match[1], tuple(p for p in parts if "=" not in p), named))
        rest = rest[match.end() :]
    return tuple(steps)


def run_pipeline(fn: Function, text: str, context: Context | None = None) -> Function:
    """Run the passes of `text` on `fn`, in order."""
    context = context or Context()
    verifying = context.verify or os.environ.get("TREADLE_VERIFY", "0") not in ("", "0")
    disabled = {name.strip() for name in os.environ.get("TREADLE_DISABLE", "").split(",")}
    steps = parse_pipeline(text)
    if verifying:
        verify(fn)
    for n, step in enumerate(steps):
        known = find_pass(step.name)
        if step.name in disabled:
            if known.before is not known.after:
                raise ValueError(f"{step.name} lowers {known.before} to {known.after}: it cannot be switched off")
            continue
        start = time.perf_counter()
        try:
            fn = _apply(known, step, fn, context, verifying)
        except Undecided:  # no fault: the caller compiles for the sizes at hand
            raise
        except Exception as error:
            error.add_note(f"in pass {step}; to see it again: {_write_reproducer(fn, steps[n:])}")
            raise
        seconds = time.perf_counter() - start
        for hook in context.hooks:
            hook(step.name, fn, seconds)
    return fn


def _apply(known: Pass, step: Step, fn: Function, context: Context, verifying: bool) -> Function:
    if known.before is not None and fn.level is not known.before:
        raise ValueError(f"pass {known.name} takes the {known.before.value} level, not {fn.level.value}")
    named: dict[str, Any] = dict(step.named)
    result = known.transform(fn, context, *step.arguments, **named)
    wanted = known.after or fn.level
    if result.level is not wanted:
        raise ValueError(f"pass {known.name} promised the {wanted.value} level and gave {result.level.value}")
    if verifying:
        verify(result)
    return result


def _write_reproducer(fn: Function, rest: tuple[Step, ...]) -> str:
    """Write the pass's input and the rest of the pipeline to a file; how to run it, or why it could not be written."""
    wanted = os.environ.get("TREADLE_DUMP", "")
    folder = Path(wanted) if os.sep in wanted or (wanted and Path(wanted).is_dir()) else Path(tempfile.gettempdir())
    try:
        pipeline = ",".join(map(str, rest))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"reproducer-{rest[0].name}-{digest(fn)[:12]}.ir"
        path.write_text(f"// pipeline: {pipeline}\n{print_function(fn, locations=True)}")
    except Exception as error:  # the pass's own error matters more
        return f"no reproducer could be written: {error}"
    return f"python -m treadle.passes {path}"
