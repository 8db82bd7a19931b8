"""From the path of a trace to a graph Function."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.core import Block, Function, Op, Value
from treadle.recorder.trace import Trace
from treadle.recorder.tree import LEAF

__all__ = ["Sealed", "seal"]


@dataclass(frozen=True)
class Sealed:
    """A trace as IR: parameters are the leaves, then the runtime scalars. `values`, `grads` by trace index."""

    function: Function
    leaves: int
    values: tuple[Value, ...]
    grads: tuple[bool, ...]


def seal(tr: Trace, live: tuple[int, ...]) -> Sealed:
    """The Function that computes the values at trace indices `live`. Linear in the length of the trace."""
    leaves: list[Value] = []
    scalars: list[Value] = []
    ops: list[Op] = []
    values: list[Value] = []
    grads: list[bool] = []
    for node in tr.node.path():
        (leaves if node.operation is LEAF else scalars).extend(node.params)
        ops.extend(node.ops)
        values.extend(node.values)
        grads.extend(node.grads)
    body = Block((*leaves, *scalars), tuple(ops), tuple(values[i] for i in live))
    return Sealed(Function("step", body, symbols=tuple(tr.node.symbols)), len(leaves), tuple(values), tuple(grads))
