"""Linear layers and convolutions, as contractions."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from treadle.ir.core import Builder, Op, Value, operation
from treadle.ir.dims import Dim
from treadle.ir.ops.base import Composite, Cotangents, Sample
from treadle.ir.ops.build import emit, expand, permute, reshape, same_dim, shape_text, window_size
from treadle.ir.ops.composites.common import wide
from treadle.ir.ops.sampling import array
from treadle.ir.types import TensorType

__all__ = ["Conv", "ConvTranspose", "Linear"]


@operation("graph.linear")
class Linear(Composite):
    """Operands (x [..., I], w [O, I][, b [O]]): x times w transposed, plus b where `bias` -> [..., O]."""

    bias: bool = True

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x, w = operands[:2]
        lead = string.ascii_letters[: x.rank - 1]
        y = emit(b, "contract", x, w, lhs=f"{lead}Y", rhs="ZY", out=f"{lead}Z")
        if self.bias:
            y = emit(b, "add", y, expand(b, operands[2], y.shape))
        return (y,)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, w, *rest = map(wide, arrays)
        y = x @ w.T
        return (y + rest[0] if self.bias else y).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        return [
            Sample(cls(bias), (array(rng, shape, name), array(rng, (4, 3), name), *[array(rng, (4,), name)] * bias))
            for name in ("f8", "f4")
            for shape in ((5, 3), (2, 5, 3), (3,), (0, 3))
            for bias in (True, False)
        ]


# Pieces of convolutions -----------------------------------------------------------------------------------------------


def pad_spatial(
    b: Builder,
    x: Value,
    low: tuple[Dim, ...],
    high: tuple[Dim, ...],
    interior: tuple[int, ...] = (),
    value: float | int = 0.0,
) -> Value:
    """`x` padded in its last dims; `x` itself where there is nothing to pad."""
    n = len(low)
    interior = interior or (0,) * n
    if all(isinstance(v, int) and v == 0 for v in (*low, *high, *interior)):
        return x
    lead = (0,) * (x.rank - n)
    return emit(b, "pad", x, low=(*lead, *low), high=(*lead, *high), interior=(*lead, *interior), value=value)


def split_groups(b: Builder, x: Value, dim: int, groups: int) -> Value:
    """`x` with `dim` split in (groups, size // groups)."""
    size = x.shape[dim] // groups
    return reshape(b, x, (*x.shape[:dim], groups, size, *x.shape[dim + 1 :]))


def join_groups(b: Builder, x: Value, dim: int) -> Value:
    """`x` with dims `dim` and `dim` + 1 joined."""
    return reshape(b, x, (*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :]))


def mirrored(b: Builder, w: Value, groups: int) -> Value:
    """[O, C / g, *K] -> [C, O / g, *K] with the kernel reversed: the weight of the transposed convolution."""
    n = w.rank - 2
    parts = split_groups(b, w, 0, groups)
    swapped = permute(b, parts, (0, 2, 1, *range(3, 3 + n)))
    flipped = join_groups(b, swapped, 0)
    return emit(b, "flip", flipped, dims=tuple(range(2, 2 + n)))


def contract_windows(b: Builder, windows: Value, w: Value, n: int, groups: int) -> Value:
    """Windows [N, C, *S', *K] with a weight [O, C / g, *K] -> [N, O, *S']."""
    space, kernel = string.ascii_lowercase[:n], string.ascii_lowercase[n : 2 * n]
    if groups == 1:
        return emit(b, "contract", windows, w, lhs=f"NC{space}{kernel}", rhs=f"OC{kernel}", out=f"NO{space}")
    parts, weights = split_groups(b, windows, 1, groups), split_groups(b, w, 0, groups)
    y = emit(b, "contract", parts, weights, lhs=f"NGC{space}{kernel}", rhs=f"GOC{kernel}", out=f"NGO{space}")
    return join_groups(b, y, 1)


def weight_cotangent(b: Builder, windows: Value, ct: Value, n: int, groups: int) -> Value:
    """Windows [N, C, *S', *K] with a cotangent [N, O, *S'] -> [O, C / g, *K]."""
    space, kernel = string.ascii_lowercase[:n], string.ascii_lowercase[n : 2 * n]
    if groups == 1:
        return emit(b, "contract", ct, windows, lhs=f"NO{space}", rhs=f"NC{space}{kernel}", out=f"OC{kernel}")
    parts, cts = split_groups(b, windows, 1, groups), split_groups(b, ct, 1, groups)
    dw = emit(b, "contract", cts, parts, lhs=f"NGO{space}", rhs=f"NGC{space}{kernel}", out=f"GOC{kernel}")
    return join_groups(b, dw, 0)


def transposed(
    b: Builder,
    ct: Value,
    w: Value,
    sizes: tuple[Dim, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Value:
    """The transpose of Conv in its input: ct [N, O, *S'] with w [O, C / g, *K] -> [N, C, *sizes].

    A convolution of `ct`, spread by the stride, with the mirrored weight. Most of what is spread is zero, so a kernel of
    one element is applied before spreading, and a strided kernel is divided by the phases of the stride (sub-pixel
    convolution: Shi et al. 2016).
    """
    n = len(stride)
    kernel = w.shape[2:]
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    spread = tuple(s - 1 for s in stride)
    low = tuple(r - p for r, p in zip(reach, padding, strict=True))
    high = tuple(d + p - ((o - 1) * s + 1) for d, o, s, p in zip(sizes, ct.shape[2:], stride, padding, strict=True))
    plain = Conv((1,) * n, (0,) * n, dilation, groups)
    if any(s > 1 for s in stride):
        if all(isinstance(k, int) and k == 1 for k in kernel):
            return pad_spatial(b, b.emit(plain, ct, mirrored(b, w, groups)), low, high, spread)
        if groups == 1 and all(d == 1 for d in dilation) and all(isinstance(k, int) for k in (*kernel, *sizes)):
            return _by_phases(b, ct, w, sizes, stride, padding)
    return b.emit(plain, pad_spatial(b, ct, low, high, spread), mirrored(b, w, groups))


def _by_phases(
    b: Builder, ct: Value, w: Value, sizes: tuple[Any, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> Value:
    """Result element q * s + r - p is a sum over taps m of ct[q - m] w[m * s + r]: one contraction for all phases r."""
    n = len(stride)
    taps = tuple(-(-k // s) for k, s in zip(w.shape[2:], stride, strict=True))  # type: ignore[operator]
    blocks = tuple(-(-(d + p) // s) for d, p, s in zip(sizes, padding, stride, strict=True))
    missing = tuple(m * s - k for m, s, k in zip(taps, stride, w.shape[2:], strict=True))
    parts = pad_spatial(b, w, (0,) * n, missing)
    parts = reshape(b, parts, (*w.shape[:2], *(v for pair in zip(taps, stride, strict=True) for v in pair)))
    parts = emit(b, "flip", parts, dims=tuple(range(2, 2 + 2 * n, 2)))
    low = tuple(m - 1 for m in taps)
    high = tuple(q - o for q, o in zip(blocks, ct.shape[2:], strict=True))
    windows = emit(b, "window", pad_spatial(b, ct, low, high), kernel=taps, stride=(1,) * n, dilation=(1,) * n)
    space, tap, phase = (string.ascii_lowercase[k * n : (k + 1) * n] for k in range(3))
    y = emit(
        b, "contract", windows, parts, lhs=f"NO{space}{tap}", rhs="OC" + "".join(map("".join, zip(tap, phase))),
        out="NC" + "".join(map("".join, zip(space, phase))),
    )  # fmt: skip
    y = reshape(b, y, (*y.shape[:2], *(q * s for q, s in zip(blocks, stride, strict=True))))
    lead = y.shape[:2]
    starts, limits = (0, 0, *padding), (*lead, *(p + d for p, d in zip(padding, sizes, strict=True)))
    return emit(b, "slice", y, starts=starts, limits=limits, steps=(1,) * (2 + n))


def add_bias(b: Builder, y: Value, bias: Value, n: int) -> Value:
    """Channel biases [O] added to [N, O, *S]."""
    return emit(b, "add", y, expand(b, reshape(b, bias, (bias.shape[0], *[1] * n)), y.shape))


def bias_cotangent(b: Builder, ct: Value) -> Value:
    return emit(b, "sum", ct, dims=(0, *range(2, ct.rank)))


def _check(name: str, types: tuple[TensorType, ...], n: int, groups: int, in_channels: int, out_channels: int) -> None:
    """Ranks, dtypes and channels of (x, w[, b]); dims `in_channels` and `out_channels` of w hold C / g and O (or O /
    g)."""
    x, w = types[:2]
    if x.rank != n + 2 or w.rank != n + 2:
        raise RuntimeError(
            f"{name}: expected an input and a weight of {n + 2} dims, not of shapes {shape_text(x.shape)} and "
            f"{shape_text(w.shape)}"
        )
    if any(t.dtype is not x.dtype for t in types):
        raise RuntimeError(f"{name}: input, weight and bias have dtypes {', '.join(t.dtype.short for t in types)}")
    transposed = in_channels == 0
    expected = w.shape[0] if transposed else w.shape[1] * groups
    if not same_dim(x.shape[1], expected):
        raise RuntimeError(
            f"Given groups={groups}{', transposed=1' if transposed else ''}, weight of size {shape_text(w.shape)}, "
            f"expected input{shape_text(x.shape)} to have {expected} channels, but got {x.shape[1]} channels instead"
        )
    if isinstance(w.shape[0], int) and w.shape[0] % groups:
        raise RuntimeError(f"{name}: the weight of shape {shape_text(w.shape)} does not divide into {groups} groups")
    if len(types) > 2:
        outputs = w.shape[1] * groups if transposed else w.shape[0]
        if types[2].rank != 1 or not same_dim(types[2].shape[0], outputs):
            raise RuntimeError(
                f"Given weight of size {shape_text(w.shape)}, expected bias to be 1-dimensional with {outputs} "
                f"elements, but got bias of size {shape_text(types[2].shape)} instead"
            )


# Convolution ----------------------------------------------------------------------------------------------------------


@operation("graph.conv")
class Conv(Composite):
    """Operands (x [N, C, *S], w [O, C / groups, *K][, b [O]]): cross-correlation -> [N, O, *S'].

    S' = (S + 2 * padding - dilation * (K - 1) - 1) // stride + 1; the padding is of zeros. Raises RuntimeError where
    channels do not agree or the kernel is larger than the padded input.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, w = types[:2]
        n = len(self.stride)
        _check("conv", types, n, self.groups, 1, 0)
        sizes: list[Dim] = []
        for d, k, s, p, dilation in zip(
            x.shape[2:], w.shape[2:], self.stride, self.padding, self.dilation, strict=True
        ):
            padded, span = d + 2 * p, dilation * (k - 1) + 1
            if isinstance(padded, int) and isinstance(span, int) and span > padded:
                raise RuntimeError(
                    f"conv: a kernel of {shape_text(w.shape[2:])} elements, {list(self.dilation)} apart, is larger "
                    f"than the padded input of shape {shape_text(x.shape)} (padding {list(self.padding)})"
                )
            sizes.append(window_size(padded, k, s, dilation))
        return (x.with_shape((x.shape[0], w.shape[0], *sizes)),)

    def _windows(self, b: Builder, x: Value, kernel: tuple[Dim, ...]) -> Value:
        padded = pad_spatial(b, x, self.padding, self.padding)
        return emit(b, "window", padded, kernel=kernel, stride=self.stride, dilation=self.dilation)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x, w = operands[:2]
        n = len(self.stride)
        y = contract_windows(b, self._windows(b, x, w.shape[2:]), w, n, self.groups)
        return (add_bias(b, y, operands[2], n) if len(operands) > 2 else y,)

    def _input_cotangent(self, b: Builder, x: Value, w: Value, ct: Value) -> Value:
        return transposed(b, ct, w, x.shape[2:], self.stride, self.padding, self.dilation, self.groups)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        x, w = op.operands[:2]
        found: list[Value | None] = [None] * len(op.operands)
        if needs[0]:
            found[0] = self._input_cotangent(b, x, w, ct)
        if needs[1]:
            found[1] = weight_cotangent(b, self._windows(b, x, w.shape[2:]), ct, len(self.stride), self.groups)
        if len(needs) > 2 and needs[2]:
            found[2] = bias_cotangent(b, ct)
        return tuple(found)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, w, *rest = map(wide, arrays)
        n, g = len(self.stride), self.groups
        x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in self.padding)])
        counts = tuple(map(window_size, x.shape[2:], w.shape[2:], self.stride, self.dilation))
        y = np.zeros((x.shape[0], w.shape[0], *counts), x.dtype)
        per = x.shape[1] // g, w.shape[0] // g
        for element in np.ndindex(*w.shape[2:]):
            ranges = [
                slice(k * d, k * d + (c - 1) * s + 1, s) if c else slice(0, 0)
                for k, d, s, c in zip(element, self.dilation, self.stride, counts, strict=True)
            ]
            for i in range(g):
                part = x[(slice(None), slice(i * per[0], (i + 1) * per[0]), *ranges)]
                weight = w[(slice(i * per[1], (i + 1) * per[1]), slice(None), *element)]
                y[:, i * per[1] : (i + 1) * per[1]] += np.moveaxis(np.tensordot(weight, part, (1, 1)), 0, 1)
        return (y + rest[0].reshape(-1, *[1] * n) if rest else y).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases = (
            ((2, 3, 7), (4, 3, 3), (1,), (0,), (1,), 1),
            ((1, 2, 8), (4, 1, 3), (2,), (1,), (2,), 2),
            ((2, 3, 6, 5), (2, 3, 3, 2), (2, 1), (1, 0), (1, 1), 1),
            ((1, 4, 5, 5), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
            ((1, 2, 6, 6), (3, 2, 2, 3), (3, 2), (2, 3), (1, 2), 1),
            ((1, 1, 3, 4, 3), (2, 1, 2, 2, 2), (1, 1, 1), (0, 1, 0), (1, 1, 1), 1),
            ((0, 2, 4), (3, 2, 1), (1,), (0,), (1,), 1),
        )
        found = []
        for name in ("f8", "f4"):
            for x, w, *how in cases:
                operands = (array(rng, x, name), array(rng, w, name))
                found.append(Sample(cls(*how), operands))
            found.append(Sample(cls(*how), (*operands, array(rng, w[:1], name))))
        found.append(Sample(cls((1,), (1,), (1,)), tuple(array(rng, s) for s in ((2, 3, 5), (4, 3, 3), (4,)))))
        return found


@operation("graph.conv_transpose")
class ConvTranspose(Composite):
    """Operands (x [N, C, *S], w [C, O / groups, *K][, b [O]]): the transpose of Conv in its input -> [N, O, *S'].

    S' = (S - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, w = types[:2]
        _check("conv_transpose", types, len(self.stride), self.groups, 0, 1)
        sizes = tuple(
            (d - 1) * s - 2 * p + dilation * (k - 1) + extra + 1
            for d, k, s, p, extra, dilation in zip(
                x.shape[2:], w.shape[2:], self.stride, self.padding, self.output_padding, self.dilation, strict=True
            )
        )
        if any(isinstance(d, int) and d < 0 for d in sizes):
            raise RuntimeError(
                f"conv_transpose: an input of shape {shape_text(x.shape)} gives a negative size {shape_text(sizes)}"
            )
        return (x.with_shape((x.shape[0], w.shape[1] * self.groups, *sizes)),)

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        x, w = operands[:2]
        n = len(self.stride)
        (t,) = self.infer(x.tensor, w.tensor)
        y = transposed(b, x, w, t.shape[2:], self.stride, self.padding, self.dilation, self.groups)
        return (add_bias(b, y, operands[2], n) if len(operands) > 2 else y,)

    def vjp(self, b: Builder, op: Op, cotangents: Cotangents, needs: tuple[bool, ...]) -> Cotangents:
        (ct,) = cotangents
        if ct is None:
            return (None,) * len(op.operands)
        x, w = op.operands[:2]
        n = len(self.stride)
        # What the output padding added at the end comes from no input.
        high = tuple(p - extra for p, extra in zip(self.padding, self.output_padding, strict=True))
        padded = pad_spatial(b, ct, self.padding, high)
        forward = Conv(self.stride, (0,) * n, self.dilation, self.groups)
        found: list[Value | None] = [None] * len(op.operands)
        if needs[0]:
            found[0] = b.emit(forward, padded, w)
        if needs[1]:
            windows = emit(b, "window", padded, kernel=w.shape[2:], stride=self.stride, dilation=self.dilation)
            found[1] = weight_cotangent(b, windows, x, n, self.groups)
        if len(needs) > 2 and needs[2]:
            found[2] = bias_cotangent(b, ct)
        return tuple(found)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        x, w, *rest = map(wide, arrays)
        n, g = len(self.stride), self.groups
        full = [
            (d - 1) * s + dilation * (k - 1) + 1 + extra
            for d, k, s, extra, dilation in zip(
                x.shape[2:], w.shape[2:], self.stride, self.output_padding, self.dilation, strict=True
            )
        ]
        y = np.zeros((x.shape[0], w.shape[1] * g, *full), x.dtype)
        per = x.shape[1] // g, w.shape[1]
        for element in np.ndindex(*w.shape[2:]):
            ranges = [
                slice(k * d, k * d + (c - 1) * s + 1, s)
                for k, d, s, c in zip(element, self.dilation, self.stride, x.shape[2:], strict=True)
            ]
            for i in range(g):
                weight = w[(slice(i * per[0], (i + 1) * per[0]), slice(None), *element)]
                part = np.tensordot(weight, x[:, i * per[0] : (i + 1) * per[0]], (0, 1))
                y[(slice(None), slice(i * per[1], (i + 1) * per[1]), *ranges)] += np.moveaxis(part, 0, 1)
        crop = tuple(slice(p, d - p) for p, d in zip(self.padding, full, strict=True))
        y = y[(slice(None), slice(None), *crop)]
        return (y + rest[0].reshape(-1, *[1] * n) if rest else y).astype(arrays[0].dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        cases: tuple[Any, ...] = (
            ((2, 3, 5), (3, 4, 3), (1,), (0,), (0,), (1,), 1),
            ((1, 4, 4), (4, 1, 3), (2,), (1,), (1,), (2,), 2),
            ((2, 3, 3, 4), (3, 2, 2, 3), (2, 1), (1, 2), (0, 0), (1, 1), 1),
            ((1, 2, 3, 3), (2, 2, 2, 2), (1, 3), (0, 1), (1, 2), (2, 1), 2),
        )
        found = []
        for name in ("f8", "f4"):
            for x, w, *how, groups in cases:
                operands = (array(rng, x, name), array(rng, w, name))
                found.append(Sample(cls(*how, groups), operands))
                bias = array(rng, (w[1] * groups,), name)
                found.append(Sample(cls(*how, groups), (*operands, bias)))
        return found
