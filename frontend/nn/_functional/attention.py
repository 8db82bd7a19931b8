"""Attention."""

from __future__ import annotations

import math

import treadle
from treadle import Tensor, _ops

from .dropout import dropout
from .linear import linear
from .padding import pad


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T * scale + mask) v over (*, L, E), (*, S, E), (*, S, Ev).

    A boolean mask says what takes part. `scale` defaults to 1 / sqrt(E); `enable_gqa` lets fewer key and value heads
    serve the query heads.
    """
    return _ops.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _float_mask(mask: Tensor | None, name: str, dtype: object) -> Tensor | None:
    """A mask to add: a boolean one, true where attention is forbidden, becomes 0 and -inf."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype != treadle.bool:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return treadle.zeros(tuple(mask.shape), dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, num_heads: int
) -> bool:
    """Whether the inputs have a batch dim."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    batched = query.dim() == 3
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"For {'' if batched else 'un'}batched ({query.dim()}-D) `query`, expected `key` and "
            f"`value` to be {query.dim()}-D but found {key.dim()}-D and {value.dim()}-D "
            "tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != query.dim() - 1:
        raise AssertionError(
            f"expected `key_padding_mask` to be `None` or {query.dim() - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead"
            )
        if not batched and attn_mask.dim() == 3:
            wanted = (num_heads, query.shape[0], key.shape[0])
            if tuple(attn_mask.shape) != wanted:
                raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {tuple(attn_mask.shape)}")
    return batched


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: Tensor | None,
    separate: tuple | None,
    bias: Tensor | None,
    embed_dim: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three input projections; one product where the inputs are one tensor."""
    if separate is None:
        if query is key and key is value:
            return tuple(linear(query, packed, bias).chunk(3, -1))
        weights = packed.chunk(3, 0)
        biases = (None,) * 3 if bias is None else bias.chunk(3, 0)
        if key is value:
            # One product for keys and values.
            both = linear(key, packed[embed_dim:], None if bias is None else bias[embed_dim:])
            return (linear(query, weights[0], biases[0]), *both.chunk(2, -1))
    else:
        weights = separate
        for name, weight, x in zip("qkv", separate, (query, key, value)):
            if weight is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
            if tuple(weight.shape) != (embed_dim, x.shape[-1]):
                raise AssertionError(
                    f"expecting {name} weight shape of {(embed_dim, x.shape[-1])}, but got {tuple(weight.shape)}"
                )
        biases = (None,) * 3 if bias is None else bias.chunk(3, 0)
    return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))


def _check_attn_mask(attn_mask: Tensor | None, length: int, source: int, heads: int, batch: int) -> Tensor | None:
    if attn_mask is None:
        return None
    wanted = (length, source) if attn_mask.dim() == 2 else (batch * heads, length, source)
    if tuple(attn_mask.shape) != wanted:
        raise RuntimeError(
            f"The shape of the {attn_mask.dim()}D attn_mask is {tuple(attn_mask.shape)}, but should be {wanted}."
        )
    return attn_mask.unsqueeze(0) if attn_mask.dim() == 2 else attn_mask


def _heads(x: Tensor, batch: int, heads: int) -> Tensor:
    """(L, N, E) -> (N, heads, L, E / heads)."""
    return x.reshape(x.shape[0], batch, heads, -1).permute(1, 2, 0, 3)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `num_heads` heads: query (L, N, E), key and value (S, N, *), or all without N.

    Returns the output (L, N, E) and, with `need_weights`, the weights (N, L, S), or (N, heads, L, S) unless averaged.
    Masks are added when of a float type; true forbids when boolean.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and key_padding_mask is None and not need_weights:
        if attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        attn_mask = None
    else:
        is_causal = False
    if not batched:
        query, key, value = _unsqueeze_batch(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed_dim = query.shape
    source = key.shape[0]
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    key_padding_mask = _float_mask(key_padding_mask, "key_padding_mask", query.dtype)
    attn_mask = _check_attn_mask(_float_mask(attn_mask, "attn_mask", query.dtype), length, source, num_heads, batch)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _project(query, key, value, in_proj_weight, separate, in_proj_bias, embed_dim)
    grown = 0
    if bias_k is not None or bias_v is not None:
        k, v = _add_biases(k, v, bias_k, bias_v, static_k is not None or static_v is not None)
        grown = 1
    q = _heads(q, batch, num_heads)
    k = _heads(k, batch, num_heads) if static_k is None else _static("key", static_k, batch, num_heads, q.shape[-1])
    v = _heads(v, batch, num_heads) if static_v is None else _static("value", static_v, batch, num_heads, q.shape[-1])
    if add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
        grown += 1
    mask = _merge_masks(attn_mask, key_padding_mask, grown, batch, num_heads, k.shape[2])
    p = dropout_p if training else 0.0
    if need_weights:
        out, weights = _attend_with_weights(q, k, v, mask, p)
    else:
        out, weights = _ops.scaled_dot_product_attention(q, k, v, mask, p, is_causal, None, False), None
    out = out.permute(2, 0, 1, 3).reshape(length, batch, embed_dim)
    out = linear(out, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not batched:
        out = out.squeeze(1)
        weights = None if weights is None else weights.squeeze(0)
    return out, weights


def _add_biases(
    k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, static: bool
) -> tuple[Tensor, Tensor]:
    """Keys and values (S, N, E) with one more, learned, at the end."""
    if bias_k is None or bias_v is None:
        raise AssertionError("bias_k and bias_v go together")
    if static:
        raise AssertionError("bias cannot be added to static key or value")
    shape = (1, *k.shape[1:])
    return treadle.cat([k, bias_k.expand(shape)]), treadle.cat([v, bias_v.expand(shape)])


def _unsqueeze_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Insert the batch dim and keep one tensor one tensor, by which the projections are chosen."""
    q = query.unsqueeze(1)
    k = q if key is query else key.unsqueeze(1)
    return q, k, k if value is key else value.unsqueeze(1)


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, heads: int, separate: bool) -> None:
    if query.shape[-1] != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}")
    if embed_dim % heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {heads}")
    if separate:
        if tuple(key.shape[:2]) != tuple(value.shape[:2]):
            raise AssertionError(
                f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}"
            )
    elif tuple(key.shape) != tuple(value.shape):
        raise AssertionError(f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}")


def _static(name: str, given: Tensor, batch: int, heads: int, width: int) -> Tensor:
    """A key or value given ready, (N * heads, S, E / heads), as (N, heads, S, E / heads)."""
    if given.shape[0] != batch * heads or given.shape[2] != width:
        raise AssertionError(
            f"expecting static {name} of sizes ({batch * heads}, *, {width}), but got {tuple(given.shape)}"
        )
    return given.reshape(batch, heads, given.shape[1], width)


def _merge_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, grown: int, batch: int, heads: int, source: int
) -> Tensor | None:
    """One additive mask that broadcasts to (N, heads, L, S); the `grown` extra keys are never masked."""
    if attn_mask is not None:
        attn_mask = (
            attn_mask.unsqueeze(0)
            if attn_mask.shape[0] != batch * heads or attn_mask.shape[0] == 1
            else (attn_mask.reshape((batch, heads) + tuple(attn_mask.shape[1:])))
        )
        attn_mask = pad(attn_mask, (0, grown)) if grown else attn_mask
    if key_padding_mask is None:
        return attn_mask
    if grown:
        key_padding_mask = pad(key_padding_mask, (0, grown))
    if tuple(key_padding_mask.shape) != (batch, source):
        raise AssertionError(
            f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(key_padding_mask.shape)}"
        )
    padding = key_padding_mask.reshape(batch, 1, 1, source)
    return padding if attn_mask is None else attn_mask + padding


def _attend_with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    """Attention that also gives the weights (N, heads, L, S), after dropout as torch does."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    weights = _ops.softmax(scores, -1)
    if p > 0.0:
        weights = dropout(weights, p)
    return weights @ v, weights
