"""Contractions in fusion: which values they read, and what of their consumers becomes their epilogue."""

from __future__ import annotations

from treadle.ir.core import Op, Value
from treadle.ir.ops.views import Permute, Reshape
from treadle.passes.fuse_graph import Graph, region
from treadle.passes.fuse_groups import Group, Groups
from treadle.passes.lower.contract import contract_form
from treadle.passes.lower.trace import Refused

__all__ = ["absorb_readers", "sink_contractions"]

OUTPUTS = 4  # results of one epilogue


def sink_contractions(graph: Graph) -> None:
    """Let each contraction end in the last value of the elementwise chain that alone reads it."""
    behind = _contractions_behind(graph)
    claimed: set[Value] = set()
    for r in sorted(graph.gemms, key=lambda v: graph.position[v]):
        _make_affine(graph, r)
        end = _chain_end(graph, r, behind, claimed)
        if end is not r and _sink(graph, r, end):
            claimed.add(end)


def _contractions_behind(graph: Graph) -> dict[Value, int]:
    """For each value, the contractions that go into it, as a bit mask."""
    bits = {r: 1 << k for k, r in enumerate(graph.gemms)}
    found: dict[Value, int] = {}
    for op in graph.fn.ops:
        mask = 0
        for v in op.operands:
            mask |= found.get(v, 0)
        for r in op.results:
            found[r] = mask | bits.get(r, 0)
    return found


def _make_affine(graph: Graph, r: Value) -> None:
    """Keep operands in memory where views make their addresses more than affine."""
    op = graph.producers[r]
    for kept in ((), (0,), (1,), (0, 1)):
        added = [
            op.operands[i] for i in kept if op.operands[i] not in graph.roots and op.operands[i] not in graph.params
        ]
        if kept and not added:
            continue
        graph.roots.update(dict.fromkeys(added))
        try:
            contract_form(region(graph, [r])[0])
        except Refused:
            for v in added:
                del graph.roots[v]
            continue
        graph.forced.update(added)
        return
    raise AssertionError("a contraction of values in memory has affine addresses")


def _chain_end(graph: Graph, r: Value, behind: dict[Value, int], claimed: set[Value]) -> Value:
    """The last value of the chain of elementwise ops and reshapes that alone read `r`, of the smallest elements."""
    own = behind[r] & ~_union(behind, graph.producers[r])
    best, x = r, r
    while x not in graph.returned:
        users = graph.users.get(x, ())
        if len(users) != 1:
            break
        op = users[0]
        if graph.is_map(op.results[0]):
            if any(v is not x and behind.get(v, 0) & own for v in op.operands) or op.result in claimed:
                break
            x = op.result
            if x.dtype.itemsize <= best.dtype.itemsize:
                best = x
        elif isinstance(op.operation, Reshape | Permute):
            x = op.result
        else:
            break
    return best


def _union(behind: dict[Value, int], op: Op) -> int:
    mask = 0
    for v in op.operands:
        mask |= behind.get(v, 0)
    return mask


def _sink(graph: Graph, r: Value, end: Value) -> bool:
    """Make `end` the result of the contraction `r`; False where its indices do not allow it."""
    between: list[Value] = []
    x = r
    while x is not end:
        between.append(x)
        x = graph.users[x][0].result
    was = [v for v in (*between, end) if v in graph.roots]
    for v in was:
        del graph.roots[v]
    graph.roots[end] = None
    try:
        contract_form(region(graph, [end])[0])
    except Refused:
        del graph.roots[end]
        graph.roots.update(dict.fromkeys(was))
        return False
    graph.forced.add(end)
    graph.sunk[end] = r
    return True


def absorb_readers(groups: Groups) -> None:
    """Let elementwise readers of contractions' results become part of their epilogues."""
    for g in [g for g in groups.all.values() if g.kind == "contract"]:
        _absorb(groups, g)


def _absorb(groups: Groups, g: Group) -> None:
    progress = True
    while progress:
        progress = False
        readers: dict[Group, None] = {}
        for v in g.roots:
            readers.update(groups.readers.get(v, {}))
        for x in readers:
            if x.kind != "loops" or x.outer is not None or x.first.tensor.numel != g.first.tensor.numel:
                continue
            if len(groups.outputs([*g.roots, *x.roots])) > OUTPUTS:
                continue
            if groups.try_merge(g, x) is not None:
                progress = True
                break
