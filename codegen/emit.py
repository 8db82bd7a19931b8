"""The kernel emitter: a loop-level Function as the text of an LLVM function with the kernel ABI.

Values are `Lanes`: one LLVM operand for all lanes (uniform), a vector of one per lane, or, for indices, base + lane * step.
A `vector` loop runs its body once for `width` lanes; everything that does not depend on the lane stays scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.codegen.cpu.contract_code import Code, known
from treadle.codegen.emit_scalar import Scalars, literal, llvm_type, memory_type
from treadle.codegen.target import Target
from treadle.ir import dims as dim_math
from treadle.ir import loops as lp
from treadle.ir import scalar as sc
from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.dims import Dim, Expr
from treadle.ir.dtypes import DType, bool_, float32, int64
from treadle.ir.types import BufferType

__all__ = ["Emitter", "Lanes"]

STACK_LIMIT = 16384  # bytes of local buffers kept on the stack


@dataclass(frozen=True)
class Lanes:
    """An operand: `text` for all lanes; a vector if `vector`; an index plus `step` for each further lane."""

    text: str
    vector: bool = False
    step: int | str = 0


@dataclass
class Emitter:
    """State of one function being written. Doubles as the sink of `Code`."""

    fn: Function
    name: str
    target: Target
    lines: list[str] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)  # allocas
    declarations: set[str] = field(default_factory=set)
    current: str = "entry"
    scratch: Dim = 0

    def __post_init__(self) -> None:
        self._count = 0
        self.env: dict[Value, Lanes] = {}
        self.width = 1
        self.code = Code(self)
        self.scalars = Scalars(self.code.let, self.declarations.add)
        self._dims: dict[Dim, str] = {}
        self.symbols: dict[str, str] = {}
        self._stack = 0

    # ---- sink ----------------------------------------------------------------------------------------------------

    def fresh(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def label(self, hint: str = "b") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.current = label

    # ---- function -------------------------------------------------------------------------------------------------

    def emit(self) -> str:
        """The text of the function (declarations are collected in `declarations`)."""
        buffers = [p for p in self.fn.params if isinstance(p.type, BufferType)]
        for k, p in enumerate(buffers):
            slot = self.code.at("ptr", "%bufs", str(k))
            self.env[p] = Lanes(self.code.let(f"load ptr, ptr {slot}, align 8, !invariant.load !0", "buf"))
        sizes = [p for p in self.fn.params if not isinstance(p.type, BufferType)]
        for k, (p, s) in enumerate(zip(sizes, self.fn.symbols, strict=True)):
            slot = self.code.at("i64", "%ints", str(k))
            self.symbols[s] = self.code.let(f"load i64, ptr {slot}, align 8, !invariant.load !0", "s")
            self.env[p] = Lanes(self.symbols[s])
        self._top_level()
        self.line("ret i64 0")
        head = f"define i64 @{self.name}(ptr %bufs, ptr %ints, ptr noalias %scratch, i64 %begin, i64 %end) #0 {{\nentry:"
        return "\n".join([head, *self.entry, *self.lines, "}"])

    def _top_level(self) -> None:
        start = "0"
        loops = [op for op in self.fn.ops if isinstance(op.operation, lp.For) and op.operation.kind == "parallel"]
        for op in self.fn.ops:
            if isinstance(op.operation, lp.LoopContract):
                from treadle.codegen.cpu.contract import emit_contract

                emit_contract(self, op)
            elif isinstance(op.operation, lp.For) and op.operation.kind == "parallel":
                start = self._parallel(op, start, len(loops) == 1)
            else:
                self.op(op)

    def _parallel(self, op: Op, start: str, alone: bool) -> str:
        code, step = self.code, op.operation.step  # type: ignore[attr-defined]
        lo, hi = (self.env[v].text for v in op.operands[:2])
        count = code.sub(hi, lo) if step == 1 else code.ceildiv(code.sub(hi, lo), step)
        if alone:
            first, last = "%begin", "%end"
        else:
            first = code.larger(code.sub("%begin", start), "0")
            last = code.smaller(code.sub("%end", start), count)
        (region,) = op.regions

        def body(i: str) -> None:
            iv = code.add(lo, i if step == 1 else code.mul(i, str(step)))
            self.env[region.params[0]] = Lanes(iv)
            self.block(region)

        code.loop(first, last, body)
        return code.add(start, count)

    # ---- dims and indices -----------------------------------------------------------------------------------------

    def dim(self, d: Dim) -> str:
        """A Dim as an i64 operand (symbols are function arguments)."""
        if not isinstance(d, Expr):
            return str(int(d))
        total = "0"
        for mono, coef in d.terms:
            term = str(coef)
            for a in mono:
                term = self.code.mul(term, self._atom(a))
            total = self.code.add(total, term)
        return total

    def _atom(self, a: Any) -> str:
        if a.op == "sym":
            return self.symbols[a.name]
        x, y = (self.dim(v) for v in a.args)
        if a.op in ("max", "min"):
            return (self.code.larger if a.op == "max" else self.code.smaller)(x, y)
        return (self.code.div if a.op == "floordiv" else self.code.rem)(x, y)

    def reserve(self, nbytes: Dim) -> str:
        """Address of thread-private scratch, 64-byte aligned."""
        at = self.scratch
        self.scratch = dim_math.ceildiv(nbytes, 64) * 64 + at
        return self.code.at("i8", "%scratch", self.dim(at))

    def index_sum(self, terms: Sequence[tuple[Lanes, Dim]], offset: Dim) -> Lanes:
        """offset + sum(index * coefficient)."""
        code = self.code
        base, step, vectors = self.dim(offset), "0", []
        for x, c in terms:
            if x.vector:
                vectors.append((x.text, self.dim(c)))
                continue
            factor = self.dim(c)
            base = code.add(base, code.mul(x.text, factor))
            if x.step:
                step = code.add(step, code.mul(str(x.step), factor))
        if not vectors:
            return Lanes(base, False, 0 if step == "0" else int(step) if known(step) is not None else step)
        total = self.vector_index(Lanes(base, False, 0 if step == "0" else step))
        t = f"<{self.width} x i64>"
        for text, factor in vectors:
            scaled = text if factor == "1" else code.let(f"mul {t} {text}, {self.splat_text('i64', factor)}")
            total = code.let(f"add {t} {total}, {scaled}")
        return Lanes(total, True)

    def vector_index(self, x: Lanes) -> str:
        """An index as a vector of i64."""
        if x.vector:
            return x.text
        base = self.splat_text("i64", x.text)
        if not x.step:
            return base
        t = f"<{self.width} x i64>"
        ramp = "<" + ", ".join(f"i64 {k}" for k in range(self.width)) + ">"
        if str(x.step) != "1":
            ramp = self.code.let(f"mul {t} {ramp}, {self.splat_text('i64', str(x.step))}")
        return self.code.let(f"add {t} {base}, {ramp}")

    def splat_text(self, t: str, text: str) -> str:
        """A scalar operand in all lanes."""
        if self.width == 1:
            return text
        if not text.startswith("%"):
            return f"splat ({t} {text})"
        v = f"<{self.width} x {t}>"
        one = self.code.let(f"insertelement {v} poison, {t} {text}, i64 0")
        return self.code.let(f"shufflevector {v} {one}, {v} poison, <{self.width} x i32> zeroinitializer")

    def widened(self, x: Lanes, dtype: DType) -> str:
        """A scalar value in all lanes, as an operand of the vector type."""
        return x.text if x.vector or self.width == 1 else self.splat_text(llvm_type(dtype), x.text)

    # ---- ops ------------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> list[Lanes]:
        """Write the ops of a region; its yields."""
        for op in block.ops:
            self.op(op)
        return [self.env[v] for v in block.yields]

    def emit_block(self, block: Block, bindings: dict[Value, Lanes], width: int) -> list[Lanes]:
        """Write a region with its parameters bound, `width` lanes at a time: a scalar parameter may be a vector
        (`Lanes(text, True)`), an index may step by lane (`Lanes(base, False, 1)`)."""
        self.env.update(bindings)
        was, self.width = self.width, width
        found = self.block(block)
        self.width = was
        return found

    def op(self, op: Op) -> None:
        rule = _RULES.get(type(op.operation))
        if rule is None:
            raise NotImplementedError(f"no code for {op.operation.name}")
        found = rule(self, op)
        if isinstance(found, Lanes):
            self.env[op.results[0]] = found
        elif found is not None:
            self.env.update(zip(op.results, found, strict=True))

    def scalar(self, op: Op) -> Lanes:
        fn: str = op.operation.fn  # type: ignore[attr-defined]
        xs = [self.env[v] for v in op.operands]
        varies = any(x.vector for x in xs)
        width = self.width if varies else 1
        texts = [self.widened(x, v.dtype) if varies else x.text for x, v in zip(xs, op.operands, strict=True)]
        if fn == "select":
            t = llvm_type(op.operands[1].dtype, width)
            return Lanes(self.code.let(f"select {llvm_type(bool_, width)} {texts[0]}, {t} {texts[1]}, {t} {texts[2]}"), varies)
        return Lanes(self.scalars.call(fn, op.operands[0].dtype, width, texts), varies)

    def const(self, op: Op) -> Lanes:
        return Lanes(literal(op.operation.value, op.operation.dtype))  # type: ignore[attr-defined]

    def cast(self, op: Op) -> Lanes:
        x = self.env[op.operands[0]]
        width = self.width if x.vector else 1
        return Lanes(self.scalars.cast(x.text, op.operands[0].dtype, op.operation.dtype, width), x.vector)  # type: ignore[attr-defined]

    def bitcast(self, op: Op) -> Lanes:
        x = self.env[op.operands[0]]
        width = self.width if x.vector else 1
        return Lanes(self.scalars.bitcast(x.text, op.operands[0].dtype, op.operation.dtype, width), x.vector)  # type: ignore[attr-defined]

    def affine(self, op: Op) -> Lanes:
        o: Any = op.operation
        return self.index_sum([(self.env[v], c) for v, c in zip(op.operands, o.coeffs, strict=True)], o.offset)

    def index_div(self, op: Op) -> Lanes:
        x, d = self.env[op.operands[0]], self.dim(op.operation.divisor)  # type: ignore[attr-defined]
        name = "udiv" if isinstance(op.operation, lp.IndexDiv) else "urem"
        if not x.vector and not x.step:
            return Lanes((self.code.div if name == "udiv" else self.code.rem)(x.text, d))
        return Lanes(self.code.let(f"{name} <{self.width} x i64> {self.vector_index(x)}, {self.splat_text('i64', d)}"), True)

    def index_min(self, op: Op) -> Lanes:
        a, b = (self.env[v] for v in op.operands)
        if not (a.vector or b.vector or a.step or b.step):
            return Lanes(self.code.smaller(a.text, b.text))
        t = f"<{self.width} x i64>"
        return Lanes(self.scalars.intrinsic("smin", t, self.vector_index(a), self.vector_index(b)), True)

    def index_cast(self, op: Op) -> Lanes:
        x, dtype = self.env[op.operands[0]], op.operation.dtype  # type: ignore[attr-defined]
        varies = x.vector or bool(x.step)
        width = self.width if varies else 1
        text = self.vector_index(x) if varies and op.operands[0].type is lp.INDEX else x.text
        if dtype is None:
            return Lanes(self.scalars.cast(text, op.operands[0].dtype, int64, width), varies)
        return Lanes(self.scalars.cast(text, int64, dtype, width), varies)

    def check(self, op: Op) -> None:
        x = self.env[op.operands[0]]
        ok = x.text
        if x.vector:
            self.declarations.add(f"declare i1 @llvm.vector.reduce.and.v{self.width}i1(<{self.width} x i1>)")
            ok = self.code.let(f"call i1 @llvm.vector.reduce.and.v{self.width}i1(<{self.width} x i1> {ok})")
        good, bad = self.label("ok"), self.label("bad")
        self.line(f"br i1 {ok}, label %{good}, label %{bad}, !prof !1")
        self.place(bad)
        self.line(f"ret i64 {op.operation.number}")  # type: ignore[attr-defined]
        self.place(good)

    def branch(self, op: Op) -> None:
        self.code.branch(self.env[op.operands[0]].text, lambda: [x.text for x in self.block(op.regions[0])] and None)

    def alloc(self, op: Op) -> Lanes:
        o: Any = op.operation
        nbytes = o.size * max(1, o.dtype.itemsize)
        if isinstance(nbytes, int) and self._stack + nbytes <= STACK_LIMIT:
            self._stack += nbytes
            name = self.fresh("local")
            self.entry.append(f"  {name} = alloca [{max(nbytes, 1)} x i8], align 64")
            return Lanes(name)
        return Lanes(self.reserve(nbytes))


_RULES: dict[type, Any] = {
    sc.Scalar: Emitter.scalar, sc.ScalarConst: Emitter.const, sc.ScalarCast: Emitter.cast, sc.ScalarBitcast: Emitter.bitcast,
    lp.IndexConst: lambda e, op: Lanes(e.dim(op.operation.value)), lp.Affine: Emitter.affine, lp.IndexDiv: Emitter.index_div,
    lp.IndexMod: Emitter.index_div, lp.IndexMin: Emitter.index_min, lp.IndexCast: Emitter.index_cast, lp.Check: Emitter.check,
    lp.If: Emitter.branch, lp.Alloc: Emitter.alloc,
}  # fmt: skip
