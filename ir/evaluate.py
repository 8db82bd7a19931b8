"""The IR run in NumPy: the reference that finds in which level a wrong number was born.

`evaluate(fn, *arrays)` takes one array for each parameter, of exactly the parameter's dtype. bfloat16 has no NumPy
type: at this boundary it is the bit pattern as uint16, inside an evaluation it is float32 whose value is a bfloat16
(which is also what `Rule.reference` takes and gives). Symbols are bound from the arrays' shapes, or by `bindings`.

At the loop level the arrays are the kernel's buffers, 1-D or contiguous, and are written in place; the result is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.ir import dims
from treadle.ir.core import Block, Builder, Function, Level, Op, Operation, Value
from treadle.ir.dims import Expr
from treadle.ir.dtypes import DTYPES, DType, bfloat16
from treadle.ir.evaluate_loops import run_kernel
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits, round_bfloat16
from treadle.ir.ops.base import Composite, Rule
from treadle.ir.printer import print_op
from treadle.ir.substitute import substitute
from treadle.ir.types import BufferType, TensorType, Type

__all__ = ["EvaluationError", "HOST_FUNCTIONS", "bind_symbols", "evaluate", "evaluate_operation", "substitute"]

Bindings = Mapping[str, int]


class EvaluationError(RuntimeError):
    """A function cannot be evaluated, or an op's reference contradicts its type rule."""


def evaluate(fn: Function, *arrays: Any, bindings: Bindings | None = None) -> tuple[np.ndarray, ...]:
    """The values of `fn` on `arrays`, by NumPy."""
    if fn.level is Level.LOOP:
        buffers = [v for v in fn.params if isinstance(v.type, BufferType)]
        known = bind_symbols(fn.symbols, [v.type for v in buffers], [np.shape(a) for a in arrays], bindings)
        with np.errstate(all="ignore"):
            run_kernel(fn, arrays, known)
        return ()
    if len(arrays) != len(fn.params):
        raise EvaluationError(f"{fn.name} takes {len(fn.params)} arrays, not {len(arrays)}")
    inputs = [_enter(a, v) for a, v in zip(arrays, fn.params, strict=True)]
    known = bind_symbols(fn.symbols, [v.type for v in fn.params], [a.shape for a in inputs], bindings)
    with np.errstate(all="ignore"):
        results = _run_block(fn.body, inputs, {}, known)
    return tuple(_leave(a, v.dtype) for a, v in zip(results, fn.returns, strict=True))


def evaluate_operation(operation: Operation, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of one graph operation (attributes without symbols) on arrays in the inside form."""
    reference = _reference_of(operation)
    if reference is not None:
        result = reference(*arrays)
        return tuple(result) if isinstance(result, tuple | list) else (result,)
    if isinstance(operation, Composite):
        b = Builder()
        params = tuple(Value(_type_of(a)) for a in arrays)
        yields = operation.decompose(b, *params)
        return tuple(_run_block(b.block(params, yields), list(arrays), {}, {}))
    raise EvaluationError(f"{operation.name} has no reference; a graph.grad must be expanded before evaluation")


def _reference_of(operation: Operation) -> Callable[..., Any] | None:
    """The op's NumPy reference, or None where its class states none."""
    stated = getattr(type(operation), "reference", None)
    return None if stated is None or stated is Rule.reference else operation.reference  # type: ignore[attr-defined]


# Boundary ----------------------------------------------------------------------------------------------------------


def _enter(array: Any, v: Value) -> np.ndarray:
    dtype = v.tensor.dtype
    a = np.asarray(array) if isinstance(array, np.ndarray | np.generic) else np.asarray(array, dtype.numpy)
    if a.dtype != dtype.numpy:
        note = " (bfloat16 is given as uint16 bit patterns)" if dtype is bfloat16 else ""
        raise EvaluationError(f"parameter {v!r} takes {dtype.numpy}, not {a.dtype}{note}")
    return float32_from_bits(a) if dtype is bfloat16 else a


def _leave(a: np.ndarray, dtype: DType) -> np.ndarray:
    return bits_from_float32(a) if dtype is bfloat16 else a


def _type_of(a: np.ndarray) -> TensorType:
    from treadle.ir import dtypes

    return TensorType(dtypes.from_numpy(a.dtype), a.shape)


def bind_symbols(
    symbols: Sequence[str], types: Sequence[Type], shapes: Sequence[tuple[int, ...]], given: Bindings | None = None
) -> dict[str, int]:
    """Values of `symbols`, solved from parameter types against actual shapes; checks that every dim agrees."""
    known = dict(given or {})
    pairs: list[tuple[dims.Dim, int]] = []
    for t, shape in zip(types, shapes, strict=True):
        if isinstance(t, BufferType):
            pairs.append((t.size, int(np.prod(shape, dtype=np.int64))))
        elif isinstance(t, TensorType):
            if len(t.shape) != len(shape):
                raise EvaluationError(f"an array of shape {shape} was given for {t}")
            pairs += zip(t.shape, shape, strict=True)
    progress = True
    while progress:
        progress = False
        for d, size in pairs:
            unknown = [s for s in dims.symbols_of(d) if s not in known]
            if len(unknown) == 1:
                value = _solve(d, unknown[0], size, known)
                if value is not None:
                    known[unknown[0]] = value
                    progress = True
    missing = [s for s in symbols if s not in known]
    if missing:
        raise EvaluationError(f"the arrays' shapes do not determine {', '.join(missing)}: pass bindings")
    for d, size in pairs:
        if dims.evaluate(d, known) != size:
            raise EvaluationError(f"a dim of {size} was given where the type says {d} (symbols {known})")
    return known


def _solve(d: dims.Dim, name: str, size: int, known: Bindings) -> int | None:
    """The value of symbol `name` with which `d` is `size`, where `d` is linear in it; else None."""

    def at(value: int) -> int:
        return dims.evaluate(d, {**known, name: value})

    slope = at(1) - at(0) if _is_polynomial(d) else 0
    if slope == 0 or at(2) - at(1) != slope or at(3) - at(2) != slope or (size - at(0)) % slope:
        return None
    return (size - at(0)) // slope


def _is_polynomial(d: dims.Dim) -> bool:
    return isinstance(d, Expr) and all(a.op == "sym" for mono, _ in d.terms for a in mono)


# Graph and kernel level --------------------------------------------------------------------------------------------


def _run_block(
    block: Block, inputs: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray], bindings: Bindings
) -> list[np.ndarray]:
    env = dict(outer)
    env.update(zip(block.params, inputs, strict=True))
    for op in block.ops:
        try:
            results = _run_op(op, env, bindings)
        except EvaluationError:
            raise
        except Exception as error:
            error.add_note(f"while evaluating {print_op(op)}" + (f" at {op.loc}" if op.loc else ""))
            raise
        for v, a in zip(op.results, results, strict=True):
            env[v] = _conform(op, v, a, bindings)
    return [env[v] for v in block.yields]


def _run_op(op: Op, env: dict[Value, np.ndarray], bindings: Bindings) -> Sequence[np.ndarray]:
    arrays = [env[v] for v in op.operands]
    operation = op.operation
    if operation.name == "graph.call":
        callee: Function = operation.callee  # type: ignore[attr-defined]
        known = bind_symbols(callee.symbols, [v.type for v in callee.params], [a.shape for a in arrays])
        return _run_block(callee.body, arrays, {}, known)
    if operation.name == "graph.grad":
        raise EvaluationError("graph.grad has no value of its own: run the pass expand-grad before evaluating")
    if operation.name == "kernel.host":
        return _run_host(substitute(operation, bindings), arrays)
    if op.regions:  # kernel.fused, kernel.contract: every region reads all operands; results are the yields in order
        made: list[np.ndarray] = []
        for region in op.regions:
            made += _run_block(region, [*arrays, *made][: len(region.params)], env, bindings)
        return made
    concrete = substitute(operation, bindings) if bindings else operation
    if isinstance(concrete, Composite) and _reference_of(concrete) is None:
        # The recorded types tell bfloat16 from float32, which the arrays do not.
        b = Builder()
        params = tuple(Value(substitute(v.type, bindings)) for v in op.operands)
        return _run_block(b.block(params, concrete.decompose(b, *params)), arrays, {}, bindings)
    return evaluate_operation(concrete, *arrays)


def _conform(op: Op, v: Value, array: Any, bindings: Bindings) -> np.ndarray:
    """The result as an array, after checking it against the recorded type; bfloat16 is rounded."""
    t = v.tensor
    a = np.asarray(array)
    shape = t.concrete_shape(bindings)
    expected = np.dtype(np.float32) if t.dtype is bfloat16 else t.dtype.numpy
    if a.shape != shape or a.dtype != expected:
        raise EvaluationError(
            f"{op.operation.name} gave {a.dtype}{list(a.shape)} where its type is {t} ({expected}{list(shape)}): "
            f"{print_op(op)}"
        )
    return round_bfloat16(a) if t.dtype is bfloat16 else a


# Host functions ----------------------------------------------------------------------------------------------------

HostFunction = Callable[[Sequence[int], Sequence[np.ndarray]], tuple[np.ndarray, ...]]


def _sort_rows(descending: bool) -> HostFunction:
    """(in) -> (values, indices) of rows of ints[0] elements, the first ints[1] in order: stable; NaNs come last, and first
    when descending."""

    def run(ints: Sequence[int], arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        rows = arrays[0].reshape(-1, ints[0]) if ints[0] else arrays[0].reshape(0, 0)
        if descending:  # sorting backwards ascending keeps equal elements in reverse: turn both round
            order = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            order = np.argsort(rows, axis=1, kind="stable")
        order = order[:, : ints[1]]
        return np.take_along_axis(rows, order, axis=1), order.astype(np.int64)

    return run


def _count_nonzero(ints: Sequence[int], arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return (np.array(np.count_nonzero(arrays[0]), np.int64),)


def _nonzero(ints: Sequence[int], arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return (np.flatnonzero(arrays[0]).astype(np.int64),)


# What `kernel.host` may call, by the runtime's names: (integer arguments, operand arrays) -> result arrays, flat.
HOST_FUNCTIONS: dict[str, HostFunction] = {
    **{
        f"sort_{name}_{direction}": _sort_rows(direction == "desc")
        for name in ("bool", *(d.short for d in DTYPES.values() if d.bits > 1))
        for direction in ("asc", "desc")
    },
    "count_nonzero_u8": _count_nonzero,
    "nonzero_u8": _nonzero,
}


def _run_host(operation: Any, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    function = HOST_FUNCTIONS.get(operation.function)
    if function is None:
        raise EvaluationError(f"kernel.host calls {operation.function!r}, which has no NumPy reference")
    results = function(operation.ints, arrays)
    return tuple(a.reshape(t.shape) for a, t in zip(results, operation.result_types, strict=True))
