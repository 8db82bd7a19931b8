"""The driver of backward passes: which values get cotangents, in which order, and where they end.

Inside the open trace a backward is one `graph.grad` event, expanded by a pass later. Executed forwards are Segments,
differentiated by a call of their transposed function. Hooks and custom Functions are cuts: backward stops there, runs
Python with the complete cotangent, and goes on. Points are visited from the latest to the earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.backward.events import record_call, record_grad
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


@dataclass
class _Run:
    create_graph: bool
    retain_graph: bool
    inputs: list[Handle] | None
    trace: Trace
    pending: dict[int, Any] = field(default_factory=dict)  # trace index -> cotangent, to be propagated
    cuts: dict[int, Any] = field(default_factory=dict)  # trace index of a cut -> cotangent so far
    segments: dict[int, tuple[Segment, dict[int, Any]]] = field(default_factory=dict)  # order -> output -> cotangent
    segment_cuts: dict[tuple[int, int], tuple[Handle, Any]] = field(default_factory=dict)
    leaves: dict[int, tuple[GradCell, Any]] = field(default_factory=dict)
    functions: dict[int, dict[int, Any]] = field(default_factory=dict)  # id(function node) -> output -> cotangent
    nodes: dict[int, Any] = field(default_factory=dict)
    captured: dict[int, Any] = field(default_factory=dict)  # id(handle) of an input -> cotangent

    def route(self, h: Handle, cot: Any) -> None:
        """Deliver a cotangent to the value behind a handle."""
        if not h.grad or cot is None:
            return
        if self.inputs is not None and h.buffer is not None or h.leaf is not None:
            self._capture(h, cot)
        if h.leaf is not None:
            self._arrive(h.leaf, cot)
        elif h.trace is self.trace and h.buffer is None:
            _accumulate(self.cuts if h.hooks else self.pending, h.index, cot)
        elif h.history is FREED:
            raise RuntimeError(TWICE)
        elif h.history is not None:
            segment, output = h.history  # type: ignore[misc]
            if segment.saved is None:
                raise RuntimeError(TWICE)
            if h.hooks:
                key = (segment.order, segment.positions[output])
                old = self.segment_cuts.get(key)
                self.segment_cuts[key] = (h, cot if old is None else old[1] + cot)
            else:
                _accumulate(self.segments.setdefault(segment.order, (segment, {}))[1], output, cot)

    def _capture(self, h: Handle, cot: Any) -> None:
        if self.inputs is not None and any(h is i for i in self.inputs):
            _accumulate(self.captured, id(h), cot)

    def _arrive(self, cell: GradCell, cot: Any) -> None:
        if isinstance(cell, FunctionCell):
            self.nodes[id(cell.node)] = cell.node
            _accumulate(self.functions.setdefault(id(cell.node), {}), cell.output, cot)
        else:
            old = self.leaves.get(id(cell))
            self.leaves[id(cell)] = (cell, cot if old is None else old[1] + cot)

    # ---- one step at a time ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Propagate from the latest point; False when nothing is left."""
        if self.pending:
            self._through_trace()
        elif self.cuts or self.functions or self.segments or self.segment_cuts:
            self._latest_cut_or_segment()
        else:
            return False
        return True

    def _latest_cut_or_segment(self) -> None:
        function = max(self.nodes, key=lambda k: self.nodes[k].order) if self.functions else None
        cut = max(self.cuts) if self.cuts else None
        if cut is not None and (function is None or self.nodes[function].trace is not self.trace or cut > self.nodes[function].index):
            h = self.trace.handles[cut]
            self.pending[cut] = _run_hooks(h, self.cuts.pop(cut))
            return
        newest = max([*self.segments, *(k for k, _ in self.segment_cuts)], default=-1)
        if function is not None and self.nodes[function].order > newest:
            self._through_function(function)
        elif newest in self.segments:
            self._through_segment(*self.segments.pop(newest))
        else:
            key = max(self.segment_cuts)
            if function is not None and self.nodes[function].segment_order == key[0] and self.nodes[function].index > key[1]:
                self._through_function(function)
                return
            h, cot = self.segment_cuts.pop(key)
            segment, output = h.history  # type: ignore[misc]
            _accumulate(self.segments.setdefault(segment.order, (segment, {}))[1], output, _run_hooks(h, cot))

    def _through_function(self, key: int) -> None:
        node = self.nodes.pop(key)
        cots = self.functions.pop(key)
        for h, cot in node.run(cots, self.retain_graph):
            self.route(h, cot)

    def _through_trace(self) -> None:
        tr = self.trace
        outputs = sorted(self.pending)
        seeds = [self.pending[i] for i in outputs]
        self.pending = {}
        through = []
        candidates = list(tr.grad_points) + [i for i in tr.cuts if i not in outputs]
        if self.inputs is not None:
            through = [h.index for h in self.inputs if h.trace is tr and h.buffer is None and h.leaf is None]
            through = [i for i in dict.fromkeys(through) if i not in candidates]
        found, info = record_grad(outputs, seeds, candidates, through, self.create_graph)
        if info.spending & tr.spent:
            raise RuntimeError(TWICE)
        if not self.retain_graph:
            tr.visited |= info.active
            tr.spent |= info.spending
        for index, cot in found:
            h = tr.handles[index]
            if index in through:
                _accumulate(self.captured, id(h), cot)
            else:
                self.route(h, cot)

    def _through_segment(self, segment: Segment, cots: dict[int, Any]) -> None:
        if self.create_graph:
            self._replay_segment(segment, cots)
            return
        if segment.saved is None:
            raise RuntimeError(TWICE)
        seeds = tuple(sorted(cots))
        plan, wrt = segment.plan.backward(seeds)
        operands = [cots[k] for k in seeds]
        results = record_call(plan.function, operands, [segment.value(v) for v in plan.residuals], segment.sizes)
        targets = [segment.target(p) for p in wrt]
        if not self.retain_graph:
            segment.free()
        for h, cot in zip(targets, results, strict=True):
            self._route_into_segment(segment, h, cot)

    def _route_into_segment(self, segment: Segment, h: Handle, cot: Any) -> None:
        if h.leaf is None and h in segment.cut_handles:  # a hooked value inside this segment
            key = (segment.order, segment.plan.cuts[segment.cut_handles.index(h)])
            old = self.segment_cuts.get(key)
            self.segment_cuts[key] = (h, cot if old is None else old[1] + cot)
        else:
            self.route(h, cot)

    def _replay_segment(self, segment: Segment, cots: dict[int, Any]) -> None:
        """Record the forward again, so that the derivative can be differentiated too."""
        if segment.plan.cuts:
            raise NotImplementedError("create_graph through hooks of a forward that was already executed")
        if not segment.leaves:
            raise RuntimeError(TWICE)
        outputs = record_call(segment.plan.forward, [], segment.leaves, segment.sizes, tracked=True)
        for k, cot in cots.items():
            self.pending[outputs[k]._h.index] = cot


def _accumulate(table: dict[int, Any], key: int, cot: Any) -> None:
    old = table.get(key)
    table[key] = cot if old is None else old + cot


def _run_hooks(h: Handle, cot: Any) -> Any:
    for hook in list(h.hooks or ()):
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
    run = _Run(create_graph, retain_graph or create_graph, handles, tr)
    with set_grad_enabled(create_graph):
        for t, seed in zip(roots, seeds, strict=True):
            run.route(t._h, seed)
        while run.step():
            pass
        for cell, cot in run.leaves.values():
            if inputs is None or (accumulate if any(h.leaf is cell for h in handles or ()) else others):
                _into_grad(cell, cot, create_graph)
    return [] if handles is None else [run.captured.get(id(h)) for h in handles]


def _into_grad(cell: GradCell, cot: Any, create_graph: bool) -> None:
    for hook in list((cell.hooks or {}).values()):
        new = hook(cot)
        if new is not None:
            cot = new
    if cell.grad is None:
        cell.grad = cot if create_graph else cot.detach()
    elif create_graph:
        cell.grad = cell.grad + cot
    else:
        cell.grad.add_(cot)
    for hook in list((cell.post_hooks or {}).values()):
        hook()
