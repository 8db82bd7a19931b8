"""The kernel emitter: a loop-level Function as the text of an LLVM function with the kernel ABI.

Values are `Lanes`: one LLVM operand for all lanes (uniform), a vector of one per lane, or, for indices, base + lane *
step.
A `vector` loop runs its body once for `width` lanes; everything that does not depend on the lane stays scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.codegen.cpu.contract_code import Code
from treadle.codegen.emit_scalar import Scalars, literal, llvm_type
from treadle.codegen.target import Target
from treadle.ir import dims as dim_math
from treadle.ir import loops as lp
from treadle.ir import scalar as sc
from treadle.ir.core import Block, Function, Op, Value
from treadle.ir.dims import Dim, Expr
from treadle.ir.dtypes import DType, bool_, int64
from treadle.ir.types import BufferType

__all__ = ["Emitter", "Lanes", "lowers"]

STACK_LIMIT = 16384  # bytes of local buffers kept on the stack
Rule = Callable[["Emitter", Op], "Lanes | Sequence[Lanes] | None"]
RULES: dict[type, Rule] = {}


def lowers(operation: type) -> Callable[[Rule], Rule]:
    """Decorator: the function writes ops of this kind and returns their results."""

    def register(rule: Rule) -> Rule:
        RULES[operation] = rule
        return rule

    return register


@dataclass(frozen=True)
class Lanes:
    """An operand: `text` for all lanes; a vector if `vector`; an index plus `step` for each further lane."""

    text: str
    vector: bool = False
    step: int | str = 0

    @property
    def varies(self) -> bool:
        """Does it differ from lane to lane?"""
        return self.vector or self.step != 0


@dataclass
class Emitter:
    """State of one function being written; also the sink of `Code`.

    For those who write parts of kernels themselves (contractions):

    - `code` appends instructions, loops and branches; `scalars` writes functions and conversions of scalars or vectors;
    - `env[value]` is what an IR value is bound to, as `Lanes`;
    - `emit_block(block, bindings, width)` writes a region at a vector width with its parameters bound;
    - `dim(d)` is a Dim as an i64 operand, computed once at the head of the function;
    - `reserve(nbytes)` is the address of thread-private scratch.

    `width` and `mask` are the state of the vector loop being written: its lanes, and those alive (None: all).
    """

    fn: Function
    name: str
    target: Target
    lines: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)  # of the entry block: arguments, sizes, local buffers
    current: str = "entry"
    scratch: Dim = 0

    def __post_init__(self) -> None:
        self._count = 0
        self._stack = 0
        self._dims: dict[Dim, str] = {}
        self.env: dict[Value, Lanes] = {}
        self.indices: dict[Value, Op] = {}  # by which ops index values were made
        self.symbols: dict[str, str] = {}
        self.width = 1
        self.mask: str | None = None
        self.code = Code(self)
        self.scalars = Scalars(self.code.let, "half" not in self.target.lacks)

    # ---- sink --------------------------------------------------------------------------------------------------------

    def fresh(self, hint: str = "v") -> str:
        """A value name that is not in use."""
        self._count += 1
        return f"%{hint}{self._count}"

    def label(self, hint: str = "b") -> str:
        """A block name that is not in use."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction."""
        self.lines.append("  " + text)

    def place(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.current = label

    def at_entry(self, write: Callable[[], str]) -> str:
        """Run a writer of straight-line code, which goes to the head of the function."""
        body, self.lines = self.lines, []
        found = write()
        self.head += self.lines
        self.lines = body
        return found

    # ---- function ----------------------------------------------------------------------------------------------------

    def emit(self) -> str:
        """The text of the function."""
        self.at_entry(self._arguments)
        self._top_level()
        self.line("ret i64 0")
        arguments = "ptr noalias %bufs, ptr noalias %ints, ptr noalias %scratch, i64 %begin, i64 %end"
        return "\n".join([f"define i64 @{self.name}({arguments}) #0 {{", "entry:", *self.head, *self.lines, "}"])

    def _arguments(self) -> str:
        buffers = [p for p in self.fn.params if isinstance(p.type, BufferType)]
        for k, p in enumerate(buffers):
            slot = self.code.at("ptr", "%bufs", str(k))
            self.env[p] = Lanes(self.code.let(f"load ptr, ptr {slot}, align 8, !invariant.load !0", "buf"))
        sizes = [p for p in self.fn.params if not isinstance(p.type, BufferType)]
        for k, (p, s) in enumerate(zip(sizes, self.fn.symbols, strict=True)):
            slot = self.code.at("i64", "%ints", str(k))
            self.symbols[s] = self.code.let(f"load i64, ptr {slot}, align 8, !invariant.load !0", "s")
            self.env[p] = Lanes(self.symbols[s])
        return ""

    def _top_level(self) -> None:
        start = "0"
        parallel = [op for op in self.fn.ops if isinstance(op.operation, lp.For) and op.operation.kind == "parallel"]
        for op in self.fn.ops:
            if isinstance(op.operation, lp.For) and op.operation.kind == "parallel":
                start = self._parallel(op, start, len(parallel) == 1)
            else:
                self.op(op)

    def _parallel(self, op: Op, start: str, alone: bool) -> str:
        """This chunk's iterations of a parallel loop whose tasks begin at `start`; where the next loop's begin."""
        assert isinstance(op.operation, lp.For)
        code, step = self.code, op.operation.step
        lo, hi = (self.env[v].text for v in op.operands[:2])
        count = code.sub(hi, lo) if step == 1 else code.ceildiv(code.sub(hi, lo), step)
        if alone:
            first, last = "%begin", "%end"
        else:
            count = code.larger(count, "0")
            first = code.larger(code.sub("%begin", start), "0")
            last = code.smaller(code.sub("%end", start), count)
        (region,) = op.regions

        def body(i: str) -> None:
            self.env[region.params[0]] = Lanes(code.add(lo, i if step == 1 else code.mul(i, str(step))))
            self.block(region)

        code.loop(first, last, body, plain=True)
        return code.add(start, count)

    # ---- dims and indices --------------------------------------------------------------------------------------------

    def dim(self, d: Dim) -> str:
        """A Dim as an i64 operand (symbols are function arguments)."""
        if not isinstance(d, Expr):
            return str(int(d))
        if d not in self._dims:
            self._dims[d] = self.at_entry(lambda: self._sum(d))
        return self._dims[d]

    def _sum(self, d: Expr) -> str:
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

    def difference(self, hi: Value, lo: Value) -> int | None:
        """hi - lo where it is the same whenever the code runs."""
        a, b = self._linear(hi), self._linear(lo)
        gap = a.pop(None, 0) - b.pop(None, 0)
        return gap if a == b and isinstance(gap, int) else None

    def _linear(self, v: Value) -> dict[Value | None, Dim]:
        """An index as coefficients of other indices; that of None is the constant."""
        op = self.indices.get(v)
        if op is None:
            return {v: 1}
        o = op.operation
        if isinstance(o, lp.IndexConst):
            return {None: o.value}
        assert isinstance(o, lp.Affine)
        total: dict[Value | None, Dim] = {None: o.offset}
        for x, c in zip(op.operands, o.coeffs, strict=True):
            for key, part in self._linear(x).items():
                total[key] = total.get(key, 0) + part * c
        return {k: c for k, c in total.items() if c != 0 or k is None}

    def reserve(self, nbytes: Dim) -> str:
        """Address of thread-private scratch, 64-byte aligned."""
        at = self.scratch
        self.scratch = dim_math.ceildiv(nbytes, 64) * 64 + at
        offset = self.dim(at)
        return self.at_entry(lambda: self.code.at("i8", "%scratch", offset))

    def index_sum(self, terms: Sequence[tuple[Lanes, Dim]], offset: Dim) -> Lanes:
        """offset + sum(index * coefficient)."""
        code = self.code
        base, step, vectors = self.dim(offset), "0", []
        for x, c in terms:
            factor = self.dim(c)
            if x.vector:
                vectors.append((x.text, factor))
                continue
            base = code.add(base, code.mul(x.text, factor))
            if x.step:
                step = code.add(step, code.mul(str(x.step), factor))
        if not vectors:
            return Lanes(base, False, int(step) if step.lstrip("-").isdigit() else step)
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
        step = str(x.step)
        if step.lstrip("-").isdigit():
            ramp = "<" + ", ".join(f"i64 {k * int(step)}" for k in range(self.width)) + ">"
        else:
            ones = "<" + ", ".join(f"i64 {k}" for k in range(self.width)) + ">"
            ramp = self.code.let(f"mul {t} {ones}, {self.splat_text('i64', step)}")
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

    # ---- ops ---------------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> list[Lanes]:
        """Write the ops of a region; its yields."""
        for op in block.ops:
            self.op(op)
        return [self.env[v] for v in block.yields]

    def emit_block(
        self, block: Block, bindings: dict[Value, Lanes], width: int, mask: str | None = None
    ) -> list[Lanes]:
        """Write a region with its parameters bound, `width` lanes at a time: a scalar parameter may be a vector
        (`Lanes(text, True)`), an index may step by lane (`Lanes(base, False, 1)`). `mask`: an operand of `width` i1,
        the lanes that are alive; the others neither read memory, write it, nor fail checks."""
        self.env.update(bindings)
        state = self.width, self.mask
        self.width, self.mask = width, mask
        found = self.block(block)
        self.width, self.mask = state
        return found

    def op(self, op: Op) -> None:
        """Write one op and bind its results."""
        rule = RULES.get(type(op.operation))
        if rule is None:
            raise NotImplementedError(f"no code for {op.operation.name}")
        found = rule(self, op)
        if isinstance(found, Lanes):
            self.env[op.results[0]] = found
            if isinstance(op.operation, lp.Affine | lp.IndexConst):
                self.indices[op.results[0]] = op
        elif found is not None:
            self.env.update(zip(op.results, found, strict=True))


# ---- scalars ---------------------------------------------------------------------------------------------------------


@lowers(sc.Scalar)
def _scalar(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, sc.Scalar)
    xs = [e.env[v] for v in op.operands]
    varies = any(x.vector for x in xs)
    width = e.width if varies else 1
    texts = [e.widened(x, v.dtype) if varies else x.text for x, v in zip(xs, op.operands, strict=True)]
    if op.operation.fn != "select":
        return Lanes(e.scalars.call(op.operation.fn, op.operands[0].dtype, width, texts), varies)
    t = llvm_type(op.operands[1].dtype, width)
    if varies and not xs[0].vector:  # one condition for all lanes: no vector of them
        return Lanes(e.code.let(f"select i1 {xs[0].text}, {t} {texts[1]}, {t} {texts[2]}"), True)
    return Lanes(e.code.let(f"select {llvm_type(bool_, width)} {texts[0]}, {t} {texts[1]}, {t} {texts[2]}"), varies)


@lowers(sc.ScalarConst)
def _const(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, sc.ScalarConst)
    return Lanes(literal(op.operation.value, op.operation.dtype))


@lowers(sc.ScalarCast)
def _cast(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, sc.ScalarCast)
    x = e.env[op.operands[0]]
    width = e.width if x.vector else 1
    return Lanes(e.scalars.cast(x.text, op.operands[0].dtype, op.operation.dtype, width), x.vector)


@lowers(sc.ScalarBitcast)
def _bitcast(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, sc.ScalarBitcast)
    x = e.env[op.operands[0]]
    width = e.width if x.vector else 1
    return Lanes(e.scalars.bitcast(x.text, op.operands[0].dtype, op.operation.dtype, width), x.vector)


# ---- indices ---------------------------------------------------------------------------------------------------------


@lowers(lp.IndexConst)
def _index(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, lp.IndexConst)
    return Lanes(e.dim(op.operation.value))


@lowers(lp.Affine)
def _affine(e: Emitter, op: Op) -> Lanes:
    o = op.operation
    assert isinstance(o, lp.Affine)
    return e.index_sum([(e.env[v], c) for v, c in zip(op.operands, o.coeffs, strict=True)], o.offset)


@lowers(lp.IndexDiv)
@lowers(lp.IndexMod)
def _divide(e: Emitter, op: Op) -> Lanes:
    o, x = op.operation, e.env[op.operands[0]]
    assert isinstance(o, lp.IndexDiv | lp.IndexMod)
    quotient, divisor = isinstance(o, lp.IndexDiv), o.divisor
    d = e.dim(divisor)
    if d == "1":
        return x if quotient else Lanes("0")
    if not x.varies:
        return Lanes((e.code.div if quotient else e.code.rem)(x.text, d))
    if isinstance(divisor, int) and not x.vector and isinstance(x.step, int) and 0 < x.step * (e.width - 1) <= divisor:
        return Lanes(_divide_ramp(e, x, divisor, quotient), True)
    name = "udiv" if quotient else "urem"
    return Lanes(e.code.let(f"{name} <{e.width} x i64> {e.vector_index(x)}, {e.splat_text('i64', d)}"), True)


def _divide_ramp(e: Emitter, x: Lanes, divisor: int, quotient: bool) -> str:
    """base + lane * step by a divisor that the ramp crosses at most once: divide the base, carry where lanes cross."""
    code, t = e.code, f"<{e.width} x i64>"
    whole, rest = code.div(x.text, str(divisor)), code.rem(x.text, str(divisor))
    lanes = e.vector_index(Lanes(rest, False, x.step))
    crossed = code.let(f"icmp sge {t} {lanes}, splat (i64 {divisor})")
    if quotient:
        carry = code.let(f"zext <{e.width} x i1> {crossed} to {t}")
        return code.let(f"add {t} {e.splat_text('i64', whole)}, {carry}")
    less = code.let(f"sub {t} {lanes}, splat (i64 {divisor})")
    return code.let(f"select <{e.width} x i1> {crossed}, {t} {less}, {t} {lanes}")


@lowers(lp.IndexMin)
def _min(e: Emitter, op: Op) -> Lanes:
    a, b = (e.env[v] for v in op.operands)
    if not (a.varies or b.varies):
        return Lanes(e.code.smaller(a.text, b.text))
    return Lanes(e.scalars.intrinsic("smin", f"<{e.width} x i64>", e.vector_index(a), e.vector_index(b)), True)


@lowers(lp.IndexCast)
def _index_cast(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, lp.IndexCast)
    x, dtype = e.env[op.operands[0]], op.operation.dtype
    width = e.width if x.varies else 1
    text = e.vector_index(x) if x.step else x.text
    if dtype is None:
        return Lanes(e.scalars.cast(text, op.operands[0].dtype, int64, width), x.varies)
    return Lanes(e.scalars.cast(text, int64, dtype, width), x.varies)


# ---- the rest --------------------------------------------------------------------------------------------------------


@lowers(lp.Check)
def _check(e: Emitter, op: Op) -> None:
    assert isinstance(op.operation, lp.Check)
    x = e.env[op.operands[0]]
    ok = x.text
    if x.vector:
        v = f"<{e.width} x i1>"
        if e.mask is not None:
            ok = e.code.let(f"or {v} {ok}, {e.code.let(f'xor {v} {e.mask}, splat (i1 true)')}")
        ok = e.code.let(f"call i1 @llvm.vector.reduce.and.v{e.width}i1({v} {ok})")
    good, bad = e.label("ok"), e.label("bad")
    e.line(f"br i1 {ok}, label %{good}, label %{bad}, !prof !1")
    e.place(bad)
    e.line(f"ret i64 {op.operation.number}")
    e.place(good)


@lowers(lp.If)
def _if(e: Emitter, op: Op) -> None:
    condition = e.env[op.operands[0]]
    if condition.vector:
        raise NotImplementedError("loop.if on a condition that differs from lane to lane")

    def write() -> None:
        e.block(op.regions[0])

    e.code.branch(condition.text, write)


@lowers(lp.Alloc)
def _alloc(e: Emitter, op: Op) -> Lanes:
    assert isinstance(op.operation, lp.Alloc)
    nbytes = op.operation.size * op.operation.dtype.itemsize
    if not isinstance(nbytes, int) or e._stack + nbytes > STACK_LIMIT:
        return Lanes(e.reserve(nbytes))
    e._stack += nbytes
    name = e.fresh("local")
    e.head.append(f"  {name} = alloca [{max(nbytes, 1)} x i8], align 64")
    return Lanes(name)
