"""Softmax and its kin, means and variances, normalisation by them."""

from __future__ import annotations

import math

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import Term, check_dim, full, same_shape, shape_text
from treadle.ir.ops.composites.common import count, need_floating, wide, widen
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["LayerNorm", "LogSoftmax", "LogSumExp", "Mean", "RmsNorm", "Softmax", "Var"]

_EDGES = np.array([[-np.inf, -np.inf, -np.inf], [-np.inf, 1.0, 2.0], [1000.0, 999.0, -1000.0], [np.nan, 0.0, 1.0]])


# Softmax --------------------------------------------------------------------------------------------------------------


class _AlongDim(Composite):
    """Of one floating operand, along `dim`; the type stays."""

    dim: int

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        check_dim(self.dim, x.rank)
        need_floating(self.name, x)
        return (x,)

    def total(self, x: Term) -> Term:
        """The sum along the dim, expanded back."""
        return x.sum(dims=(self.dim,)).unreduce(x.v.shape, (self.dim,))

    def centred(self, b: Builder, x: Value) -> Term:
        """x less its maximum along the dim."""
        t = widen(b, x)
        return t - t.max(dims=(self.dim,)).unreduce(x.shape, (self.dim,))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (((3, 4), 1), ((3, 4), 0), ((2, 3, 4), 1), ((5,), 0), ((2, 0), 1), ((0, 3), 1))
        found = [Sample(cls(dim), (array(rng, shape, name),)) for name in ("f8", "f4", "f2") for shape, dim in cases]
        return [*found, Sample(cls(1), (_EDGES,)), Sample(cls(1), (_EDGES.astype(np.float32),))]


@operation("graph.softmax")
class Softmax(_AlongDim):
    """exp(x) over its sum along `dim`, without overflow. A row of minus infinities is NaN."""

    dim: int

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        if x.shape[self.dim] == 0:
            return (x,)
        e = self.centred(b, x).exp()
        return ((e / self.total(e)).cast(x.dtype).v,)

    def _linear(self, b: Builder, op: Op, t: Value | None) -> Value | None:
        """The Jacobian, which is symmetric, applied to `t`."""
        if t is None:
            return None
        y, t_wide = widen(b, op.result), widen(b, t)
        return (y * (t_wide - self.total(t_wide * y))).cast(t.dtype).v

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        return (self._linear(b, op, tangents[0]),)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        return (self._linear(b, op, cotangents[0]) if needs[0] else None,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        if not x.size:
            return arrays[0].copy()
        e = np.exp(x - x.max(self.dim, keepdims=True))
        return (e / e.sum(self.dim, keepdims=True)).astype(arrays[0].dtype)


@operation("graph.log_softmax")
class LogSoftmax(_AlongDim):
    """The logarithm of softmax along `dim`, without overflow or cancellation."""

    dim: int

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        if x.shape[self.dim] == 0:
            return (x,)
        low = self.centred(b, x)
        log_total = low.exp().sum(dims=(self.dim,)).log().unreduce(x.shape, (self.dim,))
        return ((low - log_total).cast(x.dtype).v,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        if t is None:
            return (None,)
        t_wide = widen(b, t)
        return ((t_wide - self.total(widen(b, op.result).exp() * t_wide)).cast(t.dtype).v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        ct_wide = widen(b, ct)
        return ((ct_wide - widen(b, op.result).exp() * self.total(ct_wide)).cast(ct.dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        if not x.size:
            return arrays[0].copy()
        low = x - x.max(self.dim, keepdims=True)
        return (low - np.log(np.exp(low).sum(self.dim, keepdims=True))).astype(arrays[0].dtype)


class _OverDims(Composite):
    """A reduction of a floating operand over `dims` (sorted, not negative), which are removed."""

    dims: tuple[int, ...]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        (x,) = types
        for d in self.dims:
            check_dim(d, x.rank)
        need_floating(self.name, x)
        return (x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in self.dims)),)

    def sizes(self, x: Value) -> tuple[Dim, ...]:
        return tuple(x.shape[d] for d in self.dims)

    @classmethod
    def _samples(cls, rng: np.random.Generator, *attributes: float) -> list[Sample]:
        cases = (
            ((3, 4), (1,)),
            ((2, 3, 4), (0, 2)),
            ((5,), (0,)),
            ((2, 3), ()),
            ((), ()),
            ((2, 0), (1,)),
            ((0, 3), (1,)),
        )
        return [
            Sample(cls(dims, *attributes), (array(rng, shape, name),))
            for name in ("f8", "f4", "f2")
            for shape, dims in cases
        ]


@operation("graph.logsumexp")
class LogSumExp(_OverDims):
    """log of the sum of exp(x) over `dims`, without overflow. Minus infinity, with zero gradients, where all of x
    is."""

    dims: tuple[int, ...]

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        if any(isinstance(d, int) and d == 0 for d in self.sizes(x)):
            kept = tuple(d for i, d in enumerate(x.shape) if i not in self.dims)
            return (full(b, -math.inf, x.dtype, kept, x.tensor.device),)
        t = widen(b, x)
        top = t.max(dims=self.dims)
        top = top.isinf().where(0, top)
        total = (t - top.unreduce(x.shape, self.dims)).exp().sum(dims=self.dims)
        return ((total.log() + top).cast(x.dtype).v,)

    def _weights(self, b: Builder, op: Op) -> Term:
        """The softmax of x over the dims."""
        (x,) = op.operands
        y = widen(b, op.result)
        y = y.eq(-math.inf).where(0, y)
        return (widen(b, x) - y.unreduce(x.shape, self.dims)).exp()

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        (t,) = tangents
        if t is None:
            return (None,)
        return ((self._weights(b, op) * widen(b, t)).sum(dims=self.dims).cast(t.dtype).v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        spread = widen(b, ct).unreduce(op.operands[0].shape, self.dims)
        return ((spread * self._weights(b, op)).cast(ct.dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        top = np.max(x, self.dims, keepdims=True, initial=-np.inf)
        top = np.where(np.isinf(top), 0, top)
        total = np.log(np.exp(x - top).sum(self.dims, keepdims=True)) + top
        return np.asarray(total.reshape([d for i, d in enumerate(x.shape) if i not in self.dims])).astype(
            arrays[0].dtype
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [*cls._samples(rng), Sample(cls((1,)), (_EDGES,)), Sample(cls((1,)), (_EDGES.astype(np.float32),))]


# Moments --------------------------------------------------------------------------------------------------------------


def mean_of(x: Term, dims: tuple[int, ...]) -> Term:
    """The mean over `dims`, removed, of a term in its compute type."""
    total = x.sum(dims=dims)
    n = count(x.b, [x.v.shape[d] for d in dims], x.v.dtype, x.v.tensor.device)
    return total / n.expand(total.v.shape)


@operation("graph.mean")
class Mean(_OverDims):
    """The mean over `dims`; NaN where there is nothing to average. 16-bit floats are averaged in float32."""

    dims: tuple[int, ...]

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        return (mean_of(widen(b, x), self.dims).cast(x.dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        n = math.prod(x.shape[d] for d in self.dims)
        return np.asarray(np.sum(wide(x), self.dims) / np.float64(n)).astype(x.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [*cls._samples(rng), Sample(cls((0,)), (np.full(3000, 100.0, np.float16),))]


@operation("graph.var")
class Var(_OverDims):
    """Sum of squared differences from the mean over `dims`, over max(0, n - `correction`): in two passes over the
    data."""

    dims: tuple[int, ...]
    correction: float = 1.0

    def _parts(self, b: Builder, x: Value) -> tuple[Term, Term]:
        """(differences from the mean, divisor as a 0-d tensor)."""
        t = widen(b, x)
        centred = t - mean_of(t, self.dims).unreduce(x.shape, self.dims)
        n = count(b, self.sizes(x), t.v.dtype, x.tensor.device)
        return centred, (n - float(self.correction)).clamp_min(0)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        (x,) = operands
        centred, divisor = self._parts(b, x)
        total = centred.square().sum(dims=self.dims)
        return ((total / divisor.expand(total.v.shape)).cast(x.dtype).v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None or not needs[0]:
            return (None,)
        (x,) = op.operands
        centred, divisor = self._parts(b, x)
        ct_wide = widen(b, ct)
        scaled = (ct_wide * 2 / divisor.expand(ct.shape)).unreduce(x.shape, self.dims)
        return ((scaled * centred).cast(x.dtype).v,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x = wide(arrays[0])
        n = math.prod(x.shape[d] for d in self.dims)
        mean = np.sum(x, self.dims, keepdims=True) / np.float64(n)
        return np.asarray(np.sum((x - mean) ** 2, self.dims) / np.float64(max(0.0, n - self.correction))).astype(
            arrays[0].dtype
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return cls._samples(rng, 1.0) + cls._samples(rng, 0.0)


# Normalisation --------------------------------------------------------------------------------------------------------


class _Normalisation(Composite):
    """Over the last `rank` dims of x, then scaled by w (and shifted by b), which have the shape of those dims."""

    rank: int
    eps: float
    weight: bool

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x = types[0]
        need_floating(self.name, *types)
        if not 0 < self.rank <= x.rank:
            raise RuntimeError(f"{self.name}: {self.rank} dims to normalise in a tensor of shape {shape_text(x.shape)}")
        shape = x.shape[x.rank - self.rank :]
        for t in types[1:]:
            if not same_shape(t.shape, shape):
                raise RuntimeError(
                    f"{self.name.split('.')[1]}: expected parameters of shape {shape_text(shape)} for an input of "
                    f"shape {shape_text(x.shape)}, not {shape_text(t.shape)}"
                )
        return (x,)

    def last(self, x: Value) -> tuple[int, ...]:
        return tuple(range(x.rank - self.rank, x.rank))

    def mean(self, x: Term) -> Term:
        """The mean over the last dims, expanded back."""
        return mean_of(x, self.last(x.v)).unreduce(x.v.shape, self.last(x.v))

    def normalised(self, b: Builder, x: Value) -> tuple[Term, Term]:
        """(x normalised, the factor expanded to the shape of x), in the compute type."""
        raise NotImplementedError

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x = operands[0]
        y, _ = self.normalised(b, x)
        rest = [widen(b, v).cast(y.v.dtype).expand(x.shape) for v in operands[1:]]
        if self.weight:
            y = y * rest.pop(0)
        if rest:
            y = y + rest.pop(0)
        return (y.cast(x.dtype).v,)

    def removes_mean(self) -> bool:
        raise NotImplementedError

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        """Means of the cotangent and of its product with the normalised values are all that must be summed."""
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        x, *parameters = op.operands
        y, factor = self.normalised(b, x)
        ct_wide = widen(b, ct)
        found: list[Value | None] = [None] * len(op.operands)
        if needs[0]:
            g = ct_wide * widen(b, parameters[0]).cast(y.v.dtype).expand(x.shape) if self.weight else ct_wide
            inner = g - y * self.mean(g * y)
            found[0] = (factor * (inner - self.mean(g) if self.removes_mean() else inner)).cast(x.dtype).v
        lead = tuple(range(x.rank - self.rank))
        for i, parameter in enumerate(parameters, 1):
            if needs[i]:
                term = ct_wide * y if self.weight and i == 1 else ct_wide
                found[i] = (term.sum(dims=lead) if lead else term).cast(parameter.dtype).v
        return tuple(found)


@operation("graph.layer_norm")
class LayerNorm(_Normalisation):
    """Operands (x[, w][, b]): (x - mean) / sqrt(variance + `eps`) over the last `rank` dims, times w, plus b.

    `weight` and `bias` say which parameters there are; they have the shape of the last dims. The variance is the biased
    one.
    """

    rank: int
    eps: float = 1e-5
    weight: bool = True
    bias: bool = True

    def normalised(self, b: Builder, x: Value) -> tuple[Term, Term]:
        t = widen(b, x)
        centred = t - self.mean(t)
        variance = mean_of(centred.square(), self.last(x))
        factor = (variance + self.eps).rsqrt().unreduce(x.shape, self.last(x))
        return centred * factor, factor

    def removes_mean(self) -> bool:
        return True

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, *rest = map(wide, arrays)
        dims = tuple(range(x.ndim - self.rank, x.ndim))
        n = np.float64(math.prod(x.shape[d] for d in dims))
        centred = x - x.sum(dims, keepdims=True) / n
        y = centred / np.sqrt((centred**2).sum(dims, keepdims=True) / n + self.eps)
        if self.weight:
            y = y * rest.pop(0)
        if self.bias:
            y = y + rest.pop(0)
        return y.astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4", "f2"):
            for shape, rank in (((3, 5), 1), ((2, 3, 4), 2), ((4,), 1), ((0, 3), 1)):
                last = shape[len(shape) - rank :]
                for weight, bias in ((True, True), (True, False), (False, True), (False, False)):
                    operands = [array(rng, shape, name), *(array(rng, last, name) for _ in range(weight + bias))]
                    found.append(Sample(cls(rank, 1e-5, weight, bias), tuple(operands)))
        return found


@operation("graph.rms_norm")
class RmsNorm(_Normalisation):
    """Operands (x[, w]): x / sqrt(mean of x squared + `eps`) over the last `rank` dims, times w where `weight`."""

    rank: int
    eps: float = 1e-6
    weight: bool = True

    def normalised(self, b: Builder, x: Value) -> tuple[Term, Term]:
        t = widen(b, x)
        factor = (mean_of(t.square(), self.last(x)) + self.eps).rsqrt().unreduce(x.shape, self.last(x))
        return t * factor, factor

    def removes_mean(self) -> bool:
        return False

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, *rest = map(wide, arrays)
        dims = tuple(range(x.ndim - self.rank, x.ndim))
        n = np.float64(math.prod(x.shape[d] for d in dims))
        y = x / np.sqrt((x**2).sum(dims, keepdims=True) / n + self.eps)
        return (y * rest[0] if self.weight else y).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for name in ("f8", "f4", "f2"):
            for shape, rank in (((3, 5), 1), ((2, 3, 4), 2), ((0, 3), 1)):
                for weight in (True, False):
                    operands = [array(rng, shape, name)] + [array(rng, shape[len(shape) - rank :], name)] * weight
                    found.append(Sample(cls(rank, 1e-6, weight), tuple(operands)))
        return found
