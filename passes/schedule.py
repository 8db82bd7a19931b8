"""Schedules of loop nests: frozen data, chosen by a cost model from what the nest reads and writes.

Three shapes. A *map* has no reductions: its loops are the outer space. In *rows* the lanes run along the inner
variables of the reductions, one outer point at a time. In *columns* they run along the last outer variable, and every
lane has its own sums. The order in which a reduction adds is part of the schedule and never depends on threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treadle.ir.dims import Dim, product
from treadle.passes.lower.cost import likely
from treadle.passes.lower.index import Ix, LoopVar
from treadle.passes.lower.nodes import Const, Index, Load, Nest, Node, all_nodes
from treadle.passes.machine import HOST, Machine

__all__ = ["NestSchedule", "ScheduleError", "check", "choose", "disorder", "fitting"]


BLOCK = 8192  # elements of a task of a flat map
TILE = 32  # side of the blocks in which transposes are read
STRIP = 512  # columns of a task that sums columns
MIN_STRIP = 64
LARGE = 4096  # elements of a result whose order in memory matters
SHORT = 16  # inner extents below this do not fill a vector


@dataclass(frozen=True)
class NestSchedule:
    """How one nest runs. `block`: elements of a task of a flat map, or columns of a task; `tile`: 0, or the side of the
    blocks of the two innermost loops; `unroll`: partial sums of a reduction's vector loop."""

    shape: str  # map | rows | columns
    width: int
    block: int = 0
    tile: int = 0
    unroll: int = 1


class ScheduleError(ValueError):
    """A directive that does not fit its nest."""


def check(schedule: NestSchedule, nest: Nest) -> None:
    """Raise ScheduleError where a directive cannot be applied to `nest`."""
    s = schedule
    if s.shape not in ("map", "rows", "columns"):
        raise ScheduleError(f"shape {s.shape!r} is none of map, rows, columns")
    if (s.shape == "map") != (not nest.reduces):
        raise ScheduleError(f"{s.shape} does not fit a nest with {len(nest.reduces)} reductions")
    if s.shape == "columns" and not nest.outer:
        raise ScheduleError("there are no columns in a reduction to one element")
    if s.width < 1 or s.width & (s.width - 1) or s.unroll < 1:
        raise ScheduleError(f"width {s.width} and unroll {s.unroll} must be positive, the width a power of 2")
    if s.shape == "columns" and s.block < 1:
        raise ScheduleError("columns need a block")
    if s.tile and s.shape != "map":
        raise ScheduleError("only maps are tiled")


def choose(nest: Nest, nodes: Sequence[Node], outer_last: LoopVar | None, machine: Machine) -> NestSchedule:
    """The schedule of a nest. `outer_last`: the variable of its innermost outer loop after merging."""
    width = lanes(nodes, machine)
    if not nest.reduces:
        return NestSchedule("map", width, BLOCK)
    inner = [r.inner[-1] for r in nest.reduces if r.inner]
    if outer_last is not None and _by_columns(nest, nodes, outer_last, inner):
        return NestSchedule("columns", fitting(width, outer_last.extent), _strip(nest, outer_last))
    longest = max((likely(v.extent) for v in inner), default=1)
    return NestSchedule("rows", width, unroll=4 if longest >= 8 * width else 1)


def disorder(nest: Nest) -> int:
    """Large reads and writes of a nest that do not run along memory with its lanes."""
    nodes = all_nodes([*nest.reduces, *(s.node for s in nest.stores)])
    last = nest.outer[-1] if nest.outer else None
    by_rows = bool(nest.reduces) and choose(nest, nodes, last, HOST).shape == "rows"
    outer = set(nest.outer)
    found = 0
    for at in [n.at for n in nodes if isinstance(n, Load)] + [s.at for s in nest.stores]:
        strides = dict(at.parts) if isinstance(at, Ix) else {}
        variables = [a for a in strides if isinstance(a, LoopVar)]
        lane = max((v for v in variables if v not in outer), key=lambda v: v.number, default=None) if by_rows else last
        if lane in strides and not _is_dense(strides[lane]):
            found += likely(product(v.extent for v in variables)) >= LARGE
    return found


def _is_dense(stride: Dim) -> bool:
    """Do lanes this far apart read most of what lies between them, in other turns?"""
    return isinstance(stride, int) and abs(stride) <= SHORT


def _by_columns(nest: Nest, nodes: Iterable[Node], w: LoopVar, inner: list[LoopVar]) -> bool:
    """Do lanes along the outer variable `w` read memory better than along the inner ones?"""
    n = likely(w.extent)
    lasts = set(inner)
    along_rows = along_columns = 0
    for load in nodes:
        if isinstance(load, Load) and isinstance(load.at, Ix):
            unit = {a for a, c in load.at.parts if isinstance(c, int) and c == 1}
            if not load.vars.isdisjoint(lasts):
                size = likely(product(v.extent for v in load.vars))
                along_rows += size * bool(unit & lasts)
                along_columns += size * (w in unit)
    if along_columns > along_rows:
        return n > 1
    short = all(isinstance(v.extent, int) and v.extent < SHORT for v in inner)
    return short and n >= 16


def _strip(nest: Nest, w: LoopVar) -> int:
    """Columns of a task: enough tasks for balance, but no less than whole cache lines."""
    n = likely(w.extent)
    strip = STRIP
    rest = 1
    for v in nest.outer:
        rest *= likely(v.extent) if v is not w else 1
    while strip > MIN_STRIP and rest * -(-n // strip) < 8:
        strip //= 2
    return min(strip, max(1, n)) if isinstance(w.extent, int) else strip


def fitting(width: int, extent: Dim) -> int:
    """The largest power of 2 up to `width` that an extent fills."""
    if isinstance(extent, int):
        while width > 1 and width > extent:
            width //= 2
    return width


def lanes(nodes: Iterable[Node], machine: Machine) -> int:
    """Lanes of a vector loop over these nodes: of the widest float, else of the widest integer in memory."""
    floats = {n.dtype.compute.itemsize for n in nodes if n.dtype.kind == "f" and not isinstance(n, Const)}
    if floats:
        return max(1, machine.vector_bits // 8 // max(floats))
    others = {n.dtype.itemsize for n in nodes if not isinstance(n, Const | Index)}
    return max(1, machine.vector_bits // 8 // max(4, max(others, default=8)))
