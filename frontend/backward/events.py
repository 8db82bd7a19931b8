"""The two special events of autograd in a trace: a `graph.grad`, and a transposed function inlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.ir.core import Builder, Function, Op, Value
from treadle.ir.dims import Dim, Expr, evaluate
from treadle.ir.ops.arithmetic import Add, Neg, Sub
from treadle.ir.ops.base import View
from treadle.ir.ops.control import Grad
from treadle.ir.ops.identity import StopGradient
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.reductions import Sum
from treadle.passes.expand_grad import reachable_wrt
from treadle.recorder.build import RuntimeScalar
from treadle.recorder.generalise import dims_of, with_dims
from treadle.recorder.handle import Handle
from treadle.recorder.trace import Trace, current_trace, make_tensor

__all__ = ["GradInfo", "record_call", "record_grad", "record_note"]

_LINEAR = (Add, Sub, Neg, Sum, Cast, View, StopGradient)  # their derivative reads no values: nothing to free


@dataclass(frozen=True)
class GradInfo:
    """Of one backward: which candidates it reaches, what it went through, and what it freed (trace indices)."""

    wrt: tuple[int, ...]
    active: frozenset[int]
    spending: frozenset[int]


def record_grad(
    outputs: Sequence[int],
    seeds: Sequence[Any],
    candidates: Sequence[int],
    through: Sequence[int],
    create_graph: bool,
    retain_graph: bool,
) -> tuple[list[tuple[int, Any]], GradInfo]:
    """Record the cotangents of those of `candidates` (backward stops there) and `through` that influence `outputs`."""
    tr = current_trace()
    seed_indices = tuple(s._h.index if s._h.trace is tr else tr.enter(s) for s in seeds)
    key = ("grad", tuple(outputs), seed_indices, tuple(candidates), tuple(through), create_graph, retain_graph)

    def grow(tr: Trace, b: Builder, values: list[Value]) -> tuple[tuple[Value, ...], tuple[bool, ...], GradInfo]:
        return _grow_grad(tr, b, values, key)

    handles = tr.follow(key, "grad", key[1:], grow)
    info: GradInfo = tr.node.info
    return [(i, make_tensor(h)) for i, h in zip(info.wrt, handles, strict=True)], info


def record_note(name: str, *operands: int) -> None:
    """An event without values: programs of a trace in which Python had to wait for a gradient are others."""

    def grow(tr: Trace, b: Builder, values: list[Value]) -> tuple[tuple[Value, ...], tuple[bool, ...], None]:
        return (), (), None

    current_trace().follow((name, *operands), name, operands, grow)


def _grow_grad(tr: Trace, b: Builder, values: list[Value], key: tuple) -> tuple:
    _, outputs, seeds, candidates, through, create_graph, _ = key
    ops = [op for node in tr.node.path() for op in node.ops]
    outs = [values[i] for i in outputs]
    reached = set(reachable_wrt(ops, outs, {values[i] for i in (*candidates, *through)}))
    wrt = [i for i in (*candidates, *through) if values[i] in reached]
    active, spending = _active(ops, outs, {values[i] for i in candidates}, values, tr.grads)
    info = GradInfo(tuple(wrt), active, spending)
    if not wrt:
        return (), (), info
    flags = tuple(i in through for i in wrt)
    made = b.emit(Grad(len(outs), flags), *outs, *(values[i] for i in seeds), *(values[i] for i in wrt))
    made = made if isinstance(made, tuple) else (made,)
    return made, (create_graph,) * len(made), info


def _active(
    ops: list[Op], outputs: list[Value], stops: set[Value], values: list[Value], grads: list[bool]
) -> tuple[frozenset[int], frozenset[int]]:
    """Trace indices between the leaves and `outputs`, and those of them whose derivative reads saved values."""
    index = {v: i for i, v in enumerate(values) if grads[i]}
    wanted, reading, active, spending = set(outputs), set(), set(), set()
    for op in reversed(ops):
        hit = [r for r in op.results if r in wanted]
        if not hit or isinstance(op.operation, StopGradient):
            continue
        saves = not isinstance(op.operation, _LINEAR) or any(r in reading for r in hit)
        for r in hit:
            if r in index:
                active.add(index[r])
                if saves:
                    spending.add(index[r])
            elif saves:
                reading.add(r)
        for v in op.operands:
            if v not in stops:
                wanted.add(v)
                if saves and v not in index:  # an inner value of an event: the event's result answers for it
                    reading.add(v)
    return frozenset(active), frozenset(spending)


def record_call(
    fn: Function,
    tensors: Sequence[Any],
    handles: Sequence[Handle],
    scalars: Sequence[float | int],
    sizes: dict[str, int],
    tracked: bool = False,
) -> list[Any]:
    """Record `fn` inlined on tensors, concrete handles and numbers; `tracked`: floating results require grad.

    `sizes`: the symbols of `fn` in the run it continues; used (as literals) for symbols that no operand's shape tells.
    """
    tr = current_trace()
    operands = [t._h.index if t._h.trace is tr else tr.enter(t) for t in tensors]
    operands += [h.index if h.trace is tr else tr.enter_handle(h) for h in handles]
    operands += [tr.enter_scalar(RuntimeScalar(s)) for s in scalars]
    told = {str(d) for p in fn.params for d in p.shape if _is_symbol(d)}
    literal = tuple((name, sizes[name]) for name in fn.symbols if name not in told)
    key = ("call", id(fn), tuple(operands), tracked, literal)

    def grow(tr: Trace, b: Builder, values: list[Value]) -> tuple[tuple[Value, ...], tuple[bool, ...], Function]:
        results = inline(b, fn, [values[i] for i in operands], dict(literal))
        return results, tuple(tracked and r.dtype.is_floating for r in results), fn

    return [make_tensor(h) for h in tr.follow(key, "call", key[1:], grow)]


def _is_symbol(d: Dim) -> bool:
    return isinstance(d, Expr) and str(d).isidentifier()


def inline(b: Builder, fn: Function, operands: Sequence[Value], sizes: dict[str, int]) -> tuple[Value, ...]:
    """Append the ops of `fn` on `operands`, with its symbols bound to their dims, and to `sizes`."""
    bindings: dict[str, Any] = dict(sizes)
    for p, v in zip(fn.params, operands, strict=True):
        for a, d in zip(p.shape, v.shape, strict=True):
            if _is_symbol(a):
                bindings[str(a)] = d
    mapping = dict(zip(fn.params, operands, strict=True))
    loc = b.loc
    for op in fn.ops:
        b.loc = op.loc or loc
        operation = op.operation
        if bindings and any(isinstance(d, Expr) for d in dims_of(operation, [])):
            operation = with_dims(operation, iter([bind(d, bindings) for d in dims_of(operation, [])]))
        made = b.emit(operation, *(mapping[v] for v in op.operands))
        mapping.update(zip(op.results, made if isinstance(made, tuple) else (made,), strict=True))
    b.loc = loc
    return tuple(mapping[v] for v in fn.returns)


def bind(d: Dim, bindings: dict[str, Any]) -> Dim:
    """`d` with its symbols replaced by dims (ints or expressions)."""
    return evaluate(d, bindings) if isinstance(d, Expr) else d
