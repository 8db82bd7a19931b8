"""One program for many sizes and scalars.

Recording is literal: sizes and Python scalars are part of the edges. When a program must be compiled and one of the same
structure (the same events but for integers and scalars) was compiled before, the two runs are merged: a number that
differs becomes a runtime scalar or an expression over symbols that explains both values, and the trace continues on that
general path. From then on any run whose numbers the patterns explain follows it from the start. An edge may be taken
exactly when its patterns evaluate to this run's numbers, so a program is never used where it would be wrong, whatever
Python computed the numbers from. A trace on a general path that meets an unknown event is recorded again literally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from treadle.ir.core import Operation, Value
from treadle.ir.dims import Dim, Expr, evaluate, symbol, symbols_of
from treadle.ir.ops.padding import SliceUpdate
from treadle.ir.ops.views import Slice
from treadle.ir.types import TensorType
from treadle.recorder.build import Index, RuntimeParam
from treadle.recorder.tree import LEAF, RUNTIME, SCALAR, Node, ScalarEdge, intern_operation, same_scalar

if TYPE_CHECKING:
    from treadle.recorder.handle import Handle
    from treadle.recorder.trace import Trace

__all__ = ["CannotGeneralise", "concretise", "generalise", "leaf_edge", "new_edge", "pattern_edge", "structure"]


NEAR = 8  # offset of sizes that are probably related
LEAST = 2  # value of a symbol: the passes count on it


class CannotGeneralise(Exception):
    """Two runs of one structure have numbers that no common program explains."""


# ---- following edges ----------------------------------------------------------------------------------------------------


def leaf_edge(tr: Trace, h: Handle) -> Node:
    """The child by which a concrete tensor enters: the exact edge, a pattern that matches, or a new exact edge."""
    t = h.type
    key = (LEAF, t, h.grad)
    found = tr.node.edges.get(key)
    if found is not None:
        return found
    for pattern, child in tr.node.patterns.get((LEAF, t.dtype, t.rank, t.device, h.grad), ()):
        bound = _match_dims(pattern.shape, t.shape, tr.bindings)
        if bound is not None and all(d or isinstance(p, int) for p, d in zip(pattern.shape, t.shape, strict=True)):
            tr.bindings.update(bound)
            return child
    concretise(tr)
    return _literal_leaf(tr.node, t, h.grad)


def _match_dims(pattern: Sequence[Dim], dims: Sequence[int], bindings: dict[str, int]) -> dict[str, int] | None:
    """Bindings of new symbols under which `pattern` is `dims`; None where there are none."""
    new: dict[str, int] = {}
    for p, d in zip(pattern, dims, strict=True):
        if isinstance(p, int):
            if p != d:
                return None
            continue
        known = {**bindings, **new}
        unknown = [s for s in symbols_of(p) if s not in known]
        if unknown:  # its minting event gave it the coefficient 1
            (name,) = unknown
            known[name] = new[name] = d - evaluate(p, {**known, name: 0})
            if new[name] < LEAST:
                return None
        if evaluate(p, known) != d:
            return None
    return new


def pattern_edge(tr: Trace, op: Operation, no_grad: int, operands: tuple, scalars: tuple) -> Node | None:
    """A general child whose attributes and scalars evaluate to this run's."""
    if not tr.node.patterns:
        return None
    ints: list[int] = []
    for (pattern, literals), child in tr.node.patterns.get(_op_structure(op, no_grad, operands, ints), ()):
        bound = _match_dims(dims_of(pattern, []), ints, tr.bindings)
        if (
            bound is not None
            and all(p is RUNTIME or same_scalar(p, s) for p, s in zip(literals, scalars, strict=True))
            and _no_zero(child, {**tr.bindings, **bound} if bound else tr.bindings)
        ):
            tr.bindings.update(bound)
            return child
    return None


def _no_zero(node: Node, bindings: dict[str, int]) -> bool:
    """Whether no symbolic size of the results is 0 in this run: an empty tensor is a case of its own, always literal."""
    if node.info is None:
        node.info = {d for t in node.types for d in t.shape if isinstance(d, Expr) and not str(d).isidentifier()}
    return all(evaluate(d, bindings) for d in node.info)


def new_edge(tr: Trace, op: Operation, no_grad: int, operands: tuple, key: tuple, scalars: tuple) -> Node:
    """The literal child for an op that no edge explains (the trace leaves a general path first)."""
    concretise(tr)
    found = _literal_child(tr.node, key, scalars)
    return found or _attach(tr.node, tr.build_node(tr.node, op, no_grad, operands), key, scalars)


def _literal_leaf(parent: Node, t: TensorType, grad: bool) -> Node:
    key = (LEAF, t, grad)
    found = parent.edges.get(key)
    if found is None:
        found = parent.edges[key] = _leaf_node(parent, t, grad, {})
    return found


def _leaf_node(parent: Node, t: TensorType, grad: bool, symbols: dict[str, int]) -> Node:
    node = Node(parent)
    node.operation = LEAF
    node.depth = parent.depth  # the bound on a trace counts ops: else it would cut loops at a place that moves
    value = Value(t)
    node.params = (value,)
    node.symbols = {**node.symbols, **symbols}
    node.finish((), (value,), (grad,))
    return node


def _literal_child(parent: Node, key: tuple, literals: tuple) -> Node | None:
    edge = parent.edges.get(key)
    if isinstance(edge, ScalarEdge):
        for known, child in edge.variants:
            if _same_pattern(known, literals):
                return child
        return None
    return edge


def _same_pattern(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(
        p is q or (p is not RUNTIME and q is not RUNTIME and same_scalar(p, q)) for p, q in zip(a, b, strict=True)
    )


def _attach(parent: Node, node: Node, key: tuple, literals: tuple) -> Node:
    """Enter `node` below `parent`; scalar variants are kept from the most literal to the most general."""
    if literals:
        edge = parent.edges.get(key)
        if edge is None:
            edge = parent.edges[key] = ScalarEdge()
        edge.variants.append((literals, node))
        edge.variants.sort(key=lambda v: sum(p is RUNTIME for p in v[0]))
    else:
        parent.edges[key] = node
    return node


# ---- structure of events ------------------------------------------------------------------------------------------------


def skeleton(value: Any, ints: list[int]) -> Any:
    """`value` (an operation or part of its attributes) without its ints, which are appended to `ints`."""
    if type(value) is int or isinstance(value, Expr):
        ints.append(value)  # type: ignore[arg-type]
        return int
    if isinstance(value, tuple):
        return tuple(skeleton(v, ints) for v in value)
    if isinstance(value, Operation):
        return (type(value), *(skeleton(getattr(value, f.name), ints) for f in fields(value)))
    return value


def with_dims(value: Any, dims: Iterator[Dim]) -> Any:
    """`value` with its ints replaced, in order, by `dims`."""
    if type(value) is int or isinstance(value, Expr):
        return next(dims)
    if isinstance(value, tuple):
        return tuple(with_dims(v, dims) for v in value)
    if isinstance(value, Operation):
        return replace(value, **{f.name: with_dims(getattr(value, f.name), dims) for f in fields(value)})
    return value


def dims_of(value: Any, found: list[Dim]) -> list[Dim]:
    """Ints and expressions of an operation's attributes, in the order of `skeleton`."""
    skeleton(value, found)  # type: ignore[arg-type]
    return found


def _op_structure(op: Operation, no_grad: int, operands: tuple, ints: list[int]) -> tuple:
    return (skeleton(op, ints), no_grad, tuple(map(_operand_kind, operands)))


def _operand_kind(o: Any) -> Any:
    """A trace index, or the type of a scalar, literal or generalised."""
    if isinstance(o, Index):
        return int(o)
    return o.kind if isinstance(o, RuntimeParam) else type(o)


def _event_structure(node: Node) -> tuple:
    if node.operation is LEAF:
        t = node.types[0]
        return (LEAF, t.dtype, t.rank, t.device, node.grads)
    if isinstance(node.operation, Operation):
        return _op_structure(node.operation, node.no_grad, node.operands, [])
    return (node.operation, node.operands)


def structure(node: Node) -> tuple:
    """The events on the path to `node` without their integers and scalars; hashable."""
    return tuple(map(_event_structure, node.path()))


# ---- recording a trace again --------------------------------------------------------------------------------------------


def _restart(tr: Trace) -> list[Node]:
    path = tr.node.path()
    tr.node = tr.synced = tr.root
    tr.values, tr.grads = [], []
    return path


def _refresh_types(tr: Trace) -> None:
    """Recorded values take the types of the new path; leaves keep theirs, they are concrete."""
    for node in tr.node.path():
        if node.operation is not LEAF:
            for k, t in enumerate(node.types):
                tr.handles[node.first + k].type = t


def _scalars_of(node: Node, values: Iterator[float | int]) -> tuple:
    """This run's scalars of an event: literals, and the values of its runtime parameters."""
    return tuple(next(values) if isinstance(o, RuntimeParam) else o for o in node.operands if not isinstance(o, Index))


def concretise(tr: Trace) -> None:
    """Record a trace that is on a general path again with this run's numbers as literals; trace indices stay the same."""
    if not tr.bindings:
        return
    bindings, scalars = tr.bindings, iter(tr.scalars)
    path = _restart(tr)
    tr.bindings, tr.scalars = {}, []
    for old in path:
        tr.node = _literal_copy(tr, old, bindings, scalars)
    _refresh_types(tr)


def _literal_copy(tr: Trace, old: Node, bindings: dict[str, int], scalars: Iterator[float | int]) -> Node:
    parent = tr.node
    if old.operation is LEAF:
        t = old.types[0]
        return _literal_leaf(parent, t.with_shape(t.concrete_shape(bindings)), old.grads[0])
    if old.regrow is not None:
        if old.operation is SCALAR:
            tr.scalars.append(next(scalars))
        return tr.special_child(old.key, old.operation, old.operands, old.regrow)
    op = intern_operation(with_dims(old.operation, iter([evaluate(d, bindings) for d in dims_of(old.operation, [])])))
    values = _scalars_of(old, scalars)
    operands = _replace_scalars(old.operands, values, lambda o, v: v)
    key = (id(op) | old.no_grad, *map(_operand_kind, operands))
    found = _literal_child(parent, key, values)
    return found or _attach(parent, tr.build_node(parent, op, old.no_grad, operands), key, values)


def _replace_scalars(operands: tuple, values: tuple, choose: Any) -> tuple:
    left = iter(values)
    return tuple(o if isinstance(o, Index) else choose(o, next(left)) for o in operands)


def generalise(tr: Trace, twin: Node) -> None:
    """Move `tr` to a general path that explains its run and the run of `twin`. Raises CannotGeneralise, `tr` unchanged."""
    keep = (tr.node, tr.bindings, tr.scalars)
    old_scalars, new_scalars = iter(twin.scalar_sample), iter(tr.scalars)
    new_path = _restart(tr)
    tr.bindings, tr.scalars = {}, []
    before: dict[str, int] = {}
    try:
        for old, new in zip(twin.path(), new_path, strict=True):
            tr.node = _merge(tr, old, new, before, old_scalars, new_scalars)
    except Exception as error:
        tr.node, tr.bindings, tr.scalars = keep
        tr.synced, tr.values, tr.grads = tr.root, [], []
        raise CannotGeneralise(str(error)) from error
    _refresh_types(tr)
    unlink(new_path[-1])


def _merge(tr: Trace, old: Node, new: Node, before: dict[str, int], old_scalars: Any, new_scalars: Any) -> Node:
    parent = tr.node
    if new.operation is LEAF:
        return _merge_leaf(tr, old.types[0], new.types[0], new.grads[0], before)
    if new.regrow is not None:
        if new.operation is SCALAR:
            next(old_scalars)
            tr.scalars.append(next(new_scalars))
        return tr.special_child(new.key, new.operation, new.operands, new.regrow)
    shape = _op_structure(new.operation, new.no_grad, new.operands, [])
    fresh: dict[str, int] = {}
    mint = parent if _is_source(tr, new.operands) else None
    op = _merge_attributes(old.operation, new.operation, _Numbers(before, tr.bindings, fresh, parent), mint is not None)
    op = intern_operation(op)
    old_values, values = _scalars_of(old, old_scalars), _scalars_of(new, new_scalars)
    general = iter([not same_scalar(a, b) for a, b in zip(old_values, values, strict=True)])
    operands = _replace_scalars(
        new.operands, values,
        lambda o, v: o if isinstance(o, RuntimeParam) else RuntimeParam(type(v)) if next(general) else v,
    )  # fmt: skip
    literals = tuple(RUNTIME if isinstance(o, RuntimeParam) else o for o in operands if not isinstance(o, Index))
    tr.scalars.extend(v for v, p in zip(values, literals, strict=True) if p is RUNTIME)
    tr.bindings.update(fresh)
    if all(isinstance(d, int) for d in dims_of(op, [])):
        key = (id(op) | new.no_grad, *map(_operand_kind, operands))
        found = _literal_child(parent, key, literals)
        return found or _attach(parent, tr.build_node(parent, op, new.no_grad, operands), key, literals)
    group = parent.patterns.setdefault(shape, [])
    for (pattern, known), child in group:
        if pattern is op and _same_pattern(known, literals):
            return child
    node = tr.build_node(parent, op, new.no_grad, operands)
    node.symbols = {**node.symbols, **fresh}
    if not (_no_zero(node, before) and _no_zero(node, tr.bindings)):
        raise CannotGeneralise("a size is 0 in one of the runs")
    group.append(((op, literals), node))
    return node


def _is_source(tr: Trace, operands: tuple) -> bool:
    """True for ops whose shape is made up in Python (arange, zeros, randn): their sizes may be new symbols."""
    values = tr.sync()
    return not any(isinstance(o, Index) and values[o].rank for o in operands)


@dataclass(frozen=True)
class _Numbers:
    """Symbols and their values in the earlier run and in this one; `fresh` are made by the event that is merged."""

    before: dict[str, int]
    now: dict[str, int]
    fresh: dict[str, int]
    node: Node  # the new symbols are its child's

    def explain(self, old: int, new: int) -> Dim:
        return _explain(old, new, self.before, {**self.now, **self.fresh})

    def mint(self, old: int, new: int) -> Dim:
        """A new symbol. Raises CannotGeneralise for sizes 0 and 1, which mean something else (empty, broadcast)."""
        if min(old, new) < LEAST:
            raise CannotGeneralise(f"{old} in an earlier run, {new} in this one: too small for a symbol")
        name = f"s{len(self.node.symbols) + len(self.fresh)}"
        self.fresh[name], self.before[name] = new, old
        return symbol(name)

    def size(self, old: int, new: int, may_mint: bool) -> Dim:
        """An expression for a number, of a new symbol where that is allowed and needed."""
        try:
            return self.explain(old, new)
        except CannotGeneralise:
            if not may_mint:
                raise
            return self.mint(old, new)

    def leaf_size(self, old: int, new: int) -> Dim:
        """`size` of a tensor that enters: rather a new symbol than an expression that fits any two runs."""
        found = self.plain(old, new)
        if found is not None:
            return found
        return self.mint(old, new) if min(old, new) >= LEAST else self.explain(old, new)

    def plain(self, old: int, new: int) -> Dim | None:
        """The number itself, or a symbol with a small offset, or times or over a number."""
        if old == new:
            return new
        for name, s1 in {**self.now, **self.fresh}.items():
            s0 = self.before[name]
            if s0 == s1:
                continue
            if new - old == s1 - s0 and abs(old - s0) <= NEAR:
                return symbol(name) + (old - s0)
            if old % s0 == 0 and new % s1 == 0 and old // s0 == new // s1:
                return symbol(name) * (old // s0)
            if old > 0 and new > 0 and s0 % old == 0 and s1 % new == 0 and s0 // old == s1 // new:
                return symbol(name) // (s0 // old)
        return None

    def ranges(self, old: Any, new: Any) -> dict[str, tuple]:
        """Starts, limits and steps of a slice: a start may be any number, and so may a length."""
        starts: list[Dim] = []
        limits: list[Dim] = []
        for a0, a1, b0, b1 in zip(old.starts, new.starts, old.limits, new.limits, strict=True):
            try:
                start = self.explain(a0, a1)
            except CannotGeneralise:
                start = self.mint(a0 + LEAST, a1 + LEAST) - LEAST
            starts.append(start)
            if b0 - a0 == b1 - a1:
                limits.append(start + (b1 - a1))
                continue
            try:
                limits.append(self.explain(b0, b1))
            except CannotGeneralise:
                limits.append(start + self.size(b0 - a0, b1 - a1, True))
        steps = tuple(self.size(c0, c1, False) for c0, c1 in zip(old.steps, new.steps, strict=True))
        return {"starts": tuple(starts), "limits": tuple(limits), "steps": steps}


def _merge_attributes(old: Any, new: Any, numbers: _Numbers, may_mint: bool) -> Any:
    """An operation (or part of its attributes) whose numbers are expressions that explain both runs."""
    if type(new) is int:
        return numbers.size(old, new, may_mint)
    if isinstance(new, tuple):
        return tuple(_merge_attributes(a, b, numbers, may_mint) for a, b in zip(old, new, strict=True))
    if isinstance(new, Slice | SliceUpdate):
        return replace(new, **numbers.ranges(old, new))
    if isinstance(new, Operation):
        merged = {
            f.name: _merge_attributes(getattr(old, f.name), getattr(new, f.name), numbers, may_mint)
            for f in fields(new)
        }
        return replace(new, **merged)
    return new


def _merge_leaf(tr: Trace, old: TensorType, new: TensorType, grad: bool, before: dict[str, int]) -> Node:
    parent = tr.node
    fresh: dict[str, int] = {}
    if any(a != b and not (a and b) for a, b in zip(old.shape, new.shape, strict=True)):
        raise CannotGeneralise("a size is 0 in one of the runs")
    numbers = _Numbers(before, tr.bindings, fresh, parent)
    shape = tuple(numbers.leaf_size(a, b) for a, b in zip(old.shape, new.shape, strict=True))
    tr.bindings.update(fresh)
    pattern = new.with_shape(shape)
    if pattern is new:
        return _literal_leaf(parent, new, grad)
    group = parent.patterns.setdefault((LEAF, new.dtype, new.rank, new.device, grad), [])
    for known, child in group:
        if known is pattern:
            return child
    node = _leaf_node(parent, pattern, grad, fresh)
    group.append((pattern, node))
    return node


def _explain(old: int, new: int, before: dict[str, int], now: dict[str, int]) -> Dim:
    """A literal, or an expression of one or two symbols with value `old` in the earlier run and `new` in this one."""
    if old == new:
        return new
    for name, s1 in now.items():
        found = _explain_by(symbol(name), before[name], s1, old, new)
        if found is not None:
            return found
    names = list(now)
    for i, a in enumerate(names):
        for b in names[i:]:
            p0, p1 = before[a] * before[b], now[a] * now[b]
            if old % p0 == 0 and new % p1 == 0 and old // p0 == new // p1:
                return symbol(a) * symbol(b) * (old // p0)
    raise CannotGeneralise(f"{old} in an earlier run, {new} in this one, and no symbol explains it")


def _explain_by(s: Expr, s0: int, s1: int, old: int, new: int) -> Dim | None:
    if (s0, s1) == (old, new):
        return s
    if s0 == s1:
        return None
    if (new - old) % (s1 - s0) == 0:
        slope = (new - old) // (s1 - s0)
        return s * slope + (old - slope * s0)
    if old > 0 and new > 0 and s0 % old == 0 and s1 % new == 0 and s0 // old == s1 // new:
        return s // (s0 // old)
    for step in (2, 3, 4, 5, 8, 16):
        for shift in range(-8, 9):
            if (s0 + shift) // step == old and (s1 + shift) // step == new:
                return (s + shift) // step
    return None


def unlink(node: Node) -> None:
    """Forget a branch that no program uses: its general twin serves its numbers from now on, or it cannot be compiled."""
    while node.parent is not None and not node.programs and not node.edges and not node.patterns:
        parent = node.parent
        for key, edge in list(parent.edges.items()):
            if edge is node:
                del parent.edges[key]
            elif isinstance(edge, ScalarEdge):
                edge.variants = [v for v in edge.variants if v[1] is not node]
                if not edge.variants:
                    del parent.edges[key]
        for key, group in list(parent.patterns.items()):
            parent.patterns[key] = [v for v in group if v[1] is not node]
            if not parent.patterns[key]:
                del parent.patterns[key]
        node = parent
