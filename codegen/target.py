"""What code generation knows of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.dtypes import DType

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A machine to emit code for. Sizes in bytes."""

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    l1: int = 32768
    l2: int = 524288

    def vector_width(self, dtype: DType) -> int:
        """Lanes of a vector register."""
        return max(1, self.vector_bits // (8 * dtype.itemsize))

    def key(self) -> str:
        """Identifies the code this target gets."""
        return f"{self.triple} {self.cpu} {self.features} {self.vector_bits}"
