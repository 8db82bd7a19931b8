"""Linear maps, and distances between vectors."""

from __future__ import annotations

import treadle
from treadle import Tensor, _ops


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias: x (*, in), weight (out, in) or (in,), bias (out,) or ()."""
    return _ops.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = x1 @ weight[o] @ x2 + bias[o]: x1 (*, in1), x2 (*, in2), weight (out, in1, in2)."""
    if input1.dim() != input2.dim() or tuple(input1.shape[:-1]) != tuple(input2.shape[:-1]):
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {tuple(input1.shape)} and {tuple(input2.shape)}"
        )
    if weight.dim() != 3 or input1.shape[-1] != weight.shape[1] or input2.shape[-1] != weight.shape[2]:
        raise RuntimeError(
            f"bilinear(): the sizes of the inputs {input1.shape[-1]}, {input2.shape[-1]} do not match "
            f"the weight {tuple(weight.shape)}"
        )
    out, n1, n2 = weight.shape
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != out):
        raise RuntimeError(f"bilinear(): bias has shape {tuple(bias.shape)}, ({out},) is expected")
    lead = tuple(input1.shape[:-1])
    left = input1.reshape(-1, n1) @ weight.permute(1, 0, 2).reshape(n1, out * n2)
    result = (left.reshape(-1, out, n2) * input2.reshape(-1, 1, n2)).sum(-1).reshape(lead + (out,))
    return result if bias is None else result + bias


def normalize(input: Tensor, p: float = 2.0, dim: int | tuple = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """x / max(norm_p(x along dim), eps)."""
    if out is not None:
        raise NotImplementedError("normalize: out= is not supported")
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`; the inputs broadcast."""
    if not (x1.is_floating_point() or x1.is_complex()) or not (x2.is_floating_point() or x2.is_complex()):
        raise RuntimeError(
            "expected common dtype to be floating point, yet common dtype is "
            f"{treadle.promote_types(x1.dtype, x2.dtype)}"
        )
    x1, x2 = treadle.broadcast_tensors(x1, x2)
    # Dividing before multiplying keeps the product of large vectors in range.
    n1 = x1.norm(2, dim, keepdim=True).clamp(min=eps)
    n2 = x2.norm(2, dim, keepdim=True).clamp(min=eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """norm_p(x1 - x2 + eps) over the last dim; the inputs broadcast."""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows of (N, M), in the order of the upper triangle: (N * (N - 1) / 2,)."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input.shape[0]
    if n <= 1:
        return input[:0].sum(1)
    rows = [input[i : i + 1] - input[i + 1 :] for i in range(n - 1)]
    return treadle.cat(rows).norm(p, 1)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 tensor of shape (*, num_classes) with a 1 at each class; -1 takes the largest class, reading the values."""
    if tensor.dtype != treadle.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return treadle.zeros(tuple(tensor.shape) + (num_classes,), dtype=treadle.int64, device=tensor.device)
    if num_classes == -1:
        if int(tensor.min()) < 0:
            raise RuntimeError("Class values must be non-negative.")
        num_classes = int(tensor.max()) + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    # scatter checks the range of the classes when it runs, so that nothing need be read here.
    zeros = treadle.zeros(tuple(tensor.shape) + (num_classes,), dtype=treadle.int64, device=tensor.device)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)
