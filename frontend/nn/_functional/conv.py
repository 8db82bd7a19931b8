"""Convolutions, and the sliding windows of `unfold` and `fold`.

Inputs are (N, C, *spatial) or, without a batch, (C, *spatial).
"""

from __future__ import annotations

from treadle import Tensor, _ops

from .common import IntOrInts, ntuple, require
from .padding import pad


def _check_operands(name: str, n: int, x: Tensor, w: Tensor, bias: Tensor | None, groups: int) -> None:
    if x.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, "
            f"but got input of size: {list(x.shape)}"
        )
    if w.dim() != n + 2:
        raise RuntimeError(f"{name}: expected {n + 2}-dimensional weight, but got weight of size {list(w.shape)}")
    if groups < 1:
        raise RuntimeError(f"{name}: groups must be a positive number, got {groups}")
    if x.dtype != w.dtype:
        raise RuntimeError(f"{name}: Input type ({x.dtype}) and weight type ({w.dtype}) should be the same")
    if bias is not None and x.dtype != bias.dtype:
        raise RuntimeError(f"{name}: Input type ({x.dtype}) and bias type ({bias.dtype}) should be the same")


def _check_steps(name: str, stride: tuple, dilation: tuple) -> None:
    if min(stride) < 1:
        raise RuntimeError(f"{name}: non-positive stride is not supported")
    if min(dilation) < 1:
        raise RuntimeError(f"{name}: dilation should be greater than zero")


def _same_padding(x: Tensor, kernel: tuple, dilation: tuple) -> tuple[Tensor, tuple[int, ...]]:
    """(x, padding) such that stride 1 keeps the sizes; an odd total is padded after, by hand."""
    totals = [d * (k - 1) for d, k in zip(dilation, kernel)]
    if any(t % 2 for t in totals):
        after: list[int] = []
        for t in reversed(totals):
            after += [0, t % 2]
        x = pad(x, after)
    return x, tuple(t // 2 for t in totals)


def _conv(
    n: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: IntOrInts,
    padding: IntOrInts | str,
    dilation: IntOrInts,
    groups: int,
) -> Tensor:
    name = f"conv{n}d"
    _check_operands(name, n, x, w, bias, groups)
    stride, dilation = ntuple(stride, n, "stride"), ntuple(dilation, n, "dilation")
    _check_steps(name, stride, dilation)
    require(
        w.shape[0] and w.shape[0] % groups == 0,
        f"{name}: {w.shape[0]} output channels are not divisible into {groups} groups",
    )
    channels_at = x.dim() - n - 1
    if x.shape[channels_at] != w.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w.shape)}, expected input{list(x.shape)} to "
            f"have {w.shape[1] * groups} channels, but got {x.shape[channels_at]} channels instead"
        )
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != w.shape[0]):
        raise RuntimeError(f"{name}: expected bias of shape [{w.shape[0]}], but got {list(bias.shape)}")
    kernel = tuple(w.shape[2:])
    if isinstance(padding, str):
        require(padding in ("same", "valid"), f"Invalid padding string: '{padding}'")
        if padding == "same":
            require(max(stride) == 1, "padding='same' is not supported for strided convolutions")
            x, padding = _same_padding(x, kernel, dilation)
        else:
            padding = 0
    padding = ntuple(padding, n, "padding")
    require(min(padding) >= 0, "negative padding is not supported")
    spatial = tuple(x.shape[channels_at + 1 :])
    for size, p, k, d in zip(spatial, padding, kernel, dilation):
        if size + 2 * p < d * (k - 1) + 1 or k < 1:
            padded = tuple(s + 2 * q for s, q in zip(spatial, padding))
            raise RuntimeError(
                f"Calculated padded input size per channel: {padded}. Kernel size: {kernel}. "
                "Kernel size can't be greater than actual input size"
            )
    if channels_at == 0:
        return _ops.conv(x.unsqueeze(0), w, bias, stride, padding, dilation, groups).squeeze(0)
    return _ops.conv(x, w, bias, stride, padding, dilation, groups)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over one axis: weight (out, in / groups, k); padding may be "same" or "valid"."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over two axes: weight (out, in / groups, kh, kw); padding may be "same" or "valid"."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over three axes: weight (out, in / groups, kd, kh, kw); padding may be "same" or "valid"."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    n: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: IntOrInts,
    padding: IntOrInts,
    output_padding: IntOrInts,
    groups: int,
    dilation: IntOrInts,
) -> Tensor:
    name = f"conv_transpose{n}d"
    _check_operands(name, n, x, w, bias, groups)
    stride, dilation = ntuple(stride, n, "stride"), ntuple(dilation, n, "dilation")
    padding, output_padding = ntuple(padding, n, "padding"), ntuple(output_padding, n, "output_padding")
    _check_steps(name, stride, dilation)
    require(min(padding) >= 0, "negative padding is not supported")
    require(min(output_padding) >= 0, "negative output_padding is not supported")
    channels_at = x.dim() - n - 1
    if x.shape[channels_at] != w.shape[0] or w.shape[0] % groups:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(w.shape)}, expected input{list(x.shape)} to have "
            f"{w.shape[0]} channels, but got {x.shape[channels_at]} channels instead"
        )
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != w.shape[1] * groups):
        raise RuntimeError(f"{name}: expected bias of shape [{w.shape[1] * groups}], but got {list(bias.shape)}")
    for extra, s, d in zip(output_padding, stride, dilation):
        if extra >= max(s, d):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding: {output_padding}, stride: {stride}, dilation: {dilation}"
            )
    args = (w, bias, stride, padding, output_padding, groups, dilation)
    if channels_at == 0:
        return _ops.conv_transpose(x.unsqueeze(0), *args).squeeze(0)
    return _ops.conv_transpose(x, *args)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The adjoint of conv1d: weight (in, out / groups, k)."""
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The adjoint of conv2d: weight (in, out / groups, kh, kw)."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The adjoint of conv3d: weight (in, out / groups, kd, kh, kw)."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of (time, batch, channels) with weight (k, in, out)."""
    y = _ops.conv(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, (1,), (pad,), (1,), 1)
    return y.permute(2, 0, 1)


def _window_counts(name: str, sizes: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> tuple:
    """Positions of the window along each axis; checks all arguments."""
    for what, values, least in (
        ("kernel_size", kernel, 1),
        ("dilation", dilation, 1),
        ("stride", stride, 1),
        ("padding", padding, 0),
    ):
        if min(values) < least:
            raise RuntimeError(f"{name}: {what} must be at least {least}, but got {list(values)}")
    counts = tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(sizes, padding, dilation, kernel, stride)
    )
    if min(counts) < 1:
        raise RuntimeError(
            f"{name}: Given spatial size {list(sizes)}, kernel_size={list(kernel)}, "
            f"dilation={list(dilation)}, padding={list(padding)}, calculated shape of the array of "
            f"sliding blocks as {list(counts)}, but its components must be at least one."
        )
    return counts


def unfold(
    input: Tensor, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0, stride: IntOrInts = 1
) -> Tensor:
    """Windows of (N, C, H, W) as columns: (N, C * kh * kw, L)."""
    from treadle import stack

    kernel, dil = ntuple(kernel_size, 2, "kernel_size"), ntuple(dilation, 2, "dilation")
    pads, step = ntuple(padding, 2, "padding"), ntuple(stride, 2, "stride")
    if input.dim() == 3:
        return unfold(input.unsqueeze(0), kernel, dil, pads, step).squeeze(0)
    require(
        input.dim() == 4 and all(input.shape[1:]),
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch "
        f"size and other non-zero dimensions for input, but got: {list(input.shape)}",
    )
    rows, cols = _window_counts("unfold", tuple(input.shape[2:]), kernel, dil, pads, step)
    if any(pads):
        input = pad(input, (pads[1], pads[1], pads[0], pads[0]))
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dil[0], j * dil[1]
            parts.append(
                input[
                    :,
                    :,
                    top : top + step[0] * (rows - 1) + 1 : step[0],
                    left : left + step[1] * (cols - 1) + 1 : step[1],
                ]
            )
    n, c = input.shape[:2]
    return stack(parts, 2).reshape(n, c * kernel[0] * kernel[1], rows * cols)


def fold(
    input: Tensor,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Sum columns (N, C * kh * kw, L) back into windows of (N, C, H, W), the adjoint of `unfold`."""
    size, kernel = ntuple(output_size, 2, "output_size"), ntuple(kernel_size, 2, "kernel_size")
    dil, pads, step = ntuple(dilation, 2, "dilation"), ntuple(padding, 2, "padding"), ntuple(stride, 2, "stride")
    if input.dim() == 2:
        return fold(input.unsqueeze(0), size, kernel, dil, pads, step).squeeze(0)
    require(input.dim() == 3, f"Expected 2D or 3D (batch mode) tensor for input, but got: {list(input.shape)}")
    rows, cols = _window_counts("fold", size, kernel, dil, pads, step)
    area = kernel[0] * kernel[1]
    if input.shape[1] % area:
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
            f"got input.size(1)={input.shape[1]} and kernel_size={kernel}."
        )
    if input.shape[2] != rows * cols:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dil}, padding={pads}, "
            f"stride={step}, expected size of input's dimension 2 to match the calculated number of "
            f"sliding blocks {rows} * {cols} = {rows * cols}, but got input.size(2)={input.shape[2]}."
        )
    n, c = input.shape[0], input.shape[1] // area
    blocks = input.reshape(n, c, kernel[0], kernel[1], rows, cols)
    out = input.new_zeros((n, c, size[0] + 2 * pads[0], size[1] + 2 * pads[1]))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dil[0], j * dil[1]
            out[
                :, :, top : top + step[0] * (rows - 1) + 1 : step[0], left : left + step[1] * (cols - 1) + 1 : step[1]
            ] += blocks[:, :, i, j]
    return out[:, :, pads[0] : pads[0] + size[0], pads[1] : pads[1] + size[1]]
