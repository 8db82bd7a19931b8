"""From groups to launches: their order, which independent nests share one, and the kernel-level function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treadle.ir.core import Block, Builder, Function, Level, Op, Value
from treadle.ir.dims import product
from treadle.ir.kernels import Contraction, Fused, Host
from treadle.ir.ops.identity import Barrier
from treadle.passes.fuse_graph import Graph, region
from treadle.passes.fuse_groups import LARGEST, Group, Groups
from treadle.passes.lower.cost import likely

__all__ = ["emit_launches", "launch_levels"]

HOLD = 1 << 18  # bytes of temporaries that may wait for company


@dataclass(frozen=True)
class _Nest:
    """One region of a launch."""

    group: Group
    outputs: list[Value]
    block: Block
    inputs: list[Value]


def launch_levels(groups: Groups) -> list[list[Group]]:
    """Groups in steps that need no one of their own step.

    Groups run as late as they may, so that independent ones meet; but those that hold large temporaries run as soon as
    they may.
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
        step[g] = earliest if _holds(groups, g) > HOLD else max(earliest, top - height[g])
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
    for level in launch_levels(groups):
        for batch in _batches(groups, level):
            _launch(b, mapping, graph, batch)
    results = tuple(mapping[_behind_barriers(graph, v)] for v in graph.fn.returns)
    return Function(graph.fn.name, Block(graph.fn.params, tuple(b.ops), results), Level.KERNEL, graph.fn.symbols)


def _behind_barriers(graph: Graph, v: Value) -> Value:
    while v in graph.producers and isinstance(graph.producers[v].operation, Barrier):
        v = graph.producers[v].operands[0]
    return v


def _batches(groups: Groups, level: list[Group]) -> Iterable[list[_Nest | Group]]:
    """Launches of one step: nests of loops share them, everything else runs alone."""
    together: list[_Nest | Group] = []
    size = 0
    for g in level:
        if g.kind == "host":
            yield [g]
            continue
        outputs = g.roots if g.kind in ("scan", "scatter") else groups.outputs(g.roots)
        if not outputs:
            continue
        block, inputs = region(groups.graph, outputs, set(g.roots))
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


def _launch(b: Builder, mapping: dict[Value, Value], graph: Graph, batch: list[Any]) -> None:
    if isinstance(batch[0], Group):
        _host(b, mapping, graph, batch[0])
        return
    operands = dict.fromkeys(v for nest in batch for v in nest.inputs)
    regions, types, results = [], [], []
    for nest in batch:
        known = dict(zip(nest.inputs, nest.block.params, strict=True))
        params = tuple(known[v] if v in known else Value(v.type) for v in operands)
        regions.append(Block(params, nest.block.ops, nest.block.yields))
        types += [v.type for v in nest.outputs]
        results += nest.outputs
    kind = batch[0].group.kind
    operation = Contraction() if kind == "contract" else Fused(kind)
    ops = [op for nest in batch for op in nest.block.ops]
    b.loc = next((op.loc for op in reversed(ops) if op.loc is not None), None)
    made = b.emit(operation, *(mapping[v] for v in operands), regions=tuple(regions), types=tuple(types))
    mapping.update(zip(results, made if isinstance(made, tuple) else (made,), strict=True))


def _host(b: Builder, mapping: dict[Value, Value], graph: Graph, g: Group) -> None:
    """Sorting is the runtime's; rows are contiguous."""
    op: Op = graph.producers[g.first]
    o: Any = op.operation
    (x,) = op.operands
    row = x.shape[-1] if x.rank else 1
    name = "bool" if x.dtype.kind == "b" else x.dtype.short
    function = f"sort_{name}_{'desc' if o.descending else 'asc'}"
    b.loc = op.loc
    host = Host(function, tuple(r.type for r in op.results), (row,), product(x.shape[:-1]))  # type: ignore[arg-type]
    mapping.update(zip(op.results, b.emit(host, mapping[x]), strict=True))
