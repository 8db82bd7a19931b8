"""The one op for products of sums: matrix products, batched or not, outer products, convolution over windows."""

from __future__ import annotations

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.dtypes import DType
from treadle.ir.ops.base import Sample, Structured, add
from treadle.ir.ops.build import same_dim, shape_text
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Contract"]


@operation("graph.contract")
class Contract(Structured):
    """Operands (a, b): out[...] = the sum of a * b over the letters that are not in `out`, in einsum's letters.

    `lhs`, `rhs`, `out` name the dims of a, b and the result, each letter once. A letter of both operands that is in
    `out` is a batch dim, one that is not is summed; a letter of one operand is in `out`. Numbers of one dtype; 16-bit
    floats are summed in float32 and rounded once, integers wrap. Raises RuntimeError where sizes or dtypes disagree.
    """

    lhs: str
    rhs: str
    out: str
    combiner = "add"
    linear_in = (0, 1)

    def __post_init__(self) -> None:
        for letters in (self.lhs, self.rhs, self.out):
            if len(set(letters)) != len(letters):
                raise ValueError(f"contract: a letter occurs twice in {letters!r}")
        one, other, out = set(self.lhs), set(self.rhs), set(self.out)
        if not out <= one | other or not (one ^ other) <= out:
            raise ValueError(f"contract: letters of {self.lhs},{self.rhs}->{self.out} do not make a contraction")

    def identity(self, dtype: DType) -> float | int:
        return 0

    def accumulate_dtype(self, dtype: DType) -> DType:
        """The dtype in which products are summed."""
        return dtype.compute

    @property
    def batch(self) -> str:
        return "".join(c for c in self.out if c in self.lhs and c in self.rhs)

    @property
    def summed(self) -> str:
        return "".join(c for c in self.lhs if c not in self.out)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        a, b = types
        if a.rank != len(self.lhs) or b.rank != len(self.rhs):
            raise RuntimeError(
                f"contract {self.lhs},{self.rhs}->{self.out}: operands have shapes {shape_text(a.shape)} and "
                f"{shape_text(b.shape)}"
            )
        sizes: dict[str, Dim] = dict(zip(self.lhs, a.shape, strict=True))
        for letter, size in zip(self.rhs, b.shape, strict=True):
            if not same_dim(sizes.setdefault(letter, size), size):
                self._mismatch(a, b, letter)
        if a.dtype is not b.dtype:
            raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype!r} != {b.dtype!r}")
        if a.dtype.kind == "b":
            raise NotImplementedError('"matmul" not implemented for bool')
        if a.device != b.device:
            raise RuntimeError(f"contract: operands are on {a.device} and {b.device}")
        return (a.with_shape(tuple(sizes[c] for c in self.out)),)

    def _mismatch(self, a: TensorType, b: TensorType, letter: str) -> None:
        if a.rank == b.rank == 2 and letter in self.summed:
            m1 = a.shape if self.lhs[1] == letter else a.shape[::-1]
            m2 = b.shape if self.rhs[0] == letter else b.shape[::-1]
            text = " and ".join("x".join(map(str, m)) for m in (m1, m2))
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({text})")
        raise RuntimeError(
            f"contract {self.lhs},{self.rhs}->{self.out}: sizes of {letter!r} differ in shapes {shape_text(a.shape)} "
            f"and {shape_text(b.shape)}"
        )

    def transpose(self, b: Builder, op: Op, ct: Value, operand: int) -> Value:
        x, y = op.operands
        if operand == 0:
            return b.emit(Contract(self.out, self.rhs, self.lhs), ct, y)
        return b.emit(Contract(self.lhs, self.out, self.rhs), x, ct)

    def jvp(self, b: Builder, op: Op, tangents: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
        (x, y), (tx, ty) = op.operands, tangents
        left = b.emit(self, tx, y) if tx is not None else None
        right = b.emit(self, x, ty) if ty is not None else None
        return (right if left is None else left if right is None else add(b, left, right),)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        dtype = arrays[0].dtype
        wide = np.dtype(np.float64) if dtype.kind == "f" else dtype
        x, y = (a.astype(wide) for a in arrays)
        return np.asarray(np.einsum(f"{self.lhs},{self.rhs}->{self.out}", x, y, optimize=True)).astype(dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ("ij", "jk", "ik", (3, 4), (4, 5)),
            ("ij", "kj", "ik", (3, 4), (5, 4)),
            ("bij", "bjk", "bik", (2, 3, 4), (2, 4, 5)),
            ("bij", "jk", "kbi", (2, 3, 4), (4, 5)),
            ("i", "i", "", (6,), (6,)),
            ("i", "j", "ij", (3,), (2,)),
            ("ab", "ab", "ba", (3, 2), (3, 2)),
            ("ij", "jk", "ik", (3, 0), (0, 5)),
            ("xijk", "jyk", "yix", (2, 3, 2, 3), (2, 4, 3)),
            ("", "i", "i", (), (3,)),
        )
        return [
            Sample(cls(lhs, rhs, out), (array(rng, a, name), array(rng, c, name)))
            for name in ("f8", "f4", "f2", "i4", "u1")
            for lhs, rhs, out, a, c in cases
        ]
