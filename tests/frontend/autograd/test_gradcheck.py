"""Analytic gradients of functions against central differences, recorded in one trace and executed in between."""

import numpy as np
import pytest

import treadle as T

F = T.nn.functional
RNG = np.random.default_rng(0)


def near(*shape, low=-2.0, high=2.0):
    """Values away from kinks: no two close to each other or to an integer."""
    n = int(np.prod(shape))
    values = np.linspace(low, high, n + 2)[1:-1] + 0.013
    return RNG.permutation(values).reshape(shape)


CASES = {
    "add": (lambda x, y: x + y * 2, (near(3, 2), near(2))),
    "sub": (lambda x, y: 3 - x - y, (near(3, 1), near(2))),
    "mul": (lambda x, y: x * y, (near(3, 2), near(3, 1))),
    "div": (lambda x, y: x / y, (near(3), near(3, low=1, high=2))),
    "pow": (lambda x, y: x**y, (near(4, low=0.5), near(4))),
    "power": (lambda x: x**3 - x**-1, (near(4, low=0.5),)),
    "exp": (lambda x: x.exp() + x.expm1() + T.exp2(x), (near(4),)),
    "log": (lambda x: x.log() + x.log2() + x.log10() + x.log1p(), (near(4, low=0.2),)),
    "trigonometry": (lambda x: x.sin() * x.cos() + x.tan(), (near(4, low=-1, high=1),)),
    "inverse trigonometry": (lambda x: x.asin() + x.acos() * 2 + x.atan(), (near(4, low=-0.9, high=0.9),)),
    "hyperbolic": (lambda x: x.sinh() + x.cosh() * x.tanh() + x.asinh(), (near(4),)),
    "roots": (lambda x: x.sqrt() + x.rsqrt() + x.reciprocal(), (near(4, low=0.3),)),
    "erf": (lambda x: x.erf() + T.erfc(x), (near(4),)),
    "sigmoid": (lambda x: x.sigmoid() * F.softplus(x) + F.silu(x), (near(4),)),
    "abs": (lambda x: x.abs() + x.sign() * x, (near(4),)),
    "clamp": (lambda x: x.clamp(-0.6, 0.9) * x, (near(6),)),
    "maximum": (lambda x, y: T.maximum(x, y) * T.minimum(x, y), (near(4), near(4)[::-1].copy() + 0.1)),
    "where": (lambda x, y: T.where(x > 0, x * y, y * y), (near(4), near(4))),
    "atan2": (lambda x, y: T.atan2(x, y) + T.hypot(x, y), (near(4), near(4, low=1))),
    "lerp": (lambda x, y: T.lerp(x, y, 0.3) + T.addcmul(x, x, y, value=0.5), (near(4), near(4))),
    "sum": (lambda x: x.sum(1) * x.sum(), (near(3, 4),)),
    "mean var std": (lambda x: x.mean(0) + x.var(0) + x.std(0), (near(5, 2),)),
    "prod": (lambda x: x.prod(1), (near(2, 3),)),
    "max": (lambda x: x.max(1)[0] + x.amin(1), (near(3, 4),)),
    "logsumexp": (lambda x: x.logsumexp(1), (near(3, 4),)),
    "norm": (lambda x: x.norm() + x.norm(1, 0).sum(), (near(3, 4),)),
    "cumsum": (lambda x: x.cumsum(1) * x.cumprod(1), (near(2, 3),)),
    "sort": (lambda x: x.sort(1)[0] * T.arange(4), (near(2, 4),)),
    "topk": (lambda x: x.topk(2, 1)[0], (near(2, 4),)),
    "matmul": (lambda x, y: x @ y, (near(3, 4), near(4, 2))),
    "batched matmul": (lambda x, y: x @ y, (near(2, 3, 2), near(2, 4))),
    "matrix and vector": (lambda x, y: x @ y + y.dot(y), (near(3, 2), near(2))),
    "einsum": (lambda x, y: T.einsum("bij,bkj->bik", x, y), (near(2, 2, 3), near(2, 3, 3))),
    "views": (lambda x: x.T.reshape(2, 6)[:, ::2].unsqueeze(1).expand(2, 3, 3) * 2, (near(3, 4),)),
    "diagonal": (lambda x: x.diagonal(1) * x.tril()[2, :2].sum(), (near(3, 4),)),
    "as_strided": (lambda x: (x * 1).as_strided((3, 3), (2, 1)) ** 2, (near(8),)),
    "unfold": (lambda x: x.unfold(0, 3, 2) ** 2, (near(7),)),
    "cat": (lambda x, y: T.cat([x, y, x * y[:2]]) ** 2, (near(2, 3), near(4, 3))),
    "gather": (lambda x: x.gather(1, T.tensor([[0, 2, 2], [1, 1, 0]])) ** 2, (near(2, 3),)),
    "scatter": (
        lambda x, y: x.scatter_add(0, T.tensor([[0, 0, 1]]), y) * x.scatter(0, T.tensor([[1, 0, 1]]), y),
        (near(2, 3), near(1, 3)),
    ),
    "index": (lambda x: x[[0, 2, 0], 1:] ** 2, (near(3, 3),)),
    "index_fill": (lambda x, y: x.index_fill(0, T.tensor([1, 1]), y.sum()) ** 2, (near(3, 2), near(2))),
    "index_add": (lambda x, y: x.index_add(0, T.tensor([1, 1]), y) ** 2, (near(3, 2), near(2, 2))),
    "masked_fill": (lambda x: x.masked_fill(x > 0.5, 2.0) * x, (near(4),)),
    "flip roll": (lambda x: x.flip(0) * x.roll(1, 0), (near(4, 2),)),
    "pad": (lambda x: F.pad(x, (1, 2), value=1.0) ** 2, (near(2, 3),)),
    "softmax": (lambda x: x.softmax(1) * x.log_softmax(0), (near(3, 4),)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), (near(4),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (near(3, 4), near(4), near(4))),
    "linear": (lambda x, w, b: F.linear(x, w, b).tanh(), (near(3, 4), near(2, 4), near(2))),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (near(1, 2, 4, 4), near(3, 2, 3, 3))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (near(1, 1, 4, 4),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, 1), (near(1, 1, 3, 3),)),
    "cross_entropy": (lambda x: F.cross_entropy(x, T.tensor([2, 0])), (near(2, 3),)),
    "mse": (lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y), (near(4), near(4)[::-1].copy())),
    "embedding": (lambda w: F.embedding(T.tensor([[0, 2], [2, 2]]), w) ** 2, (near(3, 2),)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [near(1, 3, 2)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name):
    f, arrays = CASES[name]
    assert T.autograd.gradcheck(f, [T.tensor(a, requires_grad=True) for a in arrays], eps=1e-6, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_forced_forward_has_the_same_gradients(name):
    f, arrays = CASES[name]
    found = []
    for forced in (False, True):
        xs = [T.tensor(a, requires_grad=True) for a in arrays]
        y = f(*xs)
        if forced:
            y.detach().numpy()
        (y * y.detach().cos()).sum().backward()
        found.append([x.grad.numpy() for x in xs])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_gradcheck_finds_a_wrong_gradient():
    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = T.tensor([1.0], dtype=T.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        T.autograd.gradcheck(Wrong.apply, x)
    assert not T.autograd.gradcheck(Wrong.apply, x, raise_exception=False)
