"""Losses."""

from __future__ import annotations

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, emit, full_like, reshape, same_dim, shape_text
from treadle.ir.ops.composites.common import count, need_floating, wide, widen
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["CrossEntropy"]


@operation("graph.cross_entropy")
class CrossEntropy(Composite):
    """Operands (logits [N, C], target: i64 [N]) -> the loss of each row [N]: -log softmax(logits)[target].

    `label_smoothing` mixes in that share of the mean over all classes. Rows whose target is `ignore_index` have no loss
    and no gradient. A target outside 0..C-1 fails the check of indices, as in Gather.
    """

    ignore_index: int = -100
    label_smoothing: float = 0.0

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        logits, target = types
        need_floating(self.name, logits)
        if logits.rank != 2 or target.rank != 1 or not same_dim(logits.shape[0], target.shape[0]):
            raise ValueError(
                f"cross_entropy: expected logits [N, C] and targets [N], not {shape_text(logits.shape)} and "
                f"{shape_text(target.shape)}"
            )
        if target.dtype is not dtypes.int64:
            raise RuntimeError(f"cross_entropy: expected targets of dtype int64, not {target.dtype!r}")
        return (logits.with_shape((logits.shape[0],)),)

    def _log_probabilities(self, b: Builder, logits: Value) -> Term:
        return Term(b, emit(b, "log_softmax", widen(b, logits).v, dim=1))

    def _share(self, b: Builder, logits: Value) -> Term:
        """label_smoothing / C, 0-d, in the compute type."""
        dtype = logits.dtype.compute
        return self.label_smoothing / count(b, logits.shape[1:], dtype, logits.tensor.device)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        logits, target = operands
        n = logits.shape[0]
        ignored = Term(b, target).eq(self.ignore_index)
        log_p = self._log_probabilities(b, logits)
        safe = reshape(b, ignored.where(0, Term(b, target)).v, (n, 1))
        loss = -Term(b, reshape(b, log_p.gather(safe, dim=1).v, (n,)))
        if self.label_smoothing:
            loss = loss * (1 - self.label_smoothing) - log_p.sum(dims=(1,)) * self._share(b, logits).expand((n,))
        return (ignored.where(0, loss).cast(logits.dtype).v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        """softmax less the target's distribution, whose one-hot row is a comparison with the column's number."""
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None, None)
        logits, target = op.operands
        shape = logits.shape
        p = self._log_probabilities(b, logits).exp()
        column = Term(b, emit(b, "iota", shape=shape, dim=1, dtype=dtypes.int64, device=logits.tensor.device))
        hit = column.eq(Term(b, target).unreduce(shape, (1,)))
        on = Term(b, full_like(b, p.v, 1 - self.label_smoothing))
        slope = p - hit.where(on, 0)
        if self.label_smoothing:
            slope = slope - self._share(b, logits).expand(shape)
        ignored = Term(b, target).eq(self.ignore_index)
        weight = ignored.where(0, widen(b, ct)).unreduce(shape, (1,))
        # Rows without a loss are cut, not multiplied: their logits may be infinite.
        kept = ignored.unreduce(shape, (1,)).where(0, weight * slope)
        return (kept.cast(logits.dtype).v, None)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        logits, target = arrays
        x = wide(logits)
        ignored = target == self.ignore_index
        safe = np.where(ignored, 0, target)
        if safe.size and (safe.min() < 0 or safe.max() >= x.shape[1]):
            raise IndexError(
                f"Target {safe[(safe < 0) | (safe >= x.shape[1])][0]} is out of bounds for {x.shape[1]} classes"
            )
        if not x.size:
            return np.zeros(len(target), logits.dtype)
        low = x - x.max(1, keepdims=True)
        log_p = low - np.log(np.exp(low).sum(1, keepdims=True))
        loss = -(1 - self.label_smoothing) * log_p[np.arange(len(x)), safe]
        if self.label_smoothing:
            loss = loss - self.label_smoothing / x.shape[1] * log_p.sum(1)
        return np.where(ignored, 0, loss).astype(logits.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        target = np.array([1, -100, 0, 2, -100], np.int64)
        found = []
        for name in ("f8", "f4", "f2"):
            for smoothing in (0.0, 0.2):
                x = array(rng, (5, 3), name)
                found += [Sample(cls(-100, smoothing), (x, target)), Sample(cls(2, smoothing), (x, np.abs(target) % 3))]
                found.append(Sample(cls(-100, smoothing), (array(rng, (0, 3), name), target[:0])))
        return [*found, Sample(cls(), (np.array([[1000.0, 0.0], [0.0, 1000.0]]), np.array([1, 1])))]
