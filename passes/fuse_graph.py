"""What fusion asks of a graph: who reads what, and which values have to lie in memory.

A *root* is a value that is computed once and known by name to other kernels: results, operands of kernels that cannot
compute them on the way, every reduction, and what would be dear to compute again for each of its readers. Everything
else is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.dims import Dim, product
from treadle.ir.ops.base import Elementwise, View
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.identity import Barrier
from treadle.ir.ops.indexing import Gather, Put, Scatter, Take
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.padding import Concat, Pad, SliceUpdate
from treadle.ir.ops.scans import Scan
from treadle.ir.ops.sorting import Sort
from treadle.ir.ops.views import Expand, Permute, Reshape, Window
from treadle.passes.lower.cost import flops, likely
from treadle.passes.lower.trace import REDUCTIONS

__all__ = ["Graph", "is_gemm", "needs", "region"]

AGAIN = 24  # cost up to which a value is computed again for each reader
SPREAD = 6  # the same for a value that one reader reads many times over
SMALL = 4096  # multiply-adds of one batch item below which a contraction is not worth packing
MANY = 4  # readers are not counted further
SELECTS = Pad | SliceUpdate | Concat


class Graph:
    """A graph function with its edges, roots and costs."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.params = set(fn.params)
        self.returned = set(fn.returns)
        self.producers = {r: op for op in fn.ops for r in op.results}
        self.number = {r: k for k, op in enumerate(fn.ops) for r in op.results}
        values = [*fn.params, *(r for op in fn.ops for r in op.results)]
        self.position = {v: k for k, v in enumerate(values)}
        self.users: dict[Value, list[Op]] = {}
        for op in fn.ops:
            for v in dict.fromkeys(op.operands):
                self.users.setdefault(v, []).append(op)
        self.gemms = {op.result for op in fn.ops if isinstance(op.operation, Contract) and is_gemm(op)}
        self.roots: dict[Value, None] = {}
        self.forced: set[Value] = set()
        self.sunk: dict[Value, Value] = {}  # end of an epilogue -> the contraction it belongs to
        self._force()
        self._choose()

    def is_map(self, v: Value) -> bool:
        """Is `v` computed by an elementwise op?"""
        op = self.producers.get(v)
        return op is not None and isinstance(op.operation, Elementwise) and not isinstance(op.operation, Barrier)

    def own_kernel(self, op: Op) -> bool:
        """Does an op need a lowering other than that of nests?"""
        return isinstance(op.operation, Scan | Put | Scatter | Sort) or (
            len(op.results) == 1 and op.result in self.gemms
        )

    def behind_views(self, v: Value) -> Value:
        """The value that a chain of views (and widening casts) shows."""
        while (op := self.producers.get(v)) is not None:
            if not isinstance(op.operation, View) and not _widens(op):
                break
            v = op.operands[0]
        return v

    # Roots -----------------------------------------------------------------------------------------------------------

    def need(self, v: Value) -> None:
        """Make `v` a root."""
        if v not in self.params:
            self.roots[v] = None
            self.forced.add(v)

    def _force(self) -> None:
        for v in self.fn.returns:
            self.need(v)
        for op in self.fn.ops:
            o = op.operation
            if self.own_kernel(op):
                for r in op.results:
                    self.need(r)
            if isinstance(o, Contract) and op.result in self.gemms:
                for v in op.operands:
                    self.need(self.behind_views(v))
            elif isinstance(o, Sort):
                self.need(op.operands[0])
            elif isinstance(o, Put | Scatter):
                self.need(self.behind_views(op.operands[1]))  # every task reads all of it
            elif isinstance(o, REDUCTIONS):
                self.need(op.result)
            elif isinstance(o, Barrier):
                self.need(op.operands[0])

    def _choose(self) -> None:
        """Add values that are better kept, from the last to the first: by then their readers are known."""
        costs = self._costs()
        places = _Places()
        readers: dict[Value, set[Value]] = {}
        for op in reversed(self.fn.ops):
            for v in op.results:
                mine = readers.get(v, set())
                if v not in self.roots and isinstance(op.operation, Elementwise | SELECTS):
                    again = costs[v] > AGAIN and len(mine) > 1
                    again = again or costs[v] * (places.count(v) - 1) > AGAIN
                    if again or (costs[v] >= SPREAD and any(self._spreads(u, v) for u in self._reading(v))):
                        self.roots[v] = None
                for x in op.operands:
                    known = readers.setdefault(x, set())
                    if v in self.roots or self.own_kernel(op):
                        known.add(v)
                    elif len(known) < MANY:
                        known |= mine
            places.read(op, any(v in self.roots for v in op.results))

    def _costs(self) -> dict[Value, int]:
        """About what an element of each value takes, from the forced roots on."""
        costs: dict[Value, int] = dict.fromkeys(self.params, 0)
        for op in self.fn.ops:
            own = len(op.operands) if isinstance(op.operation, SELECTS) else flops(op.operation)
            for r in op.results:
                if r in self.roots:
                    costs[r] = 0
                else:
                    costs[r] = min(10 * AGAIN, own + sum(costs[v] for v in op.operands))
        return costs

    def _reading(self, v: Value) -> Iterable[Op]:
        """Ops that read `v`, directly or through reshapes and permutes."""
        pending = [v]
        while pending:
            for op in self.users.get(pending.pop(), ()):
                yield op
                if isinstance(op.operation, Reshape | Permute):
                    pending.append(op.result)

    def _spreads(self, op: Op, v: Value) -> bool:
        """Does `op` read elements of `v` many times, in loops out of which they cannot be taken?"""
        o = op.operation
        if isinstance(o, Expand):
            (x,) = op.operands
            extra = op.result.rank - x.rank
            wider = [i for i, d in enumerate(op.result.shape) if i < extra or x.shape[i - extra] != d]
            kept = [i + extra for i, d in enumerate(x.shape) if d != 1]
            return bool(wider and kept) and min(wider) < max(kept)
        if isinstance(o, Take | Gather):
            return op.operands[0] is v and likely(op.result.tensor.numel) > likely(v.tensor.numel)
        return isinstance(o, Window | Contract)


class _Places:
    """The places at which the kernel of one root computes a value that is no root: one for each way of indexing it.

    Views and selects that follow one another double the places at each step where a value is read at two, so a chain
    of them would be computed 2^n times.
    """

    def __init__(self) -> None:
        self._of: dict[Value, set[int]] = {}
        self._numbers: dict[tuple, int] = {}

    def count(self, v: Value) -> int:
        return len(self._of.get(v, ()))

    def read(self, op: Op, is_root: bool) -> None:
        """Add the places at which `op`, all of whose readers are known, reads its operands."""
        o = op.operation
        own = {0} if is_root else set().union(*(self._of.get(r, ()) for r in op.results))
        for k, v in enumerate(op.operands):
            known = self._of.setdefault(v, set())
            if len(known) > AGAIN:
                continue
            if isinstance(v.tensor.numel, int) and v.tensor.numel == 1:
                known.add(0)
            elif isinstance(o, (Elementwise, Reshape, *REDUCTIONS)):
                known |= own  # a nest of rows computes once what it reduces and what it maps
            else:  # equal ops read at equal places
                known.update(self._number((p, o, k, v.type, op.results[0].type)) for p in own)

    def _number(self, key: tuple) -> int:
        return self._numbers.setdefault(key, len(self._numbers) + 1)


def _widens(op: Op) -> bool:
    """Is `op` a cast that is done exactly while a contraction packs its operand?"""
    o = op.operation
    return isinstance(o, Cast) and o.dtype is op.operands[0].dtype.compute and o.dtype.is_floating


def is_gemm(op: Op) -> bool:
    """Is a contraction worth packed operands and register tiles? Others are sums of products in a nest."""
    o = op.operation
    assert isinstance(o, Contract)
    extents: dict[str, Dim] = {}
    for letters, v in ((o.lhs, op.operands[0]), (o.rhs, op.operands[1])):
        extents.update(zip(letters, v.shape, strict=True))
    if not op.result.dtype.is_floating or any(isinstance(d, int) and d == 0 for d in extents.values()):
        return False
    m, n, k = (
        likely(product(extents[c] for c in letters))
        for letters in ([c for c in o.lhs if c not in o.rhs], [c for c in o.rhs if c not in o.lhs], o.summed)
    )
    return m > 1 and n > 1 and k > 4 and m * n * k >= SMALL


def needs(graph: Graph, results: Iterable[Value], inside: set[Value]) -> tuple[list[Op], list[Value]]:
    """(the ops that compute `results`, in order, the values from memory that they read).

    Roots that are not `inside` are in memory, and so is all that stands behind a barrier.
    """
    numbers: set[int] = set()
    reads: dict[Value, None] = {}
    pending = list(results)
    while pending:
        v = pending.pop()
        if v in graph.params or (v in graph.roots and v not in inside):
            reads[v] = None
            continue
        k = graph.number[v]
        if k not in numbers:
            numbers.add(k)
            op = graph.fn.ops[k]
            if isinstance(op.operation, Barrier):
                reads[op.operands[0]] = None
            else:
                pending += op.operands
    return [graph.fn.ops[k] for k in sorted(numbers)], sorted(reads, key=lambda v: graph.position[v])


def region(graph: Graph, results: Iterable[Value], inside: Iterable[Value] = ()) -> tuple[Block, list[Value]]:
    """(a block that computes `results`, the values from memory that its parameters stand for)."""
    results = list(results)
    ops, inputs = needs(graph, results, {*results, *inside})
    params = {v: Value(v.type) for v in inputs}
    local: dict[Value, Value] = dict(params)
    made: list[Op] = []
    for op in ops:
        if isinstance(op.operation, Barrier):
            local[op.result] = params[op.operands[0]]
            continue
        new = tuple(Value(r.type) for r in op.results)
        made.append(Op(op.operation, tuple(local[v] for v in op.operands), new, (), op.loc))
        for r, x in zip(op.results, new, strict=True):
            local.setdefault(r, x)
    return Block(tuple(params.values()), tuple(made), tuple(local[v] for v in results)), inputs
