"""Groups of roots that one nest computes, and the order between them.

`can_fuse(a, b)` says whether two groups can be one kernel; a refusal is a value with a reason. `score(a, b)` says what
that saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from treadle.ir.core import Op, Value
from treadle.ir.dims import Dim, product
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take
from treadle.ir.ops.scans import Scan
from treadle.ir.ops.sorting import Sort
from treadle.passes.fuse_graph import Graph, needs, region
from treadle.passes.lower.contract import contract_form
from treadle.passes.lower.cost import likely, node_cost
from treadle.passes.lower.nest import trace_nest
from treadle.passes.lower.nodes import Checked, Load, Nest, all_nodes
from treadle.passes.lower.trace import REDUCTIONS, Misplaced, Refused, is_short
from treadle.passes.schedule import disorder

__all__ = ["Group", "Groups", "No", "Yes"]

AGAIN = 64  # cost of the scalars that a merger may compute again; a bound keeps chains of mergers linear
LARGEST = 600  # ops of one nest: longer bodies compile too slowly
FEW_POINTS = 8  # outer points below which a nest cannot share its work
MUCH = 1 << 15  # elements that are worth sharing


@dataclass(frozen=True)
class _Alone:
    """The cost of the scalars of a nest, and the large accesses that are out of order."""

    work: int
    disorder: int


@dataclass(frozen=True)
class Yes:
    """Two groups can be one kernel; what it costs, if that is known."""

    alone: _Alone | None = None


@dataclass(frozen=True)
class No:
    """Why two groups are not one kernel. `lasting`: whatever is merged with either later."""

    reason: str
    lasting: bool = False


@dataclass(eq=False)
class Group:
    """Roots that one kernel computes. `before`: bit mask of the groups that it needs, near or far."""

    kind: str  # loops | contract | scatter | scan | host
    roots: list[Value]
    bit: int
    before: int = 0
    reads: dict[Value, None] = field(default_factory=dict)  # from memory
    ops: int = 0  # in its region
    checks: bool = False  # of indices
    alone: _Alone | None = None
    outer: Dim | None = None  # points of the outer space, where there are reductions

    @property
    def first(self) -> Value:
        return self.roots[0]


class Groups:
    """All groups of a graph; each root is in one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.of: dict[Value, Group] = {}
        self.all: dict[int, Group] = {}
        self.readers: dict[Value, dict[Group, None]] = {}
        self.refusals: list[tuple[Value, Value, No]] = []
        self._refused: dict[tuple[int, int], bool] = {}  # bits of two groups, the less first -> lasting
        for v in sorted(graph.roots, key=lambda v: graph.position[v]):
            if v not in self.of:
                self._single(graph.producers[v])

    def _single(self, op: Op) -> None:
        roots = [r for r in op.results if r in self.graph.roots]
        g = Group(_kind(self.graph, op), roots, 1 << len(self.all))
        self.all[g.bit] = g
        for r in roots:
            self.of[r] = g
        self.scan(g)

    def scan(self, g: Group) -> None:
        """Find out what `g` reads."""
        ops, inputs = needs(self.graph, g.roots, set(g.roots))
        for v in g.reads:
            self.readers[v].pop(g, None)
        g.reads = dict.fromkeys(inputs)
        g.ops = len(ops)
        g.alone = None
        g.checks = any(isinstance(op.operation, Take | Gather | Put | Scatter) for op in ops)
        inside = {r: op for op in ops for r in op.results}
        folds = [op for op in ops if isinstance(op.operation, REDUCTIONS) and not is_short(op, inside)]
        g.outer = folds[0].result.tensor.numel if folds else None
        for v in inputs:
            self.readers.setdefault(v, {})[g] = None
            source = self.of.get(v)
            if source is not None and source is not g:
                g.before |= source.before | source.bit

    def sources(self, g: Group) -> Iterable[Group]:
        """Groups whose results `g` reads."""
        return dict.fromkeys(self.of[v] for v in g.reads if v in self.of and self.of[v] is not g)

    def outputs(self, roots: Iterable[Value]) -> list[Value]:
        """Those of `roots` that others read."""
        inside = set(roots)
        found = []
        for v in sorted(inside, key=lambda v: self.graph.position[v]):
            if v in self.graph.returned or any(not set(g.roots) <= inside for g in self.readers.get(v, ())):
                found.append(v)
        return found

    def may_fail(self, g: Group) -> bool:
        """Does `g` check indices?"""
        return g.checks

    # Legality and profit ---------------------------------------------------------------------------------------------

    def between(self, a: Group, b: Group) -> bool:
        """Does a third group stand between the two?"""
        for x, y in ((a, b), (b, a)):
            if x.bit & y.before and any(p is not x and p.before & x.bit for p in self.sources(y)):
                return True
        return False

    def can_fuse(self, a: Group, b: Group) -> Yes | No:
        """Can `a` and `b` be one kernel?"""
        quick = self._quick(a, b)
        if quick is not None:
            return quick
        if self.between(a, b):
            return No("another kernel stands between")
        roots = sorted({*a.roots, *b.roots}, key=lambda v: self.graph.position[v])
        block, inputs = region(self.graph, self.outputs(roots) or roots[-1:], roots)
        if any(v in roots for v in inputs):
            return No("a barrier stands between")
        try:
            if "contract" in (a.kind, b.kind):
                form = contract_form(block)
                if any(isinstance(n, Checked) for n in all_nodes([s.node for s in form.nest.stores])):
                    return No("an epilogue has no checks")
                return Yes()
            nest = trace_nest(block)
        except Refused as refused:
            return No(str(refused), isinstance(refused, Misplaced))
        if not (a.bit & b.before or b.bit & a.before) and not _shares(nest, a, b, inputs):
            return No("nothing is read at the same points")
        together = _alone(nest)
        if together.work - self.alone(a).work - self.alone(b).work > AGAIN:
            return No("what one computes would be computed again and again", True)
        if a.outer != b.outer and together.disorder > self.alone(a).disorder + self.alone(b).disorder:
            return No("memory would be read or written out of order")
        return Yes(together)

    def alone(self, g: Group) -> _Alone:
        """What `g` costs as a kernel of its own."""
        if g.alone is None:
            g.alone = _alone(trace_nest(region(self.graph, self.outputs(g.roots) or g.roots[-1:], g.roots)[0]))
        return g.alone

    def _quick(self, a: Group, b: Group) -> No | None:
        """Refusals that need no look at indices."""
        kinds = {a.kind, b.kind}
        if kinds not in ({"loops"}, {"contract", "loops"}):
            return No(f"a {a.kind} kernel does not join a {b.kind} kernel", True)
        if any(isinstance(n := _numel(g), int) and n == 0 for g in (a, b)):
            return No("there is nothing to compute")
        if a.ops + b.ops > LARGEST:
            return No("the kernel would be too long", True)
        if "contract" in kinds:
            loops = b if a.kind == "contract" else a
            return No("a reduction is no epilogue") if loops.outer is not None else None
        if a.outer is not None and b.outer is not None and a.outer != b.outer:
            return No("the outer spaces differ", True)
        outer = a.outer if a.outer is not None else b.outer
        if outer is None:
            return None if _numel(a) == _numel(b) else No("the shapes differ")
        maps = [g for g in (a, b) if g.outer is None]
        if maps and likely(outer) < FEW_POINTS and likely(_numel(maps[0])) > max(MUCH, likely(outer)):
            return No("too few outer points to share the work")
        return None

    def score(self, a: Group, b: Group) -> int:
        """Bytes of memory traffic that fusing `a` and `b` saves."""
        shared = [v for v in a.reads if v in b.reads]
        passed = [v for v in a.roots if v in b.reads] + [v for v in b.roots if v in a.reads]
        return sum(likely(v.tensor.nbytes) for v in (*shared, *passed))

    # Merging ---------------------------------------------------------------------------------------------------------

    def try_merge(self, a: Group, b: Group) -> Group | None:
        """Merge two groups where that is allowed; the merged one."""
        pair = (min(a.bit, b.bit), max(a.bit, b.bit))
        if pair in self._refused:
            return None
        answer = self.can_fuse(a, b)
        if isinstance(answer, No):
            self._refused[pair] = answer.lasting
            self.refusals.append((a.first, b.first, answer))
            return None
        merged = self.merge(a, b)
        merged.alone = answer.alone
        return merged

    def merge(self, a: Group, b: Group) -> Group:
        """Put the roots of `a` into `b`."""
        if a.kind == "contract":
            a, b = b, a
        for v in a.reads:
            self.readers[v].pop(a, None)
        b.roots = sorted((*a.roots, *b.roots), key=lambda v: self.graph.position[v])
        for v in a.roots:
            self.of[v] = b
        del self.all[a.bit]
        gone = a.bit
        b.before = (b.before | a.before) & ~(gone | b.bit)
        self._forget_refusals(gone, b.bit)
        self.scan(b)
        b.before &= ~(gone | b.bit)
        mask = b.before | b.bit
        for g in self.all.values():
            if g is not b and g.before & (gone | b.bit):
                g.before = (g.before & ~gone) | mask
        return b

    def _forget_refusals(self, gone: int, kept: int) -> None:
        """After a merger: what was refused to either part for a lasting reason is refused to the whole."""
        for pair in [p for p in self._refused if gone in p or kept in p]:
            if self._refused.pop(pair):
                other = next((bit for bit in pair if bit not in (gone, kept)), kept)
                self._refused[min(other, kept), max(other, kept)] = True


def _kind(graph: Graph, op: Op) -> str:
    o = op.operation
    if isinstance(o, Contract) and op.result in graph.gemms or any(r in graph.sunk for r in op.results):
        return "contract"
    if isinstance(o, Put | Scatter):
        return "scatter"
    if isinstance(o, Scan):
        return "scan"
    return "host" if isinstance(o, Sort) else "loops"


def _numel(g: Group) -> Dim:
    return product(g.first.shape)


def _shares(nest: Nest, a: Group, b: Group, inputs: list[Value]) -> bool:
    """Is a large value that both read loaded once by the nest of both?"""
    common = {k for k, v in enumerate(inputs) if v in a.reads and v in b.reads and v.rank}
    loads: dict[int, int] = {}
    for n in all_nodes([*nest.reduces, *(s.node for s in nest.stores)]):
        if isinstance(n, Load) and n.param in common:
            loads[n.param] = loads.get(n.param, 0) + 1
    return any(count == 1 for count in loads.values())


def _alone(nest: Nest) -> _Alone:
    """A scalar that is wanted at two places counts twice."""
    scalars = all_nodes([*nest.reduces, *(s.node for s in nest.stores)])
    return _Alone(sum(map(node_cost, scalars)), disorder(nest))
