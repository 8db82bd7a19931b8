"""Look-up tables."""

from __future__ import annotations

import treadle
from treadle import Tensor, _ops


def _check_index(name: str, index: Tensor) -> None:
    if index.dtype not in (treadle.int64, treadle.int32):
        raise RuntimeError(f"{name}: expected indices of type int64 or int32, but got {index.dtype}")


def _row_index(padding_idx: int | None, rows: int) -> int | None:
    """`padding_idx` counted from the start."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise RuntimeError("padding_idx must be within the number of embeddings")
    return padding_idx + rows if padding_idx < 0 else padding_idx


def _renorm_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down, in place, the rows that are looked up and whose norm is above `max_norm`."""
    with treadle.no_grad():
        norm = weight.detach().norm(norm_type, 1, keepdim=True)
        used = treadle.zeros(weight.shape[0], dtype=treadle.bool, device=weight.device)
        used = used.index_fill(0, index.reshape(-1).to(treadle.int64), True).unsqueeze(1)
        scale = treadle.where(used & (norm > max_norm), max_norm / (norm + 1e-7), 1.0)
        weight.mul_(scale)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (V, D) at integer indices of any shape: (*, D).

    The row `padding_idx` gets no gradient; with `max_norm` the rows used are first renormalised in place; with
    `scale_grad_by_freq` a row's gradient is divided by how often it was used. `sparse` changes nothing.
    """
    padding_idx = _row_index(padding_idx, weight.shape[0])
    _check_index("embedding", input)
    if weight.dim() != 2:
        raise RuntimeError(f"'weight' must be 2-D, but got {weight.dim()}-D")
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    rows = _ops.embedding(weight, input)
    if scale_grad_by_freq:
        flat = input.reshape(-1).to(treadle.int64)
        ones = treadle.ones(flat.shape[0], dtype=weight.dtype, device=weight.device)
        counts = treadle.zeros(weight.shape[0], dtype=weight.dtype, device=weight.device).index_add(0, flat, ones)
        share = (1 / counts.index_select(0, flat)).reshape(tuple(input.shape) + (1,))
        # The same values, with a part of the gradient.
        rows = rows.detach() + (rows - rows.detach()) * share
    if padding_idx is not None:
        rows = treadle.where((input == padding_idx).unsqueeze(-1), rows.detach(), rows)
    return rows


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or max of the rows of each bag of indices: (bags, D).

    The bags are the rows of a 2-d input, or begin at `offsets` of a 1-d one. Indices equal to `padding_idx` do not
    count.
    """
    # Argument order of old: (weight, input).
    if weight.dtype == treadle.int64 and input.is_floating_point():
        input, weight = weight, input
    _check_bags(input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq, include_last_offset)
    padding_idx = _row_index(padding_idx, weight.shape[0])
    if input.dim() == 2:
        bags, width = input.shape
        bag_of = treadle.arange(bags, device=input.device).unsqueeze(1).expand(bags, width).reshape(-1)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    else:
        bags = offsets.shape[0] - (1 if include_last_offset else 0)
        starts = offsets[:bags]
        places = treadle.arange(input.shape[0], device=input.device).unsqueeze(1)
        bag_of = (places >= starts).sum(1) - 1
    input = input.to(treadle.int64)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counts = None if padding_idx is None else input != padding_idx
    return _reduce_bags(rows, bag_of, bags, mode, per_sample_weights, counts)


def _check_bags(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
) -> None:
    _check_index("embedding_bag", input)
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None:
        if tuple(per_sample_weights.shape) != tuple(input.shape):
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, "
                f"then it must have the same shape as the input ({tuple(input.shape)})"
            )
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                f"supported for mode='sum' (got mode='{mode}')."
            )
        if per_sample_weights.dtype != weight.dtype:
            raise RuntimeError(f"expected per_sample_weights of type {weight.dtype}, got {per_sample_weights.dtype}")
    if scale_grad_by_freq and mode == "max":
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated as a mini-batch of "
                f"fixed length sequences. However, found offsets of type {type(offsets)}"
            )
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        _check_index("embedding_bag", offsets)
        if include_last_offset and offsets.shape[0] < 1:
            raise RuntimeError("include_last_offset: number of offset should be at least 1")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")


def _reduce_bags(
    rows: Tensor, bag_of: Tensor, bags: int, mode: str, per_sample_weights: Tensor | None, counts: Tensor | None
) -> Tensor:
    """Combine the rows of each bag; `counts` says which rows do count (None: all). An empty bag gives zeros."""
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    zeros = rows.new_zeros((bags, rows.shape[1]))
    if mode == "max":
        index = bag_of.unsqueeze(1).expand(tuple(rows.shape))
        if counts is not None:
            rows = treadle.where(counts.unsqueeze(1), rows, float("-inf"))
        best = zeros.scatter_reduce(0, index, rows, "amax", include_self=False)
        return best if counts is None else treadle.where(best == float("-inf"), 0.0, best)
    if counts is not None:
        rows = treadle.where(counts.unsqueeze(1), rows, 0.0)
    total = zeros.index_add(0, bag_of, rows)
    if mode == "sum":
        return total
    ones = (
        treadle.ones(rows.shape[0], dtype=rows.dtype, device=rows.device) if counts is None else counts.to(rows.dtype)
    )
    sizes = rows.new_zeros(bags).index_add(0, bag_of, ones)
    return total / sizes.clamp(min=1).unsqueeze(1)
