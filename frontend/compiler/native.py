"""From a graph Function to a native program: passes, kernels, object code, memory plan, caches.

Whole programs are kept on disk as kernels are (`TREADLE_CACHE_DIR`, kernels.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treadle.compiler import dumps, notes
from treadle.compiler.counters import COUNTERS
from treadle.compiler.kernels import compiler_version, kernel_binaries
from treadle.compiler.platform import Platform, platform_of
from treadle.compiler.program import build_program
from treadle.ir.core import Block, Builder, Function, Op, Value
from treadle.ir.ops.identity import Copy
from treadle.ir.ops.views import Reshape
from treadle.ir.printer import print_function
from treadle.passes.fuse import fuse_with_report
from treadle.passes.lower import lower_kernel
from treadle.passes.pipeline import Context, run_pipeline
from treadle.passes.plan_memory import plan_memory
from treadle.runtime import Buffer, ProgramSpec, load, submit
from treadle.runtime.cache import default_cache

__all__ = ["NativeExecutable", "Output", "compile_native"]

GRAPH_PIPELINE = "expand-grad,decompose,simplify"


@dataclass(frozen=True)
class Output:
    """Where a result of the traced function is: in a program output, in a leaf's buffer, or a scalar argument."""

    source: str  # "program" | "leaf" | "scalar"
    index: int


@dataclass(frozen=True)
class NativeExecutable:
    """A loaded program and how its results are found."""

    program: Any  # None where every result is an input
    outputs: tuple[Output, ...]
    donated: tuple[bool, ...]
    symbols: tuple[str, ...]
    scalar_dtypes: tuple[Any, ...]

    def run(self, buffers: list[Any], scalars: list[float | int], bindings: dict[str, int]) -> list[Any]:
        made: list[Any] = []
        if self.program is not None:
            made = submit(self.program, buffers, self.donated, scalars, [bindings[s] for s in self.symbols])
        found: list[Any] = []
        for out in self.outputs:
            if out.source == "program":
                found.append(made[out.index])
            elif out.source == "leaf":
                found.append(buffers[out.index])
            else:
                found.append(_scalar_buffer(scalars[out.index], self.scalar_dtypes[out.index]))
        return found


def _scalar_buffer(value: float | int, dtype: Any) -> Buffer:
    return Buffer.from_bytes(np.asarray(value, dtype=dtype.numpy).tobytes())


def compile_native(
    fn: Function, leaves: int, donated: frozenset[int], reason: str, device: str = "cpu"
) -> NativeExecutable:
    """Compile `fn` (first `leaves` parameters are tensors, the rest scalars) for a device, or find it in a cache."""
    platform = platform_of(device)
    program_key = _program_key(fn, leaves, donated, platform)
    cache = None if dumps.active() else default_cache()
    stored = cache.get(program_key) if cache is not None else None
    if stored is not None:
        loaded = _load_stored(stored, fn, leaves, donated)
        if loaded is not None:
            return loaded
    graph = run_pipeline(fn, GRAPH_PIPELINE, Context(hooks=dumps.hooks(reason)))
    graph, outputs = _split_aliases(graph, leaves)
    spec = _compile_graph(graph, leaves, _spare(donated, outputs), reason, platform) if graph.returns else None
    if cache is not None:
        cache.put(program_key, _pack(spec, outputs))
    return _executable(spec, outputs, fn, leaves, donated)


def _spare(donated: frozenset[int], outputs: tuple[Output, ...]) -> frozenset[int]:
    """The donated leaves that may be overwritten: not those that are results themselves."""
    return donated.difference(out.index for out in outputs if out.source == "leaf")


def _executable(
    spec: ProgramSpec | None, outputs: tuple[Output, ...], fn: Function, leaves: int, donated: frozenset[int]
) -> NativeExecutable:
    program = None if spec is None else load(spec)
    if spec is not None:
        COUNTERS.programs += 1
        COUNTERS.kernels += len(spec.kernels)
    spare = _spare(donated, outputs)
    flags = tuple(i in spare for i in range(leaves))
    dtypes = tuple(p.dtype for p in fn.params[leaves:])
    return NativeExecutable(program, outputs, flags, fn.symbols, dtypes)


# ---- results that need no kernel --------------------------------------------------------------------------------------


def _split_aliases(fn: Function, leaves: int) -> tuple[Function, tuple[Output, ...]]:
    """`fn` without returns that are inputs or scalars; and where each original return is.

    A reshape is the same bytes, so a returned reshape is its operand's buffer. A value returned twice belongs to two
    tensors with memory of their own: it is copied.
    """
    producers = {r: op for op in fn.ops for r in op.results}
    params = {p: k for k, p in enumerate(fn.params)}
    kept: dict[Value, int] = {}
    copies = Builder()
    outputs = []
    for v in fn.returns:
        v = _unshaped(v, producers)
        if v in params:
            k = params[v]
            outputs.append(Output("leaf", k) if k < leaves else Output("scalar", k - leaves))
        else:
            if v in kept:
                v = copies.emit(Copy(), v)
            outputs.append(Output("program", len(kept)))
            kept[v] = len(kept)
    ops = _needed((*fn.ops, *copies.ops), set(kept))
    return replace(fn, body=Block(fn.params, ops, tuple(kept))), tuple(outputs)


def _needed(ops: tuple[Op, ...], wanted: set[Value]) -> tuple[Op, ...]:
    """The ops that `wanted` values depend on."""
    kept = []
    for op in reversed(ops):
        if any(r in wanted for r in op.results):
            kept.append(op)
            wanted.update(op.operands)
    return tuple(reversed(kept))


def _unshaped(v: Value, producers: dict[Value, Op]) -> Value:
    while v in producers and isinstance(producers[v].operation, Reshape):
        v = producers[v].operands[0]
    return v


# ---- the program ------------------------------------------------------------------------------------------------------


def _compile_graph(
    graph: Function, leaves: int, donated: frozenset[int], reason: str, platform: Platform
) -> ProgramSpec:
    report = fuse_with_report(graph)
    kernels = report.function
    for hook in dumps.hooks(reason):
        hook("fuse", kernels, 0.0)
    notes.kernels(kernels)
    notes.refused(f"{no.reason}: {describe_value(a)} with {describe_value(b)}" for a, b, no in report.refusals)
    plan = plan_memory(kernels, donated)
    lowered = [None if op.operation.name == "kernel.host" else lower_kernel(op, platform.machine) for op in plan.order]
    dumps.functions(reason, [k.function for k in lowered if k is not None], "lower")
    codes = kernel_binaries([k for k in lowered if k is not None], platform, reason)
    return build_program(kernels, plan, lowered, codes, leaves, platform)


def describe_value(v: Value) -> str:
    """A value in a sentence: its type stands for it."""
    return str(v.type)


# ---- keys and stored programs -----------------------------------------------------------------------------------------


def _program_key(fn: Function, leaves: int, donated: frozenset[int], platform: Platform) -> str:
    text = hashlib.sha256(print_function(fn).encode()).hexdigest()
    return f"program {text} {leaves} {sorted(donated)} {platform.key()} {compiler_version()}"


def _pack(spec: ProgramSpec | None, outputs: tuple[Output, ...]) -> bytes:
    head = json.dumps([[o.source, o.index] for o in outputs]).encode()
    return head + b"\n" + (b"" if spec is None else spec.to_bytes())


def _load_stored(data: bytes, fn: Function, leaves: int, donated: frozenset[int]) -> NativeExecutable | None:
    head, _, body = data.partition(b"\n")
    try:
        outputs = tuple(Output(*row) for row in json.loads(head))
        spec = ProgramSpec.from_bytes(body) if body else None
    except ValueError:
        return None
    COUNTERS.cache_hits += 1
    if spec is not None:
        notes.loaded(spec.locations[launch.location] for launch in spec.launches)
    return _executable(spec, outputs, fn, leaves, donated)
