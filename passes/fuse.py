"""fuse: graph -> kernel. Which values live in memory, and which of them are computed by one launch.

The steps: choose roots (fuse_graph.py); let contractions take their elementwise consumers as epilogues
(fuse_contract.py); merge what reads and is read at one outer point, then what reads the same (fuse_groups.py); put
independent nests into one launch (fuse_launch.py). Legal is what the lowering can trace as one nest, so there is one
notion of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.core import Function, Level, Value
from treadle.passes.fuse_contract import absorb_readers, sink_contractions
from treadle.passes.fuse_graph import Graph
from treadle.passes.fuse_groups import Group, Groups, No
from treadle.passes.fuse_launch import emit_launches
from treadle.passes.lower.cost import likely
from treadle.passes.pipeline import Context, compiler_pass
from treadle.passes.split_reductions import split_reductions

__all__ = ["FusionReport", "fuse", "fuse_with_report"]

WORTH = 2048  # bytes that siblings have to share


@dataclass(frozen=True)
class FusionReport:
    """The kernel-level function, and what was not fused and why: (a value of one group, of the other, the reason)."""

    function: Function
    refusals: tuple[tuple[Value, Value, No], ...]


@compiler_pass("fuse", before=Level.GRAPH, after=Level.KERNEL)
def fuse(fn: Function, context: Context | None = None) -> Function:
    """Group the ops of a graph into launches."""
    return fuse_with_report(fn).function


def fuse_with_report(fn: Function) -> FusionReport:
    """`fuse`, with the refusals."""
    graph = Graph(split_reductions(fn))
    sink_contractions(graph)
    groups = Groups(graph)
    absorb_readers(groups)
    _merge_sources(groups)
    _merge_siblings(groups)
    return FusionReport(emit_launches(groups), tuple(groups.refusals))


def _merge_sources(groups: Groups) -> None:
    """Merge groups with what they read, those first that save most."""
    for v in sorted(groups.of, key=lambda v: groups.graph.position[v]):
        g = groups.of[v]
        if g.kind != "loops" or g.first is not v and v is not g.roots[-1]:
            continue
        progress = True
        while progress:
            progress = False
            sources = [s for s in groups.sources(g) if s.kind == "loops"]
            for s in sorted(sources, key=lambda s: -groups.score(s, g)):
                merged = groups.try_merge(s, g)
                if merged is not None:
                    g, progress = merged, True
                    break


def _merge_siblings(groups: Groups) -> None:
    """Merge groups that read the same large values at the same points."""
    values = sorted(groups.readers, key=lambda v: -likely(v.tensor.nbytes))
    for v in values:
        if likely(v.tensor.nbytes) < WORTH:
            break
        readers = [g for g in groups.readers[v] if g.kind == "loops"]
        k = 0
        while k + 1 < len(readers):
            merged: Group | None = None
            for other in readers[k + 1 :]:
                merged = groups.try_merge(readers[k], other)
                if merged is not None:
                    readers = [merged if g is readers[k] else g for g in readers if g is not other]
                    break
            if merged is None:
                k += 1
