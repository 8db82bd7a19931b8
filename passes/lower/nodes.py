"""What a nest computes, as a graph of scalars over loop variables: no loops yet, no order.

Every node is one scalar at the point that its variables name. A `Reduce` folds its terms over its inner variables. The
nodes are shared (equal nodes are one object), so that whoever writes loops sees what can be computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.ir.core import Op
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.ops.padding import Condition
from treadle.passes.lower.index import Ix, LoopVar, Picked

__all__ = [
    "Apply", "Call", "Checked", "Const", "Holds", "Index", "Load", "Nest", "Node", "Random", "Reduce", "Store",
    "all_nodes", "ix_nodes", "ix_vars",
]  # fmt: skip

Vars = frozenset[LoopVar]
NO_VARS: Vars = frozenset()


@dataclass(frozen=True, eq=False)
class Node:
    """A scalar. `vars`: the loop variables it depends on; `level`: the number of reduction stages before it."""

    dtype: DType
    vars: Vars
    level: int

    @property
    def args(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Const(Node):
    """A literal."""

    value: float | int | bool


@dataclass(frozen=True, eq=False)
class Load(Node):
    """Element `at` of buffer `param`; where `mask` is false nothing is read."""

    param: int
    at: Dim
    mask: Node | None

    @property
    def args(self) -> tuple[Node, ...]:
        return (*ix_nodes(self.at), *(() if self.mask is None else (self.mask,)))


@dataclass(frozen=True, eq=False)
class Index(Node):
    """An index as a number."""

    at: Dim

    @property
    def args(self) -> tuple[Node, ...]:
        return ix_nodes(self.at)


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """The scalar body of an elementwise op."""

    op: Op
    operands: tuple[Node, ...]

    @property
    def args(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True, eq=False)
class Call(Node):
    """A scalar function of ir/scalar.py."""

    fn: str
    operands: tuple[Node, ...]

    @property
    def args(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True, eq=False)
class Random(Node):
    """Random bits of element `at`."""

    op: Op
    at: Dim
    operands: tuple[Node, ...]  # seed, offset

    @property
    def args(self) -> tuple[Node, ...]:
        return (*self.operands, *ix_nodes(self.at))


@dataclass(frozen=True, eq=False)
class Holds(Node):
    """Do all conditions on indices hold?"""

    conditions: tuple[Condition, ...]

    @property
    def args(self) -> tuple[Node, ...]:
        return tuple(n for lhs, _, rhs in self.conditions for n in (*ix_nodes(lhs), *ix_nodes(rhs)))


@dataclass(frozen=True, eq=False)
class Checked(Node):
    """`operand`, an index, after the check that it lies in range(size); where `mask` is false nothing is checked."""

    operand: Node
    size: Dim
    message: str
    mask: Node | None

    @property
    def args(self) -> tuple[Node, ...]:
        return (self.operand, *(() if self.mask is None else (self.mask,)))


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """`terms` folded over `inner`, from `identity`, by `combiner`; two terms are multiplied first."""

    terms: tuple[Node, ...]
    inner: tuple[LoopVar, ...]
    combiner: str
    identity: float | int | bool
    accumulate: DType

    @property
    def args(self) -> tuple[Node, ...]:
        return self.terms


@dataclass(frozen=True, eq=False)
class Store:
    """Element `at` of result `result` is `node`, at every point of the outer variables and `inner`."""

    result: int
    at: Dim
    node: Node
    inner: tuple[LoopVar, ...]


@dataclass(frozen=True, eq=False)
class Nest:
    """All that one region computes. `outer`: variables of the outer space, outermost first."""

    outer: tuple[LoopVar, ...]
    reduces: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    forms: tuple[Dim, ...] = field(default=())  # every index expression in it

    @property
    def levels(self) -> int:
        return max((r.level for r in self.reduces), default=0)


def ix_vars(at: Dim) -> Vars:
    """The loop variables in an index expression."""
    if not isinstance(at, Ix):
        return NO_VARS
    found: set[LoopVar] = set()
    for atom, _ in at.parts:
        if isinstance(atom, LoopVar):
            found.add(atom)
        elif isinstance(atom, Picked):
            found |= atom.node.vars
        else:
            found |= ix_vars(atom.inner() or 0)
    return frozenset(found)


def ix_nodes(at: Dim) -> tuple[Node, ...]:
    """The nodes from which indices in an expression are read."""
    if not isinstance(at, Ix):
        return ()
    found: list[Node] = []
    for atom, _ in at.parts:
        if isinstance(atom, Picked):
            found.append(atom.node)
        elif not isinstance(atom, LoopVar):
            found += ix_nodes(atom.inner() or 0)
    return tuple(found)


def all_nodes(roots: Sequence[Node]) -> list[Node]:
    """Every node that `roots` need, arguments after the first of their readers."""
    found = dict.fromkeys(roots)
    pending = list(found)
    while pending:
        for a in pending.pop().args:
            if a not in found:
                found[a] = None
                pending.append(a)
    return list(found)
