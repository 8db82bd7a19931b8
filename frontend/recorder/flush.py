"""From a trace to a running program: what is alive, which program computes it, and where its results go."""

from __future__ import annotations

import sys
from typing import Any

from treadle.compiler import dumps
from treadle.compiler.driver import Step, compile_step, run_step
from treadle.recorder import generalise, trace
from treadle.recorder.handle import FREED, Handle, concrete
from treadle.recorder.segment import Segment, serial
from treadle.recorder.trace import AT_ONCE, Trace, state
from treadle.recorder.tree import TREE_LOCK, Node, prune
from treadle.runtime import synchronize

__all__ = ["finish", "flush", "forget_programs"]

NODES = 200_000  # of one tree, about; beyond it the branches that were not used lately go

HOT = 32  # runs with the same sizes after which a general program makes way for one of these sizes

_refs = sys.getrefcount
_structures: dict[tuple, Node] = {}  # (root, structure, live, donated) -> node of the first program of that structure
_LITERAL = Node(None)  # stands there for structures of which no general program can be made


def _single_owner(leaves: list[Handle], recorded: int, shared: int) -> tuple[int, ...]:
    """Positions of leaves that nothing but their trace refers to, and whose buffer no other handle has."""
    return tuple([k for k, h in enumerate(leaves) if _refs(h) <= recorded and _refs(h.buffer) <= shared])


def _live(handles: list[Handle], recorded: int) -> tuple[int, ...]:
    """Indices of recorded handles that somebody besides the trace refers to."""
    return tuple([k for k, h in enumerate(handles) if _refs(h) > recorded and h.buffer is None])


def _baselines() -> tuple[int, int, int]:
    """Counts seen by the functions above for a handle that only its trace holds: (recorded, leaf, buffer of a leaf)."""
    h = concrete(object(), None)  # type: ignore[arg-type]
    handles, leaves = [h], [h]
    del h
    leaf = next(n for n in range(1, 20) if _single_owner(leaves, n, 99))
    buffer = next(n for n in range(1, 20) if _single_owner(leaves, 99, n))
    leaves.clear()
    handles[0].buffer = None
    recorded = next(n for n in range(1, 20) if not _live(handles, n))
    return recorded, leaf, buffer


_RECORDED, _LEAF, _BUFFER = _baselines()


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
        at_once = tr.limit == AT_ONCE
        tr.limit = 0
        if state.trace is tr:
            state.trace = Trace(tr.no_grad)
        try:
            _run(tr, reason)
            if at_once:
                synchronize()
        finally:
            for h in tr.leaves:
                if h.trace is tr:
                    h.trace = None
            tr.leaf_index.clear()
            tr.leaves.clear()
            tr.handles.clear()  # a closed trace must not keep values alive


def _run(tr: Trace, reason: str) -> None:
    live = _live(tr.handles, _RECORDED)
    if not live:
        return
    donated = _single_owner(tr.leaves, _LEAF, _BUFFER)
    step = tr.node.programs.get((live, donated))
    if step is None or (dumps.bypassing and dumps.unseen(tr.node, (live, donated))):
        step = _compile(tr, live, donated, reason)
    elif tr.bindings and _is_hot(tr, step):
        step = _specialise(tr, live, donated)
    else:
        trace.hits += 1
    tr.node.touch()
    tr.node.hits += 1
    handles = [tr.handles[i] for i in live]
    buffers = run_step(step, [h.buffer for h in tr.leaves], tr.scalars, tr.bindings)
    for h, buffer, t in zip(handles, buffers, step.types, strict=False):
        h.buffer = buffer
        h.type = t if not tr.bindings else t.with_shape(t.concrete_shape(tr.bindings))
        h.trace = None
    _histories(tr, step, live, buffers)


def _is_hot(tr: Trace, step: Step) -> bool:
    """Has a general program run so often with these sizes that one of their own will pay?"""
    sizes = tuple(tr.bindings.values())
    uses = step.uses[sizes] = step.uses.get(sizes, 0) + 1
    return uses == HOT


def _specialise(tr: Trace, live: tuple[int, ...], donated: tuple[int, ...]) -> Step:
    """Move a trace on a general path to the literal one, which later runs with these sizes then follow."""
    with TREE_LOCK:
        generalise.concretise(tr)
        step = tr.node.programs.get((live, donated))
        if step is None:
            step = tr.node.programs[live, donated] = compile_step(tr, live, donated, "sizes that come often")
            trace.misses += 1
    return step


def _compile(tr: Trace, live: tuple[int, ...], donated: tuple[int, ...], reason: str) -> Step:
    """The program for a node that has none: a general one where a run of the same structure was compiled before."""
    with TREE_LOCK:
        if not tr.bindings:
            key = (id(tr.root), generalise.structure(tr.node), live, donated)
            twin = _structures.get(key)
            if twin is None or (not twin.programs and twin is not _LITERAL):
                _structures[key] = tr.node
                tr.node.scalar_sample = tuple(tr.scalars)
            elif twin is not tr.node and twin is not _LITERAL:
                try:
                    generalise.generalise(tr, twin)
                except generalise.CannotGeneralise:
                    pass
                step = tr.node.programs.get((live, donated))
                if step is not None:
                    return step
        try:
            step = compile_step(tr, live, donated, reason)
        except Exception:
            if not tr.bindings:
                raise
            _leave_general_path(tr, live, donated)
            step = tr.node.programs.get((live, donated)) or compile_step(tr, live, donated, reason)
        tr.node.programs[live, donated] = step
        tr.node.touch()
        trace.misses += 1
        if trace.misses % 64 == 0 and prune(tr.root, NODES):
            _structures.clear()  # they would keep dropped branches
        return step


def _leave_general_path(tr: Trace, live: tuple[int, ...], donated: tuple[int, ...]) -> None:
    """A size decides what the program is: runs of this structure get programs of their own from now on."""
    general = tr.node
    generalise.concretise(tr)
    generalise.unlink(general)
    _structures[id(tr.root), generalise.structure(tr.node), live, donated] = _LITERAL


def _histories(tr: Trace, step: Step, live: tuple[int, ...], buffers: list[Any]) -> None:
    """Let results that require grad remember how they were computed."""
    plan = step.segment
    if plan is not None:
        saved = {}
        for value, buffer, t in zip(plan.residuals, buffers[len(live) :], step.types[len(live) :], strict=True):
            saved[value] = concrete(buffer, t if not tr.bindings else t.with_shape(t.concrete_shape(tr.bindings)))
        cuts = [tr.handles[i] for i in step.cuts]
        leaves = [h if k in plan.reads else None for k, h in enumerate(tr.leaves)]
        segment = Segment(
            plan, saved, leaves, cuts, serial(), list(step.differentiable), dict(tr.bindings), list(tr.scalars)
        )
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
