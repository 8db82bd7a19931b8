"""Loop-level scalar ops and the ScalarBuilder by which `Elementwise.scalar` bodies are written."""

from __future__ import annotations

from treadle.ir.core import Builder, Operation, Value, operation
from treadle.ir.dtypes import DType, bool_
from treadle.ir.types import ScalarType

__all__ = ["Scalar", "ScalarCast", "ScalarConst", "ScalarBitcast", "ScalarBuilder", "FUNCTIONS"]

# Every scalar function: name -> arity. Comparisons give i1; `select` is (i1, T, T). Integer arithmetic wraps; `idiv` and
# `irem` truncate like C and are defined on a zero divisor (0 and the dividend) and on INT_MIN / -1 (wraps). `fma` rounds
# once. minimum/maximum propagate NaN; fmin/fmax ignore it. Shifts by the width or more give 0 (or the sign). `mulhi` is
# the high half of the unsigned product.
FUNCTIONS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "fdiv": 2, "idiv": 2, "irem": 2, "frem": 2, "fma": 3, "neg": 1, "abs": 1,
    "minimum": 2, "maximum": 2, "fmin": 2, "fmax": 2,
    "and": 2, "or": 2, "xor": 2, "not": 1, "shl": 2, "shr": 2, "lshr": 2, "mulhi": 2,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "isnan": 1, "select": 3,
    "sqrt": 1, "floor": 1, "ceil": 1, "rint": 1, "trunc": 1, "copysign": 2, "nextafter": 2,
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "pow": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2, "sinh": 1, "cosh": 1, "tanh": 1,
    "asinh": 1, "acosh": 1, "atanh": 1, "sigmoid": 1, "erf": 1, "erfc": 1, "erfinv": 1, "lgamma": 1, "digamma": 1,
}  # fmt: skip
PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan"})
# What `expand-math` rewrites into the functions above it; codegen never sees these.
TRANSCENDENTAL = frozenset(list(FUNCTIONS)[list(FUNCTIONS).index("exp") :])


@operation("scalar.fn")
class Scalar(Operation):
    """A function of FUNCTIONS on scalars of one dtype; the result has it too (i1 for predicates)."""

    fn: str

    def infer(self, *types: ScalarType) -> tuple[ScalarType, ...]:
        if len(types) != FUNCTIONS[self.fn]:
            raise TypeError(f"scalar {self.fn} takes {FUNCTIONS[self.fn]} operands, not {len(types)}")
        rest = types[1:] if self.fn == "select" else types
        if any(t is not rest[0] for t in rest) or (self.fn == "select" and types[0].dtype is not bool_):
            raise TypeError(f"scalar {self.fn} on {', '.join(map(str, types))}")
        return (ScalarType(bool_) if self.fn in PREDICATES else rest[0],)


@operation("scalar.cast")
class ScalarCast(Operation):
    """Conversion. Float to integer truncates and saturates (NaN is 0); to bool is `!= 0`; to narrower floats rounds."""

    dtype: DType

    def infer(self, *types: ScalarType) -> tuple[ScalarType, ...]:
        return (ScalarType(self.dtype),)


@operation("scalar.bitcast")
class ScalarBitcast(Operation):
    """The same bits read as another dtype of the same width."""

    dtype: DType

    def infer(self, *types: ScalarType) -> tuple[ScalarType, ...]:
        return (ScalarType(self.dtype),)


@operation("scalar.const")
class ScalarConst(Operation):
    """A literal; inf and nan are allowed for floats. Integers wrap to the dtype."""

    value: float | int | bool
    dtype: DType

    def infer(self) -> tuple[ScalarType, ...]:
        return (ScalarType(self.dtype),)


class ScalarBuilder(Builder):
    """`s.exp(x)`, `s.add(x, y)`, `s.const(0.5, x)` ... append scalar ops; constants and casts come by dtype or by example."""

    def const(self, value: float | int | bool, like: DType | Value) -> Value:
        return self.emit(ScalarConst(value, like.dtype if isinstance(like, Value) else like))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.emit(ScalarCast(dtype), x)

    def bitcast(self, x: Value, dtype: DType) -> Value:
        return self.emit(ScalarBitcast(dtype), x)

    def call(self, fn: str, *xs: Value) -> Value:
        return self.emit(Scalar(fn), *xs)

    def __getattr__(self, fn: str):  # type: ignore[no-untyped-def]
        name = fn.rstrip("_")  # and_, or_, not_ are keywords without it
        if name not in FUNCTIONS:
            raise AttributeError(fn)
        return lambda *xs: self.call(name, *xs)
