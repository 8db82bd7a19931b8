"""Padding layers. `padding` is one amount for all sides, or (before, after) for each axis, the last one first."""

from __future__ import annotations

from treadle import Tensor

from . import functional as F
from ._functional.common import IntOrInts
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Padding of the last `_n` dims in mode `_mode`."""

    _n: int
    _mode: str

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * (2 * self._n)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._n + 1, self._n + 2):
            raise ValueError(f"expected {self._n + 1}D or {self._n + 2}D input (got {input.dim()}D input)")
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Padding with one value."""

    def __init__(self, padding: IntOrInts, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dim with `value`."""

    _n = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last 2 dims with `value`."""

    _n = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last 3 dims with `value`."""

    _n = 3


class _ZeroPad(_ConstantPad):
    """Padding with zeros."""

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Pads the last dim with zeros."""

    _n = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last 2 dims with zeros."""

    _n = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last 3 dims with zeros."""

    _n = 3


class ReflectionPad1d(_Pad):
    """Pads (N, C, L) or (C, L) with its mirror image."""

    _n, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads (N, C, H, W) or (C, H, W) with its mirror image."""

    _n, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads (N, C, D, H, W) or (C, D, H, W) with its mirror image."""

    _n, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads (N, C, L) or (C, L) with its edge values."""

    _n, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads (N, C, H, W) or (C, H, W) with its edge values."""

    _n, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads (N, C, D, H, W) or (C, D, H, W) with its edge values."""

    _n, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pads (N, C, L) or (C, L) with its other end."""

    _n, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pads (N, C, H, W) or (C, H, W) with its other end."""

    _n, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pads (N, C, D, H, W) or (C, D, H, W) with its other end."""

    _n, _mode = 3, "circular"
