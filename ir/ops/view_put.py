"""A write through a chain of views."""

from __future__ import annotations

import numpy as np

from treadle.ir.core import Builder, Operation, Value, operation
from treadle.ir.ops.base import Composite, Sample

__all__ = ["ViewPut"]


@operation("graph.view_put")
class ViewPut(Composite):
    """Operands (base, new): the base with the elements that a chain of views shows replaced by `new`."""

    chain: tuple[Operation, ...]

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        base, new = operands
        seen = [base]
        for step in self.chain[:-1]:
            seen.append(b.emit(step, seen[-1]))
        for step, value in zip(reversed(self.chain), reversed(seen), strict=True):
            new = step.put(b, value, new)  # type: ignore[attr-defined]
        return (new,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        base, new = (a.copy() for a in arrays)
        at = np.arange(base.size, dtype=np.int64).reshape(base.shape)
        for step in self.chain:
            at = step.reference(at)  # type: ignore[attr-defined]
        base.reshape(-1)[at.reshape(-1)] = new.reshape(-1)
        return base

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        from treadle.ir.ops.views import Permute, Slice

        base = rng.standard_normal((4, 5)).astype(np.float32)
        new = rng.standard_normal((3, 2)).astype(np.float32)
        chain = (Permute((1, 0)), Slice((1, 0), (5, 4), (2, 2)), Slice((0, 0), (2, 2), (1, 1)), Permute((1, 0)))
        return [
            Sample(cls((Permute((1, 0)), Slice((1, 0), (4, 4), (1, 2)))), (base, new)),
            Sample(cls(chain), (base, new[:2])),
        ]
