"""What things cost, in rough units of one vector instruction for an element. One model for fusion and schedules."""

from __future__ import annotations

import functools
from typing import Any

from treadle.ir.core import Operation
from treadle.ir.dims import Dim, evaluate, symbols_of
from treadle.ir.ops import arithmetic, logic, sources, transcendental
from treadle.ir.ops.base import Elementwise
from treadle.passes.lower.index import LoopVar
from treadle.passes.lower.nodes import Apply, Call, Checked, Const, Holds, Index, Load, Node, Random, Reduce

__all__ = ["LIKELY", "flops", "likely", "node_cost", "subtree_cost"]

LIKELY = 128  # what a symbol is taken for
TRANSCENDENTAL = 12
_SLOW = (
    arithmetic.Div, arithmetic.Sqrt, arithmetic.Rsqrt, arithmetic.Pow, arithmetic.FloorDiv, arithmetic.Remainder,
    arithmetic.Fmod, arithmetic.Reciprocal,
)  # fmt: skip


def likely(d: Dim) -> int:
    """The number that a dim is taken for where one has to be chosen."""
    return d if isinstance(d, int) else max(1, evaluate(d, dict.fromkeys(symbols_of(d), LIKELY)))


@functools.cache
def _flops_of(cls: Any) -> int:
    if issubclass(cls, sources.RandomBits):
        return 20
    if not issubclass(cls, Elementwise):
        return 0
    if cls.__module__ == transcendental.__name__ or issubclass(cls, arithmetic.Pow):
        return TRANSCENDENTAL
    if issubclass(cls, _SLOW):
        return 4
    return 0 if issubclass(cls, logic.Bitcast) else 1


def flops(operation: Operation) -> int:
    """The cost of one element of a graph op, its operands at hand."""
    return _flops_of(type(operation))  # type: ignore[arg-type]


def node_cost(n: Node) -> int:
    """The cost of one scalar, its arguments at hand."""
    if isinstance(n, Apply):
        return flops(n.op.operation)
    if isinstance(n, Random):
        return 20
    if isinstance(n, Load):
        return 1 if n.mask is None else 2
    if isinstance(n, Holds):
        return 2 * len(n.conditions)
    if isinstance(n, Reduce | Checked | Index | Call):
        return 1
    assert isinstance(n, Const)
    return 0


def subtree_cost(n: Node, within: frozenset[LoopVar], limit: int) -> int:
    """The cost of a scalar with all of its arguments that vary with `within`, counted up to `limit`."""
    total, pending, seen = 0, [n], {n}
    while pending and total < limit:
        x = pending.pop()
        total += node_cost(x)
        if isinstance(x, Reduce):
            continue
        for a in x.args:
            if a not in seen and not a.vars.isdisjoint(within):
                seen.add(a)
                pending.append(a)
    return total
