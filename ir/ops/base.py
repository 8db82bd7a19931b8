"""The five base classes by which an op is defined once.

An author states the least; the base derives the rest:

| base | stated | derived |
| --- | --- | --- |
| Elementwise | `scalar`, `partials`, `reference`, (domain of samples) | types, JVP, VJP, batching, lowering |
| Structured | `infer`, `linear_in` and `transpose` (or `jvp`/`vjp`), `reference`, `samples` | JVP, VJP |
| View | `infer`, `index_map`, `transpose`, `put`, `samples` | reference, JVP, VJP, zero-cost lowering |
| Composite | `decompose` (and a stabler `vjp` where one is needed), `samples` | everything else |
| Opaque | every rule, or `Absent("why")` | nothing |

Derivatives: a JVP is the op linearised; a VJP is its transpose. `vjp` gets the op node, the cotangents of its results
(None where zero) and which operands need one; it returns a cotangent or None for each operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import REGISTRY, Builder, Op, Operation, Value
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.types import TensorType

__all__ = ["Absent", "Composite", "Elementwise", "Opaque", "Rule", "Sample", "Structured", "View"]

Cotangents = tuple["Value | None", ...]


@dataclass(frozen=True)
class Absent:
    """A rule that does not exist, and why. Calling it raises NotImplementedError with the reason."""

    why: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(self.why)


@dataclass(frozen=True)
class Sample:
    """One test case of an op: the operation with attributes, and operands for it."""

    operation: Operation
    operands: tuple[np.ndarray, ...]


class Rule(Operation):
    """What every graph op offers to the passes; the bases below fill it in."""

    # How promotion treats operands when the op is built from user tensors (see frontend promotion):
    # "same" common dtype; "float" common dtype made floating; "bool" operands become bool; "none" left alone.
    promotes: ClassVar[str] = "none"

    def reference(self, *arrays: np.ndarray) -> Any:
        """NumPy value of the op: one array, or a tuple for several results. bfloat16 comes and goes as float32."""
        raise NotImplementedError

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        raise NotImplementedError

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        raise NotImplementedError

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        raise NotImplementedError


def same_shape(name: str, types: tuple[TensorType, ...]) -> TensorType:
    """The first type, after checking that all shapes and devices agree."""
    first = types[0]
    for t in types[1:]:
        if t.shape != first.shape:
            raise RuntimeError(f"{name}: operands have shapes {' and '.join(str(list(x.shape)) for x in types)}")
        if t.device != first.device:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {first.device} and "
                f"{t.device}!"
            )
    return first


class Elementwise(Rule):
    """One scalar function applied at every index. Operands share one shape and (but for `mixed`) one dtype.

    State: `scalar(s, *xs)`, the body on loop-level scalars by a ScalarBuilder (`ir/scalar.py`); `partials(b, op)`, for
    each operand the partial derivative as a graph value, or None where it is zero or does not exist; `reference`.
    """

    arity: ClassVar[int] = 1
    mixed: ClassVar[bool] = False  # operands may differ in dtype (select)
    returns_bool: ClassVar[bool] = False
    domain: ClassVar[tuple[float, float]] = (-3.0, 3.0)  # of samples
    kinds: ClassVar[str] = "f"  # dtype kinds accepted: any of b, u, i, f
    promotes = "same"

    def result_dtype(self, *operands: DType) -> DType:
        return dtypes.bool_ if self.returns_bool else operands[-1]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if len(types) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} operands, not {len(types)}")
        first = same_shape(self.name, types)
        if not self.mixed and any(t.dtype is not first.dtype for t in types):
            raise RuntimeError(f"{self.name}: operands have dtypes {', '.join(t.dtype.short for t in types)}")
        for t in types[-1:]:
            if t.dtype.kind not in self.kinds:
                raise RuntimeError(f'"{self.name.split(".")[1]}" not implemented for {t.dtype!r}')
        return (first.with_dtype(self.result_dtype(*(t.dtype for t in types))),)

    def scalar(self, s: Any, *xs: Value) -> Value:
        raise NotImplementedError

    def partials(self, b: Builder, op: Op) -> Cotangents:
        raise NotImplementedError

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        total: Value | None = None
        for partial, tangent in zip(self.partials(b, op), tangents, strict=True):
            if partial is not None and tangent is not None:
                term = multiply(b, partial, tangent)
                total = term if total is None else add(b, total, term)
        return (total,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        partials = self.partials(b, op)
        return tuple(
            multiply(b, ct, p) if p is not None and need else None for p, need in zip(partials, needs, strict=True)
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        from treadle.ir.ops.sampling import elementwise_samples

        return elementwise_samples(cls, rng)


class Structured(Rule):
    """An iteration space with reduction dims (reduce, contract, scan, gather).

    State `linear_in` (operand indices in which the op is linear) and `transpose(b, op, ct, i)`, the cotangent of
    operand i; JVP and VJP follow. An op that is not linear overrides `jvp` and `vjp`.
    """

    linear_in: ClassVar[tuple[int, ...]] = (0,)

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        raise NotImplementedError

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        total: Value | None = None
        for i in self.linear_in:
            t = tangents[i]
            if t is not None:
                operands = list(op.operands)
                operands[i] = t
                term = b.emit(self, *operands)
                total = term if total is None else add(b, total, term)
        return (total,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        return tuple(
            self.transpose(b, op, ct, i) if ct is not None and need and i in self.linear_in else None
            for i, need in enumerate(needs)
        )


class View(Rule):
    """Reads its one operand at other indices: no arithmetic, no memory of its own.

    State `infer`; `index_map(index, shape)`, the operand's index (one Dim expression each dim, over the symbols in
    `index`) for a result index; `transpose(b, op, ct)`, the cotangent of the operand; `put(b, base, new)`, the base
    with the viewed elements replaced (None where writing through the view is not allowed).
    """

    def index_map(self, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        raise NotImplementedError

    def transpose(self, b: Builder, op: Op, ct: Value) -> Value:
        raise NotImplementedError

    def put(self, b: Builder, base: Value, new: Value) -> Value:
        raise NotImplementedError

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return (b.emit(self, tangents[0]) if tangents[0] is not None else None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (self.transpose(b, op, cotangents[0]) if cotangents[0] is not None and needs[0] else None,)


class Composite(Rule):
    """Defined by `decompose` into other graph ops; named so that dumps stay readable and a better VJP can be stated."""

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        raise NotImplementedError

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return tuple(v.tensor for v in self.decompose(Builder(), *(Value(t) for t in types)))

    # jvp and vjp of a composite without its own rule: the passes decompose it first.
    jvp: Callable[..., Any] = None  # type: ignore[assignment]
    vjp: Callable[..., Any] = None  # type: ignore[assignment]


class Opaque(Rule):
    """Nothing is derived: every rule is stated, or is `Absent("why")`."""


def multiply(b: Builder, x: Value, y: Value) -> Value:
    return b.emit(REGISTRY["graph.mul"](), x, y)


def add(b: Builder, x: Value, y: Value) -> Value:
    return b.emit(REGISTRY["graph.add"](), x, y)
