"""From groups to launches: their order, which independent nests share one, and the kernel-level function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treadle.ir.core import Block, Builder, Function, Level, Op, Value
from treadle.ir.dims import product
from treadle.ir.kernels import Contraction, Fused, Host
from treadle.ir.ops.identity import Barrier
from treadle.ir.types import Type
from treadle.passes.fuse_graph import Graph, region
from treadle.passes.fuse_groups import LARGEST, Group, Groups
from treadle.passes.lower.cost import likely

__all__ = ["emit_launches", "launch_levels"]

HOLD = 1 << 18  # bytes of temporaries that may wait for company
SMALL = 1 << 14  # elements of nests that run on one thread behind another launch


@dataclass(frozen=True)
class _Nest:
    """One region of a launch."""

    group: Group
    outputs: list[Value]
    block: Block
    inputs: list[Value]

    @property
    def elements(self) -> int:
        """Of its largest value."""
        return max((likely(v.tensor.numel) for op in self.block.ops for v in (*op.operands, *op.results)), default=1)


def launch_levels(groups: Groups) -> list[list[Group]]:
    """Groups in steps that need no one of their own step.

    Groups run as late as they may, so that independent ones meet; but those that hold large temporaries run as soon as
    they may, and so do those that may fail a check: nothing may be overwritten before.
    """
    order = sorted(groups.all.values(), key=lambda g: (bin(g.before).count("1"), groups.graph.position[g.first]))
    sources = {g: list(groups.sources(g)) for g in order}
    height: dict[Group, int] = dict.fromkeys(order, 0)
    for g in reversed(order):
        for s in sources[g]:
            height[s] = max(height[s], height[g] + 1)
    top = max(height.values(), default=0)
    step: dict[Group, int] = {}
    for g in order:
        earliest = max((step[s] + 1 for s in sources[g]), default=0)
        early = groups.may_fail(g) or _holds(groups, g) > HOLD
        step[g] = earliest if early else max(earliest, top - height[g])
    levels: dict[int, list[Group]] = {}
    for g in order:
        levels.setdefault(step[g], []).append(g)
    return [levels[k] for k in sorted(levels)]


def _holds(groups: Groups, g: Group) -> int:
    """Bytes of temporaries that wait for `g` and could go sooner."""
    mine = [v for v in g.reads if v in groups.of and v not in groups.graph.returned]
    made = sum(likely(v.tensor.nbytes) for v in g.roots if v not in groups.graph.returned)
    return sum(likely(v.tensor.nbytes) for v in mine) - made


def emit_launches(groups: Groups) -> Function:
    """The kernel-level function."""
    graph = groups.graph
    b = Builder()
    mapping: dict[Value, Value] = {p: p for p in graph.fn.params}
    pending: list[list[_Nest]] = []  # one launch: independent nests, then small ones that follow in order
    for level in launch_levels(groups):
        for batch in _batches(groups, level):
            if isinstance(batch, Group):
                pending = _launch(b, mapping, pending)
                _host(b, mapping, graph, batch)
            elif pending and _follows(pending, batch):
                pending += [[nest] for nest in batch]
            else:
                pending = _launch(b, mapping, pending)
                pending = [batch]
    _launch(b, mapping, pending)
    results = tuple(mapping[_behind_barriers(graph, v)] for v in graph.fn.returns)
    return Function(graph.fn.name, Block(graph.fn.params, tuple(b.ops), results), Level.KERNEL, graph.fn.symbols)


def _follows(pending: list[list[_Nest]], batch: list[_Nest]) -> bool:
    """Is `batch` so little work that it runs behind the launch before it, on one thread?"""
    nests = [nest for phase in (*pending, batch) for nest in phase]
    if any(nest.group.kind != "loops" for nest in nests) or sum(len(nest.block.ops) for nest in nests) > LARGEST:
        return False
    return sum(nest.elements for nest in batch) <= SMALL


def _behind_barriers(graph: Graph, v: Value) -> Value:
    while v in graph.producers and isinstance(graph.producers[v].operation, Barrier):
        v = graph.producers[v].operands[0]
    return v


def _batches(groups: Groups, level: list[Group]) -> Iterable[list[_Nest] | Group]:
    """Launches of one step: nests of loops share them, everything else runs alone."""
    together: list[_Nest] = []
    size = 0
    for g in level:
        if g.kind == "host":
            yield g
            continue
        outputs = g.roots if g.kind in ("scan", "scatter") else groups.outputs(g.roots)
        if not outputs:
            continue
        block, inputs = region(groups.graph, outputs, g.roots)
        nest = _Nest(g, outputs, block, inputs)
        if g.kind != "loops":
            yield [nest]
            continue
        if together and size + len(block.ops) > LARGEST:
            yield together
            together, size = [], 0
        together.append(nest)
        size += len(block.ops)
    if together:
        yield together


def _launch(b: Builder, mapping: dict[Value, Value], phases: list[list[_Nest]]) -> list[list[_Nest]]:
    """Emit one launch; no phases are left."""
    if not phases:
        return []
    nests = [nest for phase in phases for nest in phase]
    made_here = {v for nest in nests for v in nest.outputs}
    operands = dict.fromkeys(v for nest in nests for v in nest.inputs if v not in made_here)
    parallel = len(phases[0])
    regions: list[Block] = []
    types: list[Type] = []
    results: list[Value] = []
    for k, nest in enumerate(nests):
        known = dict(zip(nest.inputs, nest.block.params, strict=True))
        seen = list(operands) if k < parallel else [*operands, *results]
        params = tuple(known[v] if v in known else Value(v.type) for v in seen)
        regions.append(Block(params, nest.block.ops, nest.block.yields))
        types += [v.type for v in nest.outputs]
        results += nest.outputs
    kind = phases[0][0].group.kind
    operation = Contraction() if kind == "contract" else Fused(kind, parallel if len(nests) > parallel else 0)
    ops = [op for nest in nests for op in nest.block.ops]
    b.loc = next((op.loc for op in reversed(ops) if op.loc is not None), None)
    made = b.emit(operation, *(mapping[v] for v in operands), regions=tuple(regions), types=tuple(types))
    mapping.update(zip(results, made if isinstance(made, tuple) else (made,), strict=True))
    return []


def _host(b: Builder, mapping: dict[Value, Value], graph: Graph, g: Group) -> None:
    """Sorting is the runtime's; rows are contiguous."""
    op: Op = graph.producers[g.first]
    o: Any = op.operation
    (x,) = op.operands
    row = x.shape[-1] if x.rank else 1
    name = "bool" if x.dtype.kind == "b" else x.dtype.short
    function = f"sort_{name}_{'desc' if o.descending else 'asc'}"
    wanted = o.first if o.partial else row
    b.loc = op.loc
    host = Host(function, tuple(r.tensor for r in op.results), (row, wanted), product(x.shape[:-1]))
    mapping.update(zip(op.results, b.emit(host, mapping[x]), strict=True))
