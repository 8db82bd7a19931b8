"""Element types and torch's promotion lattice. One table; everything else asks it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["DType", "DTYPES", "promote", "category"]


@dataclass(frozen=True)
class DType:
    """An element type: `name` as in torch, `short` as in the IR text, `kind` one of b, u, i, f."""

    name: str
    short: str
    kind: str
    bits: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return max(1, self.bits // 8)

    @property
    def is_floating(self) -> bool:
        return self.kind == "f"

    @property
    def is_integral(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in "ui"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of the same bits (bfloat16 is carried as uint16 by NumPy)."""
        return np.dtype(_NUMPY[self.name])

    @property
    def compute(self) -> DType:
        """The type in which sums and transcendental functions of this type are evaluated."""
        return float32 if self.kind == "f" and self.bits == 16 else self

    @property
    def is_floating_point(self) -> bool:
        """torch's name of `is_floating`."""
        return self.is_floating

    @property
    def is_complex(self) -> bool:
        """False: there are no complex types."""
        return False

    @property
    def is_signed(self) -> bool:
        """True for types with negative values."""
        return self.kind in "if"

    def to_real(self) -> DType:
        """The real type of the same precision: itself."""
        return self

    def __repr__(self) -> str:
        return f"treadle.{self.name}"

    def __reduce__(self) -> tuple:
        return _by_name, (self.name,)


bool_ = DType("bool", "i1", "b", 1)
uint8 = DType("uint8", "u8", "u", 8)
int8 = DType("int8", "i8", "i", 8)
int16 = DType("int16", "i16", "i", 16)
int32 = DType("int32", "i32", "i", 32)
int64 = DType("int64", "i64", "i", 64)
float16 = DType("float16", "f16", "f", 16)
bfloat16 = DType("bfloat16", "bf16", "f", 16)
float32 = DType("float32", "f32", "f", 32)
float64 = DType("float64", "f64", "f", 64)

DTYPES: dict[str, DType] = {
    d.name: d for d in (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
}
BY_SHORT: dict[str, DType] = {d.short: d for d in DTYPES.values()}

_NUMPY = {
    "bool": "?", "uint8": "u1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "float16": "f2", "bfloat16": "u2", "float32": "f4", "float64": "f8",
}  # fmt: skip
_FROM_NUMPY = {np.dtype(v): DTYPES[k] for k, v in _NUMPY.items() if k != "bfloat16"}


def _by_name(name: str) -> DType:
    return DTYPES[name]


def from_numpy(dtype: np.dtype) -> DType:
    """The DType of a NumPy dtype. Raises TypeError where torch has no such type."""
    try:
        return _FROM_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise TypeError(f"can't convert np.ndarray of type {np.dtype(dtype)} to a tensor") from None


_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}
_INTS = (int8, int16, int32, int64)


def category(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floating point: torch promotes to the highest category first."""
    return _CATEGORY[dtype.kind]


def promote(a: DType, b: DType) -> DType:
    """The smallest type to which both convert (torch.promote_types)."""
    if a is b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if a.kind == b.kind == "f" and a.bits == b.bits == 16:
        return float32
    if a.kind != b.kind:  # uint8 with a signed integer
        unsigned, signed = (a, b) if a.kind == "u" else (b, a)
        return next(d for d in _INTS if d.bits > unsigned.bits and d.bits >= signed.bits)
    return a if a.bits >= b.bits else b
