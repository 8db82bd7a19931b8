"""`legalize`: scalar functions that a target lacks, in terms of those it has.

What a target lacks would become a call of a C library, which code run in this process or on a bare machine does not
have (on some targets LLVM then ends the process). Known are "fma" and "round" (floor, ceil, rint, trunc). The results
are exactly those of the instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir.core import Block, Function, Level, Op, Rewriter, Value
from treadle.ir.dtypes import float32, float64
from treadle.ir.scalar import Scalar
from treadle.passes.expand_math_base import F64, Math, format_of
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["legalize"]

Rule = Callable[..., Value]


def legalize(fn: Function, lacks: frozenset[str]) -> Function:
    """The same kernel without the functions that a target `lacks`."""
    rules = {name: rule for feature in sorted(lacks) for name, rule in _RULES.get(feature, {}).items()}
    return Function(fn.name, _block(fn.body, {}, rules), fn.level, fn.symbols) if rules else fn


def _block(block: Block, mapping: dict[Value, Value], rules: dict[str, Rule]) -> Block:
    m = Math()
    rw = Rewriter(m, dict(mapping))
    for op in block.ops:
        m.loc = op.loc
        rule = rules.get(op.operation.fn) if isinstance(op.operation, Scalar) else None
        if rule is not None and op.operands[0].dtype.is_floating:
            xs = [m.cast(rw.value(v), v.dtype.compute) for v in op.operands]
            rw.mapping[op.result] = m.cast(rule(m, *xs), op.result.dtype)
        elif op.regions:
            regions = tuple(_block(r, rw.mapping, rules) for r in op.regions)
            results = tuple(Value(v.type, v.name) for v in op.results)
            m.ops.append(Op(op.operation, tuple(map(rw.value, op.operands)), results, regions, op.loc))
            rw.mapping.update(zip(op.results, results, strict=True))
        else:
            rw.copy(op)
    return Block(block.params, tuple(m.ops), tuple(map(rw.value, block.yields)))


# ---- fma -------------------------------------------------------------------------------------------------------------


def _fma(m: Math, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded once.

    f32: the product is exact in f64; the sum, rounded to odd, rounds to f32 as the exact one does. f64: product and
    sums in two parts each, the small parts joined with rounding to odd (Boldo & Melquiond, Emulation of FMA and
    correctly rounded sums, 2008). Exact but for results that are subnormal or near overflow.
    """
    if a.dtype is float32:
        x, y, z = (m.cast(v, float64) for v in (a, b, c))
        return m.cast(_odd_sum(m, m.mul(x, y), z), float32)
    high, low = _two_product(m, a, b)
    t, t_low = m.two_sum(c, low)
    v, v_low = m.two_sum(high, t)
    y = m.add(v, _odd_sum(m, t_low, v_low))
    plain = m.add(m.mul(a, b), c)  # infinities, NaN and products whose parts overflow
    return m.select(m.lt(m.abs(y), m.const(F64.largest, y)), y, plain)


def _odd_sum(m: Math, a: Value, b: Value) -> Value:
    """a + b rounded to odd: where it is not exact, the neighbour whose last bit is 1."""
    total, error = m.two_sum(a, b)
    bits = m.bits(total)
    one, zero = m.const(1, bits), m.const(0.0, total)
    outward = m.eq(m.gt(error, zero), m.gt(total, zero))
    moved = m.select(outward, m.add(bits, one), m.sub(bits, one))
    inexact = m.or_(m.lt(error, zero), m.gt(error, zero))  # false for the NaN that infinities leave
    even = m.eq(m.and_(bits, one), m.const(0, bits))
    return m.select(m.and_(inexact, even), m.floating(moved, F64), total)


def _two_product(m: Math, a: Value, b: Value) -> tuple[Value, Value]:
    """a * b as an unevaluated sum, without fma (Veltkamp and Dekker)."""

    def halves(x: Value) -> tuple[Value, Value]:
        t = m.times(x, 2.0**27 + 1)
        high = m.sub(t, m.sub(t, x))
        return high, m.sub(x, high)

    product = m.mul(a, b)
    (ah, al), (bh, bl) = halves(a), halves(b)
    low = m.add(m.add(m.sub(m.mul(ah, bh), product), m.mul(ah, bl)), m.mul(al, bh))
    return product, m.add(low, m.mul(al, bl))


# ---- rounding to integers --------------------------------------------------------------------------------------------


def _rint(m: Math, x: Value) -> Value:
    """Adding 2**mantissa rounds to an integer; what is as large has no fraction."""
    big = m.const(2.0 ** format_of(x).mantissa, x)
    a = m.abs(x)
    rounded = m.copysign(m.sub(m.add(a, big), big), x)
    return m.select(m.lt(a, big), rounded, x)


def _floor(m: Math, x: Value) -> Value:
    r = _rint(m, x)
    return m.copysign(m.select(m.gt(r, x), m.plus(r, -1.0), r), x)


def _ceil(m: Math, x: Value) -> Value:
    r = _rint(m, x)
    return m.copysign(m.select(m.lt(r, x), m.plus(r, 1.0), r), x)


def _trunc(m: Math, x: Value) -> Value:
    a = m.abs(x)
    r = _rint(m, a)
    return m.copysign(m.select(m.gt(r, a), m.plus(r, -1.0), r), x)


_RULES: dict[str, dict[str, Rule]] = {
    "fma": {"fma": _fma},
    "round": {"rint": _rint, "floor": _floor, "ceil": _ceil, "trunc": _trunc},
}


@compiler_pass("legalize", before=Level.LOOP, after=Level.LOOP)
def _pass(fn: Function, context: Context, *lacks: str) -> Function:
    """No scalar function is left that the target lacks."""
    return legalize(fn, frozenset(lacks))
