"""Losses of values."""

import math

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import check_gradient, rand
from treadle import nn
from treadle.nn import functional as F

A, B = rand(4, 3), rand(4, 3, seed=1)
S = np.sign(rand(4, 3, seed=2))
P, Q = 1 / (1 + np.exp(-A)), 1 / (1 + np.exp(-B))
D = np.abs(A - B)

FORMULAS = {
    "l1": (F.l1_loss, (A, B), D),
    "mse": (F.mse_loss, (A, B), D**2),
    "smooth_l1": (
        lambda a, b, **k: F.smooth_l1_loss(a, b, beta=0.7, **k),
        (A, B),
        np.where(D < 0.7, D**2 / 1.4, D - 0.35),
    ),
    "smooth_l1_beta0": (lambda a, b, **k: F.smooth_l1_loss(a, b, beta=0.0, **k), (A, B), D),
    "huber": (
        lambda a, b, **k: F.huber_loss(a, b, delta=0.7, **k),
        (A, B),
        np.where(D < 0.7, D**2 / 2, 0.7 * (D - 0.35)),
    ),
    "bce": (F.binary_cross_entropy, (P, Q), -(Q * np.log(P) + (1 - Q) * np.log(1 - P))),
    "bce_logits": (F.binary_cross_entropy_with_logits, (A, Q), -(Q * np.log(P) + (1 - Q) * np.log(1 - P))),
    "kl": (F.kl_div, (np.log(P), Q), Q * (np.log(Q) - np.log(P))),
    "kl_log": (
        lambda a, b, **k: F.kl_div(a, b, log_target=True, **k),
        (np.log(P), np.log(Q)),
        Q * (np.log(Q) - np.log(P)),
    ),
    "poisson": (F.poisson_nll_loss, (A, P), np.exp(A) - P * A),
    "gaussian": (F.gaussian_nll_loss, (A, B, P), 0.5 * (np.log(P) + D**2 / P)),
    "soft_margin": (F.soft_margin_loss, (A, S), np.log1p(np.exp(-A * S))),
    "hinge": (F.hinge_embedding_loss, (A, S), np.where(S > 0, A, np.maximum(0, 1 - A))),
    "ranking": (
        lambda a, b, s, **k: F.margin_ranking_loss(a, b, s, margin=0.3, **k),
        (A, B, S),
        np.maximum(0, -S * (A - B) + 0.3),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_reductions_and_gradient(name):
    function, args, wanted = FORMULAS[name]
    tensors = [treadle.tensor(a) for a in args]
    np.testing.assert_allclose(function(*tensors, reduction="none").numpy(), wanted, rtol=1e-7)
    np.testing.assert_allclose(float(function(*tensors, reduction="sum")), wanted.sum(), rtol=1e-7)
    np.testing.assert_allclose(float(function(*tensors)), wanted.mean(), rtol=1e-7)
    check_gradient(lambda x: function(x, *tensors[1:], reduction="none"), args[0])
    with pytest.raises(ValueError):
        function(*tensors, reduction="avg")


def test_bce_saturates():
    p = treadle.tensor([0.0, 1.0, 0.5], requires_grad=True)
    y = F.binary_cross_entropy(p, treadle.tensor([1.0, 1.0, 0.0]), reduction="none")
    np.testing.assert_allclose(y.detach().numpy(), [100, 0, math.log(2)], rtol=1e-6)
    y.sum().backward()
    assert np.isfinite(p.grad.numpy()).all()
    z = treadle.tensor([-200.0, 200.0, 0.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(
        z, treadle.tensor([1.0, 0.0, 0.0]), reduction="none", pos_weight=treadle.tensor(2.0)
    )
    np.testing.assert_allclose(loss.detach().numpy(), [400, 200, math.log(2)], rtol=1e-6)
    loss.sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), [-2, 1, 0.5], atol=1e-6)


def test_options():
    a, b = treadle.tensor(A), treadle.tensor(B)
    w = treadle.tensor(P)
    np.testing.assert_allclose(float(F.mse_loss(a, b, weight=w)), (D**2 * P).sum() / P.sum())
    np.testing.assert_allclose(
        float(F.kl_div(treadle.tensor(np.log(P)), treadle.tensor(Q), reduction="batchmean")),
        (Q * np.log(Q / P)).sum() / 4,
    )
    with pytest.warns(UserWarning, match="deprecated"):
        assert F.l1_loss(a, b, reduce=False).dim() == 2
    full = float(F.gaussian_nll_loss(a, b, w, full=True) - F.gaussian_nll_loss(a, b, w))
    assert abs(full - 0.5 * math.log(2 * math.pi)) < 1e-9
    zeros = treadle.tensor([0.0, 3.0])
    stirling = float(F.poisson_nll_loss(treadle.zeros(2), zeros, full=True, reduction="sum")) - 2
    assert abs(stirling - (3 * math.log(3) - 3 + 0.5 * math.log(6 * math.pi))) < 1e-5


def test_cosine_and_triplet():
    s = np.array([1.0, -1.0, 1.0, -1.0])
    cos = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    got = F.cosine_embedding_loss(*map(treadle.tensor, (A, B, s)), margin=0.1, reduction="none").numpy()
    np.testing.assert_allclose(got, np.where(s > 0, 1 - cos, np.maximum(0, cos - 0.1)), rtol=1e-6)
    c = rand(4, 3, seed=5)
    ap, an = np.linalg.norm(A - B, axis=1), np.linalg.norm(A - c, axis=1)
    pn = np.linalg.norm(B - c, axis=1)
    loss = nn.TripletMarginLoss(margin=2.0, swap=True, eps=0.0, reduction="none")
    np.testing.assert_allclose(
        loss(*map(treadle.tensor, (A, B, c))).numpy(), np.maximum(0, ap - np.minimum(an, pn) + 2)
    )
    with pytest.raises(ValueError):
        nn.TripletMarginLoss(margin=0)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: F.smooth_l1_loss(treadle.ones(1), treadle.ones(1), beta=-1.0), RuntimeError),
        (lambda: F.huber_loss(treadle.ones(1), treadle.ones(1), delta=0.0), RuntimeError),
        (lambda: F.binary_cross_entropy(treadle.ones(2), treadle.ones(1)), ValueError),
        (lambda: F.binary_cross_entropy_with_logits(treadle.ones(2), treadle.ones(1)), ValueError),
        (lambda: F.gaussian_nll_loss(treadle.ones(2, 3), treadle.ones(2, 3), treadle.ones(3, 3)), ValueError),
        (lambda: F.margin_ranking_loss(treadle.ones(2), treadle.ones(2), treadle.ones(2, 1)), RuntimeError),
        (lambda: F.cosine_embedding_loss(treadle.ones(2), treadle.ones(2), treadle.ones(2)), RuntimeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()
