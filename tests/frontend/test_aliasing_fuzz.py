"""Random programs of views and in-place ops, replayed on NumPy arrays, whose views share memory the same way.

Not np.negative(a, out=a): NumPy 2.4 gets it wrong where a is strided.
"""

import numpy as np
import pytest

import treadle as T


def step(rng, pairs):
    """Do one random thing to a random (tensor, array) pair, the same to both; returns a new pair or None."""
    x, a = pairs[rng.integers(len(pairs))]
    kind = rng.integers(16)
    if kind < 7 and a.size:
        return look(kind, rng, x, a)
    if kind == 7:
        s = int(rng.integers(-2, 3))
        x.add_(s)
        a += s
    elif kind == 8:
        x *= 2
        a *= 2
    elif kind == 9 and a.size:
        k = rng.integers(a.shape[0])
        x[int(k)] = 3
        a[k] = 3
    elif kind == 10:
        y, b = pairs[rng.integers(len(pairs))]
        if b.shape == a.shape:
            x.copy_(y)
            np.copyto(a, b.copy())
    elif kind == 11:
        mask = a > 1
        x[x > 1] = -1
        a[mask] = -1
    elif kind == 12 and a.size:
        index = rng.integers(0, a.shape[0], 2)
        x[T.tensor(index)] += 1
        a[index] += 1
    elif kind == 13:
        return x + 1, a + 1
    elif kind == 14 and a.size:
        x[::2] = x[:1]
        a[::2] = a[:1].copy()
    else:
        x.neg_()
        np.multiply(a, -1, out=a)
    return None


def look(kind, rng, x, a):
    """A random view."""
    d = int(rng.integers(a.ndim))
    n = a.shape[d]
    if kind == 0:
        start, stop, step = int(rng.integers(n)), int(rng.integers(1, n + 1)), int(rng.integers(1, 4))
        key = (slice(None),) * d + (slice(start, max(start, stop), step),)
        return x[key], a[key]
    if kind == 1:
        order = [int(k) for k in rng.permutation(a.ndim)]
        return x.permute(order), a.transpose(order)
    if kind == 2 and a.flags.c_contiguous:
        return x.view(-1), a.reshape(-1)
    if kind == 3 and a.ndim > 1:
        k = int(rng.integers(n))
        return x.select(d, k), a[(slice(None),) * d + (k,)]
    if kind == 4 and a.ndim < 4:
        return x.unsqueeze(d), np.expand_dims(a, d)
    if kind == 5 and a.ndim == 2:
        diagonal = a.diagonal()
        diagonal.flags.writeable = True
        return x.diagonal(), diagonal
    if a.flags.c_contiguous:
        shape = (a.shape[0], -1) if a.ndim > 2 else (-1, 1)
        return x.view(shape), a.reshape(shape)
    return x.detach(), a


def program(seed, shape):
    rng = np.random.default_rng(seed)
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 5 - 2
    pairs = [(T.tensor(a), a)]
    for n in range(int(rng.integers(6, 18))):
        new = step(rng, pairs)
        if new is not None and new[1].size:
            pairs.append(new)
        if rng.integers(6) == 0 or n == 0:
            x, b = pairs[rng.integers(len(pairs))]
            np.testing.assert_array_equal(x.numpy(), b, err_msg=f"seed {seed} at step {n}")
        if len(pairs) > 5:
            pairs.pop(int(rng.integers(len(pairs))))
    for x, b in pairs:
        np.testing.assert_array_equal(x.numpy(), b, err_msg=f"seed {seed} at the end")


@pytest.mark.parametrize("block", range(8))
def test_small_programs(block):
    for seed in range(block * 25, block * 25 + 25):
        program(seed, [(7,), (3, 4), (2, 3, 2), (5, 5)][seed % 4])


@pytest.mark.parametrize("seed", range(24))
def test_large_programs(seed):
    program(1000 + seed, [(70_000,), (263, 267), (40, 50, 36)][seed % 3])
