"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import treadle
from treadle import Tensor

from . import functional as F
from . import init
from ._functional.common import IntOrInts
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


def _tuple(value: IntOrInts, n: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


class _ConvNd(Module):
    """What all convolutions share: options, parameters and their initial values."""

    _n: int
    _convolve: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts,
        padding: IntOrInts | str,
        dilation: IntOrInts,
        transposed: bool,
        output_padding: IntOrInts,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        n = self._n
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _tuple(kernel_size, n)
        self.stride = _tuple(stride, n)
        self.padding = padding if isinstance(padding, str) else _tuple(padding, n)
        self.dilation = _tuple(dilation, n)
        self.transposed = transposed
        self.output_padding = _tuple(output_padding, n)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._pad_amounts()
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(treadle.empty(shape + self.kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(treadle.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % self.groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {self.padding!r}, should be one of ['same', 'valid']")
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                "padding_mode must be one of ['zeros', 'reflect', 'replicate', 'circular'], "
                f"but got padding_mode='{self.padding_mode}'"
            )

    def _pad_amounts(self) -> list[int]:
        """The argument of `pad` for this padding, the last axis first."""
        amounts: list[int] = []
        for i in reversed(range(self._n)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [0, 0] if self.padding == "valid" else [self.padding[i]] * 2
        return amounts

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self._n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self._n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    """A convolution over `_n` axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts | str = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = self._convolve
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return convolve(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """(N, C_in, L) -> (N, C_out, L'): weight (out, in / groups, k)."""

    _n = 1
    _convolve = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """(N, C_in, H, W) -> (N, C_out, H', W'): weight (out, in / groups, kh, kw)."""

    _n = 2
    _convolve = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """(N, C_in, D, H, W) -> (N, C_out, D', H', W'): weight (out, in / groups, kd, kh, kw)."""

    _n = 3
    _convolve = staticmethod(F.conv3d)


class _ConvTranspose(_ConvNd):
    """The adjoint of a convolution over `_n` axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _extra_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that gives `output_size`."""
        n = self._n
        wanted = list(output_size)
        if len(wanted) == input.dim():
            wanted = wanted[input.dim() - n :]
        if len(wanted) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {input.dim()} "
                f"elements (got {len(output_size)})"
            )
        extra = []
        for i, size in enumerate(input.shape[input.dim() - n :]):
            least = (size - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            if not least <= wanted[i] <= least + self.stride[i] - 1:
                raise ValueError(
                    f"requested an output size of {list(output_size)}, but axis {i} can be from {least} "
                    f"to {least + self.stride[i] - 1} (for an input of {list(input.shape)})"
                )
            extra.append(wanted[i] - least)
        return tuple(extra)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra_for(input, output_size)
        return self._convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose):
    """(N, C_in, L) -> (N, C_out, L'): weight (in, out / groups, k)."""

    _n = 1
    _convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """(N, C_in, H, W) -> (N, C_out, H', W'): weight (in, out / groups, kh, kw)."""

    _n = 2
    _convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """(N, C_in, D, H, W) -> (N, C_out, D', H', W'): weight (in, out / groups, kd, kh, kw)."""

    _n = 3
    _convolve = staticmethod(F.conv_transpose3d)
