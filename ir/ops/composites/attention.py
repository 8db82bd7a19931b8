"""Attention and dropout."""

from __future__ import annotations

import math
import string

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, emit, same_shape, shape_text
from treadle.ir.ops.composites.common import need_floating, wide, widen
from treadle.ir.ops.logic import BitsToUniform
from treadle.ir.ops.sampling import array
from treadle.ir.ops.sources import RandomBits
from treadle.ir.types import TensorType

__all__ = ["Attention", "Dropout"]


@operation("graph.attention")
class Attention(Composite):
    """Operands (q [..., T, D], k [..., S, D], v [..., S, E][, mask [..., T, S]]) -> softmax(q k^T * scale + mask) v,
    [..., T, E].

    All operands have the same leading dims. A bool mask says what may be attended, a floating one (of the dtype of q)
    is added. `causal` lets row t attend to the first t + 1 columns. A row that may attend to nothing gives zeros, with
    zero gradients.
    """

    causal: bool = False
    scale: float = 1.0

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        q, k, v = types[:3]
        need_floating(self.name, q, k, v)
        lead, (t, d) = q.shape[:-2], q.shape[-2:] if q.rank > 1 else (1, 1)
        shapes = [shape_text(x.shape) for x in types]
        s = k.shape[-2] if k.rank > 1 else 1
        fits = (
            min(x.rank for x in types) > 1
            and same_shape(k.shape, (*lead, s, d))
            and v.rank == q.rank
            and same_shape(v.shape[:-1], (*lead, s))
            and (len(types) == 3 or same_shape(types[3].shape, (*lead, t, s)))
        )
        if not fits:
            raise RuntimeError(
                f"attention: query, key, value and mask of shapes {', '.join(shapes)} do not go together"
            )
        if any(x.dtype is not q.dtype for x in (k, v)) or (
            len(types) > 3 and types[3].dtype not in (dtypes.bool_, q.dtype)
        ):
            raise RuntimeError(f"attention: operands have dtypes {', '.join(x.dtype.short for x in types)}")
        return (q.with_shape((*lead, t, v.shape[-1])),)

    def _contract(self, b: Builder, x: Value, y: Value, letters: str) -> Term:
        """A product batched over the leading dims; `letters` are einsum's for the last two dims of each."""
        lead = string.ascii_lowercase[: x.rank - 2]
        operands, out = letters.split("->")
        lhs, rhs = operands.split(",")
        return Term(b, emit(b, "contract", x, y, lhs=lead + lhs, rhs=lead + rhs, out=lead + out))

    def _weights(self, b: Builder, q: Value, k: Value, mask: Value | None) -> Term:
        """The softmax of the scores, in the compute type; zeros in rows of minus infinities."""
        scores = self._contract(b, q, k, "TD,SD->TS")
        scores = scores.cast(q.dtype.compute) * self.scale
        shape = scores.v.shape
        if mask is not None:
            allowed = Term(b, mask)
            if mask.dtype is dtypes.bool_:
                scores = allowed.where(scores, -math.inf)
            else:
                scores = scores + widen(b, mask)
        if self.causal:
            row, column = (
                Term(b, emit(b, "iota", shape=shape, dim=len(shape) - i, dtype=dtypes.int64, device=q.tensor.device))
                for i in (2, 1)
            )
            scores = column.le(row).where(scores, -math.inf)
        last = (len(shape) - 1,)
        if shape[-1] == 0:
            return scores
        top = scores.max(dims=last)
        top = top.eq(-math.inf).where(0, top)
        e = (scores - top.unreduce(shape, last)).exp()
        total = e.sum(dims=last)
        total = total.eq(0).where(1, total)
        return e / total.unreduce(shape, last)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        q, k, v = operands[:3]
        weights = self._weights(b, q, k, operands[3] if len(operands) > 3 else None)
        return (self._contract(b, weights.cast(v.dtype).v, v, "TS,SE->TE").v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        q, k, v = op.operands[:3]
        mask = op.operands[3] if len(op.operands) > 3 else None
        weights = self._weights(b, q, k, mask)
        found: list[Value | None] = [None] * len(op.operands)
        if needs[2]:
            found[2] = self._contract(b, weights.cast(v.dtype).v, ct, "TS,TE->SE").v
        of_weights = self._contract(b, ct, v, "TE,SE->TS").cast(q.dtype.compute)
        shape = weights.v.shape
        last = (len(shape) - 1,)
        mean = (of_weights * weights).sum(dims=last).unreduce(shape, last)
        of_scores = weights * (of_weights - mean)
        scaled = (of_scores * self.scale).cast(q.dtype).v
        if needs[0]:
            found[0] = self._contract(b, scaled, k, "TS,SD->TD").v
        if needs[1]:
            found[1] = self._contract(b, scaled, q, "TS,TD->SD").v
        if mask is not None and needs[3]:
            found[3] = of_scores.cast(mask.dtype).v
        return tuple(found)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        q, k, v, *masks = map(wide, arrays)
        scores = q @ np.swapaxes(k, -1, -2) * self.scale
        for mask in masks:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
        if self.causal:
            scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        top = np.max(scores, -1, keepdims=True, initial=-np.inf)
        e = np.exp(scores - np.where(top == -np.inf, 0, top))
        total = e.sum(-1, keepdims=True)
        return (e / np.where(total == 0, 1, total) @ v).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4"):
            for lead, t, s, d, e in (((2, 3), 4, 5, 3, 2), ((), 3, 3, 2, 2), ((1, 2), 2, 4, 3, 3), ((2,), 0, 3, 2, 2)):
                qkv = tuple(array(rng, (*lead, *last), name) for last in ((t, d), (s, d), (s, e)))
                allowed = np.asarray(rng.random((*lead, t, s)) < 0.6)
                if t:
                    allowed[..., 0, :] = False
                found += [
                    Sample(cls(False, 0.5), qkv),
                    Sample(cls(True, d**-0.5), qkv),
                    Sample(cls(False, 1.0), (*qkv, allowed)),
                    Sample(cls(True, 1.0), (*qkv, array(rng, (*lead, t, s), name))),
                ]
        return found


@operation("graph.dropout")
class Dropout(Composite):
    """Operands (x, seed, offset: 0-d i64): x / (1 - `p`) where RandomBits(seed, offset) keep it, else 0.

    The bits are made again for the gradient, so that no mask is stored.
    """

    p: float

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, seed, offset = types
        need_floating(self.name, x)
        if not 0 <= self.p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {self.p}")
        RandomBits(x.shape, x.device).infer(seed, offset)
        return (x,)

    def _factor(self) -> float:
        return 1 / (1 - self.p) if self.p < 1 else 0.0

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x, seed, offset = operands
        bits = b.emit(RandomBits(x.shape, x.tensor.device), seed, offset)
        kept = Term(b, b.emit(BitsToUniform(dtypes.float32), bits)).ge(self.p)
        return (kept.where((widen(b, x) * self._factor()).cast(x.dtype), 0).v,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t, *_), (_, *rest) = tangents, op.operands
        return (b.emit(self, t, *rest) if t is not None else None,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        return (b.emit(self, ct, *op.operands[1:]) if ct is not None and needs[0] else None, None, None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, seed, offset = arrays
        uniform = BitsToUniform(dtypes.float32).reference(RandomBits(x.shape).reference(seed, offset))
        return np.where(uniform >= np.float32(self.p), wide(x) * self._factor(), 0).astype(x.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        numbers = (np.array(7, np.int64), np.array(3, np.int64))
        return [
            Sample(cls(p), (array(rng, shape, name), *numbers))
            for name in ("f8", "f4", "f2")
            for shape in ((4, 5), (), (0, 2))
            for p in (0.0, 0.3, 1.0)
        ]
