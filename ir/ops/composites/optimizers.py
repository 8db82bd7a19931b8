"""Steps of optimizers, in the order of operations of torch's single-tensor implementations, so that results agree
closely.

Scalars that change from step to step (learning rate, bias corrections) are 0-d operands; they are combined in float64
before they meet a tensor. 16-bit tensors are updated in float32 and rounded once.
"""

from __future__ import annotations

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Value, operation
from treadle.ir.ops.base import Composite, Sample
from treadle.ir.ops.build import Term, same_shape, shape_text
from treadle.ir.ops.composites.common import need_floating, wide
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["AdamUpdate", "SgdUpdate"]


class _Update(Composite):
    """Operands (p, g, states..., scalars...): the new p and the new states."""

    def counts(self) -> tuple[int, int, int]:
        """Number of (states among the operands, 0-d scalars, states among the results)."""
        raise NotImplementedError

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        states, scalars, made = self.counts()
        name = self.name.split(".")[1]
        if len(types) != 2 + states + scalars:
            raise TypeError(f"{name} takes {2 + states + scalars} operands, not {len(types)}")
        p = types[0]
        tensors, numbers = types[: 2 + states], types[2 + states :]
        need_floating(name, *tensors)
        if not all(same_shape(t.shape, p.shape) for t in tensors) or any(t.shape != () for t in numbers):
            raise RuntimeError(f"{name}: operands have shapes {', '.join(shape_text(t.shape) for t in types)}")
        old = types[2 : 2 + states]
        return (p, *old, *[p] * (made - states))

    def unpack(self, b: Builder, operands: tuple[Value, ...]) -> tuple[list[Term], list[Term]]:
        """Tensors in the compute type of p, scalars in float64."""
        n = 2 + self.counts()[0]
        dtype = operands[0].dtype.compute
        return (
            [Term(b, v).cast(dtype) for v in operands[:n]],
            [Term(b, v).cast(dtypes.float64) for v in operands[n:]],
        )


def _spread(scalar: Term, like: Term) -> Term:
    """A float64 scalar as a tensor of the type of `like`."""
    return scalar.cast(like.v.dtype).expand(like.v.shape)


@operation("graph.sgd_update")
class SgdUpdate(_Update):
    """Operands (p, g[, buffer], lr) -> (p'[, buffer']): a step of SGD. Without `momentum` there is no buffer; in the
    `first` step it is not an operand, and begins as the gradient."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False
    first: bool = True

    def counts(self) -> tuple[int, int, int]:
        if not self.momentum:
            return 0, 1, 0
        return (0 if self.first else 1), 1, 1

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (p, g, *buffers), (lr,) = self.unpack(b, operands)
        if self.maximize:
            g = -g
        if self.weight_decay:
            g = g + p * self.weight_decay
        buffer: Term | None = None
        if self.momentum:
            buffer = buffers[0] * self.momentum + g * (1 - self.dampening) if buffers else g
            g = g + buffer * self.momentum if self.nesterov else buffer
        new = p + g * _spread(-lr, p)
        types = self.infer(*(v.tensor for v in operands))
        results = (new,) if buffer is None else (new, buffer)
        return tuple(r.cast(t.dtype).v for r, t in zip(results, types, strict=True))

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        p, g, *rest = map(wide, arrays)
        lr = np.float64(arrays[-1])
        buffers = rest[:-1]
        g = (-g if self.maximize else g) + self.weight_decay * p
        if not self.momentum:
            return ((p - lr * g).astype(arrays[0].dtype),)
        buffer = self.momentum * buffers[0] + (1 - self.dampening) * g if buffers else g
        g = g + self.momentum * buffer if self.nesterov else buffer
        return (p - lr * g).astype(arrays[0].dtype), buffer.astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4", "f2"):
            for op in (
                cls(), cls(0.0, 0.0, 0.1, False, True), cls(0.9), cls(0.9, 0.1, 0.01, False, False, False),
                cls(0.9, 0.0, 0.0, True, False, False),
            ):  # fmt: skip
                tensors = [array(rng, (2, 3), name) for _ in range(2 + op.counts()[0])]
                found.append(Sample(op, (*tensors, np.array(0.1))))
        return found


@operation("graph.adam_update")
class AdamUpdate(_Update):
    """Operands (p, g, m, v[, vmax], lr, bias_correction1, bias_correction2_sqrt) -> (p', m', v'[, vmax']): a step of
    Adam.

    `decoupled` weight decay is AdamW's; `amsgrad` divides by the largest v so far, vmax.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False
    maximize: bool = False

    def counts(self) -> tuple[int, int, int]:
        states = 3 if self.amsgrad else 2
        return states, 3, states

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (p, g, m, v, *largest), (lr, correction1, correction2_sqrt) = self.unpack(b, operands)
        if self.maximize:
            g = -g
        if self.weight_decay:
            if self.decoupled:
                p = p * _spread(1 - lr * self.weight_decay, p)
            else:
                g = g + p * self.weight_decay
        m = m + (g - m) * (1 - self.beta1) if self.beta1 > 0.5 else g - (g - m) * self.beta1
        v = v * self.beta2 + g * (1 - self.beta2) * g
        if self.amsgrad:
            largest = [largest[0].maximum(v)]
        root = (largest[0] if self.amsgrad else v).sqrt() / _spread(correction2_sqrt, v)
        new = p + _spread(-(lr / correction1), p) * m / (root + self.eps)
        types = self.infer(*(x.tensor for x in operands))
        return tuple(r.cast(t.dtype).v for r, t in zip((new, m, v, *largest), types, strict=True))

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        p, g, m, v, *rest = map(wide, arrays)
        lr, correction1, correction2_sqrt = map(np.float64, arrays[-3:])
        g = -g if self.maximize else g
        if self.decoupled:
            p = p * (1 - lr * self.weight_decay)
        else:
            g = g + self.weight_decay * p
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g * g
        states = [m, v]
        if self.amsgrad:
            states.append(np.maximum(rest[0], v))
        p = p - lr / correction1 * m / (np.sqrt(states[-1]) / correction2_sqrt + self.eps)
        return tuple(x.astype(arrays[0].dtype) for x in (p, *states))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4", "f2"):
            for op in (
                cls(), cls(0.8, 0.99, 1e-6, 0.1), cls(0.9, 0.99, 1e-8, 0.1, True),
                cls(0.9, 0.99, 1e-5, 0.0, False, True),
                cls(0.4, 0.9, 1e-5, 0.01, True, True, True),
            ):  # fmt: skip
                moments = [np.abs(array(rng, (2, 3), name)) for _ in range(op.counts()[0])]
                scalars = [np.array(x) for x in (0.1, 0.19, 0.3)]
                found.append(Sample(op, (array(rng, (2, 3), name), array(rng, (2, 3), name), *moments, *scalars)))
        return found
