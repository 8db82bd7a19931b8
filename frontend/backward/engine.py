"""The driver of backward passes: which values get cotangents, in which order, and where they end.

Inside the open trace a backward is one `graph.grad` event, expanded by a pass later. Executed forwards are Segments,
differentiated by a call of their transposed function. Hooks and custom Functions are cuts: backward stops there, runs
Python with the complete cotangent, and goes on. Points are visited from the latest to the earliest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.backward.events import record_call, record_grad, record_note
from treadle.backward.modes import set_grad_enabled
from treadle.recorder.handle import FREED, GradCell, Handle
from treadle.recorder.segment import Segment
from treadle.recorder.trace import Trace, current_trace

__all__ = ["FunctionCell", "run_backward"]

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


class FunctionCell(GradCell):
    """The outputs of a custom autograd.Function: a cotangent that arrives here runs its `backward`."""

    __slots__ = ("node", "output")
    of_function = True

    def __init__(self, node: Any, output: int) -> None:
        super().__init__()
        self.node = node
        self.output = output


Point = tuple[float, int]  # when a value was recorded: order of its segment (inf in the open trace), index in its trace


@dataclass
class _Run:
    """One backward. Values at which cotangents wait are known by their handles: Python code that runs in between (hooks,
    custom Functions) may need values, which closes the trace and makes executed values of recorded ones."""

    create_graph: bool
    retain_graph: bool
    inputs: list[Handle] | None
    pending: dict[int, tuple[Handle, Any]] = field(default_factory=dict)  # id(handle) -> cotangent, to be propagated
    cuts: dict[int, tuple[Handle, Any]] = field(
        default_factory=dict
    )  # id(handle) of a value with hooks -> cotangent so far
    leaves: dict[int, tuple[GradCell, Any]] = field(default_factory=dict)
    functions: dict[int, dict[int, tuple[GradCell, Any]]] = field(
        default_factory=dict
    )  # id(node) -> output -> cotangent
    nodes: dict[int, Any] = field(default_factory=dict)
    captured: dict[int, Any] = field(default_factory=dict)  # id(handle) of an input -> cotangent
    segments: dict[int, Segment] = field(default_factory=dict)  # gone through, by order
    visited: dict[int, tuple[Trace, set[int], set[int]]] = field(default_factory=dict)  # traces gone through, and where

    def route(self, h: Handle, cot: Any) -> None:
        """Deliver a cotangent to the value behind a handle."""
        if not h.grad or cot is None:
            return
        if h.leaf is not None:
            self._capture(h, cot)
            self._arrive(h.leaf, cot)
            return
        if h.buffer is not None:
            if h.history is None:
                return
            if h.history is FREED or h.history[0].saved is None:
                raise RuntimeError(TWICE)
        if h.hooks:
            _wait(self.cuts, h, cot)
            return
        if h.buffer is not None:
            self._capture(h, cot)
        _wait(self.pending, h, cot)

    def _capture(self, h: Handle, cot: Any) -> None:
        if self.inputs is not None and any(h is i for i in self.inputs):
            _accumulate(self.captured, id(h), cot)

    def _arrive(self, cell: GradCell, cot: Any) -> None:
        if isinstance(cell, FunctionCell):
            self.nodes[id(cell.node)] = cell.node
            table, key = self.functions.setdefault(id(cell.node), {}), cell.output
        else:
            table, key = self.leaves, id(cell)
        old = table.get(key)
        table[key] = (cell, cot if old is None else old[1] + cot)

    # ---- one step at a time ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Propagate from the latest points, as far back as Python code waits; False when nothing is left."""
        cut = max(((_point(h), k) for k, (h, _) in self.cuts.items()), default=None)
        function = max(((_point_of_node(self.nodes[k]), k) for k in self.functions), default=None)
        python = max((p for p, _ in filter(None, (cut, function))), default=None)
        ready = {k: _point(h) for k, (h, _) in self.pending.items()}
        latest = max(ready.values(), default=None)
        if latest is not None and (python is None or latest > python):
            keys = [k for k, p in ready.items() if p[0] == latest[0] and (python is None or p > python)]
            points = [self.pending.pop(k) for k in sorted(keys, key=ready.__getitem__)]
            if latest[0] == math.inf:
                self._through_trace(points)
            else:
                self._through_segment(points)
        elif cut is not None and cut[0] == python:
            self._through_hooks(cut[1])
        elif function is not None:
            self._through_function(function[1])
        else:
            return False
        return True

    def _through_hooks(self, key: int) -> None:
        record_note("python")
        h, cot = self.cuts.pop(key)
        cot = _run_hooks(h.hooks, cot)
        self._capture(h, cot)
        self.pending[key] = (h, cot)

    def _through_function(self, key: int) -> None:
        record_note("python")
        node = self.nodes.pop(key)
        cots = {k: _run_hooks(cell.hooks, cot) for k, (cell, cot) in self.functions.pop(key).items()}
        for h, cot in node.run(cots, self.retain_graph):
            self.route(h, cot)

    def _through_trace(self, points: list[tuple[Handle, Any]]) -> None:
        tr = current_trace()
        outputs = [h.index for h, _ in points]
        candidates = list(tr.grad_points) + [i for i in tr.cuts if i not in outputs]
        through: list[int] = []
        if self.inputs is not None:
            through = [h.index for h in self.inputs if h.trace is tr and h.buffer is None and h.leaf is None]
            through = [i for i in dict.fromkeys(through) if i not in candidates and not tr.handles[i].hooks]
        seeds = [cot for _, cot in points]
        found, info = record_grad(outputs, seeds, candidates, through, self.create_graph, self.retain_graph)
        if info.spending & tr.spent:
            raise RuntimeError(TWICE)
        _, active, spending = self.visited.setdefault(id(tr), (tr, set(), set()))
        active |= info.active
        spending |= info.spending
        for h, index, cot in [(tr.handles[i], i, cot) for i, cot in found]:  # handles first: a full trace is closed
            if index in through:
                _accumulate(self.captured, id(h), cot)
            else:
                self.route(h, cot)

    def _through_segment(self, points: list[tuple[Handle, Any]]) -> None:
        segment: Segment = points[0][0].history[0]  # type: ignore[index]
        cots = {h.history[1]: cot for h, cot in points}  # type: ignore[index]
        if segment.saved is None:
            raise RuntimeError(TWICE)
        if self.create_graph:
            self._replay_segment(segment, cots)
            return
        self.segments[segment.order] = segment
        seeds = tuple(sorted(cots))
        plan, wrt = segment.plan.backward(seeds)
        operands = [cots[k] for k in seeds]
        results = record_call(plan.function, operands, [segment.value(v) for v in plan.residuals], [], segment.sizes)
        targets = [segment.target(p) for p in wrt]
        for h, cot in zip(targets, results, strict=True):
            self.route(h, cot)

    def _replay_segment(self, segment: Segment, cots: dict[int, Any]) -> None:
        """Record the forward again, so that the derivative can be differentiated too."""
        if segment.plan.cuts:
            raise NotImplementedError("create_graph through hooks of a forward that was already executed")
        outputs = record_call(segment.plan.replay, [], *segment.inputs(), segment.sizes, tracked=True)
        for k, cot in cots.items():
            _wait(self.pending, outputs[k]._h, cot)

    def finish(self) -> None:
        """Free what this backward went through."""
        if self.retain_graph:
            return
        for segment in self.segments.values():
            segment.free()
        for tr, active, spending in self.visited.values():
            tr.visited |= active
            tr.spent |= spending


def _point(h: Handle) -> Point:
    if isinstance(h.history, tuple):
        segment, output = h.history
        return (segment.order, segment.positions[output])
    if h.buffer is not None:
        raise RuntimeError(TWICE)
    return (math.inf, h.index)


def _point_of_node(node: Any) -> Point:
    if node.trace is not None and node.trace is current_trace():
        return (math.inf, node.index)
    return (node.segment_order, node.index) if node.segment_order >= 0 else (node.order, 0)


def _wait(table: dict[int, tuple[Handle, Any]], h: Handle, cot: Any) -> None:
    old = table.get(id(h))
    table[id(h)] = (h, cot if old is None else old[1] + cot)


def _accumulate(table: dict[int, Any], key: int, cot: Any) -> None:
    old = table.get(key)
    table[key] = cot if old is None else old + cot


def _run_hooks(hooks: Any, cot: Any) -> Any:
    for hook in list(hooks.values() if isinstance(hooks, dict) else hooks or ()):
        new = hook(cot)
        if new is not None:
            cot = new
    return cot


def run_backward(
    roots: Sequence[Any],
    seeds: Sequence[Any],
    inputs: Sequence[Any] | None,
    create_graph: bool,
    retain_graph: bool,
    accumulate: bool,
    others: bool = False,
) -> list[Any]:
    """Propagate `seeds` from `roots`. Without `inputs`, into `.grad` of the leaves; with them, returns their cotangents
    (None where unreachable), and `.grad` changes only of inputs (`accumulate`) or of leaves that are none (`others`)."""
    tr = current_trace()
    for t in (*roots, *(inputs or ())):
        if t._h.resolve is not None or (t._h.trace is not tr and t._h.leaf is None and t._h.history is None):
            tr.enter(t)
    handles = [t._h for t in inputs] if inputs is not None else None
    run = _Run(create_graph, retain_graph or create_graph, handles)
    with set_grad_enabled(create_graph):
        for t, seed in zip(roots, seeds, strict=True):
            run.route(t._h, seed)
        while run.step():
            pass
        run.finish()
        for cell, cot in run.leaves.values():
            if inputs is None or (accumulate if any(h.leaf is cell for h in handles or ()) else others):
                _into_grad(cell, cot, create_graph)
    return [] if handles is None else [run.captured.get(id(h)) for h in handles]


def _into_grad(cell: GradCell, cot: Any, create_graph: bool) -> None:
    cot = _run_hooks(cell.hooks, cot)
    if cell.grad is None:
        cell.grad = cot if create_graph else cot.detach()
    elif create_graph:
        cell.grad = cell.grad + cot
    else:
        cell.grad.add_(cot)
    for hook in list((cell.post_hooks or {}).values()):
        hook()
