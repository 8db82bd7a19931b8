"""Attention and transformers."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import rand
from treadle import nn
from treadle.nn import functional as F


def attend(q, k, v, mask=None):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p @ v, p


def layer(**options):
    m = nn.MultiheadAttention(4, 2, **options).double()
    return m, {k: v.detach().numpy() for k, v in m.named_parameters()}


def by_hand(x, p, mask=None):
    """Self-attention of x (L, E) with the parameters of a layer of two heads."""
    q, k, v = np.split(x @ p["in_proj_weight"].T + p["in_proj_bias"], 3, -1)
    q, k, v = (a.reshape(-1, 2, 2).swapaxes(0, 1) for a in (q, k, v))
    out, weights = attend(q, k, v, mask)
    out = out.swapaxes(0, 1).reshape(x.shape)
    return out @ p["out_proj.weight"].T + p["out_proj.bias"], weights


def test_self_attention():
    m, p = layer()
    x = rand(5, 4)
    t = treadle.tensor(x)
    out, weights = m(t, t, t, average_attn_weights=False)
    wanted, wanted_weights = by_hand(x, p)
    np.testing.assert_allclose(out.detach().numpy(), wanted, atol=1e-12)
    np.testing.assert_allclose(weights.detach().numpy(), wanted_weights, atol=1e-12)
    out, none = m(t, t, t, need_weights=False)
    assert none is None
    np.testing.assert_allclose(out.detach().numpy(), wanted, atol=1e-12)


def test_masks_agree():
    m, p = layer(batch_first=True)
    x = rand(1, 5, 4)
    t = treadle.tensor(x)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=treadle.float64)
    wanted, _ = by_hand(x[0], p, causal.numpy())
    forbidden = causal == float("-inf")
    for options in (
        {"attn_mask": causal},
        {"attn_mask": forbidden},
        {"attn_mask": causal, "is_causal": True},
        {"attn_mask": causal, "is_causal": True, "need_weights": False},
    ):
        np.testing.assert_allclose(m(t, t, t, **options)[0].detach().numpy()[0], wanted, atol=1e-12)
    padding = treadle.tensor([[False, False, False, True, True]])
    masked = np.where(padding.numpy()[0], -np.inf, 0.0)
    wanted, _ = by_hand(x[0], p, masked)
    for need in (True, False):
        out = m(t, t, t, key_padding_mask=padding, need_weights=need)[0]
        np.testing.assert_allclose(out.detach().numpy()[0], wanted, atol=1e-12)


def test_extra_keys():
    m, _ = layer(add_bias_kv=True, add_zero_attn=True)
    t = treadle.tensor(rand(3, 2, 4))
    out, weights = m(t, t, t)
    assert tuple(out.shape) == (3, 2, 4) and tuple(weights.shape) == (2, 3, 5)
    np.testing.assert_allclose(weights.detach().numpy().sum(-1), np.ones((2, 3)))


def test_other_widths():
    m = nn.MultiheadAttention(4, 2, kdim=3, vdim=5)
    assert m.in_proj_weight is None and tuple(m.k_proj_weight.shape) == (4, 3)
    out, weights = m(treadle.ones(2, 1, 4), treadle.ones(6, 1, 3), treadle.ones(6, 1, 5))
    assert tuple(out.shape) == (2, 1, 4) and tuple(weights.shape) == (1, 2, 6)


def test_errors():
    m = nn.MultiheadAttention(4, 2)
    t = treadle.ones(3, 1, 4)
    with pytest.raises(RuntimeError, match="attn_mask"):
        m(t, t, t, attn_mask=treadle.zeros(2, 3))
    with pytest.raises(AssertionError):
        m(treadle.ones(3, 1, 5), t, t)
    with pytest.raises(RuntimeError, match="is_causal"):
        m(t, t, t, is_causal=True, need_weights=False)
    with pytest.raises(AssertionError):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(ValueError):
        nn.MultiheadAttention(0, 2)


def test_scaled_dot_product_attention():
    q, k, v = rand(2, 3, 4), rand(2, 5, 4, seed=1), rand(2, 5, 6, seed=2)
    got = F.scaled_dot_product_attention(*map(treadle.tensor, (q, k, v))).numpy()
    np.testing.assert_allclose(got, attend(q, k, v)[0], atol=1e-12)
    keep = np.tril(np.ones((3, 5), dtype=bool))
    got = F.scaled_dot_product_attention(*map(treadle.tensor, (q, k, v)), attn_mask=treadle.tensor(keep)).numpy()
    np.testing.assert_allclose(got, attend(q, k, v, np.where(keep, 0, -np.inf))[0], atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_by_hand(norm_first):
    m = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, norm_first=norm_first).double()
    x = rand(5, 4)
    p = {k: v.detach().numpy() for k, v in m.self_attn.named_parameters()}

    def norm(a):
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)

    def feed(a):
        w1, b1 = m.linear1.weight.detach().numpy(), m.linear1.bias.detach().numpy()
        w2, b2 = m.linear2.weight.detach().numpy(), m.linear2.bias.detach().numpy()
        return np.maximum(a @ w1.T + b1, 0) @ w2.T + b2

    if norm_first:
        y = x + by_hand(norm(x), p)[0]
        wanted = y + feed(norm(y))
    else:
        y = norm(x + by_hand(x, p)[0])
        wanted = norm(y + feed(y))
    np.testing.assert_allclose(m(treadle.tensor(x)).detach().numpy(), wanted, atol=1e-10)


def test_transformer_shapes_and_checks():
    m = nn.Transformer(4, 2, 2, 2, 8, batch_first=True)
    src, tgt = treadle.ones(3, 5, 4), treadle.ones(3, 2, 4)
    causal = nn.Transformer.generate_square_subsequent_mask(2)
    out = m(src, tgt, tgt_mask=causal, tgt_is_causal=True)
    assert tuple(out.shape) == (3, 2, 4)
    out.sum().backward()
    assert all(p.grad is not None for p in m.parameters())
    assert len({id(p) for p in m.parameters()}) == len(list(m.parameters())) == 64
    with pytest.raises(RuntimeError):
        m(src, treadle.ones(2, 2, 4))
    with pytest.raises(RuntimeError):
        nn.TransformerEncoderLayer(4, 2, activation="swish")
