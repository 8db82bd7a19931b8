"""From planned, lowered and compiled kernels to a ProgramSpec."""

from __future__ import annotations

from typing import Any

from treadle.compiler.kernels import KernelBinary
from treadle.compiler.platform import Platform
from treadle.ir import dims
from treadle.ir.core import Function, Op, Value
from treadle.ir.dims import Dim, Expr
from treadle.ir.loops import LoopContract
from treadle.passes.lower import LoweredKernel
from treadle.passes.plan_memory import MemoryPlan
from treadle.runtime import DimCode, DimTable, KernelCode, Launch, ProgramSpec, Slot, SlotKind

__all__ = ["build_program"]

CHUNK_NS = 20_000  # work that is worth waking a thread for
_CODES = {
    "add": DimCode.ADD,
    "mul": DimCode.MUL,
    "floordiv": DimCode.FLOORDIV,
    "mod": DimCode.MOD,
    "max": DimCode.MAX,
    "min": DimCode.MIN,
}


class _Assembler:
    """Numbers slots, dims, kernels and locations as launches are added."""

    def __init__(self, fn: Function, plan: MemoryPlan, leaves: int) -> None:
        self.fn = fn
        self.plan = plan
        self.leaves = leaves
        self.symbols = {s: k for k, s in enumerate(fn.symbols)}
        self.dims = DimTable()
        self.slots: list[Slot] = []
        self.slot_of: dict[Value, int] = {}
        self.kernels: dict[Any, int] = {}
        self.codes: list[KernelCode] = []
        self.blobs: dict[bytes, int] = {}
        self.locations: dict[str, int] = {}
        self.launches: list[Launch] = []

    def dim(self, d: Dim) -> int:
        """Dim-table id of an expression over the program's symbols."""
        if not isinstance(d, Expr):
            return self.dims.const(int(d))
        code: list[int] = []
        for item in dims.postfix(d, self.symbols):
            if isinstance(item, int):
                code += [DimCode.PUSH_CONST, item]
            elif item in _CODES:
                code.append(_CODES[item])
            else:
                code += [DimCode.PUSH_SYM, int(item[1:])]
        return self.dims.add(code)

    def slot(self, v: Value) -> int:
        known = self.slot_of.get(v)
        if known is None:
            place = self.plan.places[v]
            nbytes = self.dim(v.tensor.nbytes)
            if place.kind == "input" and place.index >= self.leaves:
                made = Slot(SlotKind.SCALAR, place.index - self.leaves, nbytes)
            elif place.kind == "input":
                made = Slot(SlotKind.INPUT, place.index, nbytes)
            elif place.kind == "output":
                made = Slot(SlotKind.OUTPUT, place.index, nbytes, alias=place.alias)
            else:
                made = Slot(SlotKind.TEMP, 0, nbytes, offset=self.dim(place.offset))
            known = self.slot_of[v] = len(self.slots)
            self.slots.append(made)
        return known

    def kernel(self, code: KernelCode) -> int:
        known = self.kernels.get(code)
        if known is None:
            known = self.kernels[code] = len(self.codes)
            self.codes.append(code)
        return known

    def host(self, op: Op) -> None:
        o: Any = op.operation
        self.add(op, self.kernel(KernelCode(o.function)), tuple(o.ints), o.tasks, 1, 0)

    def native(self, op: Op, low: LoweredKernel, binary: KernelBinary, tasks: Dim) -> None:
        blob = self.blobs.setdefault(binary.code, len(self.blobs))
        kernel = self.kernel(KernelCode(binary.symbol, blob, low.checks, binary.threads))
        grain = max(1, round(CHUNK_NS / max(1.0, low.work_per_task)))
        self.add(op, kernel, tuple(dims_symbol(s) for s in low.symbols), tasks, grain, binary.scratch, low.tail)

    def add(
        self, op: Op, kernel: int, ints: tuple[Dim, ...], tasks: Dim, grain: int, scratch: Dim, tail: Dim = 0
    ) -> None:
        slots = tuple(self.slot(v) for v in (*op.operands, *op.results))
        location = self.locations.setdefault(describe(op), len(self.locations))
        self.launches.append(
            Launch(
                kernel,
                slots,
                tuple(map(self.dim, ints)),
                self.dim(tasks),
                self.dim(grain),
                self.dim(scratch),
                location,
                -1 if tail == 0 else self.dim(tail),
            )
        )


def dims_symbol(name: str) -> Dim:
    return dims.symbol(name)


def describe(op: Op) -> str:
    """The user's lines behind a launch, and its ops."""
    lines: dict[str, None] = {}
    names: dict[str, None] = {}
    for region in op.regions:
        for inner in region.ops:
            if inner.loc is not None:
                lines[str(inner.loc)] = None
            if inner.operation.name not in ("graph.constant", "graph.expand", "graph.reshape"):
                names[inner.operation.name.split(".")[1]] = None
    if op.loc is not None:
        lines.setdefault(str(op.loc))
    shown = list(names)
    ops = ", ".join(shown[:8]) + (" ..." if len(shown) > 8 else "")
    return f"{', '.join(list(lines)[:6]) or 'unknown line'} ({ops or op.operation.name})"


def build_program(
    fn: Function,
    plan: MemoryPlan,
    lowered: list[LoweredKernel | None],
    binaries: dict[str, KernelBinary],
    leaves: int,
    platform: Platform,
) -> ProgramSpec:
    """The serialisable program of a kernel-level function."""
    a = _Assembler(fn, plan, leaves)
    for k in range(leaves):
        a.slot(fn.params[k])
    for op, low in zip(plan.order, lowered, strict=True):
        if low is None:
            a.host(op)
            continue
        tasks = low.tasks if low.tasks is not None else _tiles(low, platform)
        a.native(op, low, binaries[low.digest], tasks)
    arena = a.dim(plan.arena) if plan.arena != 0 else -1
    work = a.dim(_elements(plan))
    scalars = tuple(p.dtype.short for p in fn.params[leaves:])
    return ProgramSpec(
        name=fn.name, inputs=leaves, outputs=len(fn.returns), dims=a.dims.expressions(), slots=tuple(a.slots),
        launches=tuple(a.launches), kernels=tuple(a.codes), locations=tuple(a.locations), symbols=fn.symbols,
        scalars=scalars, arena=arena, work=work, blobs=tuple(a.blobs), device=platform.device,
    )  # fmt: skip


def _elements(plan: MemoryPlan) -> Dim:
    """Elements that the launches touch."""
    total: Dim = 0
    for op in plan.order:
        for v in (*op.operands, *op.results):
            total = total + v.tensor.numel
    return total


def _tiles(low: LoweredKernel, platform: Platform) -> Dim:
    op = next(op for op in low.function.ops if isinstance(op.operation, LoopContract))
    return platform.backend.contraction_tasks(op.operation, platform.target)  # type: ignore[arg-type]
