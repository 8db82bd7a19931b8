"""Runs loop-level functions through LLVM, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.codegen.cpu.backend import compile_functions
from treadle.codegen.cpu.target import host_target
from treadle.codegen.target import Target
from treadle.ir import dims
from treadle.ir.core import Builder, Function, Level, Value
from treadle.ir.dtypes import DType
from treadle.ir.loops import For, IndexConst, Load, Store
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX, BufferType
from treadle.passes.expand_math import expand_math
from treadle.runtime import jit

Kernel = Any


class Compiled:
    """A kernel that keeps its code alive; call it with arrays, in the order of its buffers."""

    def __init__(self, fn: Function, target: Target | None = None) -> None:
        self.fn = fn
        self.module = compile_functions([fn], target or host_target())
        self.code = jit.link(self.module.object_code, self.module.symbols)
        address = self.code.address(self.module.symbols[0])
        signature = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )
        self.run = signature(address)

    def __call__(
        self, arrays: Sequence[np.ndarray], bindings: Mapping[str, int] | None = None, tasks: int = 1, begin: int = 0
    ) -> int:
        """The kernel's status after tasks begin..tasks: 0, or the number of the check that failed."""
        bindings = bindings or {}
        buffers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        sizes = (ctypes.c_int64 * max(1, len(self.fn.symbols)))(*[bindings[s] for s in self.fn.symbols])
        scratch = np.zeros(dims.evaluate(self.module.scratch[0], bindings) + 128, np.uint8)
        base = (scratch.ctypes.data + 63) // 64 * 64
        return self.run(buffers, sizes, base, begin, tasks)


def loop(
    s: ScalarBuilder,
    lo: Value,
    hi: Value,
    body: Callable[..., Sequence[Value] | None],
    inits: Sequence[Value] = (),
    kind: str = "serial",
    **attributes: Any,
) -> Any:
    """Append a loop.for; `body(builder, index, *carried)` writes its region and returns what it yields."""
    index, carried = Value(INDEX), [Value(v.type) for v in inits]
    inner = ScalarBuilder()
    yields = body(inner, index, *carried) or ()
    return s.emit(For(kind, **attributes), lo, hi, *inits, regions=(inner.block([index, *carried], yields),))


def kernel(buffers: Sequence[Value], write: Callable[[ScalarBuilder], Any], symbols: Sequence[str] = ()) -> Function:
    """A loop-level function of these buffers; `write` appends its body."""
    s = ScalarBuilder()
    write(s)
    return Function("k", s.block([*buffers, *(Value(INDEX) for _ in symbols)], []), Level.LOOP, tuple(symbols))


def buffers(*types: tuple[DType, Any]) -> list[Value]:
    """Parameters of (dtype, size)."""
    return [Value(BufferType(d, n)) for d, n in types]


def index(s: ScalarBuilder, value: Any) -> Value:
    """A constant or symbolic index."""
    return s.emit(IndexConst(value))


def map_kernel(
    write: Any, sources: Sequence[DType], target: DType, n: int, width: int = 1, unroll: int = 1
) -> Function:
    """out[i] = write(s, x[i], y[i], ...) for i in range(n), `s` being the ScalarBuilder."""
    params = [Value(BufferType(d, n)) for d in (*sources, target)]
    i = Value(INDEX)
    s = ScalarBuilder()
    xs = [s.emit(Load((1,)), b, i) for b in params[:-1]]
    s.emit(Store((1,)), params[-1], write(s, *xs), i)
    body = Builder()
    lo, hi = body.emit(IndexConst(0)), body.emit(IndexConst(n))
    kind = "vector" if width > 1 else "serial"
    body.emit(For(kind, width, unroll), lo, hi, regions=(s.block([i], []),))
    return Function("map", body.block(params, []), Level.LOOP, ())


def run_map(
    write: Any, xs: Sequence[np.ndarray], sources: Sequence[DType], target: DType, width: int = 8
) -> np.ndarray:
    """The results of `map_kernel` on arrays, with transcendental functions expanded."""
    n = xs[0].size
    out = np.empty(n, target.numpy)
    assert (
        Compiled(expand_math(map_kernel(write, sources, target, n, width)))([*map(np.ascontiguousarray, xs), out]) == 0
    )
    return out
