"""Padding, cropping for negative amounts included."""

from __future__ import annotations

from collections.abc import Sequence

import treadle
from treadle import Tensor


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last dims: `pad` holds (before, after) for the last dim, then the one before it, and so on.

    Modes constant, reflect, replicate and circular; a negative amount crops.
    """
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    if len(pairs) > input.dim():
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(pad)} and input of dimension {input.dim()}"
        )
    if mode == "constant":
        return _pad_constant(input, pairs, 0 if value is None else value)
    if mode not in _EDGES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if not (len(pairs) < input.dim() <= len(pairs) + 2 and len(pairs) <= 3):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now")
    if any(s == 0 for s in input.shape[1:]):
        raise RuntimeError(
            f"Expected non-zero dimensions apart from the batch for padding mode {mode}, but got {list(input.shape)}"
        )
    for i, (before, after) in enumerate(pairs):
        input = _pad_edge(input, input.dim() - 1 - i, before, after, mode)
    return input


def _crop(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """x without `before` elements at the start and `after` at the end of `dim`."""
    if not before and not after:
        return x
    size = x.shape[dim] - before - after
    if size < 0:
        raise RuntimeError(
            f"The input size {x.shape[dim]}, plus negative padding {-before} and {-after}, resulted in "
            f"a negative output size, which is invalid. Check dimension {dim} of your input."
        )
    return x.narrow(dim, before, size)


def _pad_constant(x: Tensor, pairs: list[tuple[int, int]], value: float) -> Tensor:
    shape = list(x.shape)
    inside = [slice(None)] * x.dim()
    grows = False
    for i, (before, after) in enumerate(pairs):
        dim = x.dim() - 1 - i
        if shape[dim] + before + after < 0:
            raise RuntimeError(
                f"The input size {shape[dim]}, plus negative padding {before} and {after}, resulted in "
                f"a negative output size, which is invalid. Check dimension {dim} of your input."
            )
        shape[dim] += before + after
        low, high = max(before, 0), max(after, 0)
        if low or high:
            grows = True
            inside[dim] = slice(low, shape[dim] - high)
    for i, (before, after) in enumerate(pairs):
        # A crop may take more than there is when the other side grows; what is left is then empty.
        dim = x.dim() - 1 - i
        if before < 0 or after < 0:
            low = min(max(-before, 0), x.shape[dim])
            x = x.narrow(dim, low, max(x.shape[dim] - low - max(-after, 0), 0))
    if not grows:
        return x.clone()
    out = x.new_full(tuple(shape), value)
    out[tuple(inside)] = x
    return out


def _reflect(x: Tensor, dim: int, before: int, after: int) -> list[Tensor]:
    n = x.shape[dim]
    if max(before, after) >= n:
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: "
            f"padding ({before}, {after}) at dimension {dim} of input {list(x.shape)}"
        )
    return [x.narrow(dim, 1, before).flip(dim), x, x.narrow(dim, n - 1 - after, after).flip(dim)]


def _replicate(x: Tensor, dim: int, before: int, after: int) -> list[Tensor]:
    def repeated(at: int, times: int) -> Tensor:
        return x.narrow(dim, at, 1).expand([times if d == dim else s for d, s in enumerate(x.shape)])

    return [repeated(0, before), x, repeated(x.shape[dim] - 1, after)]


def _circular(x: Tensor, dim: int, before: int, after: int) -> list[Tensor]:
    n = x.shape[dim]
    if max(before, after) > n:
        raise RuntimeError("Padding value causes wrapping around more than once.")
    return [x.narrow(dim, n - before, before), x, x.narrow(dim, 0, after)]


_EDGES = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}


def _pad_edge(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    """Pad one dim from its own values, put together from slices.

    Edges are those of the original values, so the crop comes last; a circle closes over what is left after it.
    """
    grow = max(before, 0), max(after, 0)
    if mode == "circular":
        x = _crop(x, dim, max(-before, 0), max(-after, 0))
        before, after = grow
    if any(grow):
        below, middle, above = _EDGES[mode](x, dim, *grow)
        x = treadle.cat(([below] if grow[0] else []) + [middle] + ([above] if grow[1] else []), dim)
    return _crop(x, dim, max(-before, 0), max(-after, 0))
