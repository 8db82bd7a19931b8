"""Register and memory types of dtypes, constants, and conversions between dtypes as LLVM instructions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np

from treadle.ir.dtypes import DType, bool_, float32, int32

__all__ = ["Conversions", "literal", "llvm_type", "mangled", "memory_type", "vector_of"]


def vector_of(t: str, width: int) -> str:
    """`width` lanes of an LLVM type."""
    return t if width == 1 else f"<{width} x {t}>"


def llvm_type(dtype: DType, width: int = 1) -> str:
    """Register type of a dtype."""
    name = "float" if dtype.kind == "f" and dtype.bits <= 32 else "double" if dtype.kind == "f" else f"i{dtype.bits}"
    return name if width == 1 else f"<{width} x {name}>"


def memory_type(dtype: DType) -> str:
    """Type of one element in memory."""
    if dtype.kind == "b":
        return "i8"
    return "i16" if dtype.kind == "f" and dtype.bits == 16 else llvm_type(dtype)


def mangled(t: str) -> str:
    """An LLVM type as it appears in the names of intrinsics."""
    return t.replace("<", "v").replace(">", "").replace(" x ", "").replace("float", "f32").replace("double", "f64")


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
    with np.errstate(over="ignore"):
        if dtype.name == "bfloat16":
            bits = int(np.float32(x).view(np.uint32))
            if not math.isnan(x):
                bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            return float(np.uint32(bits & 0xFFFFFFFF).view(np.float32))
        return float(np.dtype(dtype.numpy).type(x))


class Conversions:
    """Writes conversions; `half`: does the target convert float16 itself?"""

    def __init__(self, let: Callable[[str], str], half: bool = True) -> None:
        self.let = let
        self.half = half

    def splat(self, value: float | int | bool, dtype: DType, width: int) -> str:
        """A constant in all lanes."""
        text = literal(value, dtype)
        return text if width == 1 else f"splat ({llvm_type(dtype)} {text})"

    def intrinsic(self, name: str, t: str, *args: str) -> str:
        """An intrinsic whose operands and result are all of type `t`."""
        return self.let(f"call {t} @llvm.{name}.{mangled(t)}({', '.join(f'{t} {a}' for a in args)})")

    # ---- 16-bit floats -----------------------------------------------------------------------------------------------

    def round16(self, x: str, dtype: DType, width: int) -> str:
        """A float rounded to the nearest f16 or bf16, still in a float register."""
        if dtype.name == "float16":
            return self._from_half(self._to_half(x, width), width)
        f, i = llvm_type(float32, width), llvm_type(int32, width)
        bits = self.let(f"bitcast {f} {x} to {i}")
        odd = self._and(self._lshr(bits, 16, width), 1, width)
        up = self.let(f"add {i} {self._add(bits, 0x7FFF, width)}, {odd}")
        nan = self.let(f"fcmp uno {f} {x}, {x}")
        quiet = self._or(bits, 0x400000, width)
        chosen = self.let(f"select {llvm_type(bool_, width)} {nan}, {i} {quiet}, {i} {up}")
        return self.let(f"bitcast {i} {self._and(chosen, -65536, width)} to {f}")

    def from_memory(self, raw: str, dtype: DType, width: int) -> str:
        """A loaded element (memory type) as a register value."""
        if dtype.kind == "b":
            return self.let(f"icmp ne {vector_of('i8', width)} {raw}, {'0' if width == 1 else 'zeroinitializer'}")
        if dtype.name == "float16":
            return self._from_half(raw, width)
        if dtype.name == "bfloat16":
            i = llvm_type(int32, width)
            wide = self.let(f"zext {vector_of('i16', width)} {raw} to {i}")
            shifted = self.let(f"shl {i} {wide}, {self.splat(16, int32, width)}")
            return self.let(f"bitcast {i} {shifted} to {llvm_type(float32, width)}")
        return raw

    def to_memory(self, x: str, dtype: DType, width: int) -> str:
        """A register value as the memory type."""
        if dtype.kind == "b":
            return self.let(f"zext {vector_of('i1', width)} {x} to {vector_of('i8', width)}")
        if dtype.name == "float16":
            return self._to_half(x, width)
        if dtype.name == "bfloat16":
            i = llvm_type(int32, width)
            bits = self.let(f"bitcast {llvm_type(float32, width)} {x} to {i}")
            return self.let(f"trunc {i} {self._lshr(bits, 16, width)} to {vector_of('i16', width)}")
        return x

    def _from_half(self, raw: str, width: int) -> str:
        """f32 of the bits of an f16. With integers: the fields moved up are a float 2**112 times too small."""
        f, i, h, s = (vector_of(t, width) for t in ("float", "i32", "half", "i16"))
        if self.half:
            return self.let(f"fpext {h} {self.let(f'bitcast {s} {raw} to {h}')} to {f}")
        bits = self.let(f"zext {s} {raw} to {i}")
        field = self._and(bits, 0x7C00, width)
        special = self.let(f"icmp eq {i} {field}, {self.splat(0x7C00, int32, width)}")
        body = self.let(f"shl {i} {self._and(bits, 0x7FFF, width)}, {self.splat(13, int32, width)}")
        small = self.let(f"bitcast {i} {body} to {f}")
        value = self.let(f"fmul {f} {small}, {self.splat(2.0**112, float32, width)}")
        value = self.let(f"bitcast {f} {value} to {i}")
        huge = self._or(body, 0x7F800000, width)
        value = self.let(f"select {vector_of('i1', width)} {special}, {i} {huge}, {i} {value}")
        sign = self.let(f"shl {i} {self._and(bits, 0x8000, width)}, {self.splat(16, int32, width)}")
        return self.let(f"bitcast {i} {self.let(f'or {i} {value}, {sign}')} to {f}")

    def _to_half(self, x: str, width: int) -> str:
        """The bits of the nearest f16. With integers: normal results by adding half an ulp; subnormal ones by adding
        1/2, whose ulp is that of the smallest f16."""
        f, i, h, s = (vector_of(t, width) for t in ("float", "i32", "half", "i16"))
        if self.half:
            return self.let(f"bitcast {h} {self.let(f'fptrunc {f} {x} to {h}')} to {s}")
        i1 = vector_of("i1", width)
        bits = self.let(f"bitcast {f} {x} to {i}")
        a = self._and(bits, 0x7FFFFFFF, width)
        odd = self._and(self._lshr(a, 13, width), 1, width)
        normal = self._lshr(self.let(f"add {i} {self._add(a, 0xFFF - (112 << 23), width)}, {odd}"), 13, width)
        magnitude = self.let(f"bitcast {i} {a} to {f}")
        lifted = self.let(f"fadd {f} {magnitude}, {self.splat(0.5, float32, width)}")
        tiny = self._add(self.let(f"bitcast {f} {lifted} to {i}"), -0x3F000000, width)
        below = self.let(f"icmp ult {i} {a}, {self.splat(0x38800000, int32, width)}")
        value = self.let(f"select {i1} {below}, {i} {tiny}, {i} {normal}")
        above = self.let(f"icmp uge {i} {a}, {self.splat(0x477FF000, int32, width)}")
        value = self.let(f"select {i1} {above}, {i} {self.splat(0x7C00, int32, width)}, {i} {value}")
        nan = self.let(f"icmp ugt {i} {a}, {self.splat(0x7F800000, int32, width)}")
        payload = self._or(self._and(self._lshr(a, 13, width), 0x3FF, width), 0x7E00, width)
        value = self.let(f"select {i1} {nan}, {i} {payload}, {i} {value}")
        sign = self._and(self._lshr(bits, 16, width), 0x8000, width)
        return self.let(f"trunc {i} {self.let(f'or {i} {value}, {sign}')} to {s}")

    def _and(self, x: str, value: int, width: int) -> str:
        return self.let(f"and {llvm_type(int32, width)} {x}, {self.splat(value, int32, width)}")

    def _or(self, x: str, value: int, width: int) -> str:
        return self.let(f"or {llvm_type(int32, width)} {x}, {self.splat(value, int32, width)}")

    def _add(self, x: str, value: int, width: int) -> str:
        return self.let(f"add {llvm_type(int32, width)} {x}, {self.splat(value, int32, width)}")

    def _lshr(self, x: str, value: int, width: int) -> str:
        return self.let(f"lshr {llvm_type(int32, width)} {x}, {self.splat(value, int32, width)}")

    # ---- casts -------------------------------------------------------------------------------------------------------

    def cast(self, x: str, a: DType, b: DType, width: int) -> str:
        """Conversion of a register value."""
        if a is b:
            return x
        s, t = llvm_type(a, width), llvm_type(b, width)
        if b.kind == "b":
            compare = "fcmp une" if a.kind == "f" else "icmp ne"
            return self.let(f"{compare} {s} {x}, {self.splat(0, a, width)}")
        if b.kind == "f":
            if a.kind != "f":
                x = self.let(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {s} {x} to {t}")
            elif s != t:
                x = self.let(f"{'fpext' if b.bits == 64 else 'fptrunc'} {s} {x} to {t}")
            return self.round16(x, b, width) if b.bits == 16 and a.bits != 1 else x
        if a.kind == "f":
            return self._saturated(x, a, b, width)
        if a.bits == b.bits:
            return x
        name = "trunc" if b.bits < a.bits else "sext" if a.kind == "i" else "zext"
        return self.let(f"{name} {s} {x} to {t}")

    def _saturated(self, x: str, a: DType, b: DType, width: int) -> str:
        """Float to integer: truncated, saturated, NaN to 0. (LLVM's own saturating conversion of vectors is scalar.)

        Types narrower than the machine's conversion go by way of it, clamped before: their bounds are floats. Where the
        upper bound is no float, what is not below it is chosen after.
        """
        a = a.compute  # whose floats hold the bounds
        f, i1 = llvm_type(a, width), llvm_type(bool_, width)
        low = -(2 ** (b.bits - 1)) if b.kind == "i" else 0
        high = low + 2**b.bits - 1
        by = b if b.bits >= 32 else int32
        ordered = self.let(f"fcmp ord {f} {x}, {x}")
        y = self.let(f"select {i1} {ordered}, {f} {x}, {f} {self.splat(0.0, a, width)}")
        y = self._clamped("olt", y, low, a, width)
        exact = a.bits == 64 and b.bits <= 32 or b.bits <= 16
        if exact:
            y = self._clamped("ogt", y, high, a, width)
        else:
            over = self.let(f"fcmp oge {f} {x}, {self.splat(float(high + 1), a, width)}")
            y = self.let(f"select {i1} {over}, {f} {self.splat(0.0, a, width)}, {f} {y}")
        name = "fptosi" if by.kind == "i" else "fptoui"
        out = self.let(f"{name} {f} {y} to {llvm_type(by, width)}")
        if by is not b:
            return self.let(f"trunc {llvm_type(by, width)} {out} to {llvm_type(b, width)}")
        if exact:
            return out
        t = llvm_type(b, width)
        return self.let(f"select {i1} {over}, {t} {self.splat(high, b, width)}, {t} {out}")

    def _clamped(self, compare: str, x: str, bound: int, dtype: DType, width: int) -> str:
        f, edge = llvm_type(dtype, width), self.splat(float(bound), dtype, width)
        beyond = self.let(f"fcmp {compare} {f} {x}, {edge}")
        return self.let(f"select {llvm_type(bool_, width)} {beyond}, {f} {edge}, {f} {x}")

    def bitcast(self, x: str, a: DType, b: DType, width: int) -> str:
        """The same bits as another dtype."""
        if (a.bits == 16 and a.kind == "f") or (b.bits == 16 and b.kind == "f"):
            return self.from_memory(self.to_memory(x, a, width), b, width)
        s, t = llvm_type(a, width), llvm_type(b, width)
        return x if s == t else self.let(f"bitcast {s} {x} to {t}")
