"""The multi-head attention layer."""

from __future__ import annotations

from typing import Any

import treadle
from treadle import Tensor

from . import functional as F
from . import init
from .linear import NonDynamicallyQuantizableLinear
from .module import Module
from .parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of `num_heads` heads over (L, N, E), or (N, L, E) with `batch_first`, or (L, E).

    Keys and values of other widths (`kdim`, `vdim`) have projections of their own; otherwise the three are packed in
    `in_proj_weight` (3 E, E).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def make(*shape: int) -> Parameter:
            return Parameter(treadle.empty(shape, device=device, dtype=dtype))

        packed, e = self._qkv_same_embed_dim, embed_dim
        self.register_parameter("q_proj_weight", None if packed else make(e, e))
        self.register_parameter("k_proj_weight", None if packed else make(e, self.kdim))
        self.register_parameter("v_proj_weight", None if packed else make(e, self.vdim))
        self.register_parameter("in_proj_weight", make(3 * e, e) if packed else None)
        self.register_parameter("in_proj_bias", make(3 * e) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(e, e, bias=bias, device=device, dtype=dtype)
        self.bias_k = make(1, 1, e) if add_bias_kv else None
        self.bias_v = make(1, 1, e) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, weights): see `functional.multi_head_attention_forward`; weights only with `need_weights`."""
        swap = self.batch_first and query.dim() == 3
        if swap:
            # One tensor stays one tensor: the projections look at that.
            q = query.transpose(0, 1)
            k = q if key is query else key.transpose(0, 1)
            query, key, value = q, k, (k if value is key else value.transpose(0, 1))
        packed = self._qkv_same_embed_dim
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not packed,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return output.transpose(0, 1) if swap else output, weights
