"""The engine of simplify: a builder that rewrites and numbers every op it is given.

A rule is a function `(s, op) -> value or tuple of values, or None` registered for operation classes by `@rule`. What
it emits through `s` is simplified in turn, so one round usually reaches the fixed point. A rule never changes a number
that the function computes: no reassociation of floats, no `x * 0`, no `x - x`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from treadle.ir.core import Block, Function, Loc, Op, Operation, Value
from treadle.ir.ops.sources import Constant
from treadle.ir.ops.views import Expand, Permute, Reshape
from treadle.ir.printer import operation_key
from treadle.ir.types import TensorType, Type

__all__ = ["RULES", "RewriteBudgetExceeded", "Simplifier", "most_fired", "rule"]

Number = float | int | bool
Result: TypeAlias = Value | tuple[Value, ...] | None
Rewrite = Callable[["Simplifier", Op], Result]

RULES: dict[type[Operation], list[Rewrite]] = {}
# Neither rewritten nor merged with an equal op.
OPAQUE = frozenset({"graph.barrier", "graph.call", "graph.grad"})
# f(x, y) is f(y, x) to the bit. (Not so for maximum: of zeros of both signs it may take the first.)
COMMUTATIVE = frozenset(
    f"graph.{name}"
    for name in ("add", "mul", "eq", "ne", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor")
)

MAX_DEPTH = 40  # of rules that fire on what rules emitted


class RewriteBudgetExceeded(RuntimeError):
    """Rules undo each other; the message names them."""


def rule(*classes: type[Operation]) -> Callable[[Rewrite], Rewrite]:
    """Decorator: try this rewrite on ops of `classes` (and of their subclasses), after those registered before it."""

    def register(rewrite: Rewrite) -> Rewrite:
        for cls in classes:
            RULES.setdefault(cls, []).append(rewrite)
        return rewrite

    return register


@functools.cache
def rules_for(cls: type[Operation]) -> tuple[Rewrite, ...]:
    """The rules to try on ops of `cls`: its own, then those of its bases."""
    return tuple(rewrite for base in cls.__mro__ for rewrite in RULES.get(base, ()))


def most_fired(fired: Counter[str]) -> str:
    return "rules that fired most: " + ", ".join(f"{name} ({n} times)" for name, n in fired.most_common(5))


def _unordered(op: Op) -> tuple[int, ...]:
    """Identities of the operands, in an order of their own where theirs does not matter."""
    identities = tuple(map(id, op.operands))
    return tuple(sorted(identities)) if op.operation.name in COMMUTATIVE else identities


@dataclass
class Simplifier:
    """Builds the new ops. To rules it is a Builder (`emit`) that also answers questions about values."""

    budget: int
    fired: Counter[str]
    uses: dict[Value, int]  # readers of the old function's values, and of their copies
    returned: set[Value]
    ops: list[Op] = field(default_factory=list)
    loc: Loc | None = None
    producers: dict[Value, Op] = field(default_factory=dict)
    known: dict[tuple, tuple[Value, ...]] = field(default_factory=dict)
    trail: list[str] = field(default_factory=list)

    # What rules ask --------------------------------------------------------------------------------------------------

    def producer(self, v: Value, *classes: type[Operation]) -> Op | None:
        """The op that defines `v`, if it is one of `classes`."""
        op = self.producers.get(v)
        return op if op is not None and isinstance(op.operation, classes) else None

    def splat(self, v: Value) -> Number | None:
        """The number that fills `v`, where that is known: a constant, seen through reshapes, permutes and expands."""
        op = self.producers.get(v)
        while op is not None and isinstance(op.operation, Expand | Reshape | Permute):
            op = self.producers.get(op.operands[0])
        return op.operation.value if op is not None and isinstance(op.operation, Constant) else None

    def splats(self, values: Sequence[Value]) -> list[Number] | None:
        """The numbers that fill `values`, where that is known of all."""
        numbers = [n for v in values if (n := self.splat(v)) is not None]
        return numbers if len(numbers) == len(values) else None

    def used_once(self, v: Value) -> bool:
        """Is one op known to be the only reader of `v`?"""
        return self.uses.get(v) == 1 and v not in self.returned

    # What rules make -------------------------------------------------------------------------------------------------

    def emit(self, operation: Operation, *operands: Value, types: tuple[Type, ...] | None = None) -> Value:
        """Append an op with one result, simplified; its value."""
        if types is None:
            types = operation.infer(*(v.type for v in operands))
        (result,) = self.apply(Op(operation, operands, tuple(Value(t) for t in types), (), self.loc))
        return result

    def full(self, value: Number, t: TensorType) -> Value:
        """A tensor of type `t` filled with `value`: a constant, expanded."""
        number = float(value) if t.dtype.is_floating else bool(value) if t.dtype.kind == "b" else int(value)
        scalar = self.emit(Constant(number, t.dtype, t.device))
        return self.emit(Expand(t.shape), scalar) if t.shape else scalar

    # The engine ------------------------------------------------------------------------------------------------------

    def function(self, fn: Function) -> Function:
        mapping: dict[Value, Value] = {}
        for op in fn.ops:
            self.loc = op.loc
            operands = tuple(mapping.get(v, v) for v in op.operands)
            results = tuple(Value(v.type, v.name) for v in op.results)
            new = self.apply(replace(op, operands=operands, results=results))
            for old, v in zip(op.results, new, strict=True):
                mapping[old] = v
                if v in results:
                    self.uses[v] = self.uses.get(old, 0)
                    if old in self.returned:
                        self.returned.add(v)
                else:
                    self.uses[v] = self.uses.get(v, 0) + self.uses.get(old, 0)
        returns = tuple(mapping.get(v, v) for v in fn.returns)
        return replace(fn, body=Block(fn.params, tuple(self.ops), returns))

    def apply(self, op: Op) -> tuple[Value, ...]:
        """The simplified form of `op`, appended where it is new."""
        opaque = op.operation.name in OPAQUE
        if not opaque:
            for rewrite in rules_for(type(op.operation)):  # type: ignore[arg-type]
                result = self._try(rewrite, op)
                if result is not None:
                    return result
            key = (operation_key(op.operation), _unordered(op)) if op.operation.pure else None
            if key is not None:
                same = self.known.get(key)
                if same is not None:
                    return same
                self.known[key] = op.results
        self.ops.append(op)
        self.producers.update((v, op) for v in op.results)
        return op.results

    def _try(self, rewrite: Rewrite, op: Op) -> tuple[Value, ...] | None:
        name = rewrite.__name__
        self.trail.append(name)
        if len(self.trail) > MAX_DEPTH:
            cycle = ", ".join(dict.fromkeys(self.trail[-10:]))
            raise RewriteBudgetExceeded(f"rules rewrite each other's results without end: {cycle}")
        result = rewrite(self, op)
        self.trail.pop()
        if result is None:
            return None
        self.fired[name] += 1
        if self.fired.total() > self.budget:
            raise RewriteBudgetExceeded(f"more than {self.budget} rewrites; {most_fired(self.fired)}")
        values = result if isinstance(result, tuple) else (result,)
        for v, old in zip(values, op.results, strict=True):
            if v.type is not old.type:
                raise TypeError(f"rule {name} turned {old.type} into {v.type} in {op.operation.name}")
        return values
