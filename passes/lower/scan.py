"""Running reductions: one task a line, in order; lanes along the innermost dim where the scan runs along another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir import dtypes
from treadle.ir.core import Block, Value
from treadle.ir.dims import Dim, ceildiv, product
from treadle.ir.loops import Affine, For, IndexCast, IndexDiv, IndexMin, IndexMod
from treadle.passes.lower.cost import likely
from treadle.passes.lower.index import Ix, LoopVar, Space, linear
from treadle.passes.lower.trace import Tracer
from treadle.passes.lower.write import Writer
from treadle.passes.machine import Machine

__all__ = ["write_scan"]

STRIP = 16  # lines of a task that runs with lanes


def write_scan(w: Writer, region: Block, results: list[Value], machine: Machine) -> Dim:
    """Append the loops of a region whose last op is a scan; the number of tasks."""
    op = region.ops[-1]
    o: Any = op.operation
    shape = op.operands[0].shape
    space = Space()
    index = tuple(space.index(("o", d), n) for d, n in enumerate(shape))
    t = Tracer(Block(region.params, region.ops[:-1]), space)
    at = t.place(shape, index)
    xs = tuple(t.value(x, at) for x in op.operands)
    address = linear(shape, index)
    along = _variable(index[o.dim])
    lines = [_variable(i) for d, i in enumerate(index) if d != o.dim]
    outer = [v for v in lines if v is not None]
    lane = outer.pop() if outer and o.dim != len(shape) - 1 and _variable(index[-1]) is outer[-1] else None

    def line() -> None:
        starts = [w.s.const(value, dtype) for dtype, value in o.start(op.operands[0].dtype)]

        def step(iv: Value | None, carried: Sequence[Value]) -> Sequence[Value]:
            s = w.s
            position = s.const(0, dtypes.int64) if iv is None else s.emit(IndexCast(dtypes.int64), iv)
            values = tuple(w.scalar(x) for x in xs)
            onward, made = o.step(s, position, tuple(carried), values)
            for buffer, value in zip(results, made, strict=True):
                w.store_result(buffer, address, value)
            return onward

        if along is None:
            step(None, starts)
            return
        kind = For("serial", combiners=("last",) * len(starts))
        w.loop(along, w.const(0), w.const(along.extent), kind, step, starts)

    return _tasks(w, outer, lane, line, machine)


def _variable(i: Dim) -> LoopVar | None:
    atom = i.parts[0][0] if isinstance(i, Ix) else None
    return atom if isinstance(atom, LoopVar) else None


def _tasks(w: Writer, outer: list[LoopVar], lane: LoopVar | None, line: Any, machine: Machine) -> Dim:
    strip = STRIP if lane is None or likely(lane.extent) >= STRIP else max(1, likely(lane.extent))
    strips = 1 if lane is None else ceildiv(lane.extent, strip)
    tasks = product(v.extent for v in outer) * strips

    def task(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
        w.base = len(w.scopes) - 1
        at = iv
        if lane is not None:
            at = w.s.emit(IndexDiv(strips), iv)
            number = w.s.emit(IndexMod(strips), iv)
        w.unravel([(v, v.extent) for v in outer], at)
        if lane is None:
            line()
        else:
            lo = w.s.emit(Affine((strip,)), number)
            hi = w.s.emit(IndexMin(), w.s.emit(Affine((strip,), strip), number), w.const(lane.extent))

            def lanes(iv: Value, _: tuple[Value, ...]) -> Sequence[Value]:
                line()
                return ()

            width = strip if strip & (strip - 1) == 0 else 1
            w.loop(lane, lo, hi, For("vector" if width > 1 else "serial", width), lanes)
        w.base = 0
        return ()

    w.loop(None, w.const(0), w.const(tasks), For("parallel"), task)
    return tasks
