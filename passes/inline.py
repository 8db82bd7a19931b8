"""inline: every graph.call becomes the ops of its callee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from treadle.ir.core import Builder, Function, Level, Loc, Op, Value
from treadle.ir.dims import Dim, Expr
from treadle.ir.substitute import substitute, substitute_dim
from treadle.ir.types import TensorType
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["inline", "inline_call"]


@compiler_pass("inline", before=Level.GRAPH, after=Level.GRAPH)
def inline(fn: Function, context: Context | None = None) -> Function:
    """Replace calls by the ops of their callees, recursively."""
    if not any(is_call(op) for op in fn.ops):
        return fn
    b = Builder()
    mapping: dict[Value, Value] = {}
    for op in fn.ops:
        operands = tuple(mapping.get(v, v) for v in op.operands)
        if is_call(op):
            mapping.update(zip(op.results, inline_call(b, op, operands), strict=True))
        else:
            b.ops.append(op if operands == op.operands else replace(op, operands=operands))
    return replace(fn, body=b.block(fn.params, (mapping.get(v, v) for v in fn.returns)))


def is_call(op: Op) -> bool:
    return op.operation.name == "graph.call"


def callee_of(op: Op) -> Function:
    return op.operation.callee  # type: ignore[attr-defined]


def inline_call(b: Builder, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    """Append the ops of the callee of `op`, applied to `operands`; the values that it returns."""
    callee = callee_of(op)
    bindings = bind_callee(callee, operands)
    return _copy(b, callee, operands, bindings, op.loc)


def _copy(
    b: Builder, callee: Function, operands: tuple[Value, ...], bindings: Mapping[str, Dim], loc: Loc | None
) -> tuple[Value, ...]:
    mapping = dict(zip(callee.params, operands, strict=True))
    for op in callee.ops:
        args = tuple(mapping[v] for v in op.operands)
        if is_call(op):
            mapping.update(zip(op.results, inline_call(b, op, args), strict=True))
            continue
        results = tuple(Value(substitute(v.type, bindings), v.name) for v in op.results)
        b.ops.append(Op(substitute(op.operation, bindings), args, results, op.regions, op.loc or loc))
        mapping.update(zip(op.results, results, strict=True))
    return tuple(mapping[v] for v in callee.returns)


def bind_callee(callee: Function, operands: tuple[Value, ...]) -> dict[str, Dim]:
    """The caller's dims that the callee's symbols stand for, from its parameters that name a symbol plainly."""
    bindings: dict[str, Dim] = {}
    pairs: list[tuple[Dim, Dim]] = []
    for param, v in zip(callee.params, operands, strict=True):
        assert isinstance(param.type, TensorType)
        pairs += zip(param.type.shape, v.shape, strict=True)
    for wanted, given in pairs:
        if isinstance(wanted, Expr) and str(wanted) in callee.symbols:
            bindings.setdefault(str(wanted), given)
    missing = [s for s in callee.symbols if s not in bindings]
    if missing:
        raise ValueError(f"call of {callee.name}: the operands' types do not determine {', '.join(missing)}")
    for wanted, given in pairs:
        if substitute_dim(wanted, bindings) != given:
            raise ValueError(f"call of {callee.name}: a dim of {given} where the parameter has {wanted}")
    return bindings
