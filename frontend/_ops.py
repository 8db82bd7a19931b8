"""The fused building blocks of nn and optim: functions that record one named op each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.ir.ops import composites as co
from treadle.ops.arguments import axis
from treadle.ops.elementwise import cast, to_floating
from treadle.ops.random import next_draw
from treadle.ops.registration import PUBLIC
from treadle.recorder.trace import record
from treadle.recorder.tree import intern_operation, interned
from treadle.storage import check_writable, write
from treadle.tensor import Tensor

__all__ = [
    "adam_update", "avg_pool", "conv", "conv_transpose", "dropout", "embedding", "gelu", "layer_norm", "linear",
    "log_softmax", "max_pool", "rebind_", "rms_norm", "scaled_dot_product_attention", "sgd_update", "softmax",
]  # fmt: skip


def softmax(x: Tensor, dim: int) -> Tensor:
    """exp(x) / sum(exp(x)) over `dim`."""
    t = to_floating(x)
    d = axis(dim, t.ndim)
    return record(co.Softmax(d), t) if t.ndim else record(co.Softmax(0), t.reshape(1)).reshape(())


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """log(softmax(x)) over `dim`."""
    t = to_floating(x)
    d = axis(dim, t.ndim)
    return record(co.LogSoftmax(d), t) if t.ndim else record(co.LogSoftmax(0), t.reshape(1)).reshape(())


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) (Hendrycks and Gimpel 2016), exactly or by the tanh formula."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return record(co.Gelu(approximate), x)


def _normalised_dims(x: Tensor, normalized_shape: Sequence[int], *parameters: Tensor | None) -> int:
    shape = tuple(normalized_shape)
    n = len(shape)
    if n == 0:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but "
            "got normalized_shape = []"
        )
    for name, p in zip(("weight", "bias"), parameters, strict=False):
        if p is not None and tuple(p.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape {list(p.shape)} "
                f"and normalized_shape = {list(shape)}"
            )
    if tuple(x.shape[-n:]) != shape or x.ndim < n:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], "
            f"but got input of size{list(x.shape)}"
        )
    return n


def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the last dims, scaled and shifted (Ba et al. 2016)."""
    n = _normalised_dims(x, normalized_shape, weight, bias)
    operands = [p for p in (weight, bias) if p is not None]
    return record(co.LayerNorm(n, float(eps), weight is not None, bias is not None), x, *operands)


def rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dims, scaled (Zhang and Sennrich 2019)."""
    n = _normalised_dims(x, normalized_shape, weight)
    machine = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(x.dtype.name, 2.0**-23)
    operands = [weight] if weight is not None else []
    return record(co.RmsNorm(n, machine if eps is None else float(eps), weight is not None), x, *operands)


_LINEAR, _LINEAR_BIAS = intern_operation(co.Linear(False)), intern_operation(co.Linear(True))


def linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """x @ w.T + b."""
    shape, weight = x.shape, w.shape
    if len(weight) == 1:
        out = PUBLIC["matmul"](x, w)
        return out if b is None else out + b
    if not shape or shape[-1] != weight[-1]:
        rows = math.prod(x.shape[:-1])
        inner = x.shape[-1] if x.ndim else 1
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{inner} and {w.shape[1]}x{w.shape[0]})")
    if x.dtype is not w.dtype:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {x.dtype!r} and {w.dtype!r}")
    return record(_LINEAR, x, w) if b is None else record(_LINEAR_BIAS, x, w, b)


def recurrence(
    mode: str, gates: Tensor, state: Sequence[Tensor], w: Tensor, b: Tensor | None, reverse: bool
) -> tuple[Tensor, ...]:
    """A recurrent layer in one direction over the gates' share of its inputs: (outputs [T, N, H], *last state)."""
    op = interned(co.Recurrence, mode, b is not None, reverse)
    return record(op, gates, *state, w) if b is None else record(op, gates, *state, w, b)


def cross_entropy_rows(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Tensor:
    """-log softmax(logits)[target] of each row of [N, C]; 0 where target is `ignore_index`."""
    return record(interned(co.CrossEntropy, int(ignore_index), float(label_smoothing)), logits, target)


def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Cross-correlation of [N, C, *S] with [O, C / groups, *K]."""
    operands = (x, w) if bias is None else (x, w, bias)
    return record(co.Conv(tuple(stride), tuple(padding), tuple(dilation), groups), *operands)


def conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """The transpose of `conv` in its input: [N, C, *S] with [C, O / groups, *K]."""
    operands = (x, w) if bias is None else (x, w, bias)
    return record(
        co.ConvTranspose(tuple(stride), tuple(padding), tuple(output_padding), tuple(dilation), groups), *operands
    )


def _pool_padding(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[tuple[int, int], ...]:
    """(low, high) padding of each dim; with ceil_mode the high side grows, but no window starts in it."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        count = (n + 2 * p - span) // s + 1
        if ceil_mode:
            count = -(-(n + 2 * p - span) // s) + 1
            if (count - 1) * s >= n + p:
                count -= 1
        out.append((p, max((count - 1) * s + span - n - p, -n)))
    return tuple(out)


def max_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    return_indices: bool = False,
) -> Any:
    """Maxima of windows of [N, C, *S] (and their flat indices in S); padding never wins."""
    pads = _pool_padding(x.shape[-len(kernel) :], kernel, stride, padding, dilation, ceil_mode)
    values, indices = record(co.MaxPool(tuple(kernel), tuple(stride), pads, tuple(dilation)), x)
    return (values, indices) if return_indices else values


def avg_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Means of windows of [N, C, *S]."""
    pads = _pool_padding(x.shape[-len(kernel) :], kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    return record(
        co.AvgPool(tuple(kernel), tuple(stride), pads, tuple(padding), count_include_pad, divisor_override), x
    )


def embedding(weight: Tensor, idx: Tensor) -> Tensor:
    """Rows of `weight`."""
    return PUBLIC["_take_rows"](weight, idx)


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T * scale + mask) v (Vaswani et al. 2017) over [..., T, D]."""
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        times = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(times, -3), v.repeat_interleave(times, -3)
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    if dropout_p == 0.0:
        operands = (q, k, v) if attn_mask is None else (q, k, v, attn_mask)
        batch = PUBLIC["broadcast_shapes"](*(t.shape[:-2] for t in (q, k, v)))
        q, k, v = (t if t.shape[:-2] == batch else t.expand(*batch, *t.shape[-2:]) for t in (q, k, v))
        if attn_mask is not None:
            mask = attn_mask.expand(*batch, q.shape[-2], k.shape[-2])
            operands = (q, k, v, mask if mask.dtype.kind == "b" else cast(mask, q.dtype))
        else:
            operands = (q, k, v)
        return record(co.Attention(is_causal, factor), *operands)
    scores = PUBLIC["matmul"](q * factor, k.transpose(-2, -1))
    if is_causal:
        ones = PUBLIC["ones"](q.shape[-2], k.shape[-2], dtype=PUBLIC["bool"]).tril()
        scores = PUBLIC["where"](ones, scores, float("-inf"))
    if attn_mask is not None:
        scores = (
            PUBLIC["where"](attn_mask, scores, float("-inf")) if attn_mask.dtype.kind == "b" else scores + attn_mask
        )
    return PUBLIC["matmul"](dropout(softmax(scores, -1), dropout_p, True), v)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Elements zeroed with probability p, the others divided by 1 - p (Srivastava et al. 2014). No mask is stored."""
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    return record(co.Dropout(float(p)), x, *next_draw(None))


def sgd_update(
    p: Tensor,
    grad: Tensor,
    buf: Tensor | None,
    lr: Any,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor | None]:
    """One step of SGD: (new parameter, new momentum buffer)."""
    op = co.SgdUpdate(float(momentum), float(dampening), float(weight_decay), nesterov, maximize, buf is None)
    out = record(op, p, grad, lr) if buf is None else record(op, p, grad, buf, lr)
    return out if isinstance(out, tuple) else (out, None)


def adam_update(
    p: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: Any,
    bias_correction2_sqrt: Any,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> tuple[Tensor, ...]:
    """One step of Adam or AdamW: (new parameter, new averages ...)."""
    op = co.AdamUpdate(float(beta1), float(beta2), float(eps), float(weight_decay), decoupled, amsgrad, maximize)
    states = (exp_avg, exp_avg_sq) if max_exp_avg_sq is None else (exp_avg, exp_avg_sq, max_exp_avg_sq)
    return record(op, p, grad, *states, lr, bias_correction1, bias_correction2_sqrt)


def rebind_(t: Tensor, new: Tensor) -> Tensor:
    """In-place assignment without a copy: `t` shows the value of `new`, of the same shape and dtype."""
    check_writable(t)
    return write(t, new)
