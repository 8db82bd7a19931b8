"""asinh, acosh, atanh in basic operations, from log1p; far out from log."""

from __future__ import annotations

import math

from treadle.ir.core import Value
from treadle.passes.expand_math_base import Math
from treadle.passes.expand_math_log import log, log1p

__all__ = ["acosh", "asinh", "atanh"]

FAR = 2.0**28


def asinh(m: Math, x: Value) -> Value:
    a = m.abs(x)
    near = m.at_most(a, FAR)
    square = m.mul(near, near)
    root = m.sqrt(m.plus(square, 1.0))
    y = log1p(m, m.add(near, m.fdiv(square, m.plus(root, 1.0))))
    return m.copysign(m.pick(m.above(a, FAR), m.plus(log(m, a), math.log(2)), y), x)


def acosh(m: Math, x: Value) -> Value:
    t = m.plus(x, -1.0)
    near = m.at_most(t, FAR)
    y = log1p(m, m.add(near, m.sqrt(m.mul(near, m.plus(near, 2.0)))))
    y = m.pick(m.above(x, FAR), m.plus(log(m, x), math.log(2)), y)
    return m.pick(m.below(x, 1.0), math.nan, y)


def atanh(m: Math, x: Value) -> Value:
    a = m.abs(x)
    y = log1p(m, m.fdiv(m.add(a, a), m.sub(m.const(1.0, x), a)))
    return m.copysign(m.times(y, 0.5), x)
