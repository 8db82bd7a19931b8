"""Reading and writing at computed indices. Indices are i64, counted from 0, and checked where they are used:
IndexError.

Take and Put use an index for whole slices along a dim; Gather and Scatter one for each element. Put and Scatter combine
with what is there by a mode: "set" (of several writes to one place the last one stays), "add", "mul", "amax", "amin".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.ops.base import Cotangents, Sample, Structured
from treadle.ir.ops.build import Term, check_dim, same_shape, shape_text, zeros_like
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Gather", "Put", "Scatter", "Take"]

MODES = ("set", "add", "mul", "amax", "amin")
_AT: dict[str, Callable[..., None]] = {
    "add": np.add.at, "mul": np.multiply.at, "amax": np.maximum.at, "amin": np.minimum.at,
}  # fmt: skip


def _check_index_type(name: str, index: TensorType) -> None:
    if index.dtype is not dtypes.int64:
        raise IndexError(f"{name}: expected an index of dtype int64, not {index.dtype!r}")


def _check_bounds(index: np.ndarray, dim: int, size: int) -> None:
    wrong = index[(index < 0) | (index >= size)]
    if wrong.size:
        raise IndexError(f"index {wrong.reshape(-1)[0]} is out of bounds for dimension {dim} with size {size}")


def _whole_index(index: np.ndarray, dim: int) -> tuple[Any, ...]:
    """NumPy's key that uses `index` for each element along `dim`, and the index's own place elsewhere."""
    grid = np.ogrid[tuple(slice(d) for d in index.shape)]
    return tuple(index if i == dim else g for i, g in enumerate(grid))


# Reading --------------------------------------------------------------------------------------------------------------


@operation("graph.take")
class Take(Structured):
    """Operands (x, index of any shape I): slices of x along `dim` -> x.shape[:dim] + I + x.shape[dim + 1:]."""

    dim: int

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, index = types
        check_dim(self.dim, x.rank)
        _check_index_type("take", index)
        return (x.with_shape((*x.shape[: self.dim], *index.shape, *x.shape[self.dim + 1 :])),)

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        return b.emit(Put(self.dim, "add"), zeros_like(b, op.operands[0]), op.operands[1], ct)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, index = arrays
        _check_bounds(index, self.dim, x.shape[self.dim])
        return np.take(x, index, self.dim)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for shape, dim, of in (
            ((5,), 0, (3,)),
            ((4, 3), 0, (2, 2)),
            ((2, 4, 3), 1, ()),
            ((2, 4), 1, (6,)),
            ((4, 2), 0, (0,)),
        ):
            index = rng.integers(0, shape[dim], of)
            found += [
                Sample(cls(dim), (array(rng, shape, name), np.asarray(index))) for name in ("f8", "f4", "i4", "?")
            ]
        return found


@operation("graph.gather")
class Gather(Structured):
    """Operands (x, index of the rank of x): element j of the result is x at j, but at index[j] along `dim`.

    The index may be smaller than x in the other dims. Raises RuntimeError where it is larger.
    """

    dim: int

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, index = types
        check_dim(self.dim, x.rank)
        _check_index_type("gather", index)
        _check_inside("gather", self.dim, x, index)
        return (x.with_shape(index.shape),)

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        return b.emit(Scatter(self.dim, "add"), zeros_like(b, op.operands[0]), op.operands[1], ct)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, index = arrays
        _check_bounds(index, self.dim, x.shape[self.dim])
        return x[_whole_index(index, self.dim)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for shape, dim, of in (
            ((5,), 0, (3,)),
            ((4, 3), 0, (6, 3)),
            ((4, 3), 1, (2, 5)),
            ((2, 3, 4), 1, (2, 1, 3)),
            ((3, 2), 0, (0, 2)),
        ):
            index = rng.integers(0, shape[dim], of)
            found += [Sample(cls(dim), (array(rng, shape, name), index)) for name in ("f8", "f4", "i4", "?")]
        return found


def _check_inside(name: str, dim: int, x: TensorType, index: TensorType) -> None:
    if index.rank != x.rank:
        raise RuntimeError(f"{name}: Index tensor must have the same number of dimensions as input tensor")
    for i, (a, d) in enumerate(zip(index.shape, x.shape, strict=True)):
        if i != dim and a != d and a > d:
            raise RuntimeError(
                f"{name}: Size does not match at dimension {i} expected index {shape_text(index.shape)} to be no "
                f"larger than self {shape_text(x.shape)} apart from dimension {dim}"
            )


# Writing --------------------------------------------------------------------------------------------------------------


class _Writer(Structured):
    """Operands (base, index, source) -> the base with the source combined in."""

    dim: int
    mode: str

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"{self.name}: mode {self.mode!r} is none of {', '.join(MODES)}")

    @property
    def combiner(self) -> str:
        """The loop-level function that combines with what is there; "last" replaces it."""
        return {"set": "last", "add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}[self.mode]

    def source_shape(self, base: TensorType, index: TensorType) -> tuple[Dim, ...]:
        raise NotImplementedError

    def read(self, b: Builder, x: Value, index: Value) -> Term:
        """The elements of `x` at the places that are written."""
        raise NotImplementedError

    def write(self, b: Builder, base: Value, index: Value, source: Value, mode: str) -> Term:
        return Term(b, b.emit(type(self)(self.dim, mode), base, index, source))

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        base, index, source = types
        name = self.name.split(".")[1]
        check_dim(self.dim, base.rank)
        _check_index_type(name, index)
        expected = self.source_shape(base, index)
        if not same_shape(source.shape, expected):
            raise RuntimeError(
                f"shape mismatch: {name} of a source of shape {shape_text(source.shape)} where an index of shape "
                f"{shape_text(index.shape)} into {shape_text(base.shape)} takes {shape_text(expected)}"
            )
        if source.dtype is not base.dtype:
            raise RuntimeError(
                f"{name}: Expected the dtypes of source and destination to match, not {source.dtype!r} for the "
                f"source and {base.dtype!r} for the destination"
            )
        return (base,)

    def jvp(self, b: Builder, op: Op, tangents: Cotangents) -> Cotangents:
        base, index, source = op.operands
        if tangents[0] is None and tangents[2] is None:
            return (None,)
        t_base, t_source = (
            zeros_like(b, v) if t is None else t for v, t in ((base, tangents[0]), (source, tangents[2]))
        )
        if self.mode in ("set", "add"):
            return (b.emit(self, t_base, index, t_source),)
        of_base, of_source = self._slopes(b, op)
        return (self.write(b, (of_base * t_base).v, index, (of_source * t_source).v, "add").v,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        base, index, source = op.operands
        if ct is None:
            return (None, None, None)
        if self.mode == "set":
            kept = self.write(b, ct, index, zeros_like(b, source), "set").v if needs[0] else None
            return (kept, None, self.read(b, ct, index).v if needs[2] else None)
        if self.mode == "add":
            return (ct if needs[0] else None, None, self.read(b, ct, index).v if needs[2] else None)
        of_base, of_source = self._slopes(b, op)
        return (
            (of_base * ct).v if needs[0] else None,
            None,
            (of_source * self.read(b, ct, index)).v if needs[2] else None,
        )

    def _slopes(self, b: Builder, op: Op) -> tuple[Term, Term]:
        """The derivative of each result element by its base element, and by each source element that went into it."""
        return self._product_slopes(b, op) if self.mode == "mul" else self._tie_slopes(b, op)

    def _tie_slopes(self, b: Builder, op: Op) -> tuple[Term, Term]:
        """Extrema: elements that tie share evenly."""
        base, index, source = op.operands
        result = Term(b, op.result)
        base_wins = result.eq(base).logical_or(Term(b, base).isnan())
        source_wins = self.read(b, op.result, index).eq(source).logical_or(Term(b, source).isnan())
        dtype = result.v.dtype
        count = self.write(b, base_wins.cast(dtype).v, index, source_wins.cast(dtype).v, "add")
        share = 1 / count
        return base_wins.where(share, 0), source_wins.where(self.read(b, share.v, index), 0)

    def _product_slopes(self, b: Builder, op: Op) -> tuple[Term, Term]:
        """Products: of the other factors. With the zeros counted apart nothing is divided by zero."""
        base, index, source = (Term(b, v) for v in op.operands)
        dtype = op.result.dtype
        base_zero, source_zero = base.eq(0), source.eq(0)
        zeros = self.write(b, base_zero.cast(dtype).v, index.v, source_zero.cast(dtype).v, "add")
        full_base, full_source = base_zero.where(1, base), source_zero.where(1, source)
        product = self.write(b, full_base.v, index.v, full_source.v, "mul")
        # Without a zero: all others. With one: only the zero itself has a slope.
        no_zero, one_zero = zeros.eq(0).where(product, 0), zeros.eq(1).where(product, 0)
        of_base = base_zero.where(one_zero, no_zero / full_base)
        at_one, at_none = self.read(b, one_zero.v, index.v), self.read(b, no_zero.v, index.v)
        return of_base, source_zero.where(at_one, at_none / full_source)

    def _combine(self, out: np.ndarray, key: tuple[Any, ...], source: np.ndarray) -> np.ndarray:
        if self.mode == "set":
            out[key] = source
        elif out.dtype == np.bool_:
            (np.logical_or if self.mode in ("add", "amax") else np.logical_and).at(out, key, source)
        else:
            _AT[self.mode](out, key, source)
        return out

    @classmethod
    def _samples(
        cls, rng: np.random.Generator, cases: tuple[Any, ...], source_shape: Callable[..., Any]
    ) -> list[Sample]:
        found = []
        for mode in MODES:
            for shape, dim, of in cases:
                index = np.asarray(rng.integers(0, shape[dim], of))
                if mode == "set":  # distinct places: the order of writes is another matter
                    index = _distinct(cls, rng, shape, dim, of)
                into = source_shape(shape, dim, of)
                found += [
                    Sample(cls(dim, mode), (array(rng, shape, name), index, array(rng, into, name)))
                    for name in ("f8", "f4", "i4")
                ]
        return found


def _distinct(cls: type, rng: np.random.Generator, shape: tuple[int, ...], dim: int, of: tuple[int, ...]) -> np.ndarray:
    """An index that never names a place twice (for Scatter: within a line along `dim`), as far as there are enough
    places."""
    if cls is Put:
        n = int(np.prod(of))
        places = rng.permutation(max(shape[dim], n)) % shape[dim]
        return np.asarray(places[:n].reshape(of), np.int64)
    order = np.argsort(rng.random([max(d, shape[dim]) if i == dim else d for i, d in enumerate(of)]), dim) % shape[dim]
    return np.take(order, np.arange(of[dim]), dim).astype(np.int64)


@operation("graph.put")
class Put(_Writer):
    """Operands (base, index of any shape I, source of shape base.shape[:dim] + I + base.shape[dim + 1:]).

    Slice i of the source, along the index's dims, is combined into slice index[i] of the base along `dim`, by `mode`.
    """

    dim: int
    mode: str = "set"

    def source_shape(self, base: TensorType, index: TensorType) -> tuple[Dim, ...]:
        return (*base.shape[: self.dim], *index.shape, *base.shape[self.dim + 1 :])

    def read(self, b: Builder, x: Value, index: Value) -> Term:
        return Term(b, b.emit(Take(self.dim), x, index))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        base, index, source = arrays
        _check_bounds(index, self.dim, base.shape[self.dim])
        return self._combine(base.copy(), (slice(None),) * self.dim + (index,), source)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (((5,), 0, (3,)), ((4, 3), 0, (2, 2)), ((2, 4, 3), 1, ()), ((2, 6), 1, (6,)), ((4, 2), 0, (0,)))
        found = cls._samples(rng, cases, lambda shape, dim, of: (*shape[:dim], *of, *shape[dim + 1 :]))
        return found + _edge_samples(cls)


@operation("graph.scatter")
class Scatter(_Writer):
    """Operands (base, index of the rank of base, source of the shape of index).

    Element j of the source is combined into the base at j, but at index[j] along `dim`, by `mode`.
    """

    dim: int
    mode: str = "set"

    def source_shape(self, base: TensorType, index: TensorType) -> tuple[Dim, ...]:
        _check_inside("scatter", self.dim, base, index)
        return index.shape

    def read(self, b: Builder, x: Value, index: Value) -> Term:
        return Term(b, b.emit(Gather(self.dim), x, index))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        base, index, source = arrays
        _check_bounds(index, self.dim, base.shape[self.dim])
        return self._combine(base.copy(), _whole_index(index, self.dim), source)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((5,), 0, (3,)),
            ((6, 3), 0, (6, 3)),
            ((4, 3), 1, (2, 3)),
            ((2, 3, 4), 1, (2, 1, 3)),
            ((3, 2), 0, (0, 2)),
        )
        return cls._samples(rng, cases, lambda shape, dim, of: of) + _edge_samples(cls)


def _edge_samples(cls: Any) -> list[Sample]:
    """Ties, zeros and NaN meeting in one place."""
    base = np.array([0.0, 2.0, 4.0, 0.0])
    index = np.array([0, 1, 1, 2, 2, 3])
    source = np.array([0.0, 2.0, 1.0, 4.0, 0.0, 3.0])
    nan = np.array([1.0, np.nan, 1.0, 4.0, 5.0, 0.0])
    return [Sample(cls(0, mode), (base, index, s)) for mode in ("add", "mul", "amax", "amin") for s in (source, nan)]
