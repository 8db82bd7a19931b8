"""Entry of the lowering: one launch of the kernel level to one loop-level Function, shared by structure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from threading import Lock

from treadle.ir.core import Block, Function, Level, Op, Value
from treadle.ir.dims import Dim, product
from treadle.ir.kernels import Contraction, Fused
from treadle.ir.ops.contraction import Contract
from treadle.ir.printer import digest
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.substitute import used_symbols
from treadle.ir.types import INDEX, BufferType, TensorType
from treadle.passes.lower.contract import write_contract
from treadle.passes.lower.cost import flops, likely
from treadle.passes.lower.loops import write_nest
from treadle.passes.lower.nest import trace_nest
from treadle.passes.lower.scan import write_scan
from treadle.passes.lower.scatter import write_scatter
from treadle.passes.lower.trace import REDUCTIONS, Refused
from treadle.passes.lower.write import Scope, Writer
from treadle.passes.machine import HOST, Machine

__all__ = ["LoweredKernel", "Refused", "lower_kernel", "structure"]

NS_PER_OP = 0.02  # of one element of one operation, in lanes
BYTES_PER_NS = 20.0
CACHED = 4096


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel as loops. `tasks` None: the contraction's tiles, which codegen counts. `work_per_task` in nanoseconds.

    `checks`: number and message of each `loop.check`; `symbols`: of the program, one for each of the function's, in
    order; `tail`: of the tasks, how many run after the others in order; `in_place`: (operand, result) that may be one
    memory.
    """

    function: Function
    tasks: Dim | None
    work_per_task: float
    checks: tuple[tuple[int, str], ...]
    symbols: tuple[str, ...]
    digest: str = field(default="")
    in_place: frozenset[tuple[int, int]] = frozenset()
    tail: Dim = 0


_lowered: OrderedDict[tuple, LoweredKernel] = OrderedDict()
_lock = Lock()


def lower_kernel(op: Op, machine: Machine = HOST) -> LoweredKernel:
    """Lower a launch. Buffers: the op's operands, then its results. Equal launches are lowered once."""
    key = (structure(op), machine)
    with _lock:
        known = _lowered.get(key)
        if known is not None:
            _lowered.move_to_end(key)
            return known
    made = _lower(op, machine)
    with _lock:
        _lowered[key] = made
        while len(_lowered) > CACHED:
            _lowered.popitem(last=False)
    return made


def structure(op: Op) -> tuple:
    """A hashable identity of what a launch computes."""
    regions = []
    for region in op.regions:
        numbers = {v: k for k, v in enumerate(region.params)}
        rows = []
        for inner in region.ops:
            rows.append((repr(inner.operation), tuple(numbers[v] for v in inner.operands)))
            for r in inner.results:
                numbers[r] = len(numbers)
        regions.append((tuple(rows), tuple(numbers[v] for v in region.yields)))
    return repr(op.operation), tuple(v.type for v in op.operands), tuple(v.type for v in op.results), tuple(regions)


def _lower(op: Op, machine: Machine) -> LoweredKernel:
    operands = [Value(_buffer(v.tensor)) for v in op.operands]
    results = [Value(_buffer(v.tensor)) for v in op.results]
    w = Writer(len(operands), [*operands, *results], [])
    w.scopes.append(Scope(ScalarBuilder()))
    tasks: Dim | None
    tail: Dim = 0
    if isinstance(op.operation, Contraction):
        write_contract(w, op.regions[0], results)
        w.end_region()
        tasks = None
    else:
        assert isinstance(op.operation, Fused), op.operation
        tasks, at = 0, 0
        w.ordered = op.operation.parallel or len(op.regions)
        for k, region in enumerate(op.regions):
            mine = results[at : at + len(region.yields)]
            at += len(region.yields)
            made = _region(w, op.operation.kind, region, mine, machine)
            tasks = tasks + made
            if k >= w.ordered:
                tail = tail + made
            w.end_region()
    return replace(_finish(w, [*operands, *results], op, tasks), tail=tail)


def _region(w: Writer, kind: str, region: Block, results: list[Value], machine: Machine) -> Dim:
    if kind == "scatter":
        return write_scatter(w, region, results, machine)
    if kind == "scan":
        return write_scan(w, region, results, machine)
    return write_nest(w, trace_nest(region), results, machine)


def _buffer(t: TensorType) -> BufferType:
    return BufferType(t.dtype, t.numel)


def _finish(w: Writer, buffers: list[Value], op: Op, tasks: Dim | None) -> LoweredKernel:
    body = Block(tuple(buffers), tuple(w.s.ops))
    symbols = tuple(sorted(used_symbols(body), key=lambda s: (len(s), s)))
    body = Block((*buffers, *(Value(INDEX, s) for s in symbols)), body.ops)
    fn = Function("kernel", body, Level.LOOP, symbols)
    n = 1 if tasks is None else max(1, likely(tasks))
    checks = tuple((k + 1, m) for k, m in enumerate(w.messages))
    return LoweredKernel(fn, tasks, work(op) / n, checks, symbols, digest(fn), w.in_place())


def work(op: Op) -> float:
    """A rough time in nanoseconds on one core: of instructions or of bytes, whichever is more."""
    instructions = 0.0
    for region in op.regions:
        for inner in region.ops:
            o = inner.operation
            if isinstance(o, Contract):
                extents = dict(zip((*o.lhs, *o.rhs), (*inner.operands[0].shape, *inner.operands[1].shape), strict=True))
                instructions += likely(product(extents.values()))
            elif isinstance(o, REDUCTIONS):
                instructions += likely(product(inner.operands[0].shape))
            else:
                instructions += flops(o) * sum(likely(product(r.shape)) for r in inner.results)
    nbytes = sum(likely(v.tensor.nbytes) for v in (*op.operands, *op.results))
    return max(instructions * NS_PER_OP, nbytes / BYTES_PER_NS)
