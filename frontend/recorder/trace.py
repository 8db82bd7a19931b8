"""The open trace of a thread: the hot path of recording.

`record(op, *operands)` follows one edge of the tree and makes a Handle and a Tensor. Nothing else happens when the edge
exists. A trace ends (`flush`) when a value is needed or the trace has LIMIT ops.

Threads: each has its own trace. A thread that needs a value recorded by another flushes that thread's trace. The owner
notices by `limit`, which closing sets to 0 and which the hot path compares anyway, and records its op again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from treadle.ir.core import Builder, Operation, Value
from treadle.ir.ops.identity import StopGradient
from treadle.recorder import generalise
from treadle.recorder.build import Index, RuntimeParam, RuntimeScalar, ScalarValue, build_operation, default_dtype
from treadle.recorder.handle import GradCell, Handle
from treadle.recorder.locate import user_location
from treadle.recorder.tree import MARK, RUNTIME, SCALAR, TREE_LOCK, Node, ScalarEdge, intern_operation

__all__ = [
    "LIMIT",
    "Trace",
    "State",
    "record",
    "record1",
    "binary_recorder",
    "current_trace",
    "install",
    "make_tensor",
    "set_no_grad",
    "state",
]

LIMIT = 2048  # ops in one trace; even, so that a loop of two ops meets it at the same place each time

AT_ONCE = 1  # the limit of a trace that ends with the op that is recorded now, and is waited for
COPIED = 1 << 20  # bytes; larger inputs that NumPy may change are not copied

_new = object.__new__
_tensor_class: type = object  # set by treadle.tensor
_flush: Callable[..., None]  # set by treadle.recorder.flush, which needs this module
_finish: Callable[[Handle], None]
_snapshot_of_view: Callable[[Any], Handle | None]  # set by treadle.storage, as is
_snapshot: Callable[[Handle], Handle]
hits = misses = 0  # programs found in the tree, programs made (treadle.compiler.stats)


def install(
    tensor_class: type | None = None,
    flush: Any = None,
    finish: Any = None,
    snapshot_of_view: Any = None,
    snapshot: Any = None,
) -> None:
    """Ties the knot with the modules that build on this one."""
    global _tensor_class, _flush, _finish, _snapshot_of_view, _snapshot
    _tensor_class = tensor_class or _tensor_class
    if snapshot is not None:
        _snapshot_of_view, _snapshot = snapshot_of_view, snapshot
    if flush is not None:
        _flush, _finish = flush, finish


def make_tensor(h: Handle) -> Any:
    """A Tensor for a handle."""
    t = _new(_tensor_class)
    t._h = h
    t._alias = t._cell = None
    return t


class State(threading.local):
    """Per thread: the open trace, which also holds the grad mode."""

    def __init__(self) -> None:
        self.trace = Trace(0)
        self.inference = False


roots: dict[Any, Node] = {}  # one tree for each default dtype: promotion of Python scalars depends on it


def root() -> Node:
    dtype = default_dtype()
    found = roots.get(dtype)
    if found is None:
        found = roots.setdefault(dtype, Node(None))
    return found


class Trace:
    """What has been recorded since the last flush of this thread."""

    __slots__ = (
        "node", "root", "limit", "handles", "leaves", "leaf_index", "scalars", "bindings", "values", "grads", "synced",
        "visited", "spent", "lock", "grad_points", "cuts", "no_grad",
    )  # fmt: skip

    def __init__(self, no_grad: int) -> None:
        self.no_grad = no_grad  # 0 or 1: the low bit of edge keys
        self.root = self.node = root()
        self.limit = LIMIT  # 0 once closed
        self.handles: list[Handle] = []  # by trace index
        self.leaves: list[Handle] = []  # concrete inputs, in order of the parameters
        self.leaf_index: dict[int, int] = {}  # id(handle) -> trace index, of leaves
        self.scalars: list[float | int] = []  # values of runtime scalar parameters
        self.bindings: dict[str, int] = {}  # this run's sizes of the symbols
        self.values: list[Value] = []  # IR values by trace index, up to node `synced`
        self.grads: list[bool] = []
        self.synced: Node = self.root
        self.visited: set[int] = set()  # trace indices that a backward went through
        self.spent: set[int] = set()  # those of them whose derivative reads values, freed by that backward
        self.grad_points: list[int] = []  # trace indices of leaves that require grad
        self.cuts: list[int] = []  # trace indices of recorded values at which backward stops to run Python
        self.lock = threading.RLock()

    # ---- operands -----------------------------------------------------------------------------------------------

    def enter(self, t: Any) -> int:
        """Trace index of a tensor whose handle is not of this trace: resolve it, or let it enter as a leaf."""
        if t._alias is not None and (seen := _snapshot_of_view(t)) is not None:
            return seen.index if seen.trace is self else self.enter_handle(seen)
        h = t._h
        while h.resolve is not None:
            h = t._h = h.resolve()
        if h.trace is self:
            return h.index
        return self.enter_handle(h)

    def enter_handle(self, h: Handle) -> int:
        found = self.leaf_index.get(id(h))
        if found is not None:
            return found
        if h.buffer is None:
            if h.trace is self:
                return h.index
            _finish(h)
        if h.buffer.exposed:
            h = self.exposed(h)
        with TREE_LOCK:
            node = generalise.leaf_edge(self, h)
            index = node.first
            self.node = node
            self.handles.append(h)
            self.leaves.append(h)
            self.leaf_index[id(h)] = index
            if h.grad:
                self.grad_points.append(index)
            if h.trace is None:  # claimed by one thread's trace at a time; others find it in leaf_index
                h.index = index
                h.trace = self
        return index

    def exposed(self, h: Handle) -> Handle:
        """What to read in place of memory that NumPy or others may change: a copy, or itself where the op runs at once."""
        if h.type.nbytes <= COPIED:
            return _snapshot(h)
        with self.lock:
            if self.limit:
                self.limit = AT_ONCE
        return h

    def enter_scalar(self, s: RuntimeScalar) -> int:
        """Trace index of a number that is an argument of every run."""
        kind = type(s.value)

        def grow(tr: Trace, b: Builder, values: list[Value]) -> tuple[tuple[Value, ...], tuple[bool, ...], None]:
            return (ScalarValue(kind),), (False,), None

        (h,) = self.follow((SCALAR, kind), SCALAR, (kind,), grow)
        self.scalars.append(s.value)
        s.index = h.index
        s.trace = self
        return h.index

    def mark(self, cell: GradCell, source: Handle) -> Handle:
        """A differentiable leaf with the value of recorded `source` (after an in-place update under no_grad)."""

        index = source.index

        def grow(tr: Trace, b: Builder, values: list[Value]) -> tuple[tuple[Value, ...], tuple[bool, ...], None]:
            return (b.emit(StopGradient(), values[index]),), (True,), None

        (made,) = self.follow((MARK, index), MARK, (index,), grow)
        made.leaf = cell
        self.cuts.append(made.index)
        return made

    # ---- edges --------------------------------------------------------------------------------------------------

    def follow(self, key: tuple, operation: Any, operands: tuple, grow: Callable) -> list[Handle]:
        """Follow or make the edge `key` of a special event (a backward, a mark); handles of its results."""
        node = self.node.edges.get(key)
        if node is None:
            with TREE_LOCK:
                generalise.concretise(self)
                node = self.special_child(key, operation, operands, grow)
        self.node = node
        return self.push_all(node)

    def special_child(self, key: tuple, operation: Any, operands: tuple, grow: Callable) -> Node:
        """The child by a special event: `grow(trace, builder, values)` gives (results, which require grad, info)."""
        node = self.node.edges.get(key)
        if node is None:
            node = Node(self.node)
            node.operation, node.operands, node.regrow, node.key = operation, operands, grow, key
            b = Builder(loc=user_location())
            values, grads, node.info = grow(self, b, self.sync())
            node.finish(tuple(b.ops), values, grads)
            if operation is SCALAR:
                node.params = values
            self.node.edges[key] = node
        return node

    def sync(self) -> list[Value]:
        """IR values by trace index (rebuilt incrementally; only new edges need them)."""
        if self.synced is not self.node:
            pending: list[Node] = []
            node: Node | None = self.node
            while node is not None and node is not self.synced:
                pending.append(node)
                node = node.parent
            if node is None:
                self.values, self.grads = [], []
            for n in reversed(pending):
                self.values.extend(n.values)
                self.grads.extend(n.grads)
            self.synced = self.node
        return self.values

    def extend(self, op: Operation, no_grad: int, operands: tuple, key: tuple, scalars: tuple) -> Node:
        """The child for an op whose literal edge does not exist: a pattern that fits this run, or a new edge.

        `operands` are Index and Python scalars, as the user gave them.
        """
        with TREE_LOCK:
            node = generalise.pattern_edge(self, op, no_grad, operands, scalars)
            if node is None:
                node = generalise.new_edge(self, op, no_grad, operands, key, scalars)
        if scalars:
            self.add_scalars(node, scalars)
        return node

    def add_scalars(self, node: Node, scalars: tuple) -> None:
        """Note this run's values of the runtime scalars of `node`."""
        taken = (o for o in node.operands if not isinstance(o, Index))
        for o, s in zip(taken, scalars, strict=True):
            if isinstance(o, RuntimeParam):
                self.scalars.append(s)

    def build_node(self, parent: Node, op: Operation, no_grad: int, operands: tuple) -> Node:
        """A new node for `op` on `operands`, in which RUNTIME scalars have become (RUNTIME, type)."""
        node = Node(parent)
        node.operation, node.operands, node.no_grad = op, operands, no_grad
        values = self.sync()
        b = Builder(loc=user_location())
        results, params, grads = build_operation(b, op, operands, values, self.grads, bool(no_grad))
        node.params = params
        node.finish(tuple(b.ops), results, grads)
        return node

    # ---- results ------------------------------------------------------------------------------------------------

    def push(self, node: Node) -> Handle:
        """Handle of the single result of `node`, which becomes the current node."""
        self.node = node
        h = _new(Handle)
        h.trace = self
        h.index = node.first
        h.type = node.type
        h.grad = node.grad
        h.leaf = h.history = h.buffer = h.resolve = h.hooks = None
        self.handles.append(h)
        return h

    def push_all(self, node: Node) -> list[Handle]:
        """Handles of all results of the current node."""
        made = []
        for k, (type_, grad) in enumerate(zip(node.types, node.grads, strict=True)):
            h = _new(Handle)
            h.trace = self
            h.index = node.first + k
            h.type = type_
            h.grad = grad
            h.leaf = h.history = h.buffer = h.resolve = h.hooks = None
            self.handles.append(h)
            made.append(h)
        return made


state = State()


def current_trace() -> Trace:
    """The open trace of this thread (a new one where another thread closed it)."""
    tr = state.trace
    if tr.limit == 0:
        with tr.lock:  # wait until the thread that closed it has set the buffers
            tr = state.trace = Trace(tr.no_grad)
    return tr


def set_no_grad(no_grad: int) -> int:
    """Set the grad mode of this thread; the previous one."""
    tr = current_trace()
    previous, tr.no_grad = tr.no_grad, no_grad
    return previous


def _overflow(tr: Trace, redo: Callable[[], Any], result: Any) -> Any:
    """The trace is full (flush it, the result stays valid) or was closed by another thread (record again)."""
    if tr.limit == 0:
        current_trace()
        return redo()
    _flush("trace bound")
    return result


def record1(op: Operation, op_id: int, a: Any) -> Any:
    """Record a single-result op on one tensor. `op_id` is id(op), `op` interned."""
    tr = state.trace
    ha = a._h
    i = ha.index if ha.trace is tr else tr.enter(a)
    ng = tr.no_grad
    node = tr.node.edges.get((op_id | ng, i))
    if node is None:
        node = tr.extend(op, ng, (Index(i),), (op_id | ng, i), ())
    t = make_tensor(tr.push(node))
    return t if node.depth < tr.limit else _overflow(tr, lambda: record1(op, op_id, a), t)


@functools.cache
def binary_recorder(op: Operation) -> Callable[[Any, Any], Any]:
    """`f(a, b)` that records `op` on two tensors: what a training step does most, so everything is written out here.

    Raises AttributeError where an operand is no tensor.
    """
    op_id = id(op)
    local = state

    def recorder(a: Any, b: Any) -> Any:
        tr = local.trace
        ha = a._h
        hb = b._h
        i = ha.index if ha.trace is tr else tr.enter(a)
        j = hb.index if hb.trace is tr else tr.enter(b)
        ng = tr.no_grad
        node = tr.node.edges.get((op_id | ng, i, j))
        if node is None:
            node = tr.extend(op, ng, (Index(i), Index(j)), (op_id | ng, i, j), ())
        tr.node = node
        h = _new(Handle)
        h.trace = tr
        h.index = node.first
        h.type = node.type
        h.grad = node.grad
        h.leaf = h.history = h.buffer = h.resolve = h.hooks = None
        tr.handles.append(h)
        t = _new(_tensor_class)
        t._h = h
        t._alias = t._cell = None
        return t if node.depth < tr.limit else _overflow(tr, lambda: recorder(a, b), t)

    return recorder


def record(op: Operation, *args: Any) -> Any:
    """Record any op on tensors, Python scalars and RuntimeScalars: a Tensor, or a tuple where it has several results."""
    op = intern_operation(op)
    tr = state.trace
    if tr.limit == 0:
        tr = current_trace()
    kinds: list = []
    scalars: list = []
    for a in args:
        try:
            h = a._h
        except AttributeError:
            if type(a) is RuntimeScalar:
                kinds.append(a.index if a.trace is tr else tr.enter_scalar(a))
            else:
                kinds.append(type(a))
                scalars.append(a)
            continue
        kinds.append(h.index if h.trace is tr else tr.enter(a))
    key = (id(op) | tr.no_grad, *kinds)
    node = tr.node.edges.get(key)
    if type(node) is ScalarEdge:
        found = node.match(tuple(scalars))
        if found is None:
            node = None
        else:
            node = found[1]
            if RUNTIME in found[0]:
                tr.add_scalars(node, tuple(scalars))
    if node is None:
        operands = tuple(Index(k) if type(k) is int else a for k, a in zip(kinds, args, strict=True))
        node = tr.extend(op, tr.no_grad, operands, key, tuple(scalars))
    if len(node.values) == 1:
        t = make_tensor(tr.push(node))
    else:
        tr.node = node
        t = tuple(make_tensor(h) for h in tr.push_all(node))
    return t if node.depth < tr.limit else _overflow(tr, lambda: record(op, *args), t)
