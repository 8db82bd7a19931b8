"""visualize: a program as a Graphviz picture, fused kernels as clusters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import graphviz

from treadle.compiler import notes
from treadle.compiler.picture_graph import draw
from treadle.ir.core import Block, Function, Op, Value
from treadle.passes.pipeline import Context, run_pipeline
from treadle.recorder import trace
from treadle.recorder.seal import seal
from treadle.recorder.trace import Trace
from treadle.recorder.tree import LEAF, Node, children

__all__ = ["Picture", "visualize"]

GRAPH_PIPELINE, KERNEL_PIPELINE = "expand-grad,decompose,simplify", "fuse"  # as in native.py


class Picture(graphviz.Source):
    """A drawing: `.source` is its DOT text, `.files` what was written, `.notes` what was not and why."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.files: list[str] = []
        self.notes: list[str] = []

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write `path`.dot, and `path`.svg where Graphviz's `dot` is installed."""
        base = Path(path)
        if base.suffix in (".dot", ".svg"):
            base = base.with_suffix("")
        base.parent.mkdir(parents=True, exist_ok=True)
        dot = base.with_name(base.name + ".dot")
        dot.write_text(self.source, encoding="utf-8")
        self.files.append(str(dot))
        if shutil.which("dot") is None:
            self.notes.append("(no SVG: Graphviz's program `dot` is not installed)")
            return
        svg = base.with_name(base.name + ".svg")
        svg.write_bytes(self.pipe(format="svg"))
        self.files.append(str(svg))


@dataclass(frozen=True)
class _Part:
    """A function to draw, with a label and (kind, name) of each of its parameters."""

    label: str
    function: Function
    inputs: tuple[tuple[str, str], ...]


def visualize(target: Any, *inputs: Any, path: str | os.PathLike[str] | None = None, level: str = "kernel") -> Picture:
    """Draw the program that computes `target`, as ops (`level="graph"`) or as fused kernels (`level="kernel"`).

    `target` is a tensor that has not been computed yet, which stays so; or a module or function, which is called on
    `inputs`. What such a call runs (an optimizer's step, say) is drawn too, a frame for each program. With `path`,
    writes path.dot, and path.svg where Graphviz is installed. Raises ValueError where there is nothing to draw.
    """
    if level not in ("graph", "kernel"):
        raise ValueError(f'level is "graph" or "kernel", not {level!r}')
    if hasattr(target, "_h"):
        names: dict[int, str] = {}
        parts = _lazy([target], level, names) or _computed(target, level)
        title = "tensor"
    else:
        parts, title = _called(target, inputs, level)
    if not parts:
        raise ValueError("nothing to draw: these values are there already; pass the function that computes them")
    picture = Picture(draw(((p.label, p.function, p.inputs) for p in parts), title).source)
    if path is not None:
        picture.write(path)
    return picture


# ---- what to draw ----------------------------------------------------------------------------------------------------


def _called(target: Callable[..., Any], inputs: Sequence[Any], level: str) -> tuple[list[_Part], str]:
    """What a call of a module or function runs, and what it leaves to be computed."""
    if not callable(target):
        raise TypeError(f"visualize takes a tensor, a module or a function, not {type(target).__name__}")
    begun = _now()
    result = target(*inputs)
    parts = list(_ran_since(begun, level))
    parts += _lazy(list(_tensors(result)), level, _names(target))
    title = getattr(target, "__qualname__", None) or type(target).__name__
    return parts, title


def _lazy(tensors: list[Any], level: str, names: dict[int, str]) -> list[_Part]:
    """The function of tensors that are recorded and not computed; one for each trace they are in."""
    found: dict[int, tuple[Trace, list[int]]] = {}
    for t in tensors:
        h = t._h
        while h.resolve is not None:
            h = t._h = h.resolve()
        if h.buffer is None and h.trace is not None:
            found.setdefault(id(h.trace), (h.trace, []))[1].append(h.index)
    parts = []
    for tr, live in found.values():
        labels = [names.get(id(h), "") for h in tr.leaves]
        fn = seal(tr, tuple(dict.fromkeys(live))).function
        parts.append(_part("not run yet", fn, tr.node, level, labels))
    return parts


def _computed(t: Any, level: str) -> list[_Part]:
    """The forward of a tensor that was computed and can be differentiated."""
    history = t._h.history
    if not isinstance(history, tuple):
        return []
    segment, k = history
    forward: Function = segment.plan.forward
    fn = replace(forward, body=Block(forward.params, forward.ops, (forward.returns[k],)))
    inputs = tuple(("parameter" if i in segment.plan.wrt else "input", "") for i in range(len(fn.params)))
    return [_Part("computed", _lowered(fn, level), _described(inputs))]


def _ran_since(begun: int, level: str) -> Iterator[_Part]:
    """Programs of the trace tree that ran after the moment `begun`, in order."""
    nodes = [n for root in trace.roots.values() for n in _below(root) if n.used > begun and n.programs]
    for node in sorted(nodes, key=lambda n: n.used):
        for (live, _), step in node.programs.items():
            note = notes.of(step)
            label = "program" if note is None else f"program {note.number} ({note.reason})"
            if level == "kernel" and note is not None and note.kernels is not None:
                yield _Part(label, note.kernels, _inputs(note.kernels, node, []))
            else:
                fn = seal(cast(Trace, _At(node)), live).function
                yield _part(label, fn, node, level, [])


@dataclass(frozen=True)
class _At:
    """As much of a trace as sealing needs."""

    node: Node


def _part(label: str, fn: Function, node: Node, level: str, labels: list[str]) -> _Part:
    lowered = _lowered(fn, level)
    return _Part(label, lowered, _inputs(lowered, node, labels))


def _lowered(fn: Function, level: str) -> Function:
    """`fn` without what its results do not need; as kernels where these are asked for."""
    params = set(fn.params)
    if level == "graph":
        return replace(fn, body=_needed(fn, fn.returns))
    fn = run_pipeline(fn, GRAPH_PIPELINE, Context())
    computed = tuple(dict.fromkeys(v for v in fn.returns if v not in params and v not in fn.params))
    if not computed:
        return fn
    return run_pipeline(replace(fn, body=_needed(fn, computed)), KERNEL_PIPELINE, Context())


def _needed(fn: Function, returns: tuple[Value, ...]) -> Block:
    wanted, kept = set(returns), list[Op]()
    for op in reversed(fn.ops):
        if any(r in wanted for r in op.results):
            kept.append(op)
            wanted.update(op.operands)
    return Block(fn.params, tuple(reversed(kept)), returns)


def _inputs(fn: Function, node: Node, labels: list[str]) -> tuple[tuple[str, str], ...]:
    """(kind, label) of the parameters: the leaves of the path to `node`, then its runtime scalars."""
    grads = [n.grads[0] for n in node.path() if n.operation is LEAF]
    kinds = ["parameter" if g else "input" for g in grads] + ["scalar"] * (len(fn.params) - len(grads))
    labels = [*labels, *[""] * (len(kinds) - len(labels))]
    return _described(zip(kinds, labels, strict=True))


def _described(inputs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((kind, label or f"{kind} {k}") for k, (kind, label) in enumerate(inputs))


def _now() -> int:
    """The latest use of a program in the tree."""
    return max((n.used for root in trace.roots.values() for n in _below(root)), default=0)


def _below(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def _names(target: Any) -> dict[int, str]:
    """Names of a module's parameters and buffers, by handle."""
    found: dict[int, str] = {}
    for list_name in ("named_parameters", "named_buffers"):
        for name, t in getattr(target, list_name, list)():
            found[id(t._h)] = name
    return found


def _tensors(result: Any) -> Iterator[Any]:
    """The tensors in a nest of tuples, lists and dicts."""
    if hasattr(result, "_h"):
        yield result
    elif isinstance(result, dict):
        for v in result.values():
            yield from _tensors(v)
    elif isinstance(result, list | tuple):
        for v in result:
            yield from _tensors(v)
