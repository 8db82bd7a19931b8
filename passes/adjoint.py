"""Reverse-mode differentiation of straight-line graph code: the part that expand-grad and backward_function share.

A value is *varied* when it depends on a wrt value by a differentiable path, and *useful* when an output depends on it
so. Adjoint ops are made only for ops with a varied operand and a useful result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from treadle.ir.core import Builder, Op, Value
from treadle.ir.ops.arithmetic import Add
from treadle.ir.ops.base import Composite, Rule
from treadle.ir.ops.build import full
from treadle.ir.printer import print_op
from treadle.ir.types import TensorType
from treadle.passes.decompose import expand_composite
from treadle.passes.inline import inline_call, is_call

__all__ = ["Tape", "is_differentiable", "reachable_wrt", "zeros"]

# Ops through which no cotangent passes, whatever their operands.
CUTS = frozenset({"graph.stop_gradient"})


def is_differentiable(v: Value) -> bool:
    """Can a cotangent of `v` exist? Only floating tensors have one."""
    return isinstance(v.type, TensorType) and v.type.dtype.is_floating


def passes_gradient(op: Op) -> bool:
    return op.operation.name not in CUTS


def zeros(b: Builder, t: TensorType) -> Value:
    """A tensor of zeros: an expanded constant, which is what simplify recognises."""
    return full(b, 0, t.dtype, t.shape, t.device)


def reachable_wrt(ops: Sequence[Op], outputs: Iterable[Value], candidates: set[Value]) -> list[Value]:
    """Which of `candidates` get a gradient from `outputs` through `ops`, in the order in which `ops` mention them."""
    wanted = {v for v in outputs if is_differentiable(v)}
    for op in reversed(ops):
        if passes_gradient(op) and any(v in wanted for v in op.results):
            wanted.update(v for v in op.operands if is_differentiable(v))
    order = dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))
    order.update(dict.fromkeys(outputs))
    return [v for v in order if v in candidates and v in wanted]


def _needs_expansion(op: Op) -> bool:
    """Is `op` differentiated by what it stands for? (A composite without a VJP of its own, or a call.)"""
    return is_call(op) or (isinstance(op.operation, Composite) and op.operation.vjp is None)


def _keep_results(ops: list[Op], results: Sequence[Value], new: Sequence[Value]) -> tuple[list[Op], dict[Value, Value]]:
    """`ops` defining the old `results` where they can (so that others who know those values still find them).

    Where a result is one of the operands, or two results are one value, it moves: the map says where to.
    """
    own = {v for op in ops for v in op.results}
    names: dict[Value, Value] = {}
    moved: dict[Value, Value] = {}
    for old, v in zip(results, new, strict=True):
        if v in own and v not in names:
            names[v] = old
        else:
            moved[old] = names.get(v, v)

    def rename(vs: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(names.get(v, v) for v in vs)

    return [replace(op, operands=rename(op.operands), results=rename(op.results)) for op in ops], moved


@dataclass
class Tape:
    """Forward ops, in order, to which adjoints are appended. `moved`: where values went that expansion removed."""

    ops: list[Op] = field(default_factory=list)
    moved: dict[Value, Value] = field(default_factory=dict)

    def current(self, v: Value) -> Value:
        return self.moved.get(v, v)

    def append(self, op: Op) -> None:
        """Append a forward op, with operands that were moved replaced."""
        operands = tuple(map(self.current, op.operands))
        self.ops.append(op if operands == op.operands else replace(op, operands=operands))

    def _activity(
        self, outputs: Sequence[Value], wrt: Sequence[Value], stops: set[Value]
    ) -> tuple[set[Value], set[Value]]:
        varied = set(wrt)
        for op in self.ops:
            if passes_gradient(op) and any(v in varied and is_differentiable(v) for v in op.operands):
                varied.update(v for v in op.results if is_differentiable(v))
        useful = {v for v in outputs if is_differentiable(v)}
        for op in reversed(self.ops):
            if passes_gradient(op) and any(v in useful and v not in stops for v in op.results):
                useful.update(v for v in op.operands if v in varied)
        return varied, useful

    def _expand_active(self, varied: set[Value], useful: set[Value]) -> bool:
        """Replace active ops that have no VJP of their own by what they stand for. True when something was."""
        chosen = {
            i
            for i, op in enumerate(self.ops)
            if _needs_expansion(op)
            and any(v in varied for v in op.operands)
            and any(v in varied and v in useful for v in op.results)
        }
        if not chosen:
            return False
        old, self.ops = self.ops, []
        local: dict[Value, Value] = {}
        for i, op in enumerate(old):
            operands = tuple(local.get(v, v) for v in op.operands)
            if i not in chosen:
                self.ops.append(op if operands == op.operands else replace(op, operands=operands))
                continue
            b = Builder()
            new = inline_call(b, op, operands) if is_call(op) else expand_composite(b, op, operands, recursive=False)
            part, kept = _keep_results(b.ops, op.results, new)
            self.ops += part
            local.update(kept)
        # Earlier moves may lead to values that moved now.
        self.moved = {v: local.get(w, w) for v, w in self.moved.items()}
        self.moved.update(local)
        return True

    def adjoint(
        self,
        outputs: Sequence[Value],
        seeds: Sequence[Value],
        wrt: Sequence[Value],
        through: Sequence[bool],
        b: Builder,
    ) -> list[Value]:
        """Emit into `b` the ops that compute a cotangent for each wrt value; those values.

        Outputs and wrt are named by their values before any expansion. Afterwards the caller appends `b.ops`.
        """
        while True:
            outs, seed_values, targets = (list(map(self.current, vs)) for vs in (outputs, seeds, wrt))
            stops = {v for v, passing in zip(targets, through, strict=True) if not passing}
            varied, useful = self._activity(outs, targets, stops)
            if not self._expand_active(varied, useful):
                break
        sweep = _Sweep(b, varied, stops)
        for v, seed in zip(outs, seed_values, strict=True):
            if v in varied:
                sweep.accumulate(v, seed, None)
        for op in reversed(self.ops):
            sweep.visit(op)
        return [sweep.total(v) for v in targets]


class _Sweep:
    """One reverse traversal: cotangents by value."""

    def __init__(self, b: Builder, varied: set[Value], stops: set[Value]) -> None:
        self.b = b
        self.varied = varied
        self.stops = stops
        self.cotangents: dict[Value, Value] = {}

    def accumulate(self, v: Value, ct: Value, source: Op | None) -> None:
        if ct.type is not v.type:
            where = f"the VJP of {print_op(source)}" if source is not None else "a seed"
            raise TypeError(f"{where} gave a cotangent of {ct.type} for a value of {v.type}")
        known = self.cotangents.get(v)
        self.cotangents[v] = ct if known is None else self.b.emit(Add(), known, ct)

    def total(self, v: Value) -> Value:
        known = self.cotangents.get(v)
        return zeros(self.b, v.tensor) if known is None else known

    def visit(self, op: Op) -> None:
        """Emit the adjoint of `op` where its results have cotangents and its operands need them."""
        cotangents = tuple(None if v in self.stops else self.cotangents.get(v) for v in op.results)
        if all(ct is None for ct in cotangents) or not passes_gradient(op):
            return
        needs = tuple(v in self.varied and is_differentiable(v) for v in op.operands)
        if not any(needs):
            return
        self.b.loc = op.loc
        operation = op.operation
        assert isinstance(operation, Rule), operation
        try:
            grads = operation.vjp(self.b, op, cotangents, needs)
        except NotImplementedError as error:
            error.add_note(f"while differentiating {print_op(op)}" + (f" at {op.loc}" if op.loc else ""))
            raise
        for v, grad, need in zip(op.operands, grads, needs, strict=True):
            if grad is not None and need:
                self.accumulate(v, grad, op)
