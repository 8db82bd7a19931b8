"""What code generation knows of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from treadle.ir.dtypes import DType

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A machine to emit code for. `cpu` and `features` are LLVM's; sizes in bytes.

    A target decides how wide vectors are, what must be expanded before code generation (`lacks`, for the pass
    `legalize`), and in which element sizes a masked load or store of a vector is one instruction (`masked_sizes`).
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    l1: int = 32768
    l2: int = 524288
    lacks: frozenset[str] = frozenset()
    masked_sizes: frozenset[int] = frozenset()

    def vector_width(self, dtype: DType) -> int:
        """Lanes of a vector register."""
        return max(1, self.vector_bits // (8 * dtype.itemsize))

    def has(self, feature: str) -> bool:
        """Is an LLVM feature switched on?"""
        return feature in self._features

    @cached_property
    def _features(self) -> frozenset[str]:
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    def key(self) -> str:
        """Identifies the code this target gets."""
        return f"{self.triple} {self.cpu} {self.features} {self.vector_bits}"
