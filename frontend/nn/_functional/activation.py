"""Activation functions.

Each is written so that both its value and its gradient are right at the edges of its pieces: the argument of the branch
that `where` does not take is kept in range, since 0 * inf is NaN in the gradient.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import treadle
from treadle import Tensor, _ops

from .common import write_back

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), elementwise; its gradient at 0 is 0."""
    return input.relu_() if inplace else input.relu()


def relu_(input: Tensor) -> Tensor:
    """In-place `relu`."""
    return input.relu_()


def _clip(x: Tensor, low: float, high: float) -> Tensor:
    """x limited to [low, high], with gradient 0 on both ends, where `clamp` has 1."""
    return treadle.where(x <= low, low, treadle.where(x >= high, high, x))


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype == treadle.bool:
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if not input.is_floating_point():
        min_val, max_val = int(min_val), int(max_val)
        if input.dtype == treadle.uint8 and min(min_val, max_val) < 0:
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return write_back(input, _clip(input, min_val, max_val), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place `hardtanh`."""
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0, 6, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else x * negative_slope."""
    return write_back(input, treadle.where(input > 0, input, input * negative_slope), inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place `leaky_relu`."""
    return leaky_relu(input, negative_slope, True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1)."""
    low = treadle.expm1(input.clamp(max=0))
    return write_back(input, treadle.where(input > 0, input, low if alpha == 1 else low * alpha), inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `elu`."""
    return elu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled `elu` that keeps mean 0 and variance 1 through layers."""
    low = treadle.expm1(input.clamp(max=0)) * (_SELU_ALPHA * _SELU_SCALE)
    return write_back(input, treadle.where(input > 0, input * _SELU_SCALE, low), inplace)


def selu_(input: Tensor) -> Tensor:
    """In-place `selu`."""
    return selu(input, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise ZeroDivisionError("ZeroDivisionError: alpha cannot be 0 for CELU")
    # For a negative alpha the argument is not bounded above by x <= 0; the exact branch is still the one taken.
    low = treadle.expm1(input.clamp(max=0) / alpha) * alpha
    return write_back(input, treadle.where(input > 0, input, low), inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `celu`."""
    return celu(input, alpha, True)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi being the normal distribution function or, for "tanh", its approximation."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return write_back(input, input * input.sigmoid(), inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, or x where beta * x > threshold."""
    z = input if beta == 1 else input * beta
    low = z.clamp(max=threshold).exp().log1p()
    return treadle.where(z > threshold, input, low if beta == 1 else low / beta)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return write_back(input, input * softplus(input).tanh(), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return write_back(input, input * _clip(input + 3, 0.0, 6.0) / 6, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return write_back(input, _clip(input + 3, 0.0, 6.0) / 6, inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), accurate on both sides."""
    negative = input < 0
    # -|x|, but with a slope at 0, which the right gradient 1/2 needs.
    z = treadle.where(negative, input, -input)
    return treadle.where(negative, input, 0.0) - z.exp().log1p()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - input.tanh()


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 nearer than that."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return input - input.clamp(-lambd, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return treadle.where(input.abs() <= lambd, 0.0, input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    if not input.is_floating_point():
        threshold, value = int(threshold), int(value)
    return write_back(input, treadle.where(input <= threshold, value, input), inplace)


def threshold_(input: Tensor, threshold_: float, value: float) -> Tensor:
    """In-place `threshold`."""
    return threshold(input, threshold_, value, True)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else x * weight; `weight` has one element, or one for each channel (dim 1)."""
    if weight.dtype != input.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if weight.numel() != 1:
        channels = input.shape[1] if input.dim() > 1 else 1
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape((1, -1) + (1,) * (input.dim() - 2) if input.dim() > 1 else (-1,))
    elif weight.dim():
        # One weight must not add a dimension to a 0-d input.
        weight = weight.reshape(())
    return treadle.where(input > 0, input, input * weight)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky relu whose slope is drawn from [lower, upper) in training and is their mean otherwise."""
    for name, limit in (("Lower", lower), ("Upper", upper)):
        if not math.isfinite(limit):
            raise RuntimeError(f"rrelu: {name.lower()} bound must be finite")
    if lower > upper:
        raise RuntimeError(
            f"Lower bound should be less than or equal to the upper bound, but got lower {lower} and upper {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = treadle.rand_like(input) * (upper - lower) + lower
    return write_back(input, treadle.where(input > 0, input, input * slope), inplace)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """In-place `rrelu`."""
    return rrelu(input, lower, upper, training, True)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) for the halves a and b of the input along `dim`."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    return input.narrow(dim, 0, size // 2) * input.narrow(dim, size // 2, size // 2).sigmoid()


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`, computed in `dtype` where given."""
    if dim is None:
        dim = _implicit_dim("softmax", input.dim(), _stacklevel)
    return _ops.softmax(input if dtype is None else input.to(dtype), dim)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of -x."""
    if dim is None:
        dim = _implicit_dim("softmin", input.dim(), _stacklevel)
    return _ops.softmax(-(input if dtype is None else input.to(dtype)), dim)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log of softmax, computed stably."""
    if dim is None:
        dim = _implicit_dim("log_softmax", input.dim(), _stacklevel)
    return _ops.log_softmax(input if dtype is None else input.to(dtype), dim)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; `hard` gives one-hot values with the soft gradient."""
    # -log of a standard exponential is Gumbel; 1 - U keeps the logarithm away from 0.
    gumbels = -(-(1 - treadle.rand_like(logits)).log()).log()
    soft = _ops.softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    one_hot = treadle.zeros_like(logits).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft
