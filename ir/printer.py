"""IR as text, in MLIR's generic form. Equal functions print equally, so the text also decides equality and digests.

    graph.func @f(%arg0: tensor<2x[s0]xf32>) symbols(s0) {
      %0 = "graph.sum"(%arg0) {dims = [1]} : (tensor<2x[s0]xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }

Attributes that equal their default are left out. Regions follow the attributes: `({ ^(%1: index): ... yield %2 })`.
`ir/parser.py` reads this text back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from treadle.ir.core import Block, Function, Loc, Op, Operation, Value
from treadle.ir.dims import Expr
from treadle.ir.dtypes import DType
from treadle.ir.types import ScalarType, Type

__all__ = ["attribute_text", "attributes_text", "digest", "operation_key", "print_function", "print_op"]

INDENT = "  "


def print_function(fn: Function, locations: bool = False, hints: bool = False) -> str:
    """The text of `fn`. Canonical unless `hints` asks for the values' own names or `locations` for lines."""
    return _Printer(locations, hints).function(fn, "") + "\n"


def print_op(op: Op, locations: bool = False) -> str:
    """The text of one op, for messages: operands that are not defined in it go by their hints."""
    printer = _Printer(locations, hints=True)
    for v in op.operands:
        printer.define(v)
    return "\n".join(printer.op(op, ""))


def digest(fn: Function, named: bool = True) -> str:
    """SHA-256 of the canonical text, as hex; without `named`, functions that differ in their name only share it."""
    text = print_function(fn if named else dataclasses.replace(fn, name="_"))
    return hashlib.sha256(text.encode()).hexdigest()


def operation_key(operation: Operation) -> tuple[str, str]:
    """A hashable identity of an operation that, unlike ==, tells 0.0 from -0.0 and 1 from 1.0 and knows nan again."""
    return operation.name, attributes_text(operation)


def attributes_text(operation: Operation, indent: str = "", locations: bool = False) -> str:
    """`{a = 1, b = [2]}`, or nothing where every attribute has its default."""
    return _fields_text(operation, indent, locations)


def attribute_text(value: Any, indent: str = "", locations: bool = False) -> str:
    """The text of one attribute value. Raises TypeError for a value that has no syntax."""
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(attribute_text(v, indent, locations) for v in value)}]"
    if isinstance(value, ScalarType):
        return f"scalar<{value.dtype.short}>"
    if isinstance(value, DType):
        return value.short
    if isinstance(value, Expr | Type):
        return str(value)
    if isinstance(value, Function):
        return _Printer(locations, hints=False).function(value, indent)
    if isinstance(value, Operation):
        return f'op<"{value.name}"{attributes_text(value, indent, locations)}>'
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__ + (_fields_text(value, indent, locations) or "{}")
    raise TypeError(f"no syntax for an attribute of type {type(value).__name__}: {value!r}")


def _fields_text(value: Any, indent: str, locations: bool) -> str:
    parts = []
    for f in dataclasses.fields(value):
        text = attribute_text(getattr(value, f.name), indent, locations)
        if f.default is dataclasses.MISSING or text != attribute_text(f.default):
            parts.append(f"{f.name} = {text}")
    return f"{{{', '.join(parts)}}}" if parts else ""


def _loc_text(loc: Loc) -> str:
    function = f", {json.dumps(loc.function)}" if loc.function else ""
    return f" loc({json.dumps(loc.file)}:{loc.line}{function})"


def _types_text(values: Iterable[Value]) -> str:
    return ", ".join(str(v.type) for v in values)


class _Printer:
    """Names values in order of definition and writes lines."""

    def __init__(self, locations: bool, hints: bool) -> None:
        self.locations = locations
        self.hints = hints
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.count = 0

    def define(self, v: Value, name: str = "") -> str:
        if self.hints and v.name and v.name.isidentifier():
            name = v.name
        if not name or name in self.taken:
            name = str(self.count)
            self.count += 1
        self.taken.add(name)
        self.names[v] = name
        return f"%{name}"

    def use(self, v: Value) -> str:
        name = self.names.get(v)
        return f"%{name}" if name is not None else "%<undefined>"  # the verifier reports it; printing must not fail

    def uses(self, values: Iterable[Value]) -> str:
        return ", ".join(map(self.use, values))

    def function(self, fn: Function, indent: str) -> str:
        params = ", ".join(f"{self.define(v, f'arg{i}')}: {v.type}" for i, v in enumerate(fn.params))
        symbols = f" symbols({', '.join(fn.symbols)})" if fn.symbols else ""
        lines = [f"{fn.level.value}.func @{_symbol_text(fn.name)}({params}){symbols} {{"]
        for op in fn.ops:
            lines += self.op(op, indent + INDENT)
        end = f"return {self.uses(fn.returns)} : {_types_text(fn.returns)}" if fn.returns else "return"
        return "\n".join([*lines, f"{indent}{INDENT}{end}", f"{indent}}}"])

    def op(self, op: Op, indent: str) -> list[str]:
        attributes = attributes_text(op.operation, indent, self.locations)
        head = f'"{op.operation.name}"({self.uses(op.operands)}){" " + attributes if attributes else ""}'
        lines = [head]
        for i, region in enumerate(op.regions):
            lines[-1] += ", {" if i else " ({"
            lines += [*self.region(region, indent), f"{indent}}}"]
        if op.regions:
            lines[-1] += ")"
        results = _types_text(op.results)
        arrow = results if len(op.results) == 1 else f"({results})"
        lines[-1] += f" : ({_types_text(op.operands)}) -> {arrow}"
        if self.locations and op.loc is not None:
            lines[-1] += _loc_text(op.loc)
        # Results are named after the regions, in which they are not visible.
        names = ", ".join(self.define(v) for v in op.results)
        lines[0] = f"{indent}{names} = {lines[0]}" if names else indent + lines[0]
        return lines

    def region(self, block: Block, indent: str) -> list[str]:
        params = ", ".join(f"{self.define(v)}: {v.type}" for v in block.params)
        lines = [f"{indent}^({params}):"]
        for op in block.ops:
            lines += self.op(op, indent + INDENT)
        lines.append(f"{indent}{INDENT}yield {self.uses(block.yields)}".rstrip())
        return lines


def _symbol_text(name: str) -> str:
    """A function name: bare where it is an identifier, else quoted."""
    return name if name.replace(".", "_").isidentifier() else json.dumps(name)
