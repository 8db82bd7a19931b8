"""What a recorded op means in IR: promotion and broadcasting made explicit. Runs once for each new edge of the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Builder, Operation, Value
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType, promote
from treadle.ir.ops.base import Absent, Elementwise
from treadle.ir.ops.identity import StopGradient
from treadle.ir.ops.logic import Cast
from treadle.ir.ops.sources import Constant
from treadle.ir.ops.views import Expand
from treadle.ir.types import TensorType

__all__ = [
    "Index",
    "RuntimeParam",
    "RuntimeScalar",
    "apply",
    "broadcast",
    "build_operation",
    "default_dtype",
    "result_type",
]

_default = dtypes.float32


def default_dtype() -> DType:
    """The floating type of Python floats (torch.get_default_dtype)."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    global _default
    if not isinstance(dtype, DType) or not dtype.is_floating:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype!r}")
    _default = dtype


class RuntimeScalar:
    """A Python number that is an argument of the program and never part of its key (learning rates, counters)."""

    __slots__ = ("value", "trace", "index")

    def __init__(self, value: float | int) -> None:
        self.value = value
        self.trace: Any = None  # where it last entered
        self.index = -1


class Index(int):
    """A trace index among operands, told apart from a Python int that is a scalar operand."""

    __slots__ = ()


class RuntimeParam:
    """Stands among a node's operands for a Python scalar of which two values were seen; `kind` is float or int."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind


Argument = Value | float | int | bool


class ScalarValue(Value):
    """A 0-d parameter that promotes like a Python number."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        super().__init__(TensorType(dtypes.int64 if kind is int else dtypes.float64))
        self.kind = kind


def _number_dtype(kind: type) -> DType:
    return dtypes.bool_ if kind is bool else dtypes.int64 if kind is int else _default


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """torch's rule for a category of operands of higher priority with one of lower."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_floating:
        return higher
    if higher is dtypes.bool_ or lower.is_floating:
        return promote(higher, lower)
    return higher


def result_type(args: Sequence[Argument]) -> DType:
    """The common dtype of operands by torch's rules: tensors with dims, then 0-d tensors, then Python numbers."""
    ranks: list[DType | None] = [None, None, None]
    for a in args:
        if isinstance(a, ScalarValue):
            slot, dtype = 2, _number_dtype(a.kind)
        elif isinstance(a, Value):
            slot, dtype = (0 if a.rank else 1), a.dtype
        else:
            slot, dtype = 2, _number_dtype(type(a))
        known = ranks[slot]
        ranks[slot] = dtype if known is None else promote(known, dtype)
    common = _combine(_combine(ranks[0], ranks[1]), ranks[2])
    assert common is not None
    return common


def broadcast(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The common shape. Raises RuntimeError naming both sizes and the dimension."""
    if all(s == shapes[0] for s in shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for k, d in enumerate(shape, rank - len(shape)):
            if d == 1 or d == out[k]:
                continue
            if out[k] != 1:
                raise RuntimeError(
                    f"The size of tensor a ({out[k]}) must match the size of tensor b ({d}) at non-singleton dimension {k}"
                )
            out[k] = d
    return tuple(out)


def _coerce(b: Builder, a: Argument, dtype: DType, shape: tuple[Dim, ...], device: str) -> Value:
    if not isinstance(a, Value):
        a = b.emit(Constant(_literal(a, dtype), dtype, device))
    elif a.dtype is not dtype:
        a = b.emit(Cast(dtype), a)
    return a if a.shape == shape else b.emit(Expand(shape), a)


def _literal(value: float | int | bool, dtype: DType) -> float | int | bool:
    """A Python number as a constant of `dtype`. Raises RuntimeError where torch finds an overflow."""
    if dtype.is_floating:
        return float(value)
    if dtype is dtypes.bool_:
        return bool(value)
    return int(value)


def apply(b: Builder, op: Operation, args: Sequence[Argument]) -> tuple[Value, ...]:
    """Emit `op` on `args`, with the casts and expands its class asks for."""
    device = next((a.tensor.device for a in args if isinstance(a, Value) and not isinstance(a, ScalarValue)), "cpu")
    if isinstance(op, Elementwise) and op.promotes != "none" and args:
        args = _promote(b, op, args, device)
    out = b.emit(op, *(a if isinstance(a, Value) else _coerce(b, a, _number_dtype(type(a)), (), device) for a in args))
    return out if isinstance(out, tuple) else (out,)


def _promote(b: Builder, op: Elementwise, args: Sequence[Argument], device: str) -> list[Argument]:
    head: list[Argument] = []
    rest = list(args)
    if op.mixed:  # select: the condition keeps its type
        head, rest = rest[:1], rest[1:]
    common = result_type(rest)
    if op.promotes == "float" and not common.is_floating:
        common = _default
    elif op.promotes == "bool":
        common = dtypes.bool_
    shape = broadcast([a.shape for a in (*head, *rest) if isinstance(a, Value)] or [()])
    _check_devices([a for a in args if isinstance(a, Value)], device)
    return [
        *(_coerce(b, a, dtypes.bool_, shape, device) for a in head),
        *(_coerce(b, a, common, shape, device) for a in rest),
    ]


def _check_devices(values: list[Value], device: str) -> None:
    for v in values:
        if v.tensor.device != device and v.rank:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{device} and {v.tensor.device}!"
            )


def differentiable(op: Operation) -> bool:
    """False where the op's gradient is zero or does not exist."""
    return not isinstance(getattr(op, "vjp", None), Absent) and not isinstance(op, StopGradient)


def build_operation(
    b: Builder, op: Operation, operands: tuple, values: list[Value], grads: list[bool], no_grad: bool
) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[bool, ...]]:
    """IR of one event: (results, new parameters, which results require grad)."""
    params: list[Value] = []
    args: list[Argument] = []
    tracked = False
    for o in operands:
        if isinstance(o, Index):
            args.append(values[o])
            tracked = tracked or grads[o]
        elif isinstance(o, RuntimeParam):
            params.append(ScalarValue(o.kind))
            args.append(params[-1])
        else:
            args.append(o)
    results = apply(b, op, args)
    if tracked and no_grad:  # the graph must not show a path that autograd may not take
        results = tuple(b.emit(StopGradient(), r) if r.dtype.is_floating else r for r in results)
    flows = tracked and not no_grad and differentiable(op)
    return results, tuple(params), tuple(flows and r.dtype.is_floating for r in results)
