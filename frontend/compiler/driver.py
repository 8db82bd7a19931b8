"""From a sealed trace to a Step: residuals for a later backward, the program, and where its outputs come from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from treadle.compiler import checking, notes
from treadle.compiler.executable import Executable, make_executable
from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.ops.identity import StopGradient
from treadle.ir.types import TensorType
from treadle.passes.expand_grad import BackwardPlan, backward_function, expand_grad
from treadle.recorder.seal import Sealed, seal
from treadle.recorder.segment import SegmentPlan, ancestors, split_at_cuts
from treadle.recorder.trace import Trace
from treadle.recorder.tree import intern_operation

__all__ = ["Step", "compile_step", "run_step"]

_COPY = intern_operation(StopGradient())


@dataclass(frozen=True)
class Step:
    """What runs when a trace with a certain set of live values ends.

    `types`: of the live values, then of the residuals; symbolic where the program is. `differentiable`: trace indices of
    the outputs that a later backward may start from, in the order of the segment's outputs; `cuts`: trace indices.
    """

    executable: Executable
    function: Function  # the graph it was compiled from, for check_mode
    types: tuple[TensorType, ...]
    segment: SegmentPlan | None
    differentiable: tuple[int, ...]
    cuts: tuple[int, ...]
    uses: dict[tuple[int, ...], int] = field(default_factory=dict, compare=False)  # of a general program, by sizes


@notes.noted
def compile_step(tr: Trace, live: tuple[int, ...], donated: tuple[int, ...], reason: str) -> Step:
    """Compile the open trace for the values at `live`; inputs `donated` may be overwritten."""
    sealed = seal(tr, live)
    wanted = tuple(i for i in live if sealed.grads[i] and i not in tr.visited and tr.handles[i].leaf is None)
    fn, segment, cuts = sealed.function, None, ()
    if wanted:
        fn, segment, wanted, cuts = _with_residuals(tr, sealed, live, wanted)
    types = tuple(v.tensor for v in fn.returns)
    spare = frozenset(donated).difference(segment.reads if segment is not None else ())  # a backward may read a leaf
    executable = make_executable(fn, sealed.leaves, spare, reason)
    return Step(executable, fn, types, segment, wanted, cuts)


def _with_residuals(
    tr: Trace, sealed: Sealed, live: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[Function, SegmentPlan, tuple[int, ...], tuple[int, ...]]:
    """The function that also returns what the backward of `wanted` will read; trace indices of the values at which a
    backward may start (`wanted`, and values with hooks), and of those at which it stops."""
    marked = tuple(dict.fromkeys(tr.cuts))
    traced = sealed.function.body
    ends = tuple(sealed.values[i] for i in (*live, *marked))
    fn = expand_grad(replace(sealed.function, body=Block(traced.params, traced.ops, ends)))
    current = dict(zip((*live, *marked), fn.returns, strict=True))  # what a graph.grad gave is another value now
    needed = ancestors(fn, [current[i] for i in wanted])
    cuts = tuple(i for i in marked if current[i] in needed)
    hooked = tuple(i for i in cuts if tr.handles[i].leaf is None)  # backward goes on behind them
    wanted = tuple(dict.fromkeys((*wanted, *hooked)))
    fn, fed = _with_copies(fn, [current[i] for i in hooked])
    values = [fed.get(current[i], current[i]) for i in cuts]
    forward = split_at_cuts(fn, values)
    others = [i for i in live if i not in wanted]
    returns = tuple(current[i] for i in (*wanted, *others))
    forward = Function(forward.name, Block(forward.params, forward.ops, returns), symbols=forward.symbols)
    leaves = [k for k, h in enumerate(tr.leaves) if h.grad]
    params = range(len(fn.params), len(fn.params) + len(cuts))
    wrt = (*leaves, *params)
    plan: BackwardPlan = backward_function(forward, tuple(range(len(wanted))), wrt)
    kept = set(fn.params[: sealed.leaves])
    residuals = tuple(v for v in plan.residuals if v not in kept)
    segment = SegmentPlan(plan.forward, len(wanted), wrt, tuple(params), residuals)
    now = dict(zip((*wanted, *others), plan.forward.returns, strict=True))
    body = Block(fn.params, _rejoin(fn, plan.forward, values), (*(now[i] for i in live), *residuals))
    return Function(fn.name, body, symbols=fn.symbols), segment, wanted, cuts


def _with_copies(fn: Function, values: list[Value]) -> tuple[Function, dict[Value, Value]]:
    """`fn` in which users read a copy of each of `values`, and these copies: a value has both ends of a cut."""
    if not values:
        return fn, {}
    copies: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in fn.ops:
        read = tuple(copies.get(v, v) for v in op.operands)
        ops.append(op if read == op.operands else Op(op.operation, read, op.results, op.regions, op.loc))
        for v in op.results:
            if v in values:
                copies[v] = Value(v.type)
                ops.append(Op(_COPY, (v,), (copies[v],), (), op.loc))
    return replace(fn, body=Block(fn.params, tuple(ops), fn.returns)), copies


def _rejoin(fn: Function, forward: Function, cuts: list[Value]) -> tuple[Op, ...]:
    """Ops of the rewritten forward, with the ops that define the cuts back in their places."""
    if not cuts:
        return forward.ops
    cut_ops = [op for op in fn.ops if any(r in cuts for r in op.results)]
    ops: list[Op] = []
    defined = set(fn.params)
    pending = [*cut_ops, *forward.ops]
    while pending:
        left = []
        for op in pending:
            if all(v in defined for v in op.operands):
                ops.append(op)
                defined.update(op.results)
            else:
                left.append(op)
        if len(left) == len(pending):
            raise AssertionError("a cut does not come back to its place")
        pending = left
    return tuple(ops)


def run_step(step: Step, buffers: list[Any], scalars: list[float | int], bindings: dict[str, int]) -> list[Any]:
    """Start a run: output buffers (pending) of the live values and the residuals."""
    if checking.active:
        return checking.run_checked(step.executable, step.function, buffers, scalars, bindings)
    return step.executable.run(buffers, scalars, bindings)
