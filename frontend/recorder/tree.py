"""The trace tree: nodes own the IR of their event, edges are events.

A node stands for the sequence recorded so far. Its `edges` map an event key to what follows it. Keys:

    (id(operation) | no_grad, i, j, ...)   an op on trace indices; a Python scalar operand is its type, and then the edge
                                           is a ScalarEdge
    (SCALAR, kind)                         a number that is always an argument (RuntimeScalar) enters
    (LEAF, type, grad)                     a concrete tensor enters
    (MARK, i)                              a recorded value becomes a differentiable leaf

Sealing walks to the root and concatenates the ops.
"""

from __future__ import annotations

import functools
import itertools
import threading
from typing import Any

from treadle.ir.core import Op, Operation, Value
from treadle.ir.printer import operation_key
from treadle.ir.types import TensorType

__all__ = ["LEAF", "MARK", "RUNTIME", "SCALAR", "Node", "ScalarEdge", "TREE_LOCK", "intern_operation", "prune"]

TREE_LOCK = threading.RLock()  # taken to add nodes; look-ups need none
_clock = itertools.count(1)


class _Marker:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


LEAF, MARK, RUNTIME, SCALAR = _Marker("leaf"), _Marker("mark"), _Marker("runtime"), _Marker("scalar")


class Node:
    """One event and the path to it."""

    __slots__ = (
        "parent", "operation", "operands", "ops", "params", "values", "types", "grads", "type", "grad", "edges",
        "patterns", "programs", "first", "depth", "symbols", "info", "used", "hits", "no_grad", "regrow", "key", "scalar_sample",
    )  # fmt: skip

    def __init__(self, parent: Node | None) -> None:
        self.parent = parent
        self.operation: Any = None  # the Operation recorded (patterns included), LEAF or MARK
        self.operands: tuple = ()  # trace indices, scalars (literal, or RUNTIME)
        self.ops: tuple[Op, ...] = ()  # IR of this event
        self.params: tuple[Value, ...] = ()  # function parameters added by this event (leaf or runtime scalars)
        self.values: tuple[Value, ...] = ()  # results that tensors may refer to
        self.types: tuple[TensorType, ...] = ()
        self.grads: tuple[bool, ...] = ()
        self.type: TensorType | None = None  # of a single result
        self.grad = False
        self.edges: dict[tuple, Any] = {}
        self.patterns: dict[tuple, list[tuple[Any, Node]]] = {}  # structure -> (pattern, child), for symbolic runs
        self.programs: dict[tuple, Any] = {}
        self.first = parent.first + len(parent.values) if parent else 0
        self.depth = parent.depth + 1 if parent else 0  # ops up to here; leaves do not count
        self.symbols: dict[str, int] = (
            parent.symbols if parent else {}
        )  # symbols bound on this path, with a sample size
        self.info: Any = None  # what a special event (a backward) knows about itself
        self.no_grad = 0
        self.regrow: Any = None  # special events: makes the IR again (on another path)
        self.key: tuple = ()
        self.scalar_sample: tuple = ()  # runtime scalars of the run that first compiled here
        self.used = 0
        self.hits = 0

    @property
    def event(self) -> int:
        """The position on its path, leaves included."""
        count, node = 0, self
        while node.parent is not None:
            count, node = count + 1, node.parent
        return count

    def finish(self, ops: tuple[Op, ...], values: tuple[Value, ...], grads: tuple[bool, ...]) -> None:
        """Set the IR of the event."""
        self.ops, self.values, self.grads = ops, values, grads
        self.types = tuple(v.tensor for v in values)
        if len(values) == 1:
            self.type, self.grad = self.types[0], grads[0]

    def path(self) -> list[Node]:
        """Nodes from just below the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def touch(self) -> None:
        self.used = next(_clock)


class ScalarEdge:
    """Where an op takes Python scalars: literal variants first; a position that saw two values becomes RUNTIME."""

    __slots__ = ("variants",)

    def __init__(self) -> None:
        self.variants: list[tuple[tuple, Node]] = []  # (scalar pattern: literals or RUNTIME, child)

    def match(self, scalars: tuple) -> tuple[tuple, Node] | None:
        """The variant that means the same as `scalars` in this run, the most literal first."""
        for variant in self.variants:
            if all(p is RUNTIME or same_scalar(p, s) for p, s in zip(variant[0], scalars, strict=True)):
                return variant
        return None


def same_scalar(a: Any, b: Any) -> bool:
    """Equal in value, type, sign of zero; NaN equals itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if a != b:
        return a != a and b != b
    return a != 0 or repr(a) == repr(b)


_interned: dict[Any, Operation] = {}
_interned_ids: set[int] = set()


def intern_operation(op: Operation) -> Operation:
    """The one object equal to `op`, in the sense that tells -0.0 from 0.0 and 1 from True (identities key the edges;
    interned operations live for ever)."""
    if id(op) in _interned_ids:
        return op
    key = (type(op), *[(type(v), v) if v or type(v) is not float else repr(v) for v in op.__dict__.values()])
    try:
        found = _interned.get(key)
    except TypeError:  # an attribute that is not hashable
        found = None
    if found is None:  # nested attributes may still tell numbers apart that compare equal
        found = _interned.setdefault(operation_key(op), op)
        if all(type(v) in (int, float, bool, str) or _plain_ints(v) for v in op.__dict__.values()):
            _interned[key] = found
    _interned_ids.add(id(found))
    return found


@functools.lru_cache(maxsize=8192, typed=True)
def interned(cls: type[Operation], *attributes: Any) -> Any:
    """`intern_operation(cls(*attributes))`, faster; of attributes that are ints, strings, dtypes or tuples of ints."""
    return intern_operation(cls(*attributes))


def _plain_ints(v: Any) -> bool:
    return type(v) is tuple and all(type(x) is int for x in v)


def children(node: Node) -> list[Node]:
    """All nodes one event below."""
    found: list[Node] = []
    for edge in node.edges.values():
        found.extend(c for _, c in edge.variants) if isinstance(edge, ScalarEdge) else found.append(edge)
    for group in node.patterns.values():
        found.extend(c for _, c in group)
    return found


def size(root: Node) -> int:
    """Number of nodes below `root`."""
    count, stack = 0, [root]
    while stack:
        below = children(stack.pop())
        count += len(below)
        stack.extend(below)
    return count


def prune(root: Node, limit: int) -> int:
    """Drop the least recently used branches until about half of `limit` nodes are left; the number dropped.

    Recency is known at nodes that own programs; a branch is as recent as the latest of its programs.
    """
    before = size(root)
    if before <= limit:
        return 0
    recent: dict[Node, int] = {}
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(children(node))
    for node in reversed(order):
        recent[node] = max([node.used, *(recent[c] for c in children(node))])
    stamps = sorted(recent.values())
    cut = stamps[-max(1, limit // 2)]
    for node in order:
        _keep(node, lambda child: recent[child] >= cut)
    return before - size(root)


def _keep(node: Node, wanted: Any) -> None:
    for key, edge in list(node.edges.items()):
        if isinstance(edge, ScalarEdge):
            edge.variants = [v for v in edge.variants if wanted(v[1])]
            if not edge.variants:
                del node.edges[key]
        elif not wanted(edge):
            del node.edges[key]
    for key, group in list(node.patterns.items()):
        node.patterns[key] = [v for v in group if wanted(v[1])]
        if not node.patterns[key]:
            del node.patterns[key]
