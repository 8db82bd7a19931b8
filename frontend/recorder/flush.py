"""From a trace to a running program: what is alive, which program computes it, and where its results go."""

from __future__ import annotations

import sys
from typing import Any

from treadle.compiler.driver import Step, compile_step, run_step
from treadle.recorder import generalise, trace
from treadle.recorder.handle import FREED, Handle, concrete
from treadle.recorder.segment import Segment, serial
from treadle.recorder.trace import Trace, state
from treadle.recorder.tree import TREE_LOCK, Node

__all__ = ["finish", "flush", "forget_programs"]

_refs = sys.getrefcount
_structures: dict[tuple, Node] = {}  # (root, structure, live, donated) -> node of the first program of that structure


def _baseline() -> tuple[int, int]:
    """Reference counts of a handle that only its trace holds: (recorded, leaf)."""
    h = concrete(None, None)  # type: ignore[arg-type]
    handles, leaves = [h], []
    del h
    recorded = [_refs(x) for x in handles][0]
    leaves.append(handles[0])
    leaf = [_refs(x) for x in leaves][0]
    return recorded, leaf


_RECORDED, _LEAF = _baseline()


def finish(h: Handle) -> None:
    """Make sure that a recorded handle has a buffer, whichever thread recorded it."""
    tr = h.trace
    if h.buffer is None and tr is not None:
        flush("value needed", tr)
        if h.buffer is None:
            raise RuntimeError("the program that computes this value failed earlier")


def flush(reason: str, tr: Trace | None = None) -> None:
    """Close the open trace (or `tr`) and start its program. Values are pending until the executor has run it."""
    if tr is None:
        tr = state.trace
    if not tr.handles and tr.limit:
        return
    with tr.lock:
        if tr.limit == 0:
            return
        tr.limit = 0
        if state.trace is tr:
            state.trace = Trace(tr.no_grad)
        try:
            _run(tr, reason)
        finally:
            for h in tr.leaves:
                if h.trace is tr:
                    h.trace = None
            tr.leaf_index.clear()
            tr.leaves.clear()


def _run(tr: Trace, reason: str) -> None:
    live = tuple([h.index for h in tr.handles if _refs(h) > _RECORDED and h.buffer is None and h.trace is tr])
    if not live:
        return
    donated = _donated(tr)
    step = tr.node.programs.get((live, donated))
    if step is None:
        step = _compile(tr, live, donated, reason)
    else:
        trace.hits += 1
    tr.node.touch()
    handles = [tr.handles[i] for i in live]
    buffers = run_step(step, [h.buffer for h in tr.leaves], tr.scalars, tr.bindings)
    for h, buffer, t in zip(handles, buffers, step.types, strict=False):
        h.buffer = buffer
        h.type = t if not tr.bindings else t.with_shape(t.concrete_shape(tr.bindings))
        h.trace = None
    _histories(tr, step, live, buffers)


def _donated(tr: Trace) -> tuple[int, ...]:
    """Leaves that nothing but this trace refers to: their memory may be overwritten."""
    return tuple(
        [k for k, h in enumerate(tr.leaves) if _refs(h) <= _LEAF and _refs(h.buffer) <= 3 and h.buffer.use_count() == 1]
    )


def _compile(tr: Trace, live: tuple[int, ...], donated: tuple[int, ...], reason: str) -> Step:
    """The program for a node that has none: a general one where a run of the same structure was compiled before."""
    with TREE_LOCK:
        if not tr.bindings:
            key = (id(tr.root), generalise.structure(tr.node), live, donated)
            twin = _structures.get(key)
            if twin is None or not twin.programs:
                _structures[key] = tr.node
                tr.node.scalar_sample = tuple(tr.scalars)
            elif twin is not tr.node:
                try:
                    generalise.generalise(tr, twin)
                except generalise.CannotGeneralise:
                    pass
                step = tr.node.programs.get((live, donated))
                if step is not None:
                    return step
        step = compile_step(tr, live, donated, reason)
        tr.node.programs[live, donated] = step
        trace.misses += 1
        return step


def _histories(tr: Trace, step: Step, live: tuple[int, ...], buffers: list[Any]) -> None:
    """Let results that require grad remember how they were computed."""
    plan = step.segment
    if plan is not None:
        saved = {}
        for value, buffer, t in zip(plan.residuals, buffers[len(live) :], step.types[len(live) :], strict=True):
            saved[value] = concrete(buffer, t if not tr.bindings else t.with_shape(t.concrete_shape(tr.bindings)))
        cuts = [tr.handles[i] for i in step.cuts]
        segment = Segment(plan, saved, list(tr.leaves), cuts, serial(), list(step.differentiable))
        for h in cuts:
            if h.leaf is not None and h.leaf.of_function:
                h.leaf.node.segment_order = segment.order  # type: ignore[attr-defined]
        for k, i in enumerate(step.differentiable):
            tr.handles[i].history = (segment, k)
    for i in live:
        h = tr.handles[i]
        if h.grad and h.history is None and h.leaf is None:
            h.history = FREED


def forget_programs() -> None:
    """Drop the table of structures (tests, `treadle.compiler.reset()`)."""
    _structures.clear()


trace.install(flush=flush, finish=finish)
