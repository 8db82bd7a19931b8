"""check_mode: every program is run twice, compiled and op by op in NumPy; the first op that differs is named.

Floats are compared with a tolerance of their dtype, scaled to the values. Where that fails, the reference runs again
with more rounding errors at every op: what this moves in the results is rounding, not a fault (a gradient that cancels
to noise, an optimizer that divides noise by noise). To find the op, prefixes of the program are compiled, by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treadle.compiler.executable import Executable, make_executable
from treadle.ir.core import Block, Function, Loc, Op, Value, free_values
from treadle.ir.dtypes import DType, bfloat16
from treadle.ir.evaluate import evaluate
from treadle.ir.evaluate_scalars import float32_from_bits
from treadle.passes.pipeline import Context, run_pipeline
from treadle.recorder import trace
from treadle.runtime import Buffer

__all__ = ["CheckError", "active", "check_mode", "run_checked"]

# By bits: (relative tolerance of an element, tolerance relative to the largest element).
_TOLERANCE = {16: (4e-3, 1e-3), 32: (1e-4, 1e-5), 64: (1e-9, 1e-11)}
_BFLOAT16 = (3e-2, 1e-2)
_NOISE = 64  # how many times the effect of one more rounding error an op is still rounding

# Ops that compute no digits: they give what they are given. Moving their results would break ties and comparisons.
_EXACT = frozenset(
    f"graph.{name}"
    for name in """abs as_strided barrier bitcast bits_to_uniform call cast ceil clamp_max clamp_min concat constant
    copy copysign cummax cummin dim dropout expand fill flip floor fmax fmin gather grad iota leaf leaky_relu max
    max_pool maximum min minimum neg nextafter pad permute put random_bits relu reshape round scatter select sign slice
    slice_update sort stop_gradient take trunc view_put window""".split()
)

Values = dict[Value, np.ndarray]

active = False  # within check_mode(); run_step reads it


class CheckError(AssertionError):
    """A compiled program computed something else than the reference. `op` is the first op that differs."""

    def __init__(self, message: str, op: Op | None, difference: float) -> None:
        super().__init__(message)
        self.op = op
        self.loc: Loc | None = op.loc if op is not None else None
        self.max_difference = difference


@contextmanager
def check_mode() -> Iterator[None]:
    """Check every program that runs in the context against NumPy. Raises CheckError. Slow: for finding faults."""
    global active
    outer, active = active, True
    try:
        yield
        trace._flush("the end of check_mode")
    finally:
        active = outer


def run_checked(
    executable: Executable,
    fn: Function,
    buffers: list[Any],
    scalars: list[float | int],
    bindings: dict[str, int],
    compile: Callable[[Function, int], Executable] | None = None,
) -> list[Any]:
    """Run the program of `fn`, and raise CheckError where its results are not those of `fn` evaluated op by op."""
    inputs = _arrays(fn, buffers, scalars, bindings)  # copied before the program may overwrite them
    made = executable.run(buffers, scalars, bindings)
    results = [_array(b, v, bindings) for b, v in zip(made, fn.returns, strict=False)]
    graph = run_pipeline(fn, "expand-grad", Context())
    expected = evaluate(graph, *inputs, bindings=bindings)
    if all(_difference(a, e, v.dtype, None) is None for a, e, v in zip(results, expected, graph.returns, strict=True)):
        return made
    search = _Search(graph, len(buffers), inputs, scalars, bindings, compile or _compile)
    right, moved = search.values(noisy=False), search.values(noisy=True)
    for a, v in zip(results, graph.returns, strict=True):
        difference = _difference(a, right[v], v.dtype, moved[v])
        if difference is not None:
            raise search.error(v, difference, right, moved)
    return made


def _compile(fn: Function, leaves: int) -> Executable:
    return make_executable(fn, leaves, frozenset(), "check_mode")


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _array(buffer: Any, v: Value, bindings: Mapping[str, int]) -> np.ndarray:
    buffer.wait()
    return buffer.array(v.dtype.numpy, list(v.tensor.concrete_shape(bindings))).copy()


def _arrays(
    fn: Function, buffers: Sequence[Any], scalars: Sequence[float | int], bindings: Mapping[str, int]
) -> list[np.ndarray]:
    tensors = [_array(b, p, bindings) for b, p in zip(buffers, fn.params, strict=False)]
    numbers = [np.asarray(s, dtype=p.dtype.numpy) for s, p in zip(scalars, fn.params[len(buffers) :], strict=True)]
    return [*tensors, *numbers]


def _floats(a: np.ndarray, dtype: DType) -> np.ndarray:
    return (float32_from_bits(a) if dtype is bfloat16 else a).astype(np.float64)


@dataclass(frozen=True)
class _Difference:
    """The worst element of two arrays."""

    size: float
    at: tuple[int, ...]
    compiled: Any
    expected: Any


def _difference(a: np.ndarray, e: np.ndarray, dtype: DType, moved: np.ndarray | None) -> _Difference | None:
    """Where `a` is not `e`; None where they agree. `moved`: `e` with more rounding errors."""
    if not dtype.is_floating:
        wrong = a != e
        excused = 0 if moved is None else 4 * np.count_nonzero(moved != e)
        if np.count_nonzero(wrong) <= excused:
            return None
        sizes = np.where(wrong, np.abs(a.astype(np.float64) - e.astype(np.float64)), -1.0)
    else:
        a, e = _floats(a, dtype), _floats(e, dtype)
        with np.errstate(all="ignore"):
            sizes = np.abs(a - e)
            same = (a == e) | (np.isnan(a) & np.isnan(e))
            sizes = np.where(same, -1.0, np.where(np.isnan(sizes), np.inf, sizes))
            limit = _limit(e, dtype, None if moved is None else _floats(moved, dtype))
            sizes = np.where(sizes <= limit, -1.0, sizes)
    if not sizes.size or sizes.max() < 0:
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(sizes)), sizes.shape))
    return _Difference(float(sizes[at]), at, a[at].item(), e[at].item())


def _limit(e: np.ndarray, dtype: DType, moved: np.ndarray | None) -> np.ndarray:
    element, largest = _BFLOAT16 if dtype is bfloat16 else _TOLERANCE[dtype.bits]
    finite = np.where(np.isfinite(e), np.abs(e), 0.0)
    limit = element * finite + largest * finite.max(initial=0.0)
    if moved is not None:
        noise = np.abs(moved - e)
        limit = limit + _NOISE * np.where(np.isfinite(noise), noise, 0.0).max(initial=0.0)
    return limit


# ---- which op --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """The first op of `graph` whose compiled value is wrong on these inputs."""

    graph: Function
    leaves: int
    inputs: list[np.ndarray]
    scalars: list[float | int]
    bindings: dict[str, int]
    compile: Callable[[Function, int], Executable]

    def values(self, noisy: bool) -> Values:
        """Every value of the graph, op by op; `noisy`: with more rounding errors in the operands and results of ops."""
        rng = np.random.default_rng(0)
        found: Values = dict(zip(self.graph.params, self.inputs, strict=True))
        for op in self.graph.ops:
            read = tuple(dict.fromkeys((*op.operands, *free_values(op.regions))))
            one = Function("one", Block(read, (op,), op.results), symbols=self.graph.symbols)
            moves = noisy and op.operation.name not in _EXACT and any(v.dtype.is_floating for v in op.results)
            operands = [_moved(rng, found[v], v.dtype) if moves else found[v] for v in read]
            results = evaluate(one, *operands, bindings=self.bindings)
            for v, a in zip(op.results, results, strict=True):
                found[v] = _moved(rng, a, v.dtype) if moves else a
        return found

    def error(self, returned: Value, seen: _Difference, right: Values, moved: Values) -> CheckError:
        """The error to raise for a wrong result; bisects over prefixes."""
        ops = self.graph.ops
        low, high = 0, len(ops)  # the prefix of `low` ops is right, that of `high` ops is wrong
        worst = self._wrong(high, right, moved)
        if worst is None:
            op = next((op for op in ops if returned in op.results), None)
            return _error(op, seen, "in the whole program only (is its memory plan wrong?)")
        while high - low > 1:
            middle = (low + high) // 2
            found = self._wrong(middle, right, moved)
            if found is None:
                low = middle
            else:
                high, worst = middle, found
        return _error(ops[high - 1], worst, f"op {high} of {len(ops)}")

    def _wrong(self, count: int, right: Values, moved: Values) -> _Difference | None:
        """The difference in the last wrong value that the first `count` ops hand on, compiled by themselves."""
        ops, rest = self.graph.ops[:count], self.graph.ops[count:]
        read = {v for op in rest for v in op.operands} | set(self.graph.returns)
        values = tuple(v for op in ops for v in op.results if v in read or op is ops[-1])
        fn = replace(self.graph, body=Block(self.graph.params, ops, values))
        buffers = [_buffer(a) for a in self.inputs[: self.leaves]]
        made = self.compile(fn, self.leaves).run(buffers, self.scalars, self.bindings)
        found = None
        for b, v in zip(made, values, strict=True):
            found = _difference(_array(b, v, self.bindings), right[v], v.dtype, moved[v]) or found
        return found


def _moved(rng: np.random.Generator, a: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats with their last bits changed."""
    if not dtype.is_floating:
        return a
    if dtype is bfloat16:  # bit patterns
        return np.where((a & 0x7F80) == 0x7F80, a, a ^ rng.integers(0, 2, a.shape).astype(a.dtype))
    with np.errstate(all="ignore"):
        return np.asarray(a * (1 + rng.choice([-1.0, 1.0], a.shape) * np.finfo(a.dtype).eps), a.dtype)


def _buffer(a: np.ndarray) -> Buffer:
    return Buffer.from_bytes(np.ascontiguousarray(a).tobytes())


def _error(op: Op | None, seen: _Difference, where: str) -> CheckError:
    name = op.operation.name.removeprefix("graph.") if op is not None else "an input that is a result"
    at = f" at {op.loc}" if op is not None and op.loc is not None else ""
    types = f" -> {', '.join(str(v.type) for v in op.results)}" if op is not None else ""
    element = f"[{', '.join(map(str, seen.at))}]" if seen.at else ""
    return CheckError(
        f"{name}{types}{at} ({where}): compiled and reference differ by {seen.size:.6g}; "
        f"element{element} is {seen.compiled!r} compiled, {seen.expected!r} by NumPy",
        op,
        seen.size,
    )
