"""Dumps: what a program looks like at each level, after every pass.

    TREADLE_DUMP=graph,kernel,loop,llvm,asm   to stderr (any of the levels, or `all`)
    TREADLE_DUMP=./some/folder                every level, in numbered files
    with treadle.compiler.dump("kernel") as artifacts: ...

The driver hands over what it makes (`hooks`, `functions`, `module`); `active()` tells it to leave the caches alone, and
`unseen(...)` to compile again what the trace tree knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from treadle.compiler import notes
from treadle.ir.core import Function
from treadle.ir.printer import print_function

__all__ = ["LEVELS", "Artifact", "Artifacts", "active", "dump", "functions", "hooks", "module", "text", "unseen",
           "wanted"]  # fmt: skip

LEVELS = ("graph", "kernel", "loop", "llvm", "asm")
_SUFFIX = {"llvm": "ll", "asm": "s"}

# True within `dump(...)`: programs of the trace tree are compiled again, once each. The hot path reads this.
bypassing = False


@dataclass(frozen=True)
class Artifact:
    """One text: program number, what ended its trace, the level, the pass (or `codegen`) that made it."""

    program: int
    reason: str
    level: str
    step: str
    text: str
    seconds: float | None = None

    @property
    def title(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds * 1e3:.1f} ms"
        return f"program {self.program} ({self.reason}): {self.level} after {self.step}{took}"

    def __str__(self) -> str:
        mark = ";" if self.level == "llvm" else "#" if self.level == "asm" else "//"
        return f"{mark} ---- {self.title}\n{self.text.rstrip()}\n"


class Artifacts(list[Artifact]):
    """What a dump collected, in the order of its making."""

    def select(self, level: str | None = None, step: str | None = None, program: int | None = None) -> Artifacts:
        """Those of a level, of a pass, of a program."""
        return Artifacts(
            a
            for a in self
            if (level is None or a.level == level)
            and (step is None or a.step == step)
            and (program is None or a.program == program)
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(eq=False)
class _Sink:
    """Where artifacts of some levels go."""

    levels: frozenset[str]
    folder: Path | None = None
    stream: IO[str] | None = None
    collected: Artifacts | None = None
    seen: set[tuple] = field(default_factory=set)
    count: int = 0

    def take(self, artifact: Artifact) -> None:
        self.count += 1
        if self.collected is not None:
            self.collected.append(artifact)
        if self.stream is not None:
            print(artifact, file=self.stream)
        if self.folder is not None:
            suffix = _SUFFIX.get(artifact.level, f"{artifact.level}.ir")
            name = f"{artifact.program:03d}-{self.count:03d}-{artifact.step}.{suffix}"
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(str(artifact))


_contexts: list[_Sink] = []
_environment: tuple[str, _Sink | None] = ("", None)


def _from_environment() -> _Sink | None:
    """The sink that TREADLE_DUMP asks for."""
    global _environment
    text = os.environ.get("TREADLE_DUMP", "")
    if text != _environment[0]:
        _environment = (text, _parse(text))
    return _environment[1]


def _parse(text: str) -> _Sink | None:
    if text in ("", "0"):
        return None
    names = [n.strip() for n in text.split(",")]
    if all(n in (*LEVELS, "all") for n in names):
        return _Sink(_levels(names), stream=sys.stderr)
    if len(names) > 1 and os.sep not in text:
        raise ValueError(f"TREADLE_DUMP={text}: neither a folder nor levels; the levels are {', '.join(LEVELS)}, all")
    return _Sink(frozenset(LEVELS), folder=Path(text))


def _levels(names: Sequence[str]) -> frozenset[str]:
    unknown = [n for n in names if n not in (*LEVELS, "all")]
    if unknown:
        raise ValueError(f"there is no level {unknown[0]!r}; the levels are {', '.join(LEVELS)}, all")
    return frozenset(LEVELS if not names or "all" in names else names)


def _sinks() -> list[_Sink]:
    fixed = _from_environment()
    return _contexts if fixed is None else [fixed, *_contexts]


# ---- what the driver calls ------------------------------------------------------------------------------------------


def active() -> bool:
    """True where something is dumped: the caches on disk and of kernels are to be bypassed."""
    return bool(_sinks())


def wanted(level: str) -> bool:
    """True where something of this level is dumped: for texts that cost something to make."""
    return any(level in s.levels for s in _sinks())


def unseen(node: Any, key: tuple) -> bool:
    """True once for each program of the trace tree within a `dump(...)`, which has to be compiled to be seen."""
    fresh = False
    for sink in _contexts:
        if (id(node), key) not in sink.seen:
            sink.seen.add((id(node), key))
            fresh = True
    return fresh


def hooks(reason: str) -> tuple[Any, ...]:
    """Hooks of a pipeline's Context that take what each pass made; none where nothing is dumped."""
    if not active():
        return ()

    def after(step: str, fn: Function, seconds: float) -> None:
        if wanted(fn.level.value):
            text(reason, fn.level.value, step, print_function(fn, locations=True), seconds)

    return (after,)


def functions(reason: str, made: Iterable[Function], step: str) -> None:
    """Functions that were made outside a pipeline: the loops of kernels."""
    for fn in made:
        if wanted(fn.level.value):
            text(reason, fn.level.value, step, print_function(fn, locations=True))


def module(reason: str, compiled: Any) -> None:
    """A compiled module: its LLVM IR (`.llvm`), and `.assembly` where `wanted("asm")` asked for it."""
    for level, contents in (("llvm", compiled.llvm), ("asm", compiled.assembly)):
        if contents and wanted(level):
            text(reason, level, "codegen", contents)


def text(reason: str, level: str, step: str, contents: str, seconds: float | None = None) -> None:
    """Any text of a level, for whoever wants it."""
    note = notes.current()
    artifact = Artifact(note.number if note is not None else 0, reason, level, step, contents, seconds)
    for sink in _sinks():
        if level in sink.levels:
            sink.take(artifact)


# ---- what the user calls --------------------------------------------------------------------------------------------


@contextmanager
def dump(
    *levels: str, folder: str | os.PathLike[str] | None = None, stream: IO[str] | None = None
) -> Iterator[Artifacts]:
    """Collect what programs look like at `levels` (all, where none is named) while the context is open.

    Each program that runs in the context is compiled again once, past all caches. The artifacts can also be written to
    numbered files in `folder`, or to a `stream`:

        with treadle.compiler.dump("kernel") as artifacts:
            train_step(x, y)
        print(artifacts.select(step="fuse"))
    """
    global bypassing
    collected = Artifacts()
    sink = _Sink(_levels(levels), None if folder is None else Path(folder), stream, collected)
    _contexts.append(sink)
    bypassing = True
    try:
        yield collected
    finally:
        _contexts.remove(sink)
        bypassing = bool(_contexts)
