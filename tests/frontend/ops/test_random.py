"""Random numbers: reproducible, the same fused or not, of the right distribution."""

import math

import numpy as np
import pytest

import treadle as T


@pytest.fixture(autouse=True)
def seeded():
    T.manual_seed(1234)


DRAWS = {
    "rand": lambda: T.rand(50, 3), "randn": lambda: T.randn(50), "randint": lambda: T.randint(0, 100, (50,)),
    "randperm": lambda: T.randperm(50), "bernoulli": lambda: T.bernoulli(T.full((50,), 0.5)),
    "normal": lambda: T.normal(0.0, 2.0, (50,)), "uniform_": lambda: T.empty(50).uniform_(-1, 1),
    "normal_": lambda: T.empty(50).normal_(1, 2), "random_": lambda: T.empty(50, dtype=T.int64).random_(0, 9),
    "exponential_": lambda: T.empty(50).exponential_(), "multinomial": lambda: T.multinomial(T.ones(60), 50),
    "dropout": lambda: T.nn.functional.dropout(T.ones(50), 0.5, True), "rand_like": lambda: T.rand_like(T.ones(50)),
    "double": lambda: T.rand(50, dtype=T.float64), "half": lambda: T.rand(50, dtype=T.float16),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_seeds_reproduce_and_draws_differ(name):
    first, second = DRAWS[name]().tolist(), DRAWS[name]().tolist()
    assert first != second
    T.manual_seed(1234)
    assert DRAWS[name]().tolist() == first
    T.manual_seed(99)
    assert DRAWS[name]().tolist() != first


@pytest.mark.parametrize("name", DRAWS)
def test_fused_and_unfused_numbers_are_the_same(name):
    alone = [DRAWS[name]().realize() for _ in range(2)]
    T.manual_seed(1234)
    fused = [DRAWS[name]() for _ in range(2)]
    total = sum(t.double().sum() for t in fused)
    total.realize()
    for a, b in zip(alone, fused):
        assert a.tolist() == b.tolist()


def test_state_is_saved_and_restored():
    T.rand(3)
    state = T.get_rng_state()
    a = T.rand(4).tolist()
    T.set_rng_state(state)
    assert T.rand(4).tolist() == a
    assert T.initial_seed() == 1234
    with pytest.raises(RuntimeError):
        T.set_rng_state(T.zeros(3, dtype=T.uint8))


def test_generators_are_independent_of_the_default_one():
    g = T.Generator().manual_seed(7)
    a = T.rand(4, generator=g).tolist()
    T.manual_seed(5)
    default = T.rand(4).tolist()
    g.manual_seed(7)
    assert T.rand(4, generator=g).tolist() == a != default
    T.manual_seed(5)
    T.rand(4, generator=g)
    assert T.rand(4).tolist() == default


def test_a_prefix_of_a_longer_draw_is_the_shorter_draw():
    short = T.rand(10).tolist()
    T.manual_seed(1234)
    assert T.rand(1000).tolist()[:10] == short


N = 40_000


def test_uniform_moments_and_range():
    u = T.rand(N).numpy()
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * N)
    assert abs(u.var() - 1 / 12) < 0.003
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - N / 20) ** 2 / (N / 20)).sum() < 60  # chi square, 19 degrees of freedom


def test_normal_moments():
    z = T.randn(N, dtype=T.float64).numpy()
    assert abs(z.mean()) < 5 / math.sqrt(N)
    assert abs(z.std() - 1) < 0.02
    assert abs((z**3).mean()) < 0.08 and abs((z**4).mean() - 3) < 0.2
    assert np.abs(z).max() < 7
    a, b = z[: N // 2], z[N // 2 :]
    assert abs((a * b).mean()) < 5 / math.sqrt(N / 2)


def test_integers_cover_their_range():
    k = T.randint(-3, 4, (N,)).numpy()
    counts = np.bincount(k + 3, minlength=7)
    assert len(counts) == 7
    assert ((counts - N / 7) ** 2 / (N / 7)).sum() < 35
    assert T.randint(5, (2, 3)).dtype is T.int64
    wide = T.randint(0, 2**40, (1000,)).numpy()
    assert wide.max() > 2**38 and wide.min() >= 0
    with pytest.raises(RuntimeError, match="less than"):
        T.randint(3, 3, (2,))


def test_bernoulli_dropout_multinomial():
    assert abs(T.bernoulli(T.full((N,), 0.3)).mean().item() - 0.3) < 0.015
    d = T.nn.functional.dropout(T.ones(N), 0.25, True).numpy()
    assert set(np.unique(d)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((d == 0).mean() - 0.25) < 0.015
    m = T.multinomial(T.tensor([1.0, 0.0, 3.0]), N, replacement=True).numpy()
    assert abs((m == 2).mean() - 0.75) < 0.015 and not (m == 1).any()
    once = T.multinomial(T.tensor([1.0, 2.0, 3.0]), 3).tolist()
    assert sorted(once) == [0, 1, 2]
    with pytest.raises(RuntimeError):
        T.multinomial(T.ones(2), 3)


def test_permutations():
    p = T.randperm(1000)
    assert sorted(p.tolist()) == list(range(1000))
    assert p.tolist() != list(range(1000))
    assert T.randperm(0).shape == (0,)


def test_draws_in_a_loop_share_one_program():
    from treadle.recorder import trace

    T.rand(8).realize()
    T.rand(8).realize()
    before = trace.misses
    seen = {tuple(T.rand(8).tolist()) for _ in range(20)}
    assert len(seen) == 20
    assert trace.misses == before
