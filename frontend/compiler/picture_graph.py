"""A function as a Graphviz drawing: one node an op, one cluster a kernel; lines of the user's program when it is large.

Constants are drawn in the ops that read them. Edges carry shapes, tooltips carry the user's lines.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import graphviz

from treadle.ir.core import Function, Level, Loc, Op, Value
from treadle.ir.ops.sources import Constant
from treadle.ir.ops.views import Expand
from treadle.ir.types import TensorType

__all__ = ["LARGE", "Drawing", "draw"]

LARGE = 400  # ops: beyond, ops of one line of the user's program are drawn as one node

_FILL = {"parameter": "#cfe3f7", "input": "#d5efd5", "scalar": "#f3ecc8", "output": "#f7d5cf"}


@dataclass
class _Node:
    """A node to draw. `kernel`: number of its cluster."""

    name: str
    title: str
    type: str
    kind: str = "op"  # op, parameter, input, scalar, output
    kernel: int | None = None
    lines: Counter[Loc] = field(default_factory=Counter)
    titles: Counter[str] = field(default_factory=Counter)


@dataclass
class Drawing:
    """Nodes, edges and clusters of one function. `inputs`: (kind, label) of each parameter."""

    prefix: str
    nodes: dict[str, _Node] = field(default_factory=dict)
    edges: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    clusters: dict[int, str] = field(default_factory=dict)
    ops: int = 0
    _sources: dict[Value, str] = field(default_factory=dict)
    _constants: dict[Value, str] = field(default_factory=dict)

    # ---- from IR ----------------------------------------------------------------------------------------------

    def add_function(self, fn: Function, inputs: Sequence[tuple[str, str]]) -> None:
        """Draw `fn`, whose parameters are described by `inputs`."""
        for k, (v, (kind, label)) in enumerate(zip(fn.params, inputs, strict=True)):
            self._node(f"in{k}", label, v, kind)
        for k, op in enumerate(fn.ops):
            if fn.level is Level.KERNEL and op.regions:
                self._kernel(k, op)
            else:
                self._op(op, k if fn.level is Level.KERNEL else None)
        for k, v in enumerate(fn.returns):
            name = f"{self.prefix}out{k}"
            self.nodes[name] = _Node(name, f"output {k}" if len(fn.returns) > 1 else "output", type_text(v), "output")
            self._edge(v, name)
        read = {edge[0] for edge in self.edges}
        self.nodes = {n: node for n, node in self.nodes.items() if node.kind in ("op", "output") or n in read}

    def _node(self, name: str, title: str, v: Value | None, kind: str = "op", kernel: int | None = None) -> _Node:
        node = _Node(self.prefix + name, title, type_text(v) if v is not None else "", kind, kernel)
        self.nodes[node.name] = node
        if v is not None:
            self._sources[v] = node.name
        return node

    def _edge(self, v: Value, to: str) -> None:
        if v not in self._sources and v in self._constants:  # a constant that is returned as it is
            self._node(f"c{len(self.nodes)}", self._constants[v], v)
        source = self._sources.get(v)
        if source is not None:
            self.edges[source, to, shape_text(v)] += 1

    def _kernel(self, number: int, op: Op) -> None:
        kind = getattr(op.operation, "kind", "")
        name = op.operation.name.removeprefix("kernel.") + (f" {kind}" if kind else "")
        self.clusters[number] = f"kernel {number}: {name}"
        results = iter(op.results)
        for region in op.regions:
            for p, v in zip(region.params, (*op.operands, *op.results), strict=False):  # results of earlier regions
                if v in self._sources:
                    self._sources[p] = self._sources[v]
                if v in self._constants:
                    self._constants[p] = self._constants[v]
            for inner in region.ops:
                self._op(inner, number, op.loc)
            for v in region.yields:
                result = next(results)
                if v in self._sources:
                    self._sources[result] = self._sources[v]
                else:
                    self._node(f"c{len(self.nodes)}", self._constants.get(v, "?"), result, kernel=number)

    def _op(self, op: Op, kernel: int | None, outer: Loc | None = None) -> None:
        constant = self._constant(op)
        if constant is not None:
            self._constants[op.result] = constant
            return
        folded = [self._constants[v] for v in op.operands if v in self._constants and v not in self._sources]
        title = " ".join([op_text(op), *folded])
        node = self._node(f"n{self.ops}", title, op.results[0] if op.results else None, kernel=kernel)
        self.ops += 1
        for v in op.results:
            self._sources[v] = node.name
        for v in dict.fromkeys(op.operands):
            if v not in self._constants or v in self._sources:
                self._edge(v, node.name)
        loc = op.loc or outer
        if loc is not None:
            node.lines[loc] += 1
        node.titles[op.operation.name.split(".", 1)[1]] += 1

    def _constant(self, op: Op) -> str | None:
        """The text of a scalar constant, also where it is expanded to a shape."""
        if isinstance(op.operation, Constant):
            return f"{op.operation.value:g}" if isinstance(op.operation.value, float) else str(op.operation.value)
        if isinstance(op.operation, Expand) and op.operands[0] in self._constants:
            return self._constants[op.operands[0]]
        return None

    # ---- smaller ----------------------------------------------------------------------------------------------

    def grouped(self, by_line: bool) -> Drawing:
        """Ops of one kernel and one line (or of one whole kernel) as one node."""
        groups: dict[tuple, str] = {}
        new = Drawing(self.prefix, clusters=self.clusters if by_line else {}, ops=self.ops)
        target: dict[str, str] = {}
        for node in self.nodes.values():
            if node.kind != "op":
                new.nodes[node.name] = node
                target[node.name] = node.name
                continue
            line = next(iter(node.lines), None)
            key = (node.kernel, line if by_line or node.kernel is None else None)
            name = groups.setdefault(key, node.name)
            target[node.name] = name
            into = new.nodes.setdefault(name, _Node(name, "", node.type, kernel=node.kernel))
            into.type = node.type
            into.lines += node.lines
            into.titles += node.titles
        for name in groups.values():
            new.nodes[name].title = _group_title(new.nodes[name], self.clusters if not by_line else {})
        for (a, b, label), times in self.edges.items():
            if a in target and b in target and target[a] != target[b]:
                new.edges[target[a], target[b], label] += times
        return new

    # ---- to DOT -----------------------------------------------------------------------------------------------

    def write(self, graph: graphviz.Digraph) -> None:
        """Add everything to `graph`."""
        for number, label in self.clusters.items():
            members = [n for n in self.nodes.values() if n.kernel == number]
            if not members:
                continue
            lines: Counter[Loc] = Counter()
            for n in members:
                lines += n.lines
            with graph.subgraph(name=f"cluster_{self.prefix}{number}") as c:
                c.attr(label=label, tooltip=lines_text(lines), style="rounded,filled", color="#8a93a6",
                       fillcolor="#f4f6fa", labeljust="l")  # fmt: skip
                for n in members:
                    _write_node(c, n)
        for n in self.nodes.values():
            if n.kernel not in self.clusters:
                _write_node(graph, n)
        for (a, b, label), times in self.edges.items():
            graph.edge(a, b, label=label if times == 1 else f"{label} ({times} times)", tooltip=label)


def draw(
    functions: Iterable[tuple[str, Function, Sequence[tuple[str, str]]]], title: str, large: int = LARGE
) -> graphviz.Digraph:
    """A drawing of (label, function, inputs), each in a frame of its own where there are several."""
    parts = []
    for k, (label, fn, inputs) in enumerate(functions):
        drawing = Drawing(f"p{k}_")
        drawing.add_function(fn, inputs)
        parts.append((label, drawing))
    if sum(d.ops for _, d in parts) > large:
        title += f"\n{sum(d.ops for _, d in parts)} ops, drawn by line of the program"
        parts = [(label, d.grouped(by_line=True)) for label, d in parts]
        if sum(len(d.nodes) for _, d in parts) > large:
            parts = [(label, d.grouped(by_line=False)) for label, d in parts]
    graph = graphviz.Digraph("treadle")
    graph.attr(label=_escape(title), labelloc="t", fontname="Helvetica", fontsize="12", ranksep="0.35", nodesep="0.25")
    graph.attr("node", shape="box", style="rounded,filled", fillcolor="white", fontname="Helvetica", fontsize="10",
               margin="0.08,0.04", height="0.3")  # fmt: skip
    graph.attr("edge", fontname="Helvetica", fontsize="8", color="#5b6475", fontcolor="#5b6475", arrowsize="0.6")
    for k, (label, drawing) in enumerate(parts):
        if len(parts) == 1:
            drawing.write(graph)
            continue
        with graph.subgraph(name=f"cluster_program{k}") as c:
            c.attr(label=_escape(label), color="#c0c0c0", style="rounded", labeljust="l")
            drawing.write(c)
    return graph


def _write_node(graph: graphviz.Digraph, node: _Node) -> None:
    attributes = {"tooltip": lines_text(node.lines) or node.title}
    if node.kind != "op":
        attributes["fillcolor"] = _FILL[node.kind]
        attributes["shape"] = "ellipse"
    graph.node(node.name, _escape("\n".join(t for t in (node.title, node.type) if t)), **attributes)


def _group_title(node: _Node, clusters: dict[int, str]) -> str:
    parts = [clusters[node.kernel]] if node.kernel in clusters else []
    if node.lines:
        loc = next(iter(node.lines))
        parts.append(short_loc(loc) + (f" and {len(node.lines) - 1} more" if len(node.lines) > 1 else ""))
    common = ", ".join(f"{t} x{n}" if n > 1 else t for t, n in node.titles.most_common(3))
    more = ", ..." if len(node.titles) > 3 else ""
    return "\n".join([*parts, f"{common}{more}"])


# ---- texts -----------------------------------------------------------------------------------------------------------


def shape_text(v: Value) -> str:
    """`64x32x8x8`; `scalar` for rank 0."""
    return "x".join(map(str, v.shape)) or "scalar" if isinstance(v.type, TensorType) else str(v.type)


def type_text(v: Value) -> str:
    """`f32[64, 32, 8, 8]`."""
    return f"{v.dtype.short}[{', '.join(map(str, v.shape))}]" if isinstance(v.type, TensorType) else str(v.type)


def op_text(op: Op) -> str:
    """An op's name, with the few attributes that say what it does."""
    name = op.operation.name.split(".", 1)[1]
    shown = {k: v for k, v in op.operation.attributes.items() if k in ("axis", "axes", "dims", "dim", "function")}
    parts = [f"{v}" for v in shown.values() if isinstance(v, int | str | tuple) and len(str(v)) <= 24]
    return " ".join([name, *parts])


def short_loc(loc: Loc) -> str:
    """`train.py:12`."""
    return f"{Path(loc.file).name}:{loc.line}"


def lines_text(lines: Iterable[Loc]) -> str:
    """Places with their source text, one a line, at most eight."""
    found = []
    for loc in lines:
        source = linecache.getline(loc.file, loc.line).strip()
        where = short_loc(loc) + (f" in {loc.function}" if loc.function and loc.function != "<module>" else "")
        found.append(f"{where}: {source}" if source else where)
    more = [f"and {len(found) - 8} more lines"] if len(found) > 8 else []
    return _escape("\n".join([*found[:8], *more]))


def _escape(text: str) -> str:
    """Text for a DOT string: backslashes kept, newlines as DOT's own."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
