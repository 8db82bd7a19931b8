"""explain: the trace tree for people. Which programs there are, how often they ran, why each was new, what is fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from treadle.compiler import notes
from treadle.compiler.novelty import Known, Novelty, novelty
from treadle.compiler.picture_graph import short_loc
from treadle.ir.core import Loc, Op
from treadle.ir.ops.sources import Constant
from treadle.ir.ops.views import Expand
from treadle.recorder import trace
from treadle.recorder.tree import Node, children, size

__all__ = ["Branch", "Explanation", "KernelReport", "ProgramReport", "explain"]


@dataclass(frozen=True)
class KernelReport:
    """One launch: its kind, the ops fused into it, and the user's lines they come from."""

    kind: str
    ops: tuple[tuple[str, int], ...]  # (op, how often)
    lines: tuple[str, ...]

    def __str__(self) -> str:
        ops = ", ".join(name if n == 1 else f"{name} x{n}" for name, n in self.ops[:6])
        more = ", ..." if len(self.ops) > 6 else ""
        lines = ", ".join(self.lines[:4]) + (f" and {len(self.lines) - 4} more" if len(self.lines) > 4 else "")
        return " ".join(part for part in (f"{self.kind}:", f"{ops}{more}", f"[{lines}]" if lines else "") if part)


@dataclass(frozen=True)
class ProgramReport:
    """One program of the tree. `place`: the user's line whose need ended the trace."""

    number: int
    reason: str
    place: Loc | None
    events: int
    results: int
    overwritten: int  # inputs whose memory it may take over
    runs: int
    seconds: float
    source: str
    novelty: Novelty
    symbols: tuple[str, ...]
    kernels: tuple[KernelReport, ...]
    refusals: tuple[str, ...]

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        general = f", for any {', '.join(self.symbols)}" if self.symbols else ""
        lines = [
            f"program {self.number}: {self.reason}{where}",
            f"  {self.events} events -> {self.results} results, {self.overwritten} inputs overwritten{general}",
            f"  ran {self.runs} times, {'made' if self.source == 'compiled' else 'loaded'} in {self.seconds:.3f} s"
            + (f" ({self.source})" if self.source != "compiled" else ""),
            f"  new because: {self.novelty}",
        ]
        if self.kernels:
            lines.append(f"  {len(self.kernels)} kernels:")
            lines += [f"    {n}. {k}" for n, k in enumerate(self.kernels)]
        lines += [f"  not fused: {r}" for r in self._refusals()]
        return "\n".join(lines)

    def _refusals(self) -> list[str]:
        """A line for each reason, with one of its pairs."""
        groups: dict[str, list[str]] = {}
        for text in self.refusals:
            groups.setdefault(text.partition(":")[0], []).append(text)
        return [
            texts[0] + (f" and {len(texts) - 1} more" if len(texts) > 1 else "")
            for texts in sorted(groups.values(), key=len, reverse=True)
        ]


@dataclass(frozen=True)
class Branch:
    """A stretch of the tree without forks: how many events, the user's lines they span, the programs at its end."""

    events: int
    first: Loc | None
    last: Loc | None
    symbols: tuple[str, ...]
    programs: tuple[int, ...]
    below: tuple[Branch, ...] = ()

    def lines(self, lead: str = "", last: bool = True, top: bool = True) -> Iterator[str]:
        """The branch as lines of a text tree."""
        span = f" {short_loc(self.first)}" if self.first else ""
        if self.first and self.last and self.first != self.last:
            span += f" to {short_loc(self.last)}"
        general = f" any {', '.join(self.symbols)}" if self.symbols else ""
        programs = f" -> program {', '.join(map(str, self.programs))}" if self.programs else ""
        mark = "" if top else "`- " if last else "|- "
        yield f"{lead}{mark}{self.events} events{span}{general}{programs}"
        inner = lead if top else lead + ("   " if last else "|  ")
        for n, child in enumerate(self.below):
            yield from child.lines(inner, n == len(self.below) - 1, top=False)


@dataclass(frozen=True)
class Explanation:
    """What `explain()` found. `str()` is for reading."""

    programs: tuple[ProgramReport, ...]
    trees: tuple[tuple[str, Branch], ...]  # (default dtype, tree)
    events: int
    hits: int
    misses: int
    seconds: float = field(default=0.0)

    def __str__(self) -> str:
        total = self.hits + self.misses
        head = [
            f"{len(self.programs)} programs in a trace tree of {self.events} events; of {total} traces {self.hits} "
            f"found their program, {self.misses} had it made ({self.seconds:.2f} s)"
        ]
        for dtype, tree in self.trees:
            head += ["", f"tree (default dtype {dtype})", *tree.lines()]
        return "\n".join([*head, *(f"\n{p}" for p in self.programs)])

    __repr__ = __str__


def explain() -> Explanation:
    """The trace tree: branches, programs, hits, compile times, why each was new, and what was fused. Print it."""
    programs: list[ProgramReport] = []
    trees = []
    for dtype, root in list(trace.roots.items()):
        if root.edges or root.patterns:
            trees.append((getattr(dtype, "short", str(dtype)), _branch(root)))
        known = _known(root)
        programs += [_program(k.path[-1], k, step, novelty(k, known)) for k, step in known.items()]
    programs.sort(key=lambda p: p.number)
    return Explanation(
        tuple(programs),
        tuple(trees),
        sum(size(root) for root in trace.roots.values()),
        trace.hits,
        trace.misses,
        sum(p.seconds for p in programs),
    )


# ---- the tree --------------------------------------------------------------------------------------------------------


def _nodes(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def _branch(start: Node) -> Branch:
    """The stretch that begins at `start`, and what follows it. Iterative along a stretch, recursive at forks."""
    node, count, places = start, 0, list[Loc]()
    while True:
        count += node.parent is not None
        places += [op.loc for op in node.ops if op.loc is not None]
        below = children(node)
        if node.programs or len(below) != 1:
            break
        node = below[0]
    numbers = tuple(n.number if n is not None else 0 for n in map(notes.of, node.programs.values()))
    first, last = (places[0], places[-1]) if places else (None, None)
    return Branch(count, first, last, tuple(node.symbols), numbers, tuple(_branch(c) for c in below))


def _known(root: Node) -> dict[Known, Any]:
    """The programs of a tree."""
    found: dict[Known, Any] = {}
    for node in _nodes(root):
        for key, step in node.programs.items():
            note = notes.of(step)
            found[Known.at(note.number if note is not None else 0, node, key)] = step
    return found


def _program(node: Node, known: Known, step: Any, new: Novelty) -> ProgramReport:
    note = notes.of(step) or notes.ProgramNote(0, "unknown", None)
    if note.kernels is not None:
        kernels = tuple(_kernel(op) for op in note.kernels.ops)
    else:
        kernels = tuple(KernelReport("kernel", (), (place,)) for place in note.launches)
    return ProgramReport(
        number=note.number,
        reason=note.reason,
        place=note.place,
        events=node.event,
        results=len(known.live),
        overwritten=len(known.donated),
        runs=node.hits,
        seconds=note.seconds,
        source=note.source,
        novelty=new,
        symbols=tuple(f"{name} (first {size})" for name, size in node.symbols.items()),
        kernels=kernels,
        refusals=tuple(note.refusals),
    )


def _kernel(op: Op) -> KernelReport:
    """What is in one op of the kernel level."""
    kind = op.operation.name.removeprefix("kernel.")
    attributes = op.operation.attributes
    kind += "".join(f" {attributes[k]}" for k in ("kind", "function") if k in attributes)
    names: Counter[str] = Counter()
    lines: dict[str, None] = {}
    for inner in _flat(op):
        if inner is not op and not isinstance(inner.operation, Constant | Expand):
            names[inner.operation.name.split(".", 1)[1]] += 1
        if inner.loc is not None:
            lines[short_loc(inner.loc)] = None
    names = names or Counter(["expand"])
    return KernelReport(kind, tuple(names.most_common()), tuple(sorted(lines, key=_by_line)))


def _flat(op: Op) -> Iterator[Op]:
    yield op
    for region in op.regions:
        for inner in region.ops:
            yield from _flat(inner)


def _by_line(text: str) -> tuple[str, int]:
    file, _, line = text.rpartition(":")
    return file, int(line) if line.isdigit() else 0
