"""Numerical derivatives for the tests of nn."""

import numpy as np

import treadle


def check_gradient(function, *arrays, eps=1e-6, rtol=1e-5, atol=1e-7):
    """Compare the gradients of a weighted sum of `function`'s output with central differences in float64."""
    arrays = [np.asarray(a, dtype=np.float64) for a in arrays]
    inputs = [treadle.tensor(a, requires_grad=True) for a in arrays]
    out = function(*inputs)
    weights = np.random.default_rng(0).normal(size=tuple(out.shape))
    (out * treadle.tensor(weights)).sum().backward()

    def value(values):
        return float((function(*[treadle.tensor(v) for v in values]).detach().numpy() * weights).sum())

    for i, (array, tensor) in enumerate(zip(arrays, inputs)):
        wanted = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            moved = [a.copy() for a in arrays]
            moved[i][at] += eps
            up = value(moved)
            moved[i][at] -= 2 * eps
            wanted[at] = (up - value(moved)) / (2 * eps)
        np.testing.assert_allclose(tensor.grad.numpy(), wanted, rtol=rtol, atol=atol)


def rand(*shape, seed=0):
    """Normal float64 values."""
    return np.random.default_rng(seed).normal(size=shape)
