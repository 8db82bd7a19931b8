"""decompose: composites become primitives, and ops that only mattered to autograd go."""

from __future__ import annotations

from dataclasses import replace

from treadle.ir.core import Builder, Function, Level, Op, Value
from treadle.ir.ops.base import Composite
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["decompose", "expand_composite"]

AUTOGRAD_MARKS = frozenset({"graph.leaf", "graph.stop_gradient"})


@compiler_pass("decompose", before=Level.GRAPH, after=Level.GRAPH)
def decompose(fn: Function, context: Context | None = None) -> Function:
    """Replace composites by primitives; once no graph.grad is left, drop leaf and stop_gradient marks."""
    drop_marks = not any(op.operation.name == "graph.grad" for op in fn.ops)
    b = Builder()
    mapping: dict[Value, Value] = {}
    for op in fn.ops:
        operands = tuple(mapping.get(v, v) for v in op.operands)
        if drop_marks and op.operation.name in AUTOGRAD_MARKS:
            mapping[op.result] = operands[0]
        elif isinstance(op.operation, Composite):
            mapping.update(zip(op.results, expand_composite(b, op, operands), strict=True))
        else:
            b.ops.append(op if operands == op.operands else replace(op, operands=operands))
    return replace(fn, body=b.block(fn.params, (mapping.get(v, v) for v in fn.returns)))


def expand_composite(b: Builder, op: Op, operands: tuple[Value, ...], recursive: bool = True) -> tuple[Value, ...]:
    """Append the decomposition of `op` on `operands`, of its parts too when `recursive`; the results' values."""
    operation = op.operation
    assert isinstance(operation, Composite), operation
    inner = Builder(loc=op.loc)
    yields = operation.decompose(inner, *operands)
    for result, v in zip(op.results, yields, strict=True):
        if v.type is not result.type:
            raise TypeError(f"{operation.name} decomposes into {v.type} where its type rule says {result.type}")
    mapping: dict[Value, Value] = {}
    for part in inner.ops:
        args = tuple(mapping.get(v, v) for v in part.operands)
        if recursive and isinstance(part.operation, Composite):
            mapping.update(zip(part.results, expand_composite(b, part, args), strict=True))
        else:
            b.ops.append(part if args == part.operands else replace(part, operands=args))
    return tuple(mapping.get(v, v) for v in yields)
