"""Sliding windows as layers."""

from __future__ import annotations

from treadle import Tensor

from . import functional as F
from ._functional.common import IntOrInts
from .module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """Windows of (N, C, H, W) as columns (N, C * kh * kw, L)."""

    def __init__(
        self, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0, stride: IntOrInts = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns (N, C * kh * kw, L) summed into (N, C, *output_size)."""

    def __init__(
        self,
        output_size: IntOrInts,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
