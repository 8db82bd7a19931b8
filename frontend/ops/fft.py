"""treadle.fft: what needs no complex numbers, which treadle does not have."""

from __future__ import annotations

from typing import Any

from treadle.ir.dtypes import DType
from treadle.ops.registration import PUBLIC
from treadle.ops.shaping import roll
from treadle.recorder.build import default_dtype
from treadle.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def _dims(input: Tensor, dim: Any) -> list[int]:
    return list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The zero frequency moved to the middle of `dim` (all by default)."""
    dims = _dims(input, dim)
    return roll(input, [input.shape[d] // 2 for d in dims], dims) if dims else input.clone()


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Undo `fftshift`."""
    dims = _dims(input, dim)
    return roll(input, [(input.shape[d] + 1) // 2 for d in dims], dims) if dims else input.clone()


def fftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Frequencies of the n bins of a transform of samples at distance d."""
    k = PUBLIC["arange"](n)
    out = PUBLIC["where"](k < (n + 1) // 2, k, k - n).to(dtype or default_dtype()) / (n * d)
    return out.requires_grad_() if requires_grad else out


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Frequencies of the bins of a transform of n real samples at distance d."""
    out = PUBLIC["arange"](n // 2 + 1).to(dtype or default_dtype()) / (n * d)
    return out.requires_grad_() if requires_grad else out


for _f in (fftshift, ifftshift, fftfreq, rfftfreq):
    PUBLIC[f"fft.{_f.__name__}"] = _f
