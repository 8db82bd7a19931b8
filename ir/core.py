"""SSA core: Operation (an op kind with its attributes), Op (a node), Value, Block, Function, Builder.

Everything is frozen. A pass maps a Function to a Function; uses are computed, never stored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from treadle.ir.dtypes import DType
from treadle.ir.types import TensorType, Type

__all__ = [
    "Level",
    "Loc",
    "Operation",
    "operation",
    "REGISTRY",
    "Value",
    "Op",
    "Block",
    "Function",
    "Builder",
    "Rewriter",
]


class Level(enum.Enum):
    """What a Function says: what to compute, where, or how."""

    GRAPH = "graph"
    KERNEL = "kernel"
    LOOP = "loop"


@dataclass(frozen=True)
class Loc:
    """A line of the user's program. Not part of equality of IR."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Operation:
    """An op kind with its attributes bound (the dataclass fields). Hashable; compared by value.

    Subclasses derive from one of the bases in `ir/ops/base.py` and are registered by `@operation(name)`.
    """

    name: ClassVar[str] = ""
    level: ClassVar[Level] = Level.GRAPH
    pure: ClassVar[bool] = True  # may be removed when unused and merged with an equal op

    def infer(self, *types: Any) -> tuple[Type, ...]:
        """Result types of this op on operands of `types`. Raises torch's kind of error on a mismatch."""
        raise NotImplementedError(f"{self.name}: no type rule")

    @property
    def attributes(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


REGISTRY: dict[str, type[Operation]] = {}
T = TypeVar("T", bound=type)


@dataclass_transform(frozen_default=True)
def operation(name: str) -> Callable[[T], T]:
    """Class decorator: make a frozen dataclass of the attributes and enter it in the registry as `name`."""

    def register(cls: T) -> T:
        cls = dataclass(frozen=True)(cls)  # type: ignore[assignment]
        cls.name = name  # type: ignore[attr-defined]
        prefix = name.partition(".")[0]
        cls.level = {"graph": Level.GRAPH, "kernel": Level.KERNEL}.get(prefix, Level.LOOP)  # type: ignore[attr-defined]
        if name in REGISTRY:
            raise ValueError(f"operation {name} is defined twice")
        REGISTRY[name] = cls  # type: ignore[assignment]
        return cls

    return register


class Value:
    """An SSA value: a block parameter or an op's result. Compared by identity."""

    __slots__ = ("type", "name")

    def __init__(self, type: Type, name: str = "") -> None:
        self.type = type
        self.name = name  # a hint for printing

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))[-5:]}: {self.type}"

    # Conveniences for tensor values, so that rules read like mathematics.
    @property
    def tensor(self) -> TensorType:
        assert isinstance(self.type, TensorType), self
        return self.type

    @property
    def shape(self) -> tuple:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype  # type: ignore[attr-defined]

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)


@dataclass(frozen=True, eq=False)
class Op:
    """A node: an operation applied to operands."""

    operation: Operation
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    regions: tuple[Block, ...] = ()
    loc: Loc | None = None

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value


@dataclass(frozen=True, eq=False)
class Block:
    """Straight-line ops with parameters; `yields` is its terminator."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]
    yields: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Function:
    """A named block at one level. `symbols` are the symbolic dims its types and attributes mention, in order."""

    name: str
    body: Block
    level: Level = Level.GRAPH
    symbols: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.params

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.body.ops

    @property
    def returns(self) -> tuple[Value, ...]:
        return self.body.yields

    def __eq__(self, other: object) -> bool:
        from treadle.ir.printer import print_function  # text without locations is the canonical form

        return isinstance(other, Function) and print_function(self) == print_function(other)

    def __hash__(self) -> int:
        return hash((self.name, self.level, len(self.body.ops)))


def users(block: Block) -> dict[Value, list[Op]]:
    """For each value, the ops of `block` that read it (an op that reads it in a region counts)."""
    found: dict[Value, list[Op]] = {}
    for op in block.ops:
        for v in dict.fromkeys((*op.operands, *free_values(op.regions))):
            found.setdefault(v, []).append(op)
    return found


def free_values(regions: Iterable[Block]) -> Iterator[Value]:
    """Values that regions read and do not define."""
    for block in regions:
        own = set(block.params)
        for op in block.ops:
            for v in (*op.operands, *free_values(op.regions)):
                if v not in own:
                    yield v
            own.update(op.results)
        yield from (v for v in block.yields if v not in own)


@dataclass
class Builder:
    """Appends ops to a list, inferring result types; merges equal pure ops (value numbering) when asked."""

    ops: list[Op] = field(default_factory=list)
    loc: Loc | None = None
    numbering: dict[tuple, tuple[Value, ...]] | None = None

    def emit(
        self,
        operation: Operation,
        *operands: Value,
        regions: tuple[Block, ...] = (),
        types: tuple[Type, ...] | None = None,
    ) -> Any:
        """Append an op; its one result, or the tuple of its results (`types` overrides inference, for regions)."""
        key = None
        if self.numbering is not None and operation.pure and not regions:
            key = (repr(operation), *map(id, operands))  # == takes 0.0 for -0.0 and 1 for True
            known = self.numbering.get(key)
            if known is not None:
                return known[0] if len(known) == 1 else known
        if types is None:
            types = operation.infer(*(v.type for v in operands))
        results = tuple(Value(t) for t in types)
        self.ops.append(Op(operation, operands, results, regions, self.loc))
        if key is not None:
            assert self.numbering is not None
            self.numbering[key] = results
        return results[0] if len(results) == 1 else results

    def block(self, params: Iterable[Value], yields: Iterable[Value]) -> Block:
        return Block(tuple(params), tuple(self.ops), tuple(yields))


@dataclass
class Rewriter:
    """Copies a function op by op under a value map; the usual skeleton of a pass."""

    builder: Builder = field(default_factory=Builder)
    mapping: dict[Value, Value] = field(default_factory=dict)

    def value(self, v: Value) -> Value:
        return self.mapping.get(v, v)

    def copy(self, op: Op) -> tuple[Value, ...]:
        """Append `op` with mapped operands (regions are shared when nothing in them is mapped)."""
        operands = tuple(map(self.value, op.operands))
        regions = tuple(self._region(b) for b in op.regions)
        results = tuple(Value(v.type, v.name) for v in op.results)
        self.builder.ops.append(Op(op.operation, operands, results, regions, op.loc))
        self.mapping.update(zip(op.results, results, strict=True))
        return results

    def _region(self, block: Block) -> Block:
        if not any(v in self.mapping for v in free_values((block,))):
            return block
        inner = Rewriter(Builder(), dict(self.mapping))
        for op in block.ops:
            inner.copy(op)
        return Block(block.params, tuple(inner.builder.ops), tuple(map(inner.value, block.yields)))
