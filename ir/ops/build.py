"""How rules write IR: small constructors, and `Term`, a value with operators, so that formulas read like mathematics.

Ops are named (`emit(b, "mul", x, y)`), which keeps the families free of imports of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.ir.core import REGISTRY, Builder, Value
from treadle.ir.dims import Dim, Undecided, ceildiv
from treadle.ir.dtypes import DType

__all__ = [
    "Term",
    "cast",
    "check_dim",
    "constant",
    "emit",
    "expand",
    "full",
    "full_like",
    "permute",
    "reshape",
    "same_dim",
    "same_shape",
    "shape_text",
    "slice_size",
    "sum_to",
    "unreduce",
    "window_size",
    "zeros_like",
]

Number = float | int | bool


def emit(b: Builder, name: str, *operands: Value, **attributes: Any) -> Any:
    """Append the graph op `name`; its result, or the tuple of its results."""
    return b.emit(REGISTRY[f"graph.{name}"](**attributes), *operands)


def constant(b: Builder, value: Number, dtype: DType, device: str) -> Value:
    """A 0-d constant, converted to the kind of `dtype`."""
    kind = {"b": bool, "u": int, "i": int, "f": float}[dtype.kind]
    return emit(b, "constant", value=kind(value), dtype=dtype, device=device)


def full_like(b: Builder, x: Value, value: Number, dtype: DType | None = None) -> Value:
    """A constant of the shape and device of `x`, and its dtype unless one is given."""
    return expand(b, constant(b, value, dtype or x.dtype, x.tensor.device), x.shape)


def zeros_like(b: Builder, x: Value) -> Value:
    return full_like(b, x, 0)


def full(b: Builder, value: Number, dtype: DType, shape: Sequence[Dim], device: str) -> Value:
    return expand(b, constant(b, value, dtype, device), tuple(shape))


def expand(b: Builder, x: Value, shape: Sequence[Dim]) -> Value:
    """`x` broadcast to `shape`; `x` itself where it has it."""
    return x if x.shape == tuple(shape) else emit(b, "expand", x, shape=tuple(shape))


def reshape(b: Builder, x: Value, shape: Sequence[Dim]) -> Value:
    """`x` in another shape; `x` itself where it has it."""
    return x if x.shape == tuple(shape) else emit(b, "reshape", x, shape=tuple(shape))


def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """`x` with its dims in another order; `x` itself where the order is its own."""
    return x if list(dims) == list(range(x.rank)) else emit(b, "permute", x, dims=tuple(dims))


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    """`x` converted; `x` itself where it has the dtype."""
    return x if x.dtype is dtype else emit(b, "cast", x, dtype=dtype)


def unreduce(b: Builder, x: Value, shape: Sequence[Dim], dims: Sequence[int]) -> Value:
    """A reduction's result expanded back over the removed `dims` of `shape`."""
    kept = tuple(1 if i in dims else d for i, d in enumerate(shape))
    return expand(b, reshape(b, x, kept), shape)


def sum_to(b: Builder, x: Value, shape: Sequence[Dim]) -> Value:
    """`x` summed over the dims by which `shape` was expanded to the shape of `x` (right aligned)."""
    extra = x.rank - len(shape)
    dims = [*range(extra), *(i + extra for i, d in enumerate(shape) if d == 1 and x.shape[i + extra] != 1)]
    return reshape(b, emit(b, "sum", x, dims=tuple(dims)) if dims else x, shape)


# Questions about dims -------------------------------------------------------------------------------------------------


def same_dim(a: Dim, b: Dim) -> bool:
    """Are the dims equal? Raises Undecided where that depends on the symbols' values."""
    if a == b:
        return True
    if isinstance(a - b, int):
        return False
    raise Undecided(f"cannot decide whether {a} is {b} for every value of their symbols")


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(map(same_dim, a, b))


def shape_text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def check_dim(dim: int, rank: int) -> None:
    """Raises IndexError like torch where `dim` is not one of `rank` dims. (In the IR dims are not negative.)"""
    if not 0 <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            if rank
            else f"Dimension specified as {dim} but tensor has no dimensions"
        )


def slice_size(start: Dim, limit: Dim, step: int) -> Dim:
    """Number of indices start, start + step, ... below limit."""
    return limit - start if step == 1 else ceildiv(limit - start, step)


def window_size(size: Dim, kernel: Dim, stride: int, dilation: int) -> Dim:
    """Number of windows of `kernel` elements, `dilation` apart, that start every `stride` elements and fit in
    `size`."""
    span = size - dilation * (kernel - 1) - 1
    return span + 1 if stride == 1 else span // stride + 1


# Formulas -------------------------------------------------------------------------------------------------------------


class Term:
    """A value with operators. Numbers become constants of its shape and dtype; other ops are methods by name.

    `Term(b, x) * 2 + 1` multiplies and adds; `t.exp()`, `t.sum(dims=(1,))`, `c.select(x, 0)` emit those ops.
    """

    __slots__ = ("b", "v")

    def __init__(self, b: Builder, v: Value) -> None:
        self.b = b
        self.v = v

    def lift(self, other: Term | Value | Number) -> Value:
        """`other` as a value of this term's type."""
        if isinstance(other, Term):
            return other.v
        return other if isinstance(other, Value) else full_like(self.b, self.v, other)

    def call(self, name: str, *others: Term | Value | Number, **attributes: Any) -> Any:
        made = emit(self.b, name, self.v, *map(self.lift, others), **attributes)
        return tuple(Term(self.b, v) for v in made) if isinstance(made, tuple) else Term(self.b, made)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if f"graph.{name}" not in REGISTRY:
            raise AttributeError(name)
        return lambda *others, **attributes: self.call(name, *others, **attributes)

    def __add__(self, other: Term | Value | Number) -> Term:
        return self.call("add", other)

    def __sub__(self, other: Term | Value | Number) -> Term:
        return self.call("sub", other)

    def __mul__(self, other: Term | Value | Number) -> Term:
        return self.call("mul", other)

    def __truediv__(self, other: Term | Value | Number) -> Term:
        return self.call("div", other)

    def __rsub__(self, other: Value | Number) -> Term:
        return Term(self.b, self.lift(other)).call("sub", self)

    def __rtruediv__(self, other: Value | Number) -> Term:
        return Term(self.b, self.lift(other)).call("div", self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Term:
        return self.call("neg")

    def where(self, a: Term | Value | Number, b: Term | Value | Number) -> Term:
        """`a` where this condition holds, else `b`; at least one of the two is not a number."""
        like = a if isinstance(a, Term) else b if isinstance(b, Term) else None
        if like is None:
            like = Term(self.b, a if isinstance(a, Value) else b)  # type: ignore[arg-type]
        return self.call("select", like.lift(a), like.lift(b))

    def cast(self, dtype: DType) -> Term:
        return Term(self.b, cast(self.b, self.v, dtype))

    def expand(self, shape: Sequence[Dim]) -> Term:
        return Term(self.b, expand(self.b, self.v, shape))

    def unreduce(self, shape: Sequence[Dim], dims: Sequence[int]) -> Term:
        return Term(self.b, unreduce(self.b, self.v, shape, dims))
