"""`expand-math`: transcendental scalar functions as additions, multiplications, bit operations and selects.

Each function is straight-line code for any number of lanes, right on NaN, infinities, signed zeros and subnormals. f32
and f64 have code of their own; f16 and bf16 compute in f32 and round.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir.core import Block, Function, Level, Op, Rewriter, Value
from treadle.ir.scalar import Scalar
from treadle.passes import expand_math_erf as erfs
from treadle.passes import expand_math_exp as exps
from treadle.passes import expand_math_gamma as gammas
from treadle.passes import expand_math_log as logs
from treadle.passes import expand_math_pow as pows
from treadle.passes import expand_math_trig as trigs
from treadle.passes.expand_math_base import Math
from treadle.passes.pipeline import Context, compiler_pass

__all__ = ["expand_math", "EXPANDED"]

Rule = Callable[..., Value]

_RULES: dict[str, Rule] = {
    "exp": exps.exp, "exp2": exps.exp2, "expm1": exps.expm1, "sigmoid": exps.sigmoid, "tanh": exps.tanh,
    "sinh": exps.sinh, "cosh": exps.cosh, "log": logs.log, "log2": logs.log2, "log10": logs.log10,
    "log1p": logs.log1p, "asinh": logs.asinh, "acosh": logs.acosh, "atanh": logs.atanh, "sin": trigs.sin,
    "cos": trigs.cos, "tan": trigs.tan, "asin": trigs.asin, "acos": trigs.acos, "atan": trigs.atan,
    "atan2": trigs.atan2, "erf": erfs.erf, "erfc": erfs.erfc, "erfinv": erfs.erfinv, "lgamma": gammas.lgamma,
    "digamma": gammas.digamma, "pow": pows.pow_, "frem": pows.fmod, "nextafter": pows.nextafter,
}  # fmt: skip
EXPANDED = frozenset(_RULES)
_IN_OWN_FORMAT = frozenset({"nextafter"})


def expand_math(fn: Function) -> Function:
    """The same kernel without transcendental functions, frem and nextafter."""
    return Function(fn.name, _block(fn.body, {}), fn.level, fn.symbols)


def _block(block: Block, mapping: dict[Value, Value]) -> Block:
    m = Math()
    rw = Rewriter(m, dict(mapping))
    for op in block.ops:
        m.loc = op.loc
        if isinstance(op.operation, Scalar) and op.operation.fn in _RULES:
            rw.mapping[op.result] = _expand(m, op.operation.fn, tuple(map(rw.value, op.operands)))
        elif op.regions:
            regions = tuple(_block(r, rw.mapping) for r in op.regions)
            results = tuple(Value(v.type, v.name) for v in op.results)
            m.ops.append(Op(op.operation, tuple(map(rw.value, op.operands)), results, regions, op.loc))
            rw.mapping.update(zip(op.results, results, strict=True))
        else:
            rw.copy(op)
    return Block(block.params, tuple(m.ops), tuple(map(rw.value, block.yields)))


def _expand(m: Math, fn: str, xs: tuple[Value, ...]) -> Value:
    dtype = xs[0].dtype
    inside = dtype if fn in _IN_OWN_FORMAT else dtype.compute
    return m.cast(_RULES[fn](m, *(m.cast(x, inside) for x in xs)), dtype)


@compiler_pass("expand-math", before=Level.LOOP, after=Level.LOOP)
def _pass(fn: Function, context: Context) -> Function:
    """No scalar function is transcendental any more."""
    return expand_math(fn)
