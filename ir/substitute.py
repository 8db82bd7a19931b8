"""Replaces symbolic dims in anything that holds them: dims, types, attributes, operations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from treadle.ir import dims
from treadle.ir.core import Block, Function
from treadle.ir.dims import Atom, Dim, Expr
from treadle.ir.dtypes import DType
from treadle.ir.types import BufferType, TensorType, Type

__all__ = ["substitute", "substitute_dim", "symbols_in", "used_symbols"]

_ATOMS = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b if isinstance(a, int) == isinstance(b, int) or isinstance(a, Expr) else a - a // b * b,
    "max": dims.maximum,
    "min": dims.minimum,
}


def substitute_dim(d: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """`d` with its symbols replaced; raises KeyError for a symbol without a binding."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, coef in d.terms:
        total = total + coef * math.prod(_substitute_atom(a, bindings) for a in mono)
    return total


def _substitute_atom(a: Atom, bindings: Mapping[str, Dim]) -> Dim:
    if a.op == "sym":
        return bindings[a.name]
    x, y = (substitute_dim(arg, bindings) for arg in a.args)
    return _ATOMS[a.op](x, y)


def substitute(value: Any, bindings: Mapping[str, Dim]) -> Any:
    """`value` (an operation, an attribute, a type) with symbols replaced. Callees have their own: left alone."""
    if isinstance(value, Expr):
        return substitute_dim(value, bindings)
    if isinstance(value, tuple):
        new = tuple(substitute(v, bindings) for v in value)
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
    if isinstance(value, TensorType):
        return value.with_shape(substitute(value.shape, bindings))
    if isinstance(value, BufferType):
        return BufferType(value.dtype, substitute(value.size, bindings), value.space)
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Function | DType):
        changed = {}
        for f in dataclasses.fields(value):
            old = getattr(value, f.name)
            new = substitute(old, bindings)
            if new is not old:
                changed[f.name] = new
        return dataclasses.replace(value, **changed) if changed else value
    return value


def symbols_in(value: Any) -> Iterator[str]:
    """Names of the symbols that a dim, type, attribute or operation mentions (with repetitions)."""
    if isinstance(value, Expr):
        yield from dims.symbols_of(value)
    elif isinstance(value, tuple):
        for v in value:
            yield from symbols_in(v)
    elif isinstance(value, TensorType):
        yield from symbols_in(value.shape)
    elif isinstance(value, BufferType):
        yield from symbols_in(value.size)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | Function | DType | Type):
        for f in dataclasses.fields(value):
            yield from symbols_in(getattr(value, f.name))


def used_symbols(block: Block) -> tuple[str, ...]:
    """Symbols that the types and attributes of a block mention, in order of first appearance."""
    found: dict[str, None] = {}

    def visit(block: Block) -> None:
        for v in block.params:
            found.update(dict.fromkeys(symbols_in(v.type)))
        for op in block.ops:
            found.update(dict.fromkeys(symbols_in(op.operation)))
            for region in op.regions:
                visit(region)
            for v in op.results:
                found.update(dict.fromkeys(symbols_in(v.type)))

    visit(block)
    return tuple(found)
