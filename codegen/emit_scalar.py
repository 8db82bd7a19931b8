"""Scalar functions as LLVM instructions, on scalars or vectors of lanes alike.

f16 and bf16 values live in registers as floats that the narrow type can hold: every function computes in f32 and
rounds. bool is i1 in registers and a byte in memory. Nothing here may become a call of a library: what is no
instruction of some target is expanded before (`expand-math`, `legalize`), and any other function is refused.
"""

from __future__ import annotations

from treadle.codegen.emit_cast import Conversions, literal, llvm_type, mangled, memory_type, vector_of
from treadle.ir.dtypes import DType, bool_, float64

__all__ = ["Scalars", "literal", "llvm_type", "memory_type"]

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "fdiv": "fdiv"}
_FLOAT_INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc", "copysign": "copysign",
    "fmin": "minnum", "fmax": "maxnum", "fma": "fma", "abs": "fabs",
}  # fmt: skip
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_ON_BOOL = {"add": "or", "maximum": "or", "fmax": "or", "mul": "and", "minimum": "and", "fmin": "and", "sub": "xor"}
# Results that a 16-bit float can hold because its operands could.
_EXACT = frozenset({"neg", "abs", "minimum", "maximum", "fmin", "fmax", "copysign", "isnan", *_COMPARE})


class Scalars(Conversions):
    """Writes scalar functions; `let(text) -> name` appends an instruction. Operands and results are LLVM operands."""

    def call(self, fn: str, dtype: DType, width: int, xs: list[str]) -> str:
        """A function of `ir/scalar.py` but select, on operands of `dtype`."""
        t = llvm_type(dtype, width)
        if dtype.kind != "f":
            return self._integer(fn, dtype, t, width, xs)
        out = self._float(fn, t, xs)
        return self.round16(out, dtype, width) if dtype.bits == 16 and fn not in _EXACT else out

    def _float(self, fn: str, t: str, xs: list[str]) -> str:
        if fn in _FLOAT:
            return self.let(f"{_FLOAT[fn]} {t} {xs[0]}, {xs[1]}")
        if fn in _COMPARE:
            return self.let(f"fcmp {_COMPARE[fn]} {t} {xs[0]}, {xs[1]}")
        if fn == "isnan":
            return self.let(f"fcmp uno {t} {xs[0]}, {xs[0]}")
        if fn == "neg":
            return self.let(f"fneg {t} {xs[0]}")
        if fn in ("minimum", "maximum"):
            return self._extremum(fn, t, *xs)
        if fn in _FLOAT_INTRINSICS:
            return self.intrinsic(_FLOAT_INTRINSICS[fn], t, *xs)
        raise NotImplementedError(f"scalar {fn} on floats reached code generation: expand-math was not run")

    def _extremum(self, fn: str, t: str, a: str, b: str) -> str:
        """a where a is NaN, else a > b ? a : b, which is b where b is NaN: one instruction on x86, and two more."""
        i1 = t.replace("float", "i1").replace("double", "i1")
        better = self.let(f"fcmp {'ogt' if fn == 'maximum' else 'olt'} {t} {a}, {b}")
        best = self.let(f"select {i1} {better}, {t} {a}, {t} {b}")
        nan = self.let(f"fcmp uno {t} {a}, {a}")
        return self.let(f"select {i1} {nan}, {t} {a}, {t} {best}")

    def _integer(self, fn: str, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        if dtype.kind == "b":
            fn = _ON_BOOL.get(fn, fn)
        signed = dtype.kind == "i"
        if fn in _INTEGER:
            return self.let(f"{_INTEGER[fn]} {t} {xs[0]}, {xs[1]}")
        if fn in ("eq", "ne"):
            return self.let(f"icmp {fn} {t} {xs[0]}, {xs[1]}")
        if fn in _COMPARE:
            return self.let(f"icmp {'s' if signed else 'u'}{fn} {t} {xs[0]}, {xs[1]}")
        if fn in ("minimum", "maximum", "fmin", "fmax"):
            return self.intrinsic(("s" if signed else "u") + ("min" if "min" in fn else "max"), t, *xs)
        rule = getattr(self, f"_integer_{fn}", None)
        if rule is None:
            raise NotImplementedError(f"scalar {fn} on {dtype.name}")
        return rule(dtype, t, width, xs)

    # ---- integers ----------------------------------------------------------------------------------------------------

    def _integer_isnan(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self.splat(False, bool_, width)

    def _integer_neg(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self.let(f"sub {t} {self.splat(0, dtype, width)}, {xs[0]}")

    def _integer_not(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        ones = self.splat(True if dtype.kind == "b" else -1, dtype, width)
        return self.let(f"xor {t} {xs[0]}, {ones}")

    def _integer_abs(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self.let(f"call {t} @llvm.abs.{mangled(t)}({t} {xs[0]}, i1 false)") if dtype.kind == "i" else xs[0]

    def _integer_fma(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self.let(f"add {t} {self.let(f'mul {t} {xs[0]}, {xs[1]}')}, {xs[2]}")

    def _integer_mulhi(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        """The high half of the unsigned product, in integers of twice the width."""
        wide, amount = vector_of(f"i{2 * dtype.bits}", width), str(dtype.bits)
        a, b = (self.let(f"zext {t} {x} to {wide}") for x in xs)
        shift = amount if width == 1 else f"splat (i{2 * dtype.bits} {amount})"
        product = self.let(f"mul {wide} {a}, {b}")
        return self.let(f"trunc {wide} {self.let(f'lshr {wide} {product}, {shift}')} to {t}")

    def _integer_idiv(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        """Truncating; x / 0 is 0, and INT_MIN / -1 wraps."""
        return self._guarded("div", dtype, t, width, xs)

    def _integer_irem(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        """The remainder with the sign of x; x % 0 is x."""
        return self._guarded("rem", dtype, t, width, xs)

    def _guarded(self, fn: str, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        """The machine's division traps on 0 and INT_MIN / -1: the divisor is replaced before it sees them."""
        signed, i1, nothing = dtype.kind == "i", llvm_type(bool_, width), self.splat(0, dtype, width)
        zero = self.let(f"icmp eq {t} {xs[1]}, {nothing}")
        minus = self.let(f"icmp eq {t} {xs[1]}, {self.splat(-1, dtype, width)}") if signed else zero
        unsafe = self.let(f"or {i1} {zero}, {minus}") if signed else zero
        safe = self.let(f"select {i1} {unsafe}, {t} {self.splat(1, dtype, width)}, {t} {xs[1]}")
        out = self._divided(fn, dtype, t, width, xs[0], safe)
        if signed:
            special = self.let(f"sub {t} {nothing}, {xs[0]}") if fn == "div" else nothing
            out = self.let(f"select {i1} {minus}, {t} {special}, {t} {out}")
        return self.let(f"select {i1} {zero}, {t} {nothing if fn == 'div' else xs[0]}, {t} {out}")

    def _divided(self, fn: str, dtype: DType, t: str, width: int, a: str, b: str) -> str:
        """No vector unit divides integers: up to 32 bits the quotient of doubles, truncated, is exact."""
        sign = "s" if dtype.kind == "i" else "u"
        if width == 1 or dtype.bits > 32:
            return self.let(f"{sign}{fn} {t} {a}, {b}")
        double = llvm_type(float64, width)
        x, y = (self.let(f"{sign}itofp {t} {v} to {double}") for v in (a, b))
        quotient = self.let(f"fpto{sign}i {double} {self.let(f'fdiv {double} {x}, {y}')} to {t}")
        return quotient if fn == "div" else self.let(f"sub {t} {a}, {self.let(f'mul {t} {quotient}, {b}')}")

    def _integer_shl(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self._shift("shl", dtype, t, width, xs)

    def _integer_shr(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self._shift("ashr" if dtype.kind == "i" else "lshr", dtype, t, width, xs)

    def _integer_lshr(self, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        return self._shift("lshr", dtype, t, width, xs)

    def _shift(self, name: str, dtype: DType, t: str, width: int, xs: list[str]) -> str:
        """Amounts outside 0..bits-1 give 0, or the sign for an arithmetic shift. Constant amounts, the common case, are
        written as `splat (iN k)` or `k` and need no care."""
        amount = xs[1].rsplit(" ", 1)[-1].rstrip(")")
        if amount.isdigit() and int(amount) < dtype.bits:
            return self.let(f"{name} {t} {xs[0]}, {xs[1]}")
        i1 = llvm_type(bool_, width)
        fits = self.let(f"icmp ult {t} {xs[1]}, {self.splat(dtype.bits, dtype, width)}")
        other = self.splat(dtype.bits - 1 if name == "ashr" else 0, dtype, width)
        inside = self.let(f"select {i1} {fits}, {t} {xs[1]}, {t} {other}")
        out = self.let(f"{name} {t} {xs[0]}, {inside}")
        return out if name == "ashr" else self.let(f"select {i1} {fits}, {t} {out}, {t} {self.splat(0, dtype, width)}")
