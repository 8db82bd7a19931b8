"""expand-grad: autograd as an IR transform. Every graph.grad becomes the adjoint ops of the ops before it.

Grads are expanded in order, and a later one may differentiate through the adjoint ops of an earlier one: that is all
there is to higher order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.ir.core import Block, Builder, Function, Level, Op, Rewriter, Value
from treadle.ir.dims import Dim, Undecided
from treadle.ir.ops.base import View
from treadle.ir.substitute import used_symbols
from treadle.passes.adjoint import Tape, reachable_wrt
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["BackwardPlan", "backward_function", "expand_grad", "reachable_wrt"]


@compiler_pass("expand-grad", before=Level.GRAPH, after=Level.GRAPH)
def expand_grad(fn: Function, context: Context | None = None) -> Function:
    """Replace every graph.grad by adjoint ops."""
    if not any(op.operation.name == "graph.grad" for op in fn.ops):
        return fn
    tape = Tape()
    for op in fn.ops:
        if op.operation.name == "graph.grad":
            _expand_one(tape, op)
        else:
            tape.append(op)
    body = Block(fn.params, tuple(tape.ops), tuple(map(tape.current, fn.returns)))
    return replace(fn, body=body)


def _expand_one(tape: Tape, op: Op) -> None:
    grad = op.operation
    n: int = grad.outputs  # type: ignore[attr-defined]
    through: tuple[bool, ...] = grad.through  # type: ignore[attr-defined]
    outputs, seeds, wrt = op.operands[:n], op.operands[n : 2 * n], op.operands[2 * n :]
    emitted = Builder()
    cotangents = tape.adjoint(outputs, seeds, wrt, through or (True,) * len(wrt), emitted)
    tape.ops += emitted.ops
    tape.moved.update(zip(op.results, cotangents, strict=True))


@dataclass(frozen=True, eq=False)
class BackwardPlan:
    """The backward of a function that runs on its own.

    `function` takes (seeds..., residuals...) and returns a cotangent for each wrt; `residuals` are the values of
    `forward` it reads, in order. `forward` is the function given, or an equivalent one in which composites were
    decomposed.
    """

    forward: Function
    function: Function
    residuals: tuple[Value, ...]


def backward_function(forward: Function, outputs: tuple[int, ...], wrt: tuple[int, ...]) -> BackwardPlan:
    """Differentiate `forward` on its own: `outputs` number the returns that get seeds, `wrt` parameters."""
    tape = Tape(list(forward.ops))
    ends = [forward.returns[i] for i in outputs]
    seeds = [Value(v.type, f"seed{n}") for n, v in enumerate(ends)]
    b = Builder()
    targets = [forward.params[i] for i in wrt]
    cotangents = tape.adjoint(ends, seeds, targets, (True,) * len(targets), b)
    body = Block(forward.params, tuple(tape.ops), tuple(map(tape.current, forward.returns)))
    new_forward = forward if tuple(tape.ops) == forward.ops else replace(forward, body=body)
    ops, residuals = _close_over(tape.ops, b.ops, seeds, cotangents)
    # Values of its own: the forward's and the backward's may meet in one function later.
    own = Rewriter()
    params = [Value(v.type, v.name) for v in residuals]
    own.mapping.update(zip(residuals, params, strict=True))
    for op in ops:
        own.copy(op)
    backward = own.builder.block((*seeds, *params), map(own.value, cotangents))
    used = used_symbols(backward)
    symbols = tuple(s for s in forward.symbols if s in used)
    return BackwardPlan(new_forward, Function(f"{forward.name}_backward", backward, Level.GRAPH, symbols), residuals)


def _close_over(
    forward: list[Op], adjoint: list[Op], seeds: list[Value], yields: list[Value]
) -> tuple[list[Op], tuple[Value, ...]]:
    """The adjoint's live ops, preceded by forward ops that are cheaper to repeat than to keep; and the residuals."""
    producers = {v: op for op in forward for v in op.results}
    live: list[Op] = []
    read: dict[Value, None] = dict.fromkeys(yields)
    for op in reversed(adjoint):
        if any(v in read for v in op.results):
            live.append(op)
            read.update(dict.fromkeys(op.operands))
    live.reverse()
    own = {v for op in live for v in op.results} | set(seeds)
    repeated: dict[int, Op] = {}
    residuals: dict[Value, None] = {}
    pending = [v for op in live for v in op.operands if v not in own] + [v for v in yields if v not in own]
    while pending:
        v = pending.pop(0)
        source = producers.get(v)
        if source is not None and _cheap_to_repeat(source):
            repeated[id(source)] = source
            pending += source.operands
        else:
            residuals[v] = None
    again = [op for op in forward if id(op) in repeated]
    return again + live, tuple(residuals)


def _cheap_to_repeat(op: Op) -> bool:
    """Constants, and views that are not smaller than what they look at."""
    if op.operation.name in ("graph.constant", "graph.dim", "graph.iota"):
        return True
    return isinstance(op.operation, View) and not _may_be_smaller(op.result.tensor.numel, op.operands[0].tensor.numel)


def _may_be_smaller(a: Dim, b: Dim) -> bool:
    try:
        return a < b
    except Undecided:
        return True
