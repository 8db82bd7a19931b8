"""Ops about programs: calls, and gradients that are still to be expanded."""

from __future__ import annotations

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Function, Value, operation
from treadle.ir.dims import Dim, Expr
from treadle.ir.ops.base import Absent, Opaque, Sample
from treadle.ir.substitute import substitute
from treadle.ir.types import TensorType

__all__ = ["Call", "Grad"]


@operation("graph.call")
class Call(Opaque):
    """The callee's results on the operands. The callee's symbols stand for the operands' sizes.

    Raises TypeError where operands do not have the types of the callee's parameters. It is inlined before any rule is
    needed.
    """

    callee: Function
    jvp = Absent("a call is inlined before it is differentiated")
    vjp = Absent("a call is inlined before it is differentiated")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        fn = self.callee
        if len(types) != len(fn.params):
            raise TypeError(f"call of {fn.name} takes {len(fn.params)} operands, not {len(types)}")
        bindings: dict[str, Dim] = {}
        for t, p in zip(types, fn.params, strict=True):
            if t.rank == p.rank:
                bindings |= {
                    str(d): actual
                    for d, actual in zip(p.shape, t.shape, strict=True)
                    if isinstance(d, Expr) and str(d) in fn.symbols
                }
        for t, p in zip(types, fn.params, strict=True):
            if substitute(p.type, bindings) is not t:
                raise TypeError(f"call of {fn.name} with {', '.join(map(str, types))}: a parameter is {p.type}")
        return tuple(substitute(v.type, bindings) for v in fn.returns)

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """By the references of the callee's ops. (bfloat16 parameters come as float32, as everywhere in references.)"""
        env = dict(zip(self.callee.params, arrays, strict=True))
        sizes: dict[str, Dim] = {}
        for p, a in zip(self.callee.params, arrays, strict=True):
            sizes |= {str(d): n for d, n in zip(p.shape, a.shape, strict=True) if str(d) in self.callee.symbols}
        for op in self.callee.ops:
            made = substitute(op.operation, sizes).reference(*(env[v] for v in op.operands))
            env.update(zip(op.results, made if isinstance(made, tuple) else (made,), strict=True))
        return tuple(env[v] for v in self.callee.returns)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        from treadle.ir.ops.build import emit

        x = Value(TensorType(dtypes.float64, (2, 3)), "x")
        b = Builder()
        y = emit(b, "sum", emit(b, "exp", x), dims=(1,))
        callee = Function("row_sums", b.block((x,), (y, x)))
        return [Sample(cls(callee), (rng.standard_normal((2, 3)),))]


@operation("graph.grad")
class Grad(Opaque):
    """Operands (outputs..., seeds..., wrt...), `outputs` of each of the first two -> a cotangent for each wrt value.

    The seeds are the cotangents of the outputs. Where `through[i]` is false gradients stop at wrt value i, as at a
    leaf; where it is true they also flow past it to the others. The pass expand-grad replaces it by the adjoint ops.
    """

    outputs: int
    through: tuple[bool, ...]
    jvp = Absent("a grad is expanded before it is differentiated")
    vjp = Absent("a grad is expanded before it is differentiated")
    reference = Absent("a grad is expanded before it is evaluated")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        n = self.outputs
        outputs, seeds, wrt = types[:n], types[n : 2 * n], types[2 * n :]
        if len(seeds) != n or len(wrt) != len(self.through):
            raise TypeError(f"grad of {n} outputs by {len(self.through)} values takes other operands than {len(types)}")
        for out, seed in zip(outputs, seeds, strict=True):
            if out is not seed:
                raise RuntimeError(f"grad: a seed is {seed} where its output is {out}")
        return wrt

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return []
