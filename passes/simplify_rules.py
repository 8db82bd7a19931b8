"""Rules of simplify for elementwise ops: constants, identities, selects, casts."""

from __future__ import annotations

import math

import numpy as np

from treadle.ir.core import Op, Value
from treadle.ir.dtypes import DType, bfloat16
from treadle.ir.evaluate_scalars import inside, round_bfloat16
from treadle.ir.ops.arithmetic import (
    Abs,
    Add,
    Ceil,
    ClampMax,
    ClampMin,
    Div,
    Floor,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Round,
    Sign,
    Sqrt,
    Square,
    Sub,
    Trunc,
)
from treadle.ir.ops.base import Elementwise
from treadle.ir.ops.logic import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Cast,
    Eq,
    Ge,
    Gt,
    Isfinite,
    Isinf,
    Isnan,
    Le,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    Lt,
    Ne,
    Select,
)
from treadle.ir.ops.sources import DimValue
from treadle.ir.ops.views import Expand
from treadle.passes.simplify_engine import Number, Result, Simplifier, rule

# Ops whose result is exactly rounded (or exact): NumPy and the machine agree on every bit, so folding is safe.
EXACT = (
    Neg, Abs, Sign, Square, Reciprocal, Sqrt, Floor, Ceil, Round, Trunc, Add, Sub, Mul, Div, Maximum, Minimum,
    Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor, LogicalNot, BitwiseAnd, BitwiseOr, BitwiseXor,
    BitwiseNot, Isnan, Isinf, Isfinite, Select, Cast,
)  # fmt: skip


def _is(number: Number | None, value: float) -> bool:
    """Is a known number this one? Zero must have the sign of `value`."""
    return number is not None and number == value and math.copysign(1, number) == math.copysign(1, value)


def _integral(v: Value) -> bool:
    return v.dtype.is_integral


@rule(*EXACT)
def fold_constants(s: Simplifier, op: Op) -> Result:
    """An exact op on constants is a constant."""
    numbers = s.splats(op.operands)
    if numbers is None:
        return None
    try:
        arrays = [np.array(n, inside(v.dtype)) for n, v in zip(numbers, op.operands, strict=True)]
    except OverflowError:  # a constant outside its dtype: leave it to the op
        return None
    with np.errstate(all="ignore"):
        folded = np.asarray(op.operation.reference(*arrays))  # type: ignore[attr-defined]
    if op.result.dtype is bfloat16:
        folded = round_bfloat16(folded)
    return s.full(folded.item(), op.result.tensor)


@rule(Add)
def add_identities(s: Simplifier, op: Op) -> Result:
    """x + 0 is x (of floats only x + -0.0 is); x + -y is x - y."""
    for x, y in (op.operands, op.operands[::-1]):
        n = s.splat(y)
        if _is(n, -0.0) or (n == 0 and n is not None and _integral(x)):
            return x
        negated = s.producer(y, Neg)
        if negated is not None:
            return s.emit(Sub(), x, negated.operands[0])
    return None


@rule(Sub)
def sub_identities(s: Simplifier, op: Op) -> Result:
    """x - 0 is x (of floats not x - -0.0); x - -y is x + y."""
    x, y = op.operands
    if _is(s.splat(y), 0):
        return x
    negated = s.producer(y, Neg)
    return s.emit(Add(), x, negated.operands[0]) if negated is not None else None


@rule(Mul)
def mul_identities(s: Simplifier, op: Op) -> Result:
    """x * 1 is x; x * -1 is -x; an integer times 0 is 0; -x * -y is x * y."""
    for x, y in (op.operands, op.operands[::-1]):
        n = s.splat(y)
        if n is None or x.dtype.kind == "b":
            continue
        if n == 1:
            return x
        if n == -1 and x.dtype.kind in "if":
            return s.emit(Neg(), x)
        if n == 0 and _integral(x):
            return y
    return _both_negated(s, op)


def _both_negated(s: Simplifier, op: Op) -> Result:
    a, b = (s.producer(v, Neg) for v in op.operands)
    return s.emit(op.operation, a.operands[0], b.operands[0]) if a is not None and b is not None else None


# Exponents of the normal powers of two of each floating type.
_EXPONENTS = {"float16": (-14, 15), "bfloat16": (-126, 127), "float32": (-126, 127), "float64": (-1022, 1023)}


@rule(Div)
def div_identities(s: Simplifier, op: Op) -> Result:
    """x / 1 is x; division by a power of two is multiplication by its reciprocal, exactly."""
    x, y = op.operands
    n = s.splat(y)
    if n is None or not x.dtype.is_floating:
        return _both_negated(s, op)
    if n == 1:
        return x
    mantissa, exponent = math.frexp(abs(float(n)))
    low, high = _EXPONENTS[x.dtype.name]
    if mantissa == 0.5 and low <= 1 - exponent <= high:
        return s.emit(Mul(), x, s.full(1.0 / n, y.tensor))
    return None


@rule(Pow)
def pow_special_exponents(s: Simplifier, op: Op) -> Result:
    """Exponents for which a cheaper op is as exact. (Not 0.5: sqrt differs at -0.0 and -inf.)"""
    x, y = op.operands
    n = s.splat(y)
    if n == 0:
        return s.full(1, op.result.tensor)
    if n == 1:
        return x
    if n == 2 and x.dtype.kind in Square.kinds:
        return s.emit(Square(), x)
    if n == -1 and x.dtype.is_floating:
        return s.emit(Reciprocal(), x)
    return None


@rule(Neg, BitwiseNot, LogicalNot)
def involution(s: Simplifier, op: Op) -> Result:
    """An op that undoes itself."""
    inner = s.producer(op.operands[0], type(op.operation))
    return inner.operands[0] if inner is not None and inner.operands[0].type is op.result.type else None


@rule(LogicalNot)
def negated_equality(s: Simplifier, op: Op) -> Result:
    """not (a == b) is a != b, for NaN too (the order relations have no such twin)."""
    inner = s.producer(op.operands[0], Eq, Ne)
    if inner is None:
        return None
    return s.emit(Ne() if isinstance(inner.operation, Eq) else Eq(), *inner.operands)


@rule(Abs, Square)
def even_function(s: Simplifier, op: Op) -> Result:
    """|−x| and (−x)² do not need the sign, nor | |x| | the second abs. An unsigned −x has no sign to lose."""
    inner = s.producer(op.operands[0], Neg, Abs)
    if inner is not None and op.result.dtype.kind == "u" and isinstance(op.operation, Abs):
        return inner.result
    return s.emit(op.operation, inner.operands[0]) if inner is not None else None


@rule(Maximum, Minimum, ClampMax, ClampMin, LogicalAnd, LogicalOr, BitwiseAnd, BitwiseOr)
def idempotent(s: Simplifier, op: Op) -> Result:
    """f(x, x) is x."""
    a, b = op.operands
    return a if a is b and a.type is op.result.type else None


@rule(LogicalAnd, LogicalOr)
def logical_constant(s: Simplifier, op: Op) -> Result:
    """x and true, x or false are x; x and false, x or true are the constant."""
    for x, y in (op.operands, op.operands[::-1]):
        n = s.splat(y)
        if n is None or y.type is not op.result.type:
            continue
        return x if bool(n) == isinstance(op.operation, LogicalAnd) else y
    return None


@rule(Select)
def select_known(s: Simplifier, op: Op) -> Result:
    """A condition that is known, inverted, or does not matter."""
    condition, a, b = op.operands
    known = s.splat(condition)
    if known is not None:
        return a if known else b
    if a is b:
        return a
    if _is(s.splat(a), 1) and _is(s.splat(b), 0) and a.dtype is condition.dtype:
        return condition
    inverted = s.producer(condition, LogicalNot)
    if inverted is not None and inverted.operands[0].type is condition.type:
        return s.emit(Select(), inverted.operands[0], b, a)
    return None


@rule(Cast)
def cast_chain(s: Simplifier, op: Op) -> Result:
    """A cast to the same dtype is nothing; a cast through a type that holds every value skips it."""
    (x,) = op.operands
    if x.dtype is op.result.dtype:
        return x
    inner = s.producer(x, Cast)
    if inner is None:
        return None
    source, target = inner.operands[0], op.result.dtype
    if _preserves(source.dtype, x.dtype) and _converts_alike(source.dtype, x.dtype, target):
        return s.emit(Cast(target), source)
    return None


_PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _preserves(a: DType, b: DType) -> bool:
    """Does `b` hold every value of `a` exactly?"""
    if a is b or a.kind == "b":
        return True
    if a.kind == "f":
        return b.kind == "f" and (a.bits < b.bits)
    digits = a.bits - (a.kind == "i")
    if b.kind == "f":
        return digits <= _PRECISION[b.name] and digits < 16  # float16 ends at 65504
    return b.kind in "ui" and not (a.kind == "i" and b.kind == "u") and digits <= b.bits - (b.kind == "i")


def _converts_alike(a: DType, b: DType, target: DType) -> bool:
    """Do equal values of `a` and `b` convert to `target` alike? Integers wrap where floats saturate."""
    return target.kind in "fb" or a.kind == "b" or (a.kind == "f") == (b.kind == "f")


@rule(Elementwise)
def sink_expand(s: Simplifier, op: Op) -> Result:
    """An op on values that were expanded alike is computed before they are."""
    sources: list[Value | None] = []  # None: filled with a number
    for v in op.operands:
        expanded = s.producer(v, Expand)
        if s.splat(v) is None and expanded is None:
            return None
        sources.append(expanded.operands[0] if expanded is not None and s.splat(v) is None else None)
    shapes = {v.shape for v in sources if v is not None} or {()}
    (shape, *others) = shapes
    if others or shape == op.result.shape:
        return None
    narrow = [
        s.full(s.splat(v), v.tensor.with_shape(shape)) if source is None else source  # type: ignore[arg-type]
        for v, source in zip(op.operands, sources, strict=True)
    ]
    return s.emit(Expand(op.result.shape), s.emit(op.operation, *narrow))


@rule(DimValue)
def known_dim(s: Simplifier, op: Op) -> Result:
    """A size without symbols is a constant."""
    d = op.operation.value  # type: ignore[attr-defined]
    return s.full(d, op.result.tensor) if isinstance(d, int) else None
