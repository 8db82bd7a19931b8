"""From a region of graph primitives to a Nest: every value is pulled from its consumers at symbolic indices.

`Tracer.value(v, place)` is the scalar of `v` at a place: an index into a shape with as many elements as `v` has, in
row-major correspondence. So a reshape costs nothing until something asks for a proper index of its operand.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Block, Op, Operation, Value
from treadle.ir.dims import Dim, product
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Elementwise, View
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.indexing import Gather, Take
from treadle.ir.ops.padding import Concat, Condition, Fold, Pad, SliceUpdate
from treadle.ir.ops.reductions import ArgMax, ArgMin, Reduction
from treadle.ir.ops.sources import Constant, DimValue, Iota, RandomBits
from treadle.ir.ops.views import Reshape
from treadle.passes.lower.index import Ix, LoopVar, Picked, Space, linear, nonnegative
from treadle.passes.lower.nodes import (
    NO_VARS,
    Apply,
    Call,
    Checked,
    Const,
    Holds,
    Index,
    Load,
    Node,
    Random,
    Reduce,
    Vars,
    ix_nodes,
    ix_vars,
)

__all__ = ["Misplaced", "Place", "REDUCTIONS", "Refused", "Tracer", "is_short", "out_of_range"]

REDUCTIONS = (Reduction, ArgMax, ArgMin, Fold, Contract)
SHORT = 16  # terms of a reduction of loads that are written out
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))  # chains of views can be long


class Refused(Exception):
    """A region that is not one nest; the message is the reason."""


class Misplaced(Refused):
    """Refused whatever else would be in the region."""


@dataclass(frozen=True, eq=False)
class Place:
    """Element `index` of something of `shape`, wanted only where `mask` holds. Interned: compared by identity."""

    shape: tuple[Dim, ...]
    index: tuple[Dim, ...]
    mask: Node | None = None

    @property
    def at(self) -> Dim:
        return linear(self.shape, self.index)


class Tracer:
    """Builds the nodes of one region in one space."""

    def __init__(self, block: Block, space: Space) -> None:
        self.block = block
        self.space = space
        self.producers: dict[Value, Op] = {r: op for op in block.ops for r in op.results}
        self.short: set[Op] = set()  # reductions that are written out
        self.params = {p: k for k, p in enumerate(block.params)}
        self.memo: dict[tuple[Value, Place], Node] = {}
        self.shared: dict[tuple, Node] = {}
        self.places: dict[tuple, Place] = {}
        self.forms: dict[Dim, None] = {}
        self.outer: Place | None = None
        self.folded: dict[Value, Node] = {}
        self.reduces: list[Reduce] = []
        self.spaces: list[Place] = []  # what reductions run over
        self.watched: dict[Value, list[tuple[Place, Node]]] = {}
        self.probe: list[Dim] | None = None

    # Places ----------------------------------------------------------------------------------------------------------

    def place(self, shape: tuple[Dim, ...], index: Iterable[Dim], mask: Node | None = None) -> Place:
        index = tuple(index)
        key = (shape, index, mask)
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = Place(shape, index, mask)
        return found

    def own(self, v: Value, at: Place) -> tuple[Dim, ...]:
        """The index of `v`, in its own shape."""
        if at.shape == v.shape:
            return at.index
        return Reshape(at.shape).index_map(at.index, v.shape)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def form(self, at: Dim) -> Dim:
        """Note an index expression that the nest uses."""
        if isinstance(at, Ix):
            self.forms[at] = None
            for atom, _ in at.parts:
                inner = atom.inner()
                if inner is not None:
                    self.form(inner)
        return at

    def share(
        self, key: tuple, make: Callable[[Vars, int], Node], args: Iterable[Node], of: Iterable[Dim] = ()
    ) -> Node:
        """The one node with this key; `make` gets its variables and level."""
        found = self.shared.get(key)
        if found is None:
            variables: set[LoopVar] = set()
            level = 0
            for a in args:
                variables |= a.vars
                level = max(level, a.level)
            for at in of:
                self.form(at)
                variables |= ix_vars(at)
                for n in ix_nodes(at):
                    level = max(level, n.level)
            found = self.shared[key] = make(frozenset(variables) if variables else NO_VARS, level)
        return found

    def const(self, value: float | int | bool, dtype: DType) -> Node:
        return self.share(("const", repr(value), dtype), lambda v, n: Const(dtype, v, n, value), ())

    def index(self, at: Dim, dtype: DType = dtypes.int64) -> Node:
        return self.share(("index", at, dtype), lambda v, n: Index(dtype, v, n, at), (), (at,))

    def call(self, fn: str, *args: Node, dtype: DType | None = None) -> Node:
        out = dtype or args[-1].dtype
        return self.share((fn, *args), lambda v, n: Call(out, v, n, fn, args), args)

    def load(self, param: int, dtype: DType, at: Place) -> Node:
        where = at.at
        args = () if at.mask is None else (at.mask,)
        return self.share(
            ("load", param, where, at.mask), lambda v, n: Load(dtype, v, n, param, where, at.mask), args, (where,)
        )

    def both(self, a: Node | None, b: Node | None) -> Node | None:
        return b if a is None else a if b is None else self.call("and", a, b)

    def holds(self, conditions: list[Condition]) -> Node | bool:
        """A node for the conditions that are not plain, or their truth."""
        kept: list[Condition] = []
        for lhs, relation, rhs in conditions:
            known = _decided(lhs, relation, rhs)
            if known is False:
                return False
            if known is None:
                kept.append((lhs, relation, rhs))
        if not kept:
            return True
        forms = [x for lhs, _, rhs in kept for x in (lhs, rhs)]
        key = ("holds", *kept)
        return self.share(key, lambda v, n: Holds(dtypes.bool_, v, n, tuple(kept)), (), forms)

    # Values ----------------------------------------------------------------------------------------------------------

    def value(self, v: Value, at: Place) -> Node:
        """The scalar of `v` at a place. Chains of elementwise ops do not recurse."""
        memo, stack = self.memo, [v]
        while stack:
            x = stack[-1]
            if (x, at) in memo:
                stack.pop()
                continue
            op = self.producers.get(x)
            if op is not None and isinstance(op.operation, Elementwise):
                missing = [o for o in op.operands if (o, at) not in memo]
                if missing:
                    stack += missing
                    continue
                node = self.apply(op, tuple(memo[o, at] for o in op.operands))
            else:
                node = self.leaf(x, op, at)
            memo[x, at] = node
            if x in self.watched:
                self.watched[x].append((at, node))
            stack.pop()
        return memo[v, at]

    def apply(self, op: Op, operands: tuple[Node, ...]) -> Node:
        dtype = op.result.dtype
        key = (op.operation.name, repr(op.operation), *operands)
        return self.share(key, lambda v, n: Apply(dtype, v, n, op, operands), operands)

    def leaf(self, v: Value, op: Op | None, at: Place) -> Node:
        if op is None:
            return self.load(self.params[v], v.dtype, at)
        o = op.operation
        if isinstance(o, Reshape):
            return self.value(op.operands[0], at)
        if isinstance(o, View):
            x = op.operands[0]
            return self.value(x, self.place(x.shape, o.index_map(self.own(v, at), x.shape), at.mask))
        if isinstance(o, REDUCTIONS):
            if op in self.short:
                return self.written_out(op, at)
            return self.reduced(v, op, at)
        rule = _RULES.get(type(o))
        if rule is None:
            raise Refused(f"{o.name} has a kernel of its own")
        return rule(self, op, at)

    # Reductions ------------------------------------------------------------------------------------------------------

    def reduced(self, v: Value, op: Op, at: Place) -> Node:
        """A reduction is read where it is computed: at the outer point."""
        if self.probe is not None:
            self.probe.append(at.at)
            return Const(v.dtype, NO_VARS, 0, 0)
        if self.outer is None or at.at != self.outer.at:
            raise Misplaced(f"{op.operation.name} is read at another point of the outer space than it is computed at")
        return self.reduce(v, op)

    def reduce(self, v: Value, op: Op) -> Node:
        """The reduction at the outer point."""
        found = self.folded.get(v)
        if found is None:
            assert self.outer is not None
            own = self.own(v, self.outer)
            found = self.extreme_index(op, own) if isinstance(op.operation, ArgMax | ArgMin) else self.fold(op, own)
            self.folded[v] = found
        return found

    def written_out(self, op: Op, at: Place) -> Node:
        """A reduction of a few loads, term by term: it can be had at any point."""
        o: Any = op.operation
        x = op.operands[0]
        own = self.own(op.result, at)
        accumulate = o.accumulate_dtype(x.dtype)
        total = self.const(o.identity(x.dtype), accumulate)
        combiner = o.combiner
        if x.dtype.kind == "b":
            combiner = {"maximum": "or", "minimum": "and"}.get(combiner, combiner)
        for element in itertools.product(*map(range, _extents(op))):  # type: ignore[arg-type]
            terms = [self.cast(t, accumulate) for t in self.terms(op, own, element, at.mask)]
            if len(terms) == 1:
                total = self.call(combiner, total, terms[0])
            elif accumulate.kind == "f":
                total = self.call("fma", *terms, total)
            else:
                total = self.call("add", total, self.call("mul", *terms))
        return self.cast(total, op.result.dtype)

    def cast(self, n: Node, dtype: DType) -> Node:
        return n if n.dtype is dtype else self.call(f"cast:{dtype.name}", n, dtype=dtype)

    def terms(self, op: Op, own: tuple[Dim, ...], inner: tuple[Dim, ...], mask: Node | None) -> tuple[Node, ...]:
        """What a reduction multiplies and adds at result index `own` and inner index `inner`."""
        o: Any = op.operation
        x = op.operands[0]
        if isinstance(o, Fold):
            index, conditions = o.index_map(own, inner, x.shape)
            zero = self.const(_as_kind(0, x.dtype), x.dtype)
            inside = lambda m: self.value(x, self.place(x.shape, index, m))  # noqa: E731
            return (self.guarded(self.holds(conditions), inside, zero, mask),)
        if isinstance(o, Contract):
            at: dict[str, Dim] = {**dict(zip(o.out, own, strict=True)), **dict(zip(o.summed, inner, strict=True))}
            return tuple(
                self.value(v, self.place(v.shape, (at[c] for c in letters), mask))
                for v, letters in zip(op.operands, (o.lhs, o.rhs), strict=True)
            )
        outer, rest = iter(own), iter(inner)
        index = tuple(next(rest) if d in o.dims else next(outer) for d in range(x.rank))
        return (self.value(x, self.place(x.shape, index, mask)),)

    def inner(self, extents: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], tuple[LoopVar, ...]]:
        """Indices of an inner space, and the variables in them. Inner spaces of equal extents share variables."""
        key = tuple(d for d in extents if d != 1)
        position = 0
        index: list[Dim] = []
        variables: list[LoopVar] = []
        for d in extents:
            ix = self.space.index(("i", key, position), d)
            position += d != 1
            index.append(ix)
            if isinstance(ix, Ix):
                variables += [a for a, _ in ix.parts if isinstance(a, LoopVar)]
        return tuple(index), tuple(variables)

    def folded_over(
        self,
        terms: tuple[Node, ...],
        inner: tuple[LoopVar, ...],
        combiner: str,
        identity: Any,
        dtypes_: tuple[DType, DType],
    ) -> Node:
        """`terms` reduced over `inner`, kept in dtypes_[0] and given in dtypes_[1]."""
        accumulate, result = dtypes_
        level = 1 + max(t.level for t in terms)
        variables = frozenset().union(*(t.vars for t in terms)) - set(inner)
        key = ("reduce", combiner, repr(identity), accumulate, inner, terms)
        found = self.shared.get(key)
        if found is None:
            node = Reduce(accumulate, variables, level, terms, inner, combiner, identity, accumulate)
            self.reduces.append(node)
            found = self.shared[key] = node
        return self.cast(found, result)

    def fold(self, op: Op, own: tuple[Dim, ...]) -> Node:
        o: Any = op.operation
        x = op.operands[0]
        inner, variables = self.inner(_extents(op))
        if isinstance(o, Reduction):
            outer, rest = iter(own), iter(inner)
            index = [next(rest) if d in o.dims else next(outer) for d in range(x.rank)]
            self.spaces.append(self.place(x.shape, index))
        terms = self.terms(op, own, inner, None)
        combiner = o.combiner
        if x.dtype.kind == "b":
            combiner = {"maximum": "or", "minimum": "and"}.get(combiner, combiner)
        pair = (o.accumulate_dtype(x.dtype), op.result.dtype)
        return self.folded_over(terms, variables, combiner, o.identity(x.dtype), pair)

    def extreme_index(self, op: Op, own: tuple[Dim, ...]) -> Node:
        """In two stages, which both run with lanes: the extreme, then the least index that has it."""
        o: Any = op.operation
        (x,) = op.operands
        (i,), variables = self.inner((x.shape[o.dim],))
        term = self.value(x, self.place(x.shape, (*own[: o.dim], i, *own[o.dim :])))
        greatest = o.arg_of == "maximum"
        combiner = ("or" if greatest else "and") if x.dtype.kind == "b" else o.arg_of
        identity = _worst(x.dtype, greatest)
        best = self.folded_over((term,), variables, combiner, identity, (x.dtype, x.dtype))
        hit = self.call("eq", term, best, dtype=dtypes.bool_)
        if x.dtype.kind == "f":
            hit = self.call("or", hit, self.call("isnan", term, dtype=dtypes.bool_))
        far = self.index(x.shape[o.dim])
        where = self.call("select", hit, self.index(i), far)
        pair = (dtypes.int64, dtypes.int64)
        return self.folded_over((where,), variables, "minimum", 2**63 - 1, pair)

    def guarded(self, ok: Node | bool, inside: Callable[[Node | None], Node], outside: Node, mask: Node | None) -> Node:
        """`inside` where `ok`, read only there; else `outside`."""
        if ok is True:
            return inside(mask)
        if ok is False:
            return outside
        assert isinstance(ok, Node)
        return self.call("select", ok, inside(self.both(mask, ok)), outside)

    # Rules of other ops ----------------------------------------------------------------------------------------------

    def constant(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        return self.const(o.value, o.dtype)

    def dim_value(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        return self.index(o.value)

    def iota(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        return self.index(self.own(op.result, at)[o.dim], o.dtype)

    def random(self, op: Op, at: Place) -> Node:
        scalars = tuple(self.value(v, self.place((), (), at.mask)) for v in op.operands)
        where = at.at
        key = ("random", *scalars, where)
        return self.share(key, lambda v, n: Random(dtypes.int32, v, n, op, where, scalars), scalars, (where,))

    def pad(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        (x,) = op.operands
        index, conditions = o.index_map(self.own(op.result, at), x.shape)
        inside = lambda mask: self.value(x, self.place(x.shape, index, mask))  # noqa: E731
        fill = self.const(_as_kind(o.value, x.dtype), x.dtype)
        return self.guarded(self.holds(conditions), inside, fill, at.mask)

    def slice_update(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        base, new = op.operands
        own = self.own(op.result, at)
        index, conditions = o.index_map(own, base.shape)
        ok = self.holds(conditions)
        inside = lambda mask: self.value(new, self.place(new.shape, index, mask))  # noqa: E731
        if ok is True:
            return inside(at.mask)
        return self.guarded(ok, inside, self.value(base, self.place(base.shape, own, at.mask)), at.mask)

    def concat(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        own = self.own(op.result, at)
        offsets = o.offsets(tuple(v.shape for v in op.operands))
        found: Node | None = None
        for x, start, end in reversed(list(zip(op.operands, offsets, offsets[1:], strict=False))):
            i = own[o.dim]
            ok = self.holds([(i, "ge", start), (i, "lt", end)])
            if ok is False:
                continue
            index = (*own[: o.dim], i - start, *own[o.dim + 1 :])
            inside = lambda mask, x=x, index=index: self.value(x, self.place(x.shape, index, mask))  # noqa: E731
            outside = self.const(_as_kind(0, x.dtype), x.dtype) if found is None else found
            found = self.guarded(ok, inside, outside, at.mask)
        return found if found is not None else self.const(_as_kind(0, op.result.dtype), op.result.dtype)

    def take(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        x, index = op.operands
        own = self.own(op.result, at)
        middle = own[o.dim : o.dim + index.rank]
        picked = self.picked(op, self.place(index.shape, middle, at.mask), x.shape[o.dim])
        return self.value(x, self.place(x.shape, (*own[: o.dim], picked, *own[o.dim + index.rank :]), at.mask))

    def gather(self, op: Op, at: Place) -> Node:
        o: Any = op.operation
        x, index = op.operands
        own = self.own(op.result, at)
        picked = self.picked(op, self.place(index.shape, own, at.mask), x.shape[o.dim])
        return self.value(x, self.place(x.shape, (*own[: o.dim], picked, *own[o.dim + 1 :]), at.mask))

    def picked(self, op: Op, at: Place, size: Dim) -> Dim:
        """The index that is read at a place, checked."""
        o: Any = op.operation
        raw = self.value(op.operands[1], at)
        message = out_of_range(o.dim, size)
        args = (raw,) if at.mask is None else (raw, at.mask)
        checked = self.share(
            ("checked", raw, size, at.mask),
            lambda v, n: Checked(raw.dtype, v, n, raw, size, message, at.mask),
            args,
            (size,),
        )
        key = ("picked", checked)
        atom = self.space._parts.get(key)
        if atom is None:
            atom = self.space._parts[key] = Picked(self.space, checked, size)
        return Ix.of(atom)


_RULES: dict[type[Operation], Callable[[Tracer, Op, Place], Node]] = {
    Constant: Tracer.constant, DimValue: Tracer.dim_value, Iota: Tracer.iota, RandomBits: Tracer.random,
    Pad: Tracer.pad, SliceUpdate: Tracer.slice_update, Concat: Tracer.concat, Take: Tracer.take, Gather: Tracer.gather,
}  # fmt: skip


def _extents(op: Op) -> tuple[Dim, ...]:
    """What a reduction runs over."""
    o: Any = op.operation
    x = op.operands[0]
    if isinstance(o, Fold):
        return x.shape[x.rank - len(o.shape) :]
    if isinstance(o, Contract):
        sizes = dict(zip(o.lhs, x.shape, strict=True))
        return tuple(sizes[c] for c in o.summed)
    return tuple(x.shape[d] for d in (o.dims if isinstance(o, Reduction) else (o.dim,)))


def is_short(op: Op, producers: Mapping[Value, Op]) -> bool:
    """Is a reduction of so few elements of memory that it is best written out?"""
    if isinstance(op.operation, ArgMax | ArgMin):
        return False
    n = product(_extents(op))
    if not isinstance(n, int) or n > (SHORT if not isinstance(op.operation, Contract) else SHORT // 4):
        return False
    for v in op.operands:
        while (source := producers.get(v)) is not None:
            if not isinstance(source.operation, View | Pad | Constant):
                return False
            if not source.operands:
                break
            v = source.operands[0]
    return True


def out_of_range(dim: int, size: Dim) -> str:
    """The message of a failed check of an index."""
    return f"IndexError: index out of range: it is out of bounds for dimension {dim} with size {size}"


def _decided(lhs: Dim, relation: str, rhs: Dim) -> bool | None:
    """Whether a condition holds everywhere (True), nowhere (False), or that cannot be told."""
    difference = lhs - rhs
    low, high = (difference, difference) if not isinstance(difference, Ix) else difference.bounds() or (None, None)
    if low is None or high is None:
        return None
    if relation == "eq":
        return True if isinstance(difference, int) and difference == 0 else None
    always, never = (low, -high - 1) if relation == "ge" else (-high - 1, low)
    return True if nonnegative(always) else False if nonnegative(never) else None


def _as_kind(value: float | int | bool, dtype: DType) -> float | int | bool:
    return bool(value) if dtype.kind == "b" else float(value) if dtype.kind == "f" else int(value)


def _worst(dtype: DType, greatest: bool) -> float | int | bool:
    if dtype.kind == "b":
        return not greatest
    if dtype.kind == "f":
        return float("-inf") if greatest else float("inf")
    low, high = (0, 2**dtype.bits - 1) if dtype.kind == "u" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    return low if greatest else high
