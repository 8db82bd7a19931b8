"""Pull-style lowering: the scalar of a graph value at an index, written where a loop body stands.

Elementwise ops call their `scalar`; views map the index; pads and joins turn conditions into masks; what is in memory
is a load whose address is linear in the loop variables. A scalar is written once for each (value, index) of a body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from treadle.ir import dtypes
from treadle.ir.core import Op, Value
from treadle.ir.dims import Atom, Dim, symbol
from treadle.ir.loops import Affine, Check, IndexCast, IndexConst, IndexDiv, IndexMod, Load, Store
from treadle.ir.ops.base import Elementwise, View
from treadle.ir.ops.indexing import Gather, Take
from treadle.ir.ops.padding import Concat, Pad, SliceUpdate
from treadle.ir.ops.sources import Constant, DimValue, Iota, RandomBits
from treadle.ir.scalar import ScalarBuilder
from treadle.passes.nests.index import coefficients, simplified

__all__ = ["Memory", "Pull", "row_major"]


def row_major(shape: tuple[Dim, ...]) -> list[Dim]:
    """Strides in elements of a contiguous tensor."""
    out: list[Dim] = []
    step: Dim = 1
    for d in reversed(shape):
        out.append(step)
        step = step * d
    return out[::-1]


@dataclass(frozen=True)
class Memory:
    """A buffer that holds a value; `skip` leading dims are not in it (the scratch of one row)."""

    buffer: Value
    skip: int = 0


@dataclass
class Pull:
    """Writes scalars into `s`. `loops`: loop variables in scope; `found`: values in registers, by (value, index)."""

    producers: dict[Value, Op]
    memory: dict[Value, Memory]
    ranges: dict[str, Dim]
    s: ScalarBuilder = field(default_factory=ScalarBuilder)
    loops: dict[str, Value] = field(default_factory=dict)
    found: dict[tuple, Value] = field(default_factory=dict)
    reads: list[tuple[Value, tuple[Dim, ...], Dim]] = field(default_factory=list)  # of memory: value, index, address
    exact: list[Dim] = field(default_factory=list)  # index expressions whose value itself is used
    stages: dict[Value, Callable[[tuple[Dim, ...]], Value | None]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    lane: str | None = None  # the loop variable that runs over lanes, inside a vector loop

    def inner(self, **loops: Value) -> Pull:
        """For the body of a loop: what is in registers stays known inside, what the body makes does not leak."""
        return replace(self, s=ScalarBuilder(), loops={**self.loops, **loops}, found=dict(self.found))

    # ---- values -------------------------------------------------------------------------------------------------

    def value(self, v: Value, index: tuple[Dim, ...], mask: Value | None = None) -> Value:
        """The element of `v` at `index`; under a false `mask` anything, without touching memory outside."""
        index = tuple(simplified(i, self.ranges) for i in index)
        key = (v, index, mask)
        known = self.found.get(key)
        return self._chain(v, index, mask) if known is None else known

    def _chain(self, v: Value, index: tuple[Dim, ...], mask: Value | None) -> Value:
        """`value` through elementwise ops and views: a loop, because chains may be longer than Python's stack."""
        stack: list[tuple[Value, tuple[Dim, ...], list | None]] = [(v, index, None)]
        while stack:
            x, at, below = stack.pop()
            key = (x, at, mask)
            if key in self.found:
                continue
            op = self.producers.get(x)
            if op is None or x in self.memory or x in self.stages or not isinstance(op.operation, View | Elementwise):
                self.found[key] = self._make(x, at, mask)
            elif below is None:
                below = self._below(op, at)
                stack.append((x, at, below))
                stack += [(y, i, None) for y, i in reversed(below) if (y, i, mask) not in self.found]
            else:
                elements = [self.found[y, i, mask] for y, i in below]
                plain = isinstance(op.operation, Elementwise)
                self.found[key] = op.operation.scalar(self.s, *elements) if plain else elements[0]
        return self.found[v, index, mask]

    def _below(self, op: Op, index: tuple[Dim, ...]) -> list[tuple[Value, tuple[Dim, ...]]]:
        """Which elements an elementwise op or a view reads for its element at `index`."""
        if isinstance(op.operation, View):
            (x,) = op.operands
            found = op.operation.index_map(index, x.shape)
            return [(x, tuple(simplified(i, self.ranges) for i in found))]
        return [(x, index) for x in op.operands]

    def _make(self, v: Value, index: tuple[Dim, ...], mask: Value | None) -> Value:
        stage = self.stages.get(v)
        if stage is not None:
            ready = stage(index)
            if ready is not None:
                return ready
        if v in self.memory:
            return self.load(v, index, mask)
        op = self.producers[v]
        operation = op.operation
        if isinstance(operation, View):
            (x,) = op.operands
            return self.value(x, operation.index_map(index, x.shape), mask)
        if isinstance(operation, Elementwise):
            return operation.scalar(self.s, *(self.value(x, index, mask) for x in op.operands))
        rule = _RULES.get(type(operation))
        if rule is None:
            raise NotImplementedError(f"{operation.name} inside a fused kernel")
        return rule(self, op, index, mask)

    # ---- memory -------------------------------------------------------------------------------------------------

    def address(self, v: Value, index: tuple[Dim, ...]) -> Dim:
        skip = self.memory[v].skip
        total: Dim = 0
        for i, step in zip(index[skip:], row_major(v.shape[skip:]), strict=True):
            total = total + i * step
        return simplified(total, self.ranges)

    def load(self, v: Value, index: tuple[Dim, ...], mask: Value | None) -> Value:
        address = self.address(v, index)
        self.reads.append((v, index, address))
        indices, strides, offset = self.linear(address)
        operands = [self.memory[v].buffer, *indices, *([mask] if mask is not None else [])]
        return self.s.emit(Load(strides, offset, mask is not None), *operands)

    def store(self, v: Value, index: tuple[Dim, ...], value: Value) -> None:
        """Write one element of a value that is in memory."""
        index = tuple(simplified(i, self.ranges) for i in index)
        address = self.address(v, index)
        self.reads.append((v, index, address))
        indices, strides, offset = self.linear(address)
        self.s.emit(Store(strides, offset), self.memory[v].buffer, value, *indices)

    def masked_store(self, v: Value, index: tuple[Dim, ...], value: Value, mask: Value) -> None:
        """Write one element where `mask` is true."""
        address = self.address(v, tuple(simplified(i, self.ranges) for i in index))
        indices, strides, offset = self.linear(address)
        self.s.emit(Store(strides, offset, True), self.memory[v].buffer, value, *indices, mask)

    # ---- indices ------------------------------------------------------------------------------------------------

    def linear(self, e: Dim) -> tuple[list[Value], tuple[Dim, ...], Dim]:
        """(index values, their strides, offset) of an expression."""
        found, offset = coefficients(e, self.loops)
        atoms = sorted(found, key=str)
        return [self.atom(a) for a in atoms], tuple(found[a] for a in atoms), offset

    def atom(self, a: Atom) -> Value:
        """A loop variable, or // or % computed."""
        if a.op == "sym":
            return self.loops[a.name]
        key = ("atom", a)
        known = self.found.get(key)
        if known is None:
            x, y = a.args
            if a.op not in ("floordiv", "mod"):
                raise NotImplementedError(f"{a.op} of loop variables in an index")
            known = self.s.emit((IndexDiv if a.op == "floordiv" else IndexMod)(y), self.index(x))
            self.found[key] = known
        return known

    def index(self, e: Dim) -> Value:
        """An expression as an index value."""
        key = ("index", e)
        known = self.found.get(key)
        if known is None:
            values, strides, offset = self.linear(e)
            if not values:
                known = self.s.emit(IndexConst(offset))
            elif strides == (1,) and offset == 0:
                known = values[0]
            else:
                known = self.s.emit(Affine(strides, offset), *values)
            self.found[key] = known
        return known

    def number(self, e: Dim) -> Value:
        """An index expression as an i64 scalar."""
        self.exact.append(e)
        key = ("number", e)
        known = self.found.get(key)
        if known is None:
            known = self.found[key] = self.s.emit(IndexCast(dtypes.int64), self.index(e))
        return known

    # ---- conditions ---------------------------------------------------------------------------------------------

    def condition(self, conditions: list, mask: Value | None) -> Value | None:
        """All conditions (lhs, relation, rhs) and `mask`, as one i1; None where there is nothing to ask."""
        out = mask
        for lhs, relation, rhs in conditions:
            lhs, rhs = simplified(lhs, self.ranges), simplified(rhs, self.ranges)
            c = self._compare(lhs, relation, rhs)
            out = c if out is None else self.s.and_(out, c)
        return out

    def _compare(self, lhs: Dim, relation: str, rhs: Dim) -> Value:
        return self.s.call(relation, self.number(lhs), self.number(rhs))

    def place(self, x: Value, index: tuple[Dim, ...], conditions: list, mask: Value | None) -> tuple[Value, Value | None]:
        """(element of x under the conditions, the conditions without the outer mask)."""
        inside = self.condition(conditions, None)
        both = inside if mask is None else mask if inside is None else self.s.and_(inside, mask)
        return self.value(x, index, both), inside


# ---- ops with rules of their own ------------------------------------------------------------------------------------


def _constant(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    return p.s.const(op.operation.value, op.operation.dtype)  # type: ignore[attr-defined]


def _dim_value(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    return p.s.emit(IndexCast(dtypes.int64), p.s.emit(IndexConst(op.operation.value)))  # type: ignore[attr-defined]


def _iota(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: Iota = op.operation  # type: ignore[assignment]
    return p.s.cast(p.number(index[o.dim]), o.dtype)


def _random(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: RandomBits = op.operation  # type: ignore[assignment]
    linear: Dim = 0
    for i, step in zip(index, row_major(o.shape), strict=True):
        linear = linear + i * step
    seed, offset = (p.value(v, ()) for v in op.operands)
    return o.index_scalar(p.s, p.number(simplified(linear, p.ranges)), seed, offset)


def _pad(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: Pad = op.operation  # type: ignore[assignment]
    (x,) = op.operands
    at, conditions = o.index_map(index, x.shape)
    value, inside = p.place(x, at, conditions, mask)
    return value if inside is None else p.s.select(inside, value, p.s.const(o.value, x.dtype))


def _slice_update(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: SliceUpdate = op.operation  # type: ignore[assignment]
    base, new = op.operands
    at, conditions = o.index_map(index, base.shape)
    value, inside = p.place(new, at, conditions, mask)
    return value if inside is None else p.s.select(inside, value, p.value(base, index, mask))


def _concat(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: Concat = op.operation  # type: ignore[assignment]
    offsets = o.offsets(tuple(v.shape for v in op.operands))
    out: Value | None = None
    for k in range(len(op.operands) - 1, -1, -1):
        x = op.operands[k]
        if x.shape[o.dim] == 0:
            continue
        at = tuple(i - offsets[k] if d == o.dim else i for d, i in enumerate(index))
        conditions = []
        if k > 0:
            conditions.append((index[o.dim], "ge", offsets[k]))
        if k < len(op.operands) - 1:
            conditions.append((index[o.dim], "lt", offsets[k + 1]))
        value, inside = p.place(x, at, conditions, mask)
        out = value if out is None or inside is None else p.s.select(inside, value, out)
    assert out is not None
    return out


def _computed(p: Pull, x: Value, dim: int, position: Value, mask: Value | None, what: str) -> tuple[str, Value | None]:
    """Name of a loop variable that stands for a loaded index, checked to be in [0, size)."""
    zero = p.s.const(0, dtypes.int64)
    size = p.number(x.shape[dim]) if not isinstance(x.shape[dim], int) else p.s.const(x.shape[dim], dtypes.int64)
    ok = p.s.and_(p.s.ge(position, zero), p.s.lt(position, size))
    if mask is not None:
        ok = p.s.or_(ok, p.s.not_(mask))
    p.messages.append(what)
    p.s.emit(Check(len(p.messages), what), ok)
    name = f"at{len(p.loops)}_{len(p.found)}"
    p.loops[name] = p.s.emit(IndexCast(), position)
    p.ranges[name] = x.shape[dim]
    return name, mask


def _take(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: Take = op.operation  # type: ignore[assignment]
    x, where = op.operands
    lead, tail = index[: o.dim], index[o.dim + where.rank :]
    position = p.value(where, index[o.dim : o.dim + where.rank], mask)
    name, mask = _computed(p, x, o.dim, position, mask, f"IndexError: index out of range in a tensor of shape {list(x.shape)} along dim {o.dim}")
    return p.value(x, (*lead, symbol(name), *tail), mask)


def _gather(p: Pull, op: Op, index: tuple[Dim, ...], mask: Value | None) -> Value:
    o: Gather = op.operation  # type: ignore[assignment]
    x, where = op.operands
    position = p.value(where, index, mask)
    name, mask = _computed(p, x, o.dim, position, mask, f"IndexError: index out of range in a tensor of shape {list(x.shape)} along dim {o.dim}")
    return p.value(x, tuple(symbol(name) if d == o.dim else i for d, i in enumerate(index)), mask)


_RULES: dict[type, Callable[[Pull, Op, tuple[Dim, ...], Value | None], Value]] = {
    Constant: _constant, DimValue: _dim_value, Iota: _iota, RandomBits: _random, Pad: _pad, SliceUpdate: _slice_update,
    Concat: _concat, Take: _take, Gather: _gather,
}  # fmt: skip
