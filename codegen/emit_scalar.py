"""Scalar functions as LLVM instructions, on scalars or vectors of lanes alike.

f16 and bf16 values live in registers as floats that the narrow type can hold: every function computes in f32 and rounds.
"""

from __future__ import annotations

import math
import struct

from treadle.ir.dtypes import DType

__all__ = ["llvm_type", "literal", "memory_type", "scalar_function"]


def llvm_type(dtype: DType, width: int = 1) -> str:
    """Register type of a dtype."""
    name = "float" if dtype.kind == "f" and dtype.bits <= 32 else "double" if dtype.kind == "f" else f"i{dtype.bits}"
    return name if width == 1 else f"<{width} x {name}>"


def memory_type(dtype: DType) -> str:
    """Type of one element in memory."""
    if dtype.kind == "b":
        return "i8"
    return "i16" if dtype.kind == "f" and dtype.bits == 16 else llvm_type(dtype)


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant operand."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind != "f":
        v = int(value) & ((1 << dtype.bits) - 1)
        return str(v - (1 << dtype.bits) if dtype.kind == "i" and v >> (dtype.bits - 1) else v)
    x = float(value)
    if dtype.bits < 64:
        x = _rounded(x, dtype)
    return "0x" + struct.pack(">d", x).hex().upper()


def _rounded(x: float, dtype: DType) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        if dtype.name == "bfloat16":
            bits = int(np.float32(x).view(np.uint32))
            if not math.isnan(x):
                bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            return float(np.uint32(bits & 0xFFFFFFFF).view(np.float32))
        return float(np.dtype(dtype.numpy).type(x))


_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "fdiv": "fdiv"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_CALL = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc", "copysign": "copysign",
         "minimum": "minimum", "maximum": "maximum", "fmin": "minnum", "fmax": "maxnum", "fma": "fma"}  # fmt: skip
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Scalars:
    """Writes scalar functions; `let(text) -> name` appends an instruction, `need(declaration)` declares an intrinsic."""

    def __init__(self, let, need) -> None:
        self.let = let
        self.need = need

    def splat(self, value: float | int | bool, dtype: DType, width: int) -> str:
        text = literal(value, dtype)
        return text if width == 1 else f"splat ({llvm_type(dtype)} {text})"

    def intrinsic(self, name: str, t: str, *args: str) -> str:
        suffix = t.replace("<", "v").replace(">", "").replace(" x ", "").replace("float", "f32").replace("double", "f64")
        suffix = suffix if suffix.startswith("v") or suffix[0] == "i" else suffix
        self.need(f"declare {t} @llvm.{name}.{suffix}({', '.join([t] * len(args))})")
        return self.let(f"call {t} @llvm.{name}.{suffix}({', '.join(f'{t} {a}' for a in args)})")

    def call(self, fn: str, dtype: DType, width: int, xs: list[str]) -> str:
        t = llvm_type(dtype, width)
        if dtype.kind == "f":
            out = self._float(fn, dtype, t, width, xs)
            narrow = dtype.bits == 16 and fn not in ("neg", "abs", "minimum", "maximum", "fmin", "fmax", "copysign", "select", *_COMPARE, "isnan")
            return self.round16(out, dtype, width) if narrow else out
        return self._int(fn, dtype, t, width, xs)

    def _float(self, fn: str, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        if fn in _FLOAT:
            return self.let(f"{_FLOAT[fn]} {t} {xs[0]}, {xs[1]}")
        if fn in _COMPARE:
            return self.let(f"fcmp {_COMPARE[fn]} {t} {xs[0]}, {xs[1]}")
        if fn == "isnan":
            return self.let(f"fcmp uno {t} {xs[0]}, {xs[0]}")
        if fn == "neg":
            return self.let(f"fneg {t} {xs[0]}")
        if fn == "abs":
            return self.intrinsic("fabs", t, xs[0])
        if fn == "frem":
            return self.let(f"frem {t} {xs[0]}, {xs[1]}")
        return self.intrinsic(_CALL.get(fn, fn), t, *xs)

    def _int(self, fn: str, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        signed = dtype.kind == "i"
        if dtype.kind == "b":
            fn = {"add": "or", "maximum": "or", "fmax": "or", "mul": "and", "minimum": "and", "fmin": "and", "sub": "xor"}.get(fn, fn)
        if fn in _INT:
            return self.let(f"{_INT[fn]} {t} {xs[0]}, {xs[1]}")
        if fn in ("eq", "ne"):
            return self.let(f"icmp {fn} {t} {xs[0]}, {xs[1]}")
        if fn in _COMPARE:
            return self.let(f"icmp {'s' if signed else 'u'}{fn} {t} {xs[0]}, {xs[1]}")
        if fn == "isnan":
            return self.splat(False, _BOOL, width)
        if fn in ("minimum", "maximum", "fmin", "fmax"):
            return self.intrinsic(("s" if signed else "u") + fn[-3:] if fn[0] == "f" else ("s" if signed else "u") + fn[:3], t, *xs)
        if fn == "neg":
            return self.let(f"sub {t} {self.splat(0, dtype, width)}, {xs[0]}")
        if fn == "not":
            return self.let(f"xor {t} {xs[0]}, {self.splat(True, dtype, width) if dtype.kind == 'b' else self.splat(-1, dtype, width)}")
        if fn == "abs":
            return xs[0] if not signed else self.let(f"select {self._i1(width)} {self.let(f'icmp slt {t} {xs[0]}, {self.splat(0, dtype, width)}')}, {t} {self.let(f'sub {t} {self.splat(0, dtype, width)}, {xs[0]}')}, {t} {xs[0]}")
        if fn in ("idiv", "irem"):
            return self._divide(fn, dtype, t, width, xs, signed)
        if fn in ("shl", "shr", "lshr"):
            return self._shift(fn, dtype, t, width, xs, signed)
        if fn == "mulhi":
            wide = f"i{2 * dtype.bits}" if width == 1 else f"<{width} x i{2 * dtype.bits}>"
            a, b = (self.let(f"zext {t} {x} to {wide}") for x in xs)
            product = self.let(f"mul {wide} {a}, {b}")
            amount = str(dtype.bits) if width == 1 else f"splat (i{2 * dtype.bits} {dtype.bits})"
            return self.let(f"trunc {wide} {self.let(f'lshr {wide} {product}, {amount}')} to {t}")
        raise NotImplementedError(f"scalar {fn} on {dtype}")

    def _i1(self, width: int) -> str:
        return "i1" if width == 1 else f"<{width} x i1>"

    def _divide(self, fn: str, dtype: DType, t: str, width: int, xs: list[str], signed: bool) -> str:
        """Truncating; x / 0 is 0 and x % 0 is x; INT_MIN / -1 wraps: the divisor is replaced before the machine sees it."""
        zero = self.let(f"icmp eq {t} {xs[1]}, {self.splat(0, dtype, width)}")
        one = self.splat(1, dtype, width)
        minus = self.let(f"icmp eq {t} {xs[1]}, {self.splat(-1, dtype, width)}") if signed else None
        unsafe = zero if minus is None else self.let(f"or {self._i1(width)} {zero}, {minus}")
        safe = self.let(f"select {self._i1(width)} {unsafe}, {t} {one}, {t} {xs[1]}")
        name = ("s" if signed else "u") + ("div" if fn == "idiv" else "rem")
        out = self.let(f"{name} {t} {xs[0]}, {safe}")
        nothing = self.splat(0, dtype, width)
        if minus is not None:
            special = self.let(f"sub {t} {nothing}, {xs[0]}") if fn == "idiv" else nothing
            out = self.let(f"select {self._i1(width)} {minus}, {t} {special}, {t} {out}")
        return self.let(f"select {self._i1(width)} {zero}, {t} {nothing if fn == 'idiv' else xs[0]}, {t} {out}")

    def _shift(self, fn: str, dtype: DType, t: str, width: int, xs: list[str], signed: bool) -> str:
        """Amounts outside 0..bits-1 give 0, or the sign for an arithmetic shift right."""
        bits = self.splat(dtype.bits, dtype, width)
        fits = self.let(f"icmp ult {t} {xs[1]}, {bits}")
        arithmetic = fn == "shr" and signed
        inside = self.let(f"select {self._i1(width)} {fits}, {t} {xs[1]}, {t} {self.splat(dtype.bits - 1 if arithmetic else 0, dtype, width)}")
        out = self.let(f"{'shl' if fn == 'shl' else 'ashr' if arithmetic else 'lshr'} {t} {xs[0]}, {inside}")
        return out if arithmetic else self.let(f"select {self._i1(width)} {fits}, {t} {out}, {t} {self.splat(0, dtype, width)}")

    # ---- conversions ----------------------------------------------------------------------------------------------

    def round16(self, x: str, dtype: DType, width: int) -> str:
        """A float rounded to the nearest f16 or bf16, still in a float register."""
        f, i = llvm_type(_F32, width), llvm_type(_I32, width)
        if dtype.name == "float16":
            h = "half" if width == 1 else f"<{width} x half>"
            return self.let(f"fpext {h} {self.let(f'fptrunc {f} {x} to {h}')} to {f}")
        bits = self.let(f"bitcast {f} {x} to {i}")
        odd = self.let(f"and {i} {self.let(f'lshr {i} {bits}, {self.splat(16, _I32, width)}')}, {self.splat(1, _I32, width)}")
        up = self.let(f"add {i} {self.let(f'add {i} {bits}, {self.splat(0x7FFF, _I32, width)}')}, {odd}")
        nan = self.let(f"fcmp uno {f} {x}, {x}")
        quiet = self.let(f"or {i} {bits}, {self.splat(0x400000, _I32, width)}")
        chosen = self.let(f"select {self._i1(width)} {nan}, {i} {quiet}, {i} {up}")
        return self.let(f"bitcast {i} {self.let(f'and {i} {chosen}, {self.splat(-65536, _I32, width)}')} to {f}")

    def from_memory(self, raw: str, dtype: DType, width: int) -> str:
        """A loaded element (memory type) as a register value."""
        def vec(name: str) -> str:
            return name if width == 1 else f"<{width} x {name}>"

        if dtype.kind == "b":
            return self.let(f"icmp ne {vec('i8')} {raw}, {'0' if width == 1 else 'zeroinitializer'}")
        if dtype.name == "float16":
            return self.let(f"fpext {vec('half')} {self.let(f'bitcast {vec(chr(105) + str(16))} {raw} to {vec(chr(104) + chr(97) + chr(108) + chr(102))}')} to {vec('float')}")
        if dtype.name == "bfloat16":
            wide = self.let(f"zext {vec('i16')} {raw} to {vec('i32')}")
            return self.let(f"bitcast {vec('i32')} {self.let(f'shl {vec(chr(105) + str(32))} {wide}, {self.splat(16, _I32, width)}')} to {vec('float')}")
        return raw

    def to_memory(self, x: str, dtype: DType, width: int) -> str:
        """A register value as the memory type."""
        def vec(name: str) -> str:
            return name if width == 1 else f"<{width} x {name}>"

        if dtype.kind == "b":
            return self.let(f"zext {vec('i1')} {x} to {vec('i8')}")
        if dtype.name == "float16":
            half = self.let(f"fptrunc {vec('float')} {x} to {vec('half')}")
            return self.let(f"bitcast {vec('half')} {half} to {vec('i16')}")
        if dtype.name == "bfloat16":
            bits = self.let(f"bitcast {vec('float')} {x} to {vec('i32')}")
            return self.let(f"trunc {vec('i32')} {self.let(f'lshr {llvm_type(_I32, width)} {bits}, {self.splat(16, _I32, width)}')} to {vec('i16')}")
        return x

    def cast(self, x: str, a: DType, b: DType, width: int) -> str:
        """Conversion of a register value."""
        if a is b:
            return x
        s, t = llvm_type(a, width), llvm_type(b, width)
        zero = self.splat(0, a, width)
        if b.kind == "b":
            return self.let(f"fcmp une {s} {x}, {zero}") if a.kind == "f" else self.let(f"icmp ne {s} {x}, {zero}")
        if a.kind == "f" and b.kind == "f":
            if s != t:
                x = self.let(f"{'fpext' if b.bits == 64 else 'fptrunc'} {s} {x} to {t}")
            return self.round16(x, b, width) if b.bits == 16 else x
        if a.kind == "f":
            name = "fptosi" if b.kind == "i" else "fptoui"
            suffix = t.replace("<", "v").replace(">", "").replace(" x ", "")
            from_ = s.replace("<", "v").replace(">", "").replace(" x ", "").replace("float", "f32").replace("double", "f64")
            self.need(f"declare {t} @llvm.{name}.sat.{suffix}.{from_}({s})")
            return self.let(f"call {t} @llvm.{name}.sat.{suffix}.{from_}({s} {x})")
        if b.kind == "f":
            out = self.let(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {s} {x} to {t}")
            return self.round16(out, b, width) if b.bits == 16 else out
        if a.bits == b.bits:
            return x
        name = "trunc" if b.bits < a.bits else "sext" if a.kind == "i" else "zext"
        return self.let(f"{name} {s} {x} to {t}")

    def bitcast(self, x: str, a: DType, b: DType, width: int) -> str:
        """The same bits as another dtype."""
        if a.bits == 16 and a.kind == "f" or b.bits == 16 and b.kind == "f":
            raw = self.to_memory(x, a, width)
            return self.from_memory(raw, b, width)
        s, t = llvm_type(a, width), llvm_type(b, width)
        return x if s == t else self.let(f"bitcast {s} {x} to {t}")


from treadle.ir.dtypes import bool_ as _BOOL  # noqa: E402
from treadle.ir.dtypes import float32 as _F32  # noqa: E402
from treadle.ir.dtypes import int32 as _I32  # noqa: E402
