"""Executable: what a compiled trace runs on. Natively through the runtime, or interpreted (TREADLE_INTERPRET=1)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from treadle.compiler import dumps
from treadle.compiler.counters import COUNTERS
from treadle.compiler.native import compile_native
from treadle.ir.core import Function
from treadle.ir.evaluate import evaluate
from treadle.passes.pipeline import Context, run_pipeline
from treadle.runtime import Buffer

__all__ = ["Executable", "Interpreted", "make_executable"]


class Executable(Protocol):
    """Runs one program."""

    def run(self, buffers: list[Any], scalars: list[float | int], bindings: dict[str, int]) -> list[Any]: ...


@dataclass(frozen=True)
class Interpreted:
    """Evaluates the graph in NumPy, op by op: the reference, for finding faults. Never chosen silently."""

    function: Function
    leaves: int

    def run(self, buffers: list[Any], scalars: list[float | int], bindings: dict[str, int]) -> list[Any]:
        args = []
        for p, b in zip(self.function.params[: self.leaves], buffers, strict=True):
            a = b.array(p.dtype.numpy, list(p.tensor.concrete_shape(bindings)))
            args.append(a)
        for p, s in zip(self.function.params[self.leaves :], scalars, strict=True):
            args.append(np.asarray(s, dtype=p.dtype.numpy))
        out = []
        for a, v in zip(evaluate(self.function, *args, bindings=bindings), self.function.returns, strict=True):
            a = np.ascontiguousarray(a, dtype=v.dtype.numpy)
            buffer = Buffer(a.nbytes)
            if a.nbytes:
                buffer.array(a.dtype, list(a.shape))[...] = a
            out.append(buffer)
        return out


def make_executable(fn: Function, leaves: int, donated: frozenset[int], reason: str) -> Executable:
    """Compile `fn`, whose first `leaves` parameters are tensors and the rest runtime scalars."""
    if os.environ.get("TREADLE_INTERPRET") == "1":
        COUNTERS.programs += 1
        return Interpreted(run_pipeline(fn, "expand-grad,decompose", Context(hooks=dumps.hooks(reason))), leaves)
    return compile_native(fn, leaves, donated, reason)
