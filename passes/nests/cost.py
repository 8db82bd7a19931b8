"""What it costs to compute a value again instead of keeping it."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.ir.core import Op, Value
from treadle.ir.ops import arithmetic, logic, sources, transcendental
from treadle.ir.ops.base import Elementwise, View

__all__ = ["flops", "is_dear"]

_SLOW = (arithmetic.Div, arithmetic.Sqrt, arithmetic.Rsqrt, arithmetic.Pow, arithmetic.FloorDiv, arithmetic.Remainder, arithmetic.Fmod)
_FREE = (logic.Cast,)


def flops(op: Op) -> int:
    """Rough instructions for one element."""
    o = op.operation
    if isinstance(o, sources.RandomBits):
        return 60
    if not isinstance(o, Elementwise):
        return 0
    if type(o).__module__ == transcendental.__name__:
        return 20
    return 8 if isinstance(o, _SLOW) else 1


def is_dear(producers: Mapping[Value, Op], v: Value, limit: int = 8) -> bool:
    """Does one element take more than `limit` instructions from what is in memory?"""
    total, pending, seen = 0, [v], set()
    while pending and total <= limit:
        x = pending.pop()
        if x in seen or x not in producers:
            continue
        seen.add(x)
        op = producers[x]
        total += flops(op)
        if isinstance(op.operation, Elementwise | View):
            pending.extend(op.operands)
    return total > limit
