"""Entry of the lowering: one launch of the kernel level to one loop-level Function, shared by structure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from treadle.ir.core import Block, Builder, Function, Level, Op, Value
from treadle.ir.dims import Dim, product
from treadle.ir.dtypes import DType
from treadle.ir.kernels import Contraction, Fused
from treadle.ir.printer import digest
from treadle.ir.substitute import used_symbols
from treadle.ir.types import INDEX, BufferType, TensorType
from treadle.passes.nests.contract import lower_contraction
from treadle.passes.nests.cost import flops
from treadle.passes.nests.index import likely
from treadle.passes.nests.nests import Nest, lower_nest
from treadle.passes.nests.scalars import Memory
from treadle.passes.nests.special import lower_special

__all__ = ["LoweredKernel", "lower_kernel"]


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel as loops. `tasks` None: the contraction's tiles, which codegen counts. `work_per_task` in nanoseconds."""

    function: Function
    tasks: Dim | None
    tail: Dim  # of the tasks, those that run after the others in order
    work_per_task: float
    checks: tuple[tuple[int, str], ...]
    symbols: tuple[str, ...]  # of the program, one for each of the function's, in order
    digest: str = field(default="")


def lower_kernel(op: Op, vector_bits: int = 256) -> LoweredKernel:
    """Lower a launch. Buffers: the op's operands, then its results."""
    operands = [Value(_buffer(v.tensor)) for v in op.operands]
    results = [Value(_buffer(v.tensor)) for v in op.results]
    messages: list[str] = []

    def lanes(dtype: DType) -> int:
        return max(1, vector_bits // (8 * dtype.compute.itemsize))

    b = Builder()
    tasks: Dim | None = 0
    tail: Dim = 0
    if isinstance(op.operation, Contraction):
        lower_contraction(b, op.regions[0], _memory(op.regions[0], operands, results), messages)
        tasks = None
    else:
        at = 0
        for k, region in enumerate(op.regions):
            memory = _memory(region, [*operands, *results], results[at : at + len(region.yields)])
            at += len(region.yields)
            if isinstance(op.operation, Fused) and op.operation.kind != "loops":
                made = lower_special(b, region, memory, lanes, messages)
            else:
                made = lower_nest(Nest(region, memory, lanes, messages), b)
            tasks = tasks + made
            if isinstance(op.operation, Fused) and 0 < op.operation.parallel <= k:
                tail = tail + made
    return _finish(b, [*operands, *results], op, tasks, tail, messages)


def _buffer(t: TensorType) -> BufferType:
    return BufferType(t.dtype, t.numel)


def _memory(region: Block, operands: list[Value], results: list[Value]) -> dict[Value, Memory]:
    memory = {p: Memory(buffer) for p, buffer in zip(region.params, operands, strict=False)}
    memory.update({v: Memory(buffer) for v, buffer in zip(region.yields, results, strict=True)})
    return memory


def _finish(b: Builder, buffers: list[Value], op: Op, tasks: Dim | None, tail: Dim, messages: list[str]) -> LoweredKernel:
    body = Block(tuple(buffers), tuple(b.ops))
    symbols = tuple(sorted(used_symbols(body), key=lambda s: (len(s), s)))
    body = Block((*buffers, *(Value(INDEX, s) for s in symbols)), body.ops)
    fn = Function("kernel", body, Level.LOOP, symbols)
    work = _work(op)
    n = 1 if tasks is None else max(1, likely(tasks))
    checks = tuple((k + 1, m) for k, m in enumerate(messages))
    return LoweredKernel(fn, tasks, tail, work / n, checks, symbols, digest(fn))


def _work(op: Op) -> float:
    """A rough time in nanoseconds on one core: elements times instructions, or bytes, whichever is more."""
    instructions = 0.0
    for region in op.regions:
        for inner in region.ops:
            for r in inner.results:
                instructions += likely(product(r.shape)) * flops(inner) / 8
            if inner.operation.name in ("graph.contract",):
                instructions += _contract_work(inner)
            if inner.operands and not flops(inner):
                instructions += likely(product(inner.operands[0].shape)) / 8 if inner.operation.name.startswith("graph.sum") else 0
    nbytes = sum(likely(v.tensor.nbytes) for v in (*op.operands, *op.results))
    return max(instructions / 3.0, nbytes / 20.0)


def _contract_work(op: Op) -> float:
    o: Any = op.operation
    extents: dict[str, int] = {}
    for letters, v in ((o.lhs, op.operands[0]), (o.rhs, op.operands[1])):
        extents.update({c: likely(d) for c, d in zip(letters, v.shape, strict=True)})
    total = 1.0
    for d in extents.values():
        total *= d
    return total / 8


