"""Loops of the kernel emitter.

A vector loop runs in blocks of `width * unroll` iterations, then of `width`, then the rest: in one masked block where
that pays, else one by one. Each unrolled copy has partial values of its own; they are joined copy by copy, lanes in
halves, and with the initial value last: an order that depends on the loop's bounds alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.codegen.cpu.contract_code import known
from treadle.codegen.emit import Emitter, Lanes, lowers
from treadle.codegen.emit_scalar import literal, llvm_type
from treadle.ir.core import Block, Op, Value
from treadle.ir.dtypes import DType
from treadle.ir.loops import Affine, For, Store
from treadle.ir.scalar import Scalar
from treadle.ir.types import INDEX

__all__: list[str] = []

WRITTEN_OUT = 4  # trip counts up to this become straight-line code
SMALL_BODY = 30
HEAVY_BODY = 6  # scalar functions from which on a masked store is cheaper than iterations one by one


@lowers(For)
def _loop(e: Emitter, op: Op) -> list[Lanes]:
    o = op.operation
    assert isinstance(o, For)
    if any(e.env[v].varies for v in op.operands[:2]):
        raise NotImplementedError("loop.for with bounds that differ from lane to lane")
    lo, hi = (e.env[v].text for v in op.operands[:2])
    inits = [e.env[v] for v in op.operands[2:]]
    if o.kind == "vector" and e.width == 1 and o.width > 1 and o.step == 1 and "last" not in o.combiners:
        return _VectorLoop(e, op).write(lo, hi, inits)
    return _serial(e, op, inits, lo, hi)


# ---- one iteration at a time -----------------------------------------------------------------------------------------


def _carried(e: Emitter, v: Value, x: Lanes) -> str:
    """A carried value as an operand: in a vector loop, always one for each lane."""
    if e.width == 1:
        return x.text
    return e.vector_index(x) if v.type is INDEX else e.widened(x, v.dtype)


def _serial(e: Emitter, op: Op, inits: Sequence[Lanes], lo: str, hi: str) -> list[Lanes]:
    o, region = op.operation, op.regions[0]
    assert isinstance(o, For)
    carried = region.params[1:]
    lanes = e.width > 1
    kinds = [f"<{e.width} x i64>" if lanes else "i64" if v.type is INDEX else "" for v in carried]
    kinds = [llvm_type(v.dtype, e.width) if v.type is not INDEX else k for v, k in zip(carried, kinds, strict=True)]
    starts = [_carried(e, v, x) for v, x in zip(carried, inits, strict=True)]

    def body(iv: str, *values: str) -> list[str]:
        e.env[region.params[0]] = Lanes(iv)
        e.env.update({v: Lanes(text, lanes) for v, text in zip(carried, values, strict=True)})
        return [_carried(e, v, x) for v, x in zip(carried, e.block(region), strict=True)]

    first, last = known(lo), known(hi)
    if first is not None and last is not None:
        trips = range(first, last, o.step)
        if len(trips) <= WRITTEN_OUT and sum(1 for _ in _ops(region)) <= SMALL_BODY:
            values = starts
            for i in trips:
                values = body(str(i), *values)
            return [Lanes(text, lanes) for text in values]
    plain = lanes or o.kind == "vector"
    done = e.code.loop(lo, hi, body, list(zip(kinds, starts, strict=True)), str(o.step), plain=plain)
    return [Lanes(text, lanes) for text in done]


def _ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from _ops(region)


# ---- lanes -----------------------------------------------------------------------------------------------------------


def _identity(combiner: str, dtype: DType) -> str:
    if combiner in ("maximum", "minimum"):
        lowest = combiner == "maximum"
        if dtype.kind == "f":
            return literal(float("-inf") if lowest else float("inf"), dtype)
        if dtype.kind == "b":
            return literal(not lowest, dtype)
        low = 0 if dtype.kind == "u" else -(2 ** (dtype.bits - 1))
        return literal(low if lowest else low + 2**dtype.bits - 1, dtype)
    if combiner == "and":
        return literal(True if dtype.kind == "b" else -1, dtype)
    return literal(1 if combiner == "mul" else 0, dtype)


class _VectorLoop:
    """Writes one vector loop."""

    def __init__(self, e: Emitter, op: Op) -> None:
        assert isinstance(op.operation, For)
        self.e, self.o, self.op, self.region = e, op.operation, op, op.regions[0]
        self.width, self.unroll = op.operation.width, max(1, op.operation.unroll)
        self.index, self.carried = self.region.params[0], self.region.params[1:]
        self.pairs = list(zip(self.o.combiners, (v.dtype for v in self.carried), strict=True))
        self.fresh = [f"splat ({llvm_type(d)} {_identity(c, d)})" for c, d in self.pairs]
        self.kinds = [llvm_type(d, self.width) for _, d in self.pairs]

    def write(self, lo: str, hi: str, inits: list[Lanes]) -> list[Lanes]:
        code = self.e.code
        count = self.e.difference(self.op.operands[1], self.op.operands[0])
        count = None if count is None else max(count, 0)
        at, partials = lo, self.fresh
        for copies in dict.fromkeys((self.unroll, 1)):
            block = self.width * copies
            if count is not None and count < block:
                continue
            if count is not None:
                whole = str(count // block * block)
            else:
                whole = code.mul(code.div(code.sub(hi, at), str(block)), str(block))
            stop = code.add(at, whole)
            partials = self._blocks(at, stop, copies, partials, count is not None)
            at = stop
            count = None if count is None else count % block
            if count == 0:
                break
        if count != 0 and self._masks(count is not None):
            partials = self._masked(at, hi, count, partials)
            count = 0
        values = inits
        if partials is not self.fresh:
            joined = [
                self._combine(c, d, init.text, self._horizontal(c, d, p))
                for (c, d), init, p in zip(self.pairs, inits, partials, strict=True)
            ]
            values = [Lanes(text) for text in joined]
        return values if count == 0 else _serial(self.e, self.op, values, at, hi)

    # ---- blocks ----

    def _body(self, iv: str, values: Sequence[str], mask: str | None = None) -> list[str]:
        """One block of lanes from `iv` on; the next carried vectors."""
        e = self.e
        bindings = {v: Lanes(text, True) for v, text in zip(self.carried, values, strict=True)}
        bindings[self.index] = Lanes(iv, False, 1)
        found = e.emit_block(self.region, bindings, self.width, mask)
        e.width = self.width
        texts = [e.widened(x, d) for x, (_, d) in zip(found, self.pairs, strict=True)]
        e.width = 1
        return texts

    def _blocks(self, lo: str, hi: str, copies: int, partials: list[str], runs: bool) -> list[str]:
        """The main loop in steps of width * copies; the joined partial vectors."""
        n = len(self.carried)
        starts = [*partials, *(self.fresh * (copies - 1))]

        def body(iv: str, *values: str) -> list[str]:
            out: list[str] = []
            for u in range(copies):
                at = self.e.code.add(iv, str(u * self.width))
                out += self._body(at, values[u * n : (u + 1) * n])
            return out

        step = str(self.width * copies)
        carried = list(zip(self.kinds * copies, starts, strict=True))
        done = self.e.code.loop(lo, hi, body, carried, step, runs=runs, plain=True)
        out = done[:n]
        for u in range(1, copies):
            more = done[u * n : (u + 1) * n]
            out = [self._combine(c, d, a, b, self.width) for (c, d), a, b in zip(self.pairs, out, more, strict=True)]
        return out

    # ---- the rest in one masked block ----

    def _masks(self, static: bool) -> bool:
        """Is one masked block for the rest possible, and better than single iterations?

        Rows are stored under a mask only where the target has an instruction for it, and those are slow on some
        machines: a short body is run one by one instead.
        """
        ops = list(_ops(self.region))
        stores = [op for op in ops if isinstance(op.operation, Store)]
        if not all(self._maskable(op) for op in stores):
            return False
        return not stores or static or sum(isinstance(op.operation, Scalar) for op in ops) > HEAVY_BODY

    def _maskable(self, op: Op) -> bool:
        """Does a store write a row, of elements that can be masked?"""
        o = op.operation
        assert isinstance(o, Store)
        if o.masked or op.operands[0].dtype.itemsize not in self.e.target.masked_sizes:
            return False
        made = {r: inner for inner in _ops(self.region) for r in inner.results}
        step = 0
        for v, stride in zip(op.operands[2:], o.strides, strict=True):
            coefficient = self._coefficient(v, made)
            if coefficient is None or not isinstance(stride, int):
                if coefficient != 0:
                    return False
                continue
            step += coefficient * stride
        return step == 1

    def _coefficient(self, v: Value, made: dict[Value, Op]) -> int | None:
        """The factor of the loop's index in an index value; None if it is not affine with a known factor."""
        if v is self.index:
            return 1
        op = made.get(v)
        if op is None:
            return 0  # from outside, or the index of a loop within
        if not isinstance(op.operation, Affine):
            return None
        total = 0
        for x, c in zip(op.operands, op.operation.coeffs, strict=True):
            part = self._coefficient(x, made)
            if part is None or (part and not isinstance(c, int)):
                return None
            total += part * c if part and isinstance(c, int) else 0
        return total

    def _masked(self, lo: str, hi: str, count: int | None, partials: list[str]) -> list[str]:
        """The last hi - lo < width iterations (`count` if that is known)."""
        e, w = self.e, self.width
        rest = e.code.sub(hi, lo) if count is None else str(count)

        def write() -> list[str]:
            mask = self._alive(rest)
            news = self._body(lo, partials, mask)
            return [
                e.code.let(f"select <{w} x i1> {mask}, {k} {new}, {k} {old}")
                for k, new, old in zip(self.kinds, news, partials, strict=True)
            ]

        return e.code.branch(e.code.less("0", rest), write, lambda: partials, self.kinds)

    def _alive(self, rest: str) -> str:
        """The lanes below `rest`."""
        e, w = self.e, self.width
        n = known(rest)
        if n is not None:
            return "<" + ", ".join(f"i1 {'true' if k < n else 'false'}" for k in range(w)) + ">"
        e.width = w
        count = e.splat_text("i32", e.code.let(f"trunc i64 {rest} to i32"))
        e.width = 1
        ramp = "<" + ", ".join(f"i32 {k}" for k in range(w)) + ">"
        return e.code.let(f"icmp sgt <{w} x i32> {count}, {ramp}")

    # ---- joining ----

    def _combine(self, combiner: str, dtype: DType, a: str, b: str, width: int = 1) -> str:
        return self.e.scalars.call(combiner, dtype, width, [a, b])

    def _horizontal(self, combiner: str, dtype: DType, vector: str) -> str:
        """All lanes combined, in halves: a fixed order."""
        width, let = self.width, self.e.code.let
        while width > 1:
            t, half = llvm_type(dtype, width), width // 2
            if half == 1:
                a, b = (let(f"extractelement {t} {vector}, i64 {k}") for k in (0, 1))
            else:
                low, high = (", ".join(f"i32 {k + s}" for k in range(half)) for s in (0, half))
                a, b = (let(f"shufflevector {t} {vector}, {t} poison, <{half} x i32> <{m}>") for m in (low, high))
            vector = self._combine(combiner, dtype, a, b, half)
            width = half
        return vector
