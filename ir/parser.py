"""Reads back what ir/printer.py writes: `parse_function(print_function(fn)) == fn`, at every level.

A recursive-descent parser on the text itself. Errors are ParseError with line, column and the line's text. Lines that
start with `//` are comments.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from treadle.ir import dims, kernels, loops, ops, scalar
from treadle.ir.core import REGISTRY, Block, Function, Level, Loc, Op, Operation, Value
from treadle.ir.dims import Dim
from treadle.ir.dtypes import BY_SHORT, DType
from treadle.ir.types import INDEX, BufferType, ScalarType, TensorType, Type

__all__ = ["ParseError", "parse_function"]

OPERATIONS = (kernels, loops, scalar, ops)  # imported so that every operation is registered
T = TypeVar("T")

_SPACE = re.compile(r"(?:(?:(?<=\n)|(?<![\s\S]))[ \t]*//[^\n]*|\s)*")  # `//` elsewhere is a division
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_NAME = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"[A-Za-z_][\w.]*")
_VALUE = re.compile(r"%([A-Za-z_0-9]\w*)")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|inf\b|nan\b)")
_INT = re.compile(r"-?\d+")
_SIZE = re.compile(r"\d+(?=x)")
_LEVEL = re.compile(r"(graph|kernel|loop)\.func\b")


class ParseError(ValueError):
    """The text is not IR; says where."""


def parse_function(text: str) -> Function:
    """The Function that `text` states."""
    parser = _Parser(text)
    fn = parser.function()
    parser.skip()
    if parser.at < len(text):
        parser.fail("expected the end of the text")
    return fn


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.values: dict[str, Value] = {}

    # Text ------------------------------------------------------------------------------------------------------------

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        shown = self.text[start : end if end >= 0 else None]
        raise ParseError(f"line {line}, column {at - start + 1}: {message}\n  {shown}\n  {' ' * (at - start)}^")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}")

    def word(self, word: str) -> bool:
        """Accept a word, which must end there."""
        self.skip()
        match = _NAME.match(self.text, self.at)
        if match is None or match[0] != word:
            return False
        self.at = match.end()
        return True

    def scan(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def require(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = self.scan(pattern)
        if match is None:
            self.fail(f"expected {what}")
        return match

    def listed(self, opening: str, item: Callable[[], T], closing: str) -> list[T]:
        """`opening item, item ... closing`."""
        self.expect(opening)
        items: list[T] = []
        if not self.accept(closing):
            items.append(item())
            while self.accept(","):
                items.append(item())
            self.expect(closing)
        return items

    def string(self) -> str:
        start = self.at
        try:
            return json.loads(self.require(_STRING, "a string")[0])
        except json.JSONDecodeError as error:
            self.fail(f"malformed string: {error}", start)

    # Functions and ops -----------------------------------------------------------------------------------------------

    def function(self) -> Function:
        outer, self.values = self.values, {}
        level = Level(self.require(_LEVEL, "graph.func, kernel.func or loop.func")[1])
        self.expect("@")
        name = self.string() if self.peek('"') else self.require(_SYMBOL, "a function name")[0]
        params = self.listed("(", self.parameter, ")")
        symbols: list[str] = []
        if self.word("symbols"):
            symbols = self.listed("(", lambda: self.require(_NAME, "a symbol")[0], ")")
        self.expect("{")
        ops, returns = self.ops("return")
        if returns and self.accept(":"):
            self.declared_types(returns)
        self.expect("}")
        self.values = outer
        return Function(name, Block(tuple(params), ops, tuple(returns)), level, tuple(symbols))

    def parameter(self) -> Value:
        self.skip()
        at = self.at
        name = self.require(_VALUE, "a parameter")[1]
        self.expect(":")
        return self.define(name, self.type(), at)

    def define(self, name: str, t: Type, at: int) -> Value:
        if name in self.values:
            self.fail(f"%{name} is defined twice", at)
        hint = "" if re.fullmatch(r"\d+|arg\d+", name) else name
        self.values[name] = Value(t, hint)
        return self.values[name]

    def operand(self) -> Value:
        self.skip()
        at = self.at
        name = self.require(_VALUE, "a value")[1]
        if name not in self.values:
            self.fail(f"%{name} is not defined", at)
        return self.values[name]

    def operands(self) -> list[Value]:
        """`%a, %b ...`, none where no value follows."""
        if not self.peek("%"):
            return []
        values = [self.operand()]
        while self.accept(","):
            values.append(self.operand())
        return values

    def declared_types(self, values: list[Value]) -> None:
        for n, v in enumerate(values):
            if n:
                self.expect(",")
            self.check_type(v)

    def check_type(self, v: Value) -> None:
        self.skip()
        at = self.at
        t = self.type()
        if t is not v.type:
            self.fail(f"the value has type {v.type}, not {t}", at)

    def ops(self, terminator: str) -> tuple[tuple[Op, ...], list[Value]]:
        ops: list[Op] = []
        while not self.word(terminator):
            ops.append(self.op(terminator))
        return tuple(ops), self.operands()

    def op(self, terminator: str) -> Op:
        names: list[tuple[str, int]] = []
        self.skip()
        if self.peek("%"):
            names = [self.result_name()]
            while self.accept(","):
                names.append(self.result_name())
            self.expect("=")
        elif not self.peek('"'):
            self.fail(f"expected an op or {terminator!r}")
        cls = self.operation_class()
        operands = self.listed("(", self.operand, ")")
        operation = self.operation(cls)
        regions: list[Block] = []
        if self.accept("("):
            regions.append(self.region())
            while self.accept(","):
                regions.append(self.region())
            self.expect(")")
        self.expect(":")
        self.expect("(")
        for n, v in enumerate(operands):
            if n:
                self.expect(",")
            self.check_type(v)
        self.expect(")")
        self.expect("->")
        at = self.at
        types = self.listed("(", self.type, ")") if self.peek("(") else [self.type()]
        if len(types) != len(names):
            self.fail(f"{len(names)} results are named and {len(types)} types given", at)
        results = tuple(self.define(name, t, where) for (name, where), t in zip(names, types, strict=True))
        return Op(operation, tuple(operands), results, tuple(regions), self.location())

    def result_name(self) -> tuple[str, int]:
        self.skip()
        at = self.at
        return self.require(_VALUE, "a value")[1], at

    def region(self) -> Block:
        self.expect("{")
        outer = dict(self.values)
        params = self.listed("^(", self.parameter, ")")
        self.expect(":")
        ops, yields = self.ops("yield")
        self.expect("}")
        self.values = outer  # names of a region go out of scope
        return Block(tuple(params), ops, tuple(yields))

    def location(self) -> Loc | None:
        if not self.word("loc"):
            return None
        self.expect("(")
        file = self.string()
        self.expect(":")
        line = int(self.require(_INT, "a line number")[0])
        function = self.string() if self.accept(",") else ""
        self.expect(")")
        return Loc(file, line, function)

    # Attributes ------------------------------------------------------------------------------------------------------

    def operation_class(self) -> type[Operation]:
        self.skip()
        at = self.at
        name = self.string()
        if name not in REGISTRY:
            self.fail(f"no operation is called {name!r}", at)
        return REGISTRY[name]

    def operation(self, cls: type[Operation]) -> Operation:
        return self.instance(cls, cls.name)

    def instance(self, cls: type[Any], name: str) -> Any:
        """A dataclass from `{field = value, ...}`; fields left out have their defaults."""
        self.skip()
        at = self.at
        fields = {f.name: f for f in dataclasses.fields(cls)}
        given: dict[str, Any] = {}
        if self.accept("{") and not self.accept("}"):
            while True:
                self.skip()
                where = self.at
                key = self.require(_NAME, "an attribute name")[0]
                if key not in fields:
                    self.fail(f"{name} has no attribute {key!r}; it has {', '.join(fields) or 'none'}", where)
                if key in given:
                    self.fail(f"attribute {key!r} is given twice", where)
                self.expect("=")
                given[key] = self.attribute(cls)
                if not self.accept(","):
                    break
            self.expect("}")
        missing = [
            f.name
            for f in fields.values()
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in given
        ]
        if missing:
            self.fail(f"{name} needs the attribute {missing[0]!r}", at)
        try:
            return cls(**given)
        except (TypeError, ValueError) as error:
            self.fail(f"{name}: {error}", at)

    def attribute(self, cls: type[Any]) -> Any:
        """One attribute value; `cls` is the class in whose module names of nested dataclasses are looked up."""
        if self.peek('"'):
            return self.string()
        if self.peek("["):
            return tuple(self.listed("[", lambda: self.attribute(cls), "]"))
        self.skip()
        if _LEVEL.match(self.text, self.at):
            return self.function()
        number = self.scan(_FLOAT)
        if number is not None:
            return float(number[0])
        at = self.at
        name = _NAME.match(self.text, at)
        if name is not None:
            known, value = self.named_attribute(name[0], name.end(), cls)
            if known:
                return value
            self.at = at
        return self.dim()

    def named_attribute(self, name: str, end: int, cls: type[Any]) -> tuple[bool, Any]:
        """(True, value) where a word starts something else than a dim expression."""
        follows = self.text[end : end + 1]
        if name in ("true", "false", "none"):
            self.at = end
            return True, {"true": True, "false": False, "none": None}[name]
        if name in ("tensor", "buffer") and follows == "<":
            return True, self.type()
        if name == "index":
            self.at = end
            return True, INDEX
        if name == "scalar" and follows == "<":
            self.at = end + 1
            dtype = self.dtype()
            self.expect(">")
            return True, ScalarType(dtype)
        if name == "op" and follows == "<":
            self.at = end + 1
            operation = self.operation(self.operation_class())
            self.expect(">")
            return True, operation
        if name in BY_SHORT:
            self.at = end
            return True, BY_SHORT[name]
        if follows == "{":
            nested = getattr(sys.modules[cls.__module__], name, None)
            if not dataclasses.is_dataclass(nested) or not isinstance(nested, type):
                self.fail(f"no attribute class {name!r} is known where {cls.__name__} is defined")
            self.at = end
            return True, self.instance(nested, name)
        return False, None

    def dtype(self) -> DType:
        self.skip()
        at = self.at
        name = self.require(_NAME, "a dtype")[0]
        if name not in BY_SHORT:
            self.fail(f"no dtype is called {name!r}; there are {', '.join(BY_SHORT)}", at)
        return BY_SHORT[name]

    # Types and dims --------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        if self.word("tensor"):
            self.expect("<")
            shape: list[Dim] = []
            while (size := self.sized()) is not None:
                shape.append(size)
            dtype = self.dtype()
            device = self.require(re.compile(r"[\w:]+"), "a device")[0] if self.accept(",") else "cpu"
            self.expect(">")
            return TensorType(dtype, tuple(shape), device)
        if self.word("buffer"):
            self.expect("<")
            extent = self.sized()
            if extent is None:
                self.fail("expected the size of the buffer")
            dtype = self.dtype()
            self.expect(",")
            space = self.require(_NAME, "a memory space")[0]
            self.expect(">")
            return BufferType(dtype, extent, space)
        if self.word("index"):
            return INDEX
        return ScalarType(self.dtype())

    def sized(self) -> Dim | None:
        """`4x` or `[s0*2]x`: one dim of a type."""
        if self.accept("["):
            size = self.dim()
            self.expect("]")
            self.expect("x")
            return size
        match = self.scan(_SIZE)
        if match is None:
            return None
        self.expect("x")
        return int(match[0])

    def dim(self) -> Dim:
        """Sums of products of integers, symbols, `max(a, b)`, `min(a, b)`, `((a) // (b))` and `((a) % (b))`."""
        total = self.dim_product()
        while True:
            if self.accept("+"):
                total = total + self.dim_product()
            elif self.peek("-") and not self.peek("->"):
                self.expect("-")
                total = total - self.dim_product()
            else:
                return total

    def dim_product(self) -> Dim:
        total = self.dim_factor()
        while True:
            if self.accept("*"):
                total = total * self.dim_factor()
            elif self.accept("//"):
                total = total // self.dim_factor()
            elif self.accept("%"):
                at, divisor = self.at, self.dim_factor()
                if isinstance(total, int) and not isinstance(divisor, int):
                    self.fail("an integer modulo a symbol has no canonical form", at)
                total = total % divisor  # type: ignore[operator]
            else:
                return total

    def dim_factor(self) -> Dim:
        if self.accept("("):
            inner = self.dim()
            self.expect(")")
            return inner
        number = self.scan(_INT)
        if number is not None:
            return int(number[0])
        self.skip()
        at = self.at
        name = self.require(_NAME, "an attribute value or a dim")[0]
        if name in ("max", "min") and self.peek("("):
            args = self.listed("(", self.dim, ")")
            if len(args) != 2:
                self.fail(f"{name} takes two dims", at)
            return dims.maximum(*args) if name == "max" else dims.minimum(*args)
        return dims.symbol(name)
