"""Runs kernel-level functions the way the runtime does: planned memory, launches in order, loops or compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.codegen.cpu.backend import compile_functions
from treadle.codegen.cpu.contract_schedule import contraction_tasks
from treadle.codegen.cpu.target import host_target
from treadle.ir import dims
from treadle.ir.core import Builder, Function, Value
from treadle.ir.evaluate import bind_symbols, evaluate
from treadle.ir.loops import LoopContract
from treadle.ir.types import TensorType
from treadle.ir.verifier import verify
from treadle.passes.decompose import decompose
from treadle.passes.expand_grad import expand_grad
from treadle.passes.expand_math import expand_math
from treadle.passes.fuse import fuse
from treadle.passes.lower import LoweredKernel, lower_kernel
from treadle.passes.plan_memory import plan_memory
from treadle.passes.simplify import simplify
from treadle.runtime import jit

__all__ = ["build", "launches", "run_compiled", "run_loops"]

GUARD = 64


def build(make: Callable[..., Any], *types: Any, symbols: tuple[str, ...] = ()) -> Function:
    """The graph that `make(builder, *params)` appends, expanded and simplified; a shape stands for f32 of it."""
    from treadle.ir import dtypes

    b = Builder()
    params = [Value(t if isinstance(t, TensorType) else TensorType(dtypes.float32, t)) for t in types]
    made = make(b, *params)
    fn = Function("f", b.block(params, made if isinstance(made, list | tuple) else [made]), symbols=symbols)
    return simplify(decompose(expand_grad(fn)))


def launches(fn: Function) -> list[str]:
    """The launches of a fused graph: kind and number of regions."""
    kernels = fuse(fn)
    verify(kernels)
    return [f"{op.operation.name.split('.')[1]} {len(op.regions)}" for op in kernels.ops]


Run = Callable[[LoweredKernel, list[np.ndarray], Mapping[str, int]], None]


def _planned(
    fn: Function, arrays: Sequence[Any], bindings: Mapping[str, int] | None, donated: frozenset[int], run: Run
) -> list[np.ndarray]:
    """Results of `fn` by its kernels on planned memory; donated arrays are overwritten."""
    kernels = fuse(fn)
    verify(kernels)
    plan = plan_memory(kernels, donated)
    sizes = bind_symbols(fn.symbols, [v.type for v in fn.params], [np.shape(a) for a in arrays], bindings)
    arena = _Memory(dims.evaluate(plan.arena, sizes))
    inputs = [np.array(a, order="C") for a in arrays]
    made: dict[Value, np.ndarray] = {}

    def memory(v: Value) -> np.ndarray:
        place = plan.places[v]
        shape, dtype = v.tensor.concrete_shape(sizes), v.dtype.numpy
        if place.kind == "input":
            return inputs[place.index]
        if place.kind == "temp":
            return arena.view(dims.evaluate(place.offset, sizes), shape, dtype)
        if v not in made:
            taken = inputs[place.alias].reshape(shape) if place.alias >= 0 else np.full(shape, 77, dtype)
            made[v] = taken
        return made[v]

    for op in plan.order:
        if op.regions:
            low = lower_kernel(op)
            verify(low.function)
            run(low, [memory(v) for v in (*op.operands, *op.results)], sizes)
        else:
            _host(op, memory, sizes)
    arena.check()
    return [memory(v) for v in kernels.returns]


def _host(op: Any, memory: Callable[[Value], np.ndarray], sizes: Mapping[str, int]) -> None:
    from treadle.ir.evaluate import HOST_FUNCTIONS, substitute

    o = substitute(op.operation, sizes)
    outs = HOST_FUNCTIONS[o.function](o.ints, [memory(v) for v in op.operands])
    for v, a in zip(op.results, outs, strict=True):
        memory(v)[...] = a.reshape(memory(v).shape)


class _Memory:
    """Bytes between guards."""

    def __init__(self, nbytes: int) -> None:
        self.raw = np.full(nbytes + 3 * GUARD, 0xAB, np.uint8)
        self.start = -self.raw.ctypes.data % 64 + GUARD
        self.nbytes = nbytes

    def view(self, offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        n = int(np.prod(shape)) * np.dtype(dtype).itemsize
        assert offset + n <= max(self.nbytes, n if offset == 0 and n == 0 else self.nbytes)
        return self.raw[self.start + offset : self.start + offset + n].view(dtype).reshape(shape)

    def check(self) -> None:
        assert (self.raw[: self.start] == 0xAB).all() and (self.raw[self.start + self.nbytes :] == 0xAB).all()


def run_loops(
    fn: Function, *arrays: Any, bindings: Mapping[str, int] | None = None, donated: frozenset[int] = frozenset()
) -> list[np.ndarray]:
    """By the evaluator of the loop level."""

    def run(low: LoweredKernel, buffers: list[np.ndarray], sizes: Mapping[str, int]) -> None:
        evaluate(low.function, *buffers, bindings=sizes)

    return _planned(fn, arrays, bindings, donated, run)


def run_compiled(
    fn: Function, *arrays: Any, bindings: Mapping[str, int] | None = None, donated: frozenset[int] = frozenset()
) -> list[np.ndarray]:
    """By machine code, in uneven chunks from the last to the first; the tail of ordered tasks at the end."""
    return _planned(fn, arrays, bindings, donated, _run_machine_code)


def _run_machine_code(low: LoweredKernel, buffers: list[np.ndarray], sizes: Mapping[str, int]) -> None:
    module = compile_functions([expand_math(low.function)], host_target())
    code = jit.link(module.object_code, module.symbols)
    index = ctypes.c_int64
    pointer = ctypes.c_void_p
    kernel = ctypes.CFUNCTYPE(index, pointer, pointer, pointer, index, index)(code.address(module.symbols[0]))
    bases = (pointer * max(1, len(buffers)))(*[b.ctypes.data for b in buffers])
    ints = (index * max(1, len(low.symbols)))(*[sizes[s] for s in low.symbols])
    scratch = np.zeros(dims.evaluate(module.scratch[0], sizes) + 128, np.uint8)
    base = (scratch.ctypes.data + 63) // 64 * 64
    tasks = low.tasks
    if tasks is None:
        op = next(op for op in low.function.ops if isinstance(op.operation, LoopContract))
        tasks = contraction_tasks(op.operation, host_target())  # type: ignore[arg-type]
    count, tail = dims.evaluate(tasks, sizes), dims.evaluate(low.tail, sizes)
    cuts = sorted({0, (count - tail) // 3, (count - tail) // 2, count - tail})
    for lo, hi in (*reversed(list(zip(cuts, cuts[1:], strict=False))), (count - tail, count)):
        if lo < hi:
            failed = kernel(ctypes.addressof(bases), ctypes.addressof(ints), base, lo, hi)
            if failed:
                raise IndexError(dict(low.checks)[failed])
