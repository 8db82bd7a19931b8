"""Writes the nodes of a nest as loop-level ops: each scalar once, in the outermost loop in which it can stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Value
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DTYPES, DType
from treadle.ir.loops import Affine, Check, For, IndexCast, IndexConst, IndexDiv, IndexMod
from treadle.ir.loops import Load as LoopLoad
from treadle.ir.loops import Store as LoopStore
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX
from treadle.passes.lower.index import Atom, Ix, LoopVar, Picked, Quotient, Remainder
from treadle.passes.lower.nodes import (
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
    ix_nodes,
    ix_vars,
)

__all__ = ["Axis", "Scope", "Writer", "merge_axes"]


@dataclass(frozen=True, eq=False)
class Axis:
    """Adjacent variables that run as one loop; the last of them carries the loop's index."""

    vars: tuple[LoopVar, ...]

    @property
    def extent(self) -> Dim:
        n: Dim = 1
        for v in self.vars:
            n = n * v.extent
        return n

    @property
    def last(self) -> LoopVar:
        return self.vars[-1]


def merge_axes(variables: Sequence[LoopVar], forms: Sequence[Dim]) -> tuple[Axis, ...]:
    """Loops for `variables`, as few as every index expression allows."""
    runs: list[list[LoopVar]] = []
    wanted = set(variables)
    coefficients = [{a: c for a, c in f.parts if a in wanted} for f in forms if isinstance(f, Ix)]
    coefficients = [c for c in coefficients if c]
    for v in variables:
        if runs:
            before = runs[-1][-1]
            if all(c.get(before, 0) == c.get(v, 0) * v.extent for c in coefficients):
                runs[-1].append(v)
                continue
        runs.append([v])
    return tuple(Axis(tuple(r)) for r in runs)


@dataclass(eq=False)
class Scope:
    """One block being written: its builder, its loop variables, and the scalars that stand in it."""

    builder: ScalarBuilder
    indices: dict[LoopVar, Value] = field(default_factory=dict)  # by the last variable of the axis
    found: dict[Any, Value] = field(default_factory=dict)


@dataclass
class Writer:
    """The state of writing one kernel. `buffers`: of its operands, then of its results; `messages`: of checks."""

    operands: int
    buffers: list[Value]
    messages: list[str]
    scopes: list[Scope] = field(default_factory=list)
    silent: set[LoopVar] = field(default_factory=set)  # variables that run within another's axis
    replaced: dict[Node, Callable[[], Value]] = field(default_factory=dict)  # how values that are kept are had again

    @property
    def s(self) -> ScalarBuilder:
        return self.scopes[-1].builder

    def add_axes(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            self.silent.update(axis.vars[:-1])

    # Writing over operands -------------------------------------------------------------------------------------------

    region: int = 0
    ordered: int = 1  # regions from this one on run after all before them
    pass_number: int = 0  # of the loops being written, in their region: later passes run after earlier ones at a point
    reads: dict[int, list[tuple[int, int, Dim | None]]] = field(
        default_factory=dict
    )  # operand -> region, pass, element
    writes: dict[int, list[tuple[int, int, Dim]]] = field(default_factory=dict)  # result -> region, pass, element

    def note_read(self, param: int, at: Dim | None) -> None:
        """An element of an operand is read (None: any)."""
        self.reads.setdefault(param, []).append((self.region, self.pass_number, at))

    def end_region(self) -> None:
        self.region += 1
        self.pass_number = 0

    def in_place(self) -> frozenset[tuple[int, int]]:
        """(operand, result): the result is written once, where the operand is read no more but at that very element."""
        found = []
        for r, writes in self.writes.items():
            if len(writes) != 1:
                continue
            ((region, number, at),) = writes
            for p, buffer in enumerate(self.buffers[: self.operands]):
                if buffer.type is not self.buffers[self.operands + r].type:
                    continue
                later = [x for x in self.reads.get(p, ()) if x[0] >= region or region < self.ordered]
                if all(g == region and n <= number and where == at for g, n, where in later):
                    found.append((p, r))
        return frozenset(found)

    # Scopes and loops ------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, indices: dict[LoopVar, Value]) -> Iterator[Scope]:
        made = Scope(ScalarBuilder(), indices)
        self.scopes.append(made)
        try:
            yield made
        finally:
            self.scopes.pop()

    def const(self, d: Dim) -> Value:
        return self.remember(("dim", d), len(self.scopes) - 1, lambda s: s.emit(IndexConst(d)))

    def loop(
        self,
        axis: LoopVar | None,
        lo: Value,
        hi: Value,
        kind: For,
        body: Callable[[Value, tuple[Value, ...]], Sequence[Value]],
        inits: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """A loop; `body` gets its index and the carried values, and gives the next ones."""
        iv = Value(INDEX)
        carried = tuple(Value(v.type) for v in inits)
        with self.scope({} if axis is None else {axis: iv}) as inner:
            out = body(iv, carried)
        region = inner.builder.block((iv, *carried), out)
        made = self.s.emit(kind, lo, hi, *inits, regions=(region,))
        return made if isinstance(made, tuple) else (made,)

    def unravel(self, loops: Sequence[tuple[LoopVar, Dim]], at: Value) -> None:
        """Make the indices of `loops` (each a variable and its extent) known here, from their row-major number."""
        for k in range(len(loops) - 1, -1, -1):
            axis, extent = loops[k]
            by = 1 if isinstance(extent, int) and extent == 0 else extent
            self.scopes[-1].indices[axis] = at if k == 0 else self.s.emit(IndexMod(by), at)
            if k:
                at = self.s.emit(IndexDiv(by), at)

    def unravel_axes(self, axes: Sequence[Axis], at: Value) -> None:
        self.unravel([(a.last, a.extent) for a in axes], at)

    # Where a thing stands --------------------------------------------------------------------------------------------

    def depth(self, variables: frozenset[LoopVar]) -> int:
        """The outermost scope in which all of `variables` are known."""
        for k in range(len(self.scopes) - 1, -1, -1):
            if any(v in variables for v in self.scopes[k].indices):
                return k
        return self.base

    base: int = 0  # nothing is written further out

    def remember(self, key: Any, depth: int, make: Callable[[ScalarBuilder], Value]) -> Value:
        for scope in self.scopes[: depth + 1]:
            found = scope.found.get(key)
            if found is not None:
                return found
        scope = self.scopes[depth]
        value = scope.found[key] = make(scope.builder)
        return value

    # Indices ---------------------------------------------------------------------------------------------------------

    def terms(self, at: Dim) -> tuple[list[Value], tuple[Dim, ...], Dim]:
        """(indices, their strides, offset)."""
        if not isinstance(at, Ix):
            return [], (), at
        parts = [(a, c) for a, c in at.parts if a not in self.silent]
        return [self.atom(a) for a, _ in parts], tuple(c for _, c in parts), at.const

    def atom(self, a: Atom) -> Value:
        if isinstance(a, LoopVar):
            for scope in reversed(self.scopes):
                if a in scope.indices:
                    return scope.indices[a]
            raise AssertionError(f"{a} is not running")
        if isinstance(a, Picked):
            scalar = self.scalar(a.node)
            return self.remember(("atom", a), self.index_depth(Ix.of(a)), lambda s: s.emit(IndexCast(None), scalar))
        assert isinstance(a, Quotient | Remainder)
        kind = IndexDiv if isinstance(a, Quotient) else IndexMod
        of = self.index(a.of)
        return self.remember(("atom", a), self.index_depth(a.of), lambda s: s.emit(kind(a.by), of))

    def index_depth(self, at: Dim) -> int:
        """Where an index expression can stand; the scalars it is read from are there."""
        depth = self.depth(ix_vars(at))
        for n in ix_nodes(at):
            self.scalar(n)
            depth = max(depth, next(k for k in range(len(self.scopes) - 1, -1, -1) if n in self.scopes[k].found))
        return depth

    def index(self, at: Dim) -> Value:
        """An index expression as one index."""
        depth = self.index_depth(at)
        values, strides, offset = self.terms(at)
        if not values:
            return self.remember(("dim", offset), depth, lambda s: s.emit(IndexConst(offset)))
        if strides == (1,) and offset == 0:
            return values[0]
        return self.remember(("index", at), depth, lambda s: s.emit(Affine(strides, offset), *values))

    def number(self, at: Dim, dtype: DType, s: ScalarBuilder) -> Value:
        """An index expression as a scalar."""
        if isinstance(at, int):
            return s.const(_number(at, dtype), dtype)
        return s.emit(IndexCast(dtype), self.index(at))

    # Scalars ---------------------------------------------------------------------------------------------------------

    def scalar(self, n: Node) -> Value:
        """The value of a node, here."""
        for scope in reversed(self.scopes):
            found = scope.found.get(n)
            if found is not None:
                return found
        kept = self.replaced.get(n)
        if kept is not None:
            value = kept()
            self.scopes[-1].found[n] = value
            return value
        if isinstance(n, Reduce):
            raise AssertionError("a reduction is read before it is made")
        args = [self.scalar(a) for a in n.args]
        scope = self.scopes[self.place_of(n)]
        value = scope.found[n] = self.make(n, args, scope.builder)
        return value

    def place_of(self, n: Node) -> int:
        """Kept values are read where they are wanted: what needs one stands no further out."""
        depth = self.depth(n.vars)
        for a in n.args:
            for k in range(len(self.scopes) - 1, depth, -1):
                if a in self.scopes[k].found:
                    depth = k
                    break
        return depth

    def make(self, n: Node, args: list[Value], s: ScalarBuilder) -> Value:
        if isinstance(n, Const):
            return s.const(n.value, n.dtype)
        if isinstance(n, Apply):
            return n.op.operation.scalar(s, *args)  # type: ignore[attr-defined]
        if isinstance(n, Call):
            if n.fn.startswith("cast:"):
                return s.cast(args[0], DTYPES[n.fn[5:]])
            return s.call(n.fn, *args)
        if isinstance(n, Load):
            values, strides, offset = self.terms(n.at)
            masks = args[-1:] if n.mask is not None else []
            self.note_read(n.param, n.at)
            return s.emit(LoopLoad(strides, offset, bool(masks)), self.buffers[n.param], *values, *masks)
        if isinstance(n, Index):
            return self.number(n.at, n.dtype, s)
        if isinstance(n, Holds):
            return self.conditions(n, s)
        if isinstance(n, Random):
            at = self.number(n.at, dtypes.int64, s)
            return n.op.operation.index_scalar(s, at, *args[: len(n.operands)])  # type: ignore[attr-defined]
        assert isinstance(n, Checked)
        return self.check(n, args, s)

    def conditions(self, n: Holds, s: ScalarBuilder) -> Value:
        total: Value | None = None
        for lhs, relation, rhs in n.conditions:
            x, y = (self.number(d, dtypes.int64, s) for d in (lhs, rhs))
            one = s.call(relation, x, y)
            total = one if total is None else s.and_(total, one)
        assert total is not None
        return total

    def check(self, n: Checked, args: list[Value], s: ScalarBuilder) -> Value:
        x = args[0]
        ok = s.and_(s.ge(x, s.const(0, x.dtype)), s.lt(x, self.number(n.size, x.dtype, s)))
        if n.mask is not None:
            ok = s.or_(ok, s.not_(args[1]))
        if n.message not in self.messages:
            self.messages.append(n.message)
        s.emit(Check(self.messages.index(n.message) + 1, n.message), ok)
        return x

    def store_result(self, buffer: Value, at: Dim, value: Value) -> None:
        """Write an element of a result."""
        number = next(k for k, b in enumerate(self.buffers[self.operands :]) if b is buffer)
        self.writes.setdefault(number, []).append((self.region, self.pass_number, at))
        self.store(buffer, at, value)

    def store(self, buffer: Value, at: Dim, value: Value) -> None:
        values, strides, offset = self.terms(at)
        self.s.emit(LoopStore(strides, offset), buffer, value, *values)


def _number(value: int, dtype: DType) -> float | int | bool:
    return float(value) if dtype.kind == "f" else bool(value) if dtype.kind == "b" else value
