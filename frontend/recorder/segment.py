"""Segment: an executed program that can still be differentiated.

When a forward is forced before its backward, what the backward will read (the residuals) is kept as extra outputs of the
program. A Segment holds them, with the forward as IR; a backward through it records a call of the transposed function.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.printer import digest
from treadle.passes.expand_grad import BackwardPlan, backward_function, reachable_wrt
from treadle.recorder.handle import Handle

__all__ = ["Segment", "SegmentPlan", "ancestors", "serial", "split_at_cuts"]

_serial = itertools.count(1)


def serial() -> int:
    """A number that grows with time: later segments are differentiated first."""
    return next(_serial)


_functions: weakref.WeakValueDictionary[str, Function] = weakref.WeakValueDictionary()


def shared_function(fn: Function) -> Function:
    """The one object for all functions of this text: a call of it is one edge, whichever program brought it."""
    return _functions.setdefault(digest(fn), fn)


@dataclass
class SegmentPlan:
    """Static part, shared by all runs of one program.

    `forward`: params are the leaves, scalars, then one for each cut (a value at which backward stops inside the program);
    returns are the differentiable outputs, then the values at cuts as they are fed in. `wrt`: parameter numbers that
    receive cotangents. `residuals`: values of `forward` that backward may read.
    """

    forward: Function
    outputs: int
    wrt: tuple[int, ...]
    cuts: tuple[int, ...]  # parameter number of each cut
    residuals: tuple[Value, ...]
    plans: dict[tuple[int, ...], tuple[BackwardPlan, tuple[int, ...]]] = field(default_factory=dict)

    def backward(self, seeds: tuple[int, ...]) -> tuple[BackwardPlan, tuple[int, ...]]:
        """The transposed function for cotangents of the outputs numbered `seeds`, and the parameters it reaches."""
        found = self.plans.get(seeds)
        if found is None:
            outputs = [self.forward.returns[k] for k in seeds]
            params = self.forward.params
            reached = set(reachable_wrt(list(self.forward.ops), outputs, {params[p] for p in self.wrt}))
            wrt = tuple(p for p in self.wrt if params[p] in reached)
            plan = backward_function(self.forward, seeds, wrt)
            found = self.plans[seeds] = replace(plan, function=shared_function(plan.function)), wrt
        return found

    @functools.cached_property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the parameters that the outputs depend on: what a backward or a replay may read."""
        needed = ancestors(self.forward, self.forward.returns[: self.outputs])
        return tuple(k for k, p in enumerate(self.forward.params) if p in needed)

    @functools.cached_property
    def replay(self) -> Function:
        """What computes the outputs from the parameters numbered `reads`."""
        fn = self.forward
        outputs = fn.returns[: self.outputs]
        needed = ancestors(fn, outputs)
        ops = tuple(op for op in fn.ops if any(r in needed for r in op.results))
        return shared_function(replace(fn, body=Block(tuple(fn.params[k] for k in self.reads), ops, outputs)))


@dataclass
class Segment:
    """One run: residual values (None once freed), the leaves, and the handles at cuts."""

    plan: SegmentPlan
    saved: dict[Value, Handle] | None
    leaves: list[Handle | None]  # by parameter number, scalars excluded; None where nothing reads it
    cut_handles: list[Handle]
    order: int
    positions: list[int]  # trace index of each output
    sizes: dict[str, int]  # of the symbols, in this run
    scalars: list[float | int]  # the runtime scalars of this run

    def free(self) -> None:
        self.saved = None
        self.leaves = []

    def value(self, v: Value) -> Handle:
        """The handle of a residual: kept, or a leaf."""
        assert self.saved is not None
        return self.saved[v] if v in self.saved else self.leaf(self.plan.forward.params.index(v))

    def leaf(self, number: int) -> Handle:
        found = self.leaves[number]
        assert found is not None
        return found

    def inputs(self) -> tuple[list[Handle], list[float | int]]:
        """The leaves and scalars that `plan.replay` takes."""
        count = len(self.leaves)
        reads = self.plan.reads
        return [self.leaf(k) for k in reads if k < count], [self.scalars[k - count] for k in reads if k >= count]

    def target(self, param: int) -> Handle:
        """The handle that a cotangent of parameter `param` belongs to."""
        if param in self.plan.cuts:
            return self.cut_handles[self.plan.cuts.index(param)]
        return self.leaf(param)


def ancestors(fn: Function, values: Sequence[Value]) -> set[Value]:
    """`values` and all that they are computed from."""
    found = set(values)
    for op in reversed(fn.ops):
        if any(r in found for r in op.results):
            found.update(op.operands)
    return found


def split_at_cuts(fn: Function, cuts: list[Value]) -> Function:
    """`fn` with the values `cuts` as further parameters (their defining ops, and ops for nothing, stay behind)."""
    ops: list[Op] = [op for op in fn.ops if not any(r in cuts for r in op.results)]
    return Function(fn.name, Block((*fn.params, *cuts), tuple(ops), fn.returns), fn.level, fn.symbols)
