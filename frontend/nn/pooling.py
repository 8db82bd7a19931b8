"""Pooling layers over (N, C, *spatial) or (C, *spatial)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle import Tensor

from . import functional as F
from ._functional.common import IntOrInts
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


def _tuple(value: IntOrInts, n: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


class _MaxPool(Module):
    """The largest value of each window."""

    _pool: Callable[..., Any]

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest value of each window of (N, C, L)."""

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest value of each window of (N, C, H, W)."""

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest value of each window of (N, C, D, H, W)."""

    _pool = staticmethod(F.max_pool3d)


class AvgPool1d(Module):
    """The mean of each window of (N, C, L)."""

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, 1)
        self.stride = _tuple(kernel_size if stride is None else stride, 1)
        self.padding = _tuple(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    """The mean of each window."""

    _pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W)."""

    _pool = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    _pool = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    """The p-norm of each window."""

    _pool: Callable[..., Tensor]

    def __init__(
        self, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of (N, C, L)."""

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W)."""

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W)."""

    _pool = staticmethod(F.lp_pool3d)


class _MaxUnpool(Module):
    """Puts the values of max pooling back in their places."""

    _n: int
    _unpool: Callable[..., Tensor]

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, self._n)
        self.stride = _tuple(kernel_size if stride is None else stride, self._n)
        self.padding = _tuple(padding, self._n)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of MaxPool1d with its indices."""

    _n = 1
    _unpool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of MaxPool2d with its indices."""

    _n = 2
    _unpool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of MaxPool3d with its indices."""

    _n = 3
    _unpool = staticmethod(F.max_unpool3d)


class _AdaptiveAvgPool(Module):
    """Means over as many windows as the output has elements."""

    _pool: Callable[..., Tensor]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """(N, C, L) -> (N, C, output_size) by means."""

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """(N, C, H, W) -> (N, C, *output_size) by means; None keeps an axis."""

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """(N, C, D, H, W) -> (N, C, *output_size) by means; None keeps an axis."""

    _pool = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(Module):
    """Maxima over as many windows as the output has elements."""

    _pool: Callable[..., Any]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """(N, C, L) -> (N, C, output_size) by maxima."""

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """(N, C, H, W) -> (N, C, *output_size) by maxima; None keeps an axis."""

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """(N, C, D, H, W) -> (N, C, *output_size) by maxima; None keeps an axis."""

    _pool = staticmethod(F.adaptive_max_pool3d)


class _FractionalMaxPool(Module):
    """Maxima over windows whose places are drawn at random, for an output of any smaller size."""

    _n: int
    _pool: Callable[..., Any]

    def __init__(
        self,
        kernel_size: IntOrInts,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        n = self._n
        self.kernel_size = _tuple(kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else _tuple(output_size, n)
        self.output_ratio = (
            None
            if output_ratio is None
            else tuple(output_ratio)
            if isinstance(output_ratio, (tuple, list))
            else (output_ratio,) * n
        )
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Fractional max pooling of (N, C, H, W)."""

    _n = 2
    _pool = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling of (N, C, D, H, W)."""

    _n = 3
    _pool = staticmethod(F.fractional_max_pool3d)
