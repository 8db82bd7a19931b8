"""Schedules against closed forms; their state, composition and checks."""

import copy
import math

import pytest

import treadle

S = treadle.optim.lr_scheduler


def sgd(lrs=(0.1,), **options):
    groups = [{"params": [treadle.nn.Parameter(treadle.zeros(1))], "lr": lr} for lr in lrs]
    return treadle.optim.SGD(groups, lr=0.1, **options)


def run(make, epochs, optimizer=None):
    """Rates of the first group at each epoch."""
    optimizer = optimizer or sgd()
    scheduler = make(optimizer)
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        assert scheduler.get_last_lr()[0] == rates[-1]
        optimizer.step()
        scheduler.step()
    return rates


CASES = [
    ("lambda", lambda o: S.LambdaLR(o, lambda e: 1 / (e + 1)), lambda e: 0.1 / (e + 1)),
    ("multiplicative", lambda o: S.MultiplicativeLR(o, lambda e: 0.5), lambda e: 0.1 * 0.5**e),
    ("step", lambda o: S.StepLR(o, 3, 0.5), lambda e: 0.1 * 0.5 ** (e // 3)),
    ("multistep", lambda o: S.MultiStepLR(o, [2, 5, 5], 0.5), lambda e: 0.1 * 0.5 ** ((e >= 2) + 2 * (e >= 5))),
    ("constant", lambda o: S.ConstantLR(o, 0.25, 4), lambda e: 0.1 * (0.25 if e < 4 else 1)),
    ("linear", lambda o: S.LinearLR(o, 0.2, 0.8, 4), lambda e: 0.1 * (0.2 + 0.6 * min(e, 4) / 4)),
    ("exponential", lambda o: S.ExponentialLR(o, 0.9), lambda e: 0.1 * 0.9**e),
    ("polynomial", lambda o: S.PolynomialLR(o, 6, 2.0), lambda e: 0.1 * (1 - min(e, 6) / 6) ** 2),
    ("cosine", lambda o: S.CosineAnnealingLR(o, 4, 0.01), lambda e: 0.01 + 0.09 * (1 + math.cos(math.pi * e / 4)) / 2),
    ("cyclic", lambda o: S.CyclicLR(o, 0.1, 0.5, 2, 2, cycle_momentum=False), lambda e: [0.1, 0.3, 0.5, 0.3][e % 4]),
]


@pytest.mark.parametrize(("make", "want"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_closed_forms(make, want):
    assert run(make, 12) == pytest.approx([want(epoch) for epoch in range(12)])


@pytest.mark.parametrize("make", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_resuming_from_state_dicts(make):
    want = run(make, 12)
    optimizer = sgd()
    scheduler = make(optimizer)
    for _ in range(5):
        optimizer.step()
        scheduler.step()
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    assert "optimizer" not in saved[1]
    other = sgd()
    resumed = make(other)
    resumed.load_state_dict(saved[1])
    other.load_state_dict(saved[0])
    rates = []
    for _ in range(7):
        rates.append(other.param_groups[0]["lr"])
        other.step()
        resumed.step()
    assert rates == want[5:]


@pytest.mark.parametrize("name", ["StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "PolynomialLR"])
def test_jumping_to_an_epoch(name):
    arguments = {"StepLR": (2,), "MultiStepLR": ([2, 4],), "ExponentialLR": (0.5,), "CosineAnnealingLR": (9,)}
    want = run(lambda o: getattr(S, name)(o, *arguments.get(name, ())), 8)
    optimizer = sgd()
    scheduler = getattr(S, name)(optimizer, *arguments.get(name, ()))
    optimizer.step()
    with pytest.warns(UserWarning, match="epoch argument"):
        scheduler.step(4)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(want[4])


def test_resuming_by_last_epoch():
    optimizer = sgd()
    with pytest.raises(KeyError, match="initial_lr"):
        S.StepLR(optimizer, 2, last_epoch=3)
    optimizer.param_groups[0]["initial_lr"] = 0.1
    S.LambdaLR(optimizer, lambda e: e, last_epoch=3)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)


def test_groups_and_functions():
    optimizer = sgd((0.1, 1.0))
    scheduler = S.LambdaLR(optimizer, [lambda e: 1.0, lambda e: 0.5**e])
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.1, 0.5]
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas"):
        S.LambdaLR(optimizer, [lambda e: 1.0])
    with pytest.raises(TypeError, match="function"):
        S.MultiplicativeLR(optimizer, 0.5)


def test_state_of_callable_objects():
    class Decay:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, epoch):
            return self.rate**epoch

    state = S.LambdaLR(sgd((0.1, 0.1)), [Decay(0.5), lambda e: 1.0]).state_dict()
    assert state["lr_lambdas"] == [{"rate": 0.5}, None]
    other = Decay(0.1)
    S.LambdaLR(sgd((0.1, 0.1)), [other, lambda e: 1.0]).load_state_dict(state)
    assert other.rate == 0.5
    cyclic = S.CyclicLR(sgd(), 0.1, 0.5, scale_fn=Decay(0.5), cycle_momentum=False)
    assert cyclic.state_dict()["_scale_fn_custom"] == {"rate": 0.5}
    cyclic.load_state_dict({**cyclic.state_dict(), "_scale_fn_custom": {"rate": 0.25}})
    assert cyclic.scale_fn(1) == 0.25


def test_schedulers_multiply():
    def both(optimizer):
        return S.ChainedScheduler([S.ConstantLR(optimizer, 0.5, 2), S.ExponentialLR(optimizer, 0.9)])

    want = [0.1 * 0.9**e * (0.5 if e < 2 else 1) for e in range(5)]
    assert run(both, 5) == pytest.approx(want)


def test_one_scheduler_after_another():
    def warm(optimizer):
        parts = [S.ConstantLR(optimizer, 0.1, 10), S.ExponentialLR(optimizer, 0.5), S.StepLR(optimizer, 1)]
        return S.SequentialLR(optimizer, parts, [2, 4])

    assert run(warm, 6) == pytest.approx([0.01, 0.01, 0.1, 0.05, 0.1, 0.01])


@pytest.mark.parametrize("kind", ["sequential", "chained"])
def test_state_of_combined_schedulers(kind):
    def make(optimizer):
        parts = [S.LinearLR(optimizer, 0.5, total_iters=3), S.ExponentialLR(optimizer, 0.9)]
        return S.SequentialLR(optimizer, parts, [3]) if kind == "sequential" else S.ChainedScheduler(parts)

    optimizer = sgd()
    scheduler = make(optimizer)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    state = copy.deepcopy(scheduler.state_dict())
    assert [part["last_epoch"] for part in state["_schedulers"]] == ([2, 1] if kind == "sequential" else [4, 4])
    other = make(sgd())
    other.load_state_dict(state)
    assert other.state_dict() == state


def test_combined_schedulers_check_their_parts():
    a, b = sgd(), sgd()
    for make in (
        lambda parts: S.SequentialLR(a, parts, [1] * (len(parts) - 1)),
        lambda parts: S.ChainedScheduler(parts),
    ):
        with pytest.raises(ValueError, match="at least one"):
            make([])
        with pytest.raises(ValueError, match="same optimizer"):
            make([S.ExponentialLR(a, 0.9), S.ExponentialLR(b, 0.9)])
        with pytest.raises(ValueError, match="ReduceLROnPlateau"):
            make([S.ReduceLROnPlateau(a)])
        with pytest.raises(TypeError, match="optimizer"):
            make([3])
    with pytest.raises(ValueError, match="one scheduler more"):
        S.SequentialLR(a, [S.ExponentialLR(a, 0.9)], [3])


def test_one_cycle():
    optimizer = sgd(momentum=0.9)
    scheduler = S.OneCycleLR(optimizer, 1.0, total_steps=11, pct_start=0.5, anneal_strategy="linear", div_factor=10.0)
    rates, momenta = [], []
    for _ in range(11):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step()
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(0.9, abs=0.11)
    assert rates[10] == pytest.approx(0.1 / 1e4)
    assert momenta[0] == pytest.approx(0.95)
    assert min(momenta) >= 0.85
    with pytest.raises(ValueError, match="Tried to step"):
        scheduler.step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"total_steps": 0},
        {"epochs": 2},
        {"epochs": -1, "steps_per_epoch": 2},
        {"epochs": 2, "steps_per_epoch": 2.5},
        {"total_steps": 5, "pct_start": 2.0},
        {"total_steps": 5, "anneal_strategy": "fast"},
        {"total_steps": 5, "max_lr": [1.0, 2.0]},
    ],
)
def test_one_cycle_checks(options):
    with pytest.raises(ValueError):
        S.OneCycleLR(sgd(), **{"max_lr": 1.0, **options})


def test_cycling_needs_a_momentum():
    adagrad = treadle.optim.Adagrad([treadle.nn.Parameter(treadle.zeros(1))])
    for make in (lambda: S.CyclicLR(adagrad, 0.1, 0.5), lambda: S.OneCycleLR(adagrad, 1.0, total_steps=5)):
        with pytest.raises(ValueError, match="momentum"):
            make()
    adam = treadle.optim.Adam([treadle.nn.Parameter(treadle.zeros(1))])
    S.CyclicLR(adam, 0.1, 0.5, base_momentum=0.7, max_momentum=0.8)
    assert adam.param_groups[0]["betas"] == (0.8, 0.999)
    with pytest.raises(ValueError, match="mode"):
        S.CyclicLR(adam, 0.1, 0.5, mode="square")


def test_warm_restarts():
    optimizer = sgd()
    scheduler = S.CosineAnnealingWarmRestarts(optimizer, 2, 2)
    rates = []
    for _ in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    want = [0.1 * (1 + math.cos(math.pi * t)) / 2 for t in (0, 1 / 2, 0, 1 / 4, 2 / 4, 3 / 4, 0)]
    assert rates == pytest.approx(want)
    scheduler.step(3.5)
    assert scheduler.get_last_lr()[0] == pytest.approx(0.1 * (1 + math.cos(math.pi * 1.5 / 4)) / 2)
    scheduler.step(2)
    assert scheduler.get_last_lr()[0] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="non-negative"):
        scheduler.step(-1)
    for options in ({"T_0": 0}, {"T_0": 2, "T_mult": 0}, {"T_0": 2, "eta_min": "0"}):
        with pytest.raises(ValueError):
            S.CosineAnnealingWarmRestarts(optimizer, **options)


def test_plateau():
    optimizer = sgd((0.1, 1.0))
    scheduler = S.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=2, min_lr=[0.04, 0.0])
    rates = []
    for metric in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, treadle.tensor(1.0), 0.5, 0.6, 0.7):
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.04, 0.04, 0.04, 0.04]
    assert optimizer.param_groups[1]["lr"] == 0.25
    assert scheduler.best == 0.5
    other = S.ReduceLROnPlateau(sgd((0.1, 1.0)))
    other.load_state_dict(scheduler.state_dict())
    assert other.best == 0.5


@pytest.mark.parametrize(
    ("mode", "threshold_mode", "value", "better"),
    [
        ("min", "rel", 0.89, True),
        ("min", "rel", 0.91, False),
        ("min", "abs", 0.79, True),
        ("min", "abs", 0.95, False),
        ("max", "rel", 1.11, True),
        ("max", "rel", 1.09, False),
        ("max", "abs", 1.2, True),
        ("max", "abs", math.nan, False),
    ],
)
def test_what_plateau_counts_as_better(mode, threshold_mode, value, better):
    scheduler = S.ReduceLROnPlateau(sgd(), mode, threshold=0.1, threshold_mode=threshold_mode)
    scheduler.step(1.0)
    scheduler.step(value)
    assert (scheduler.num_bad_epochs == 0) is better


@pytest.mark.parametrize("options", [{"factor": 1.0}, {"mode": "up"}, {"threshold_mode": "x"}, {"min_lr": [1, 2]}])
def test_plateau_checks(options):
    with pytest.raises(ValueError):
        S.ReduceLROnPlateau(sgd(), **options)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("ConstantLR", (1.5,)), ("ConstantLR", (-0.5,)), ("LinearLR", (0.0,)), ("LinearLR", (0.5, 1.5))],
)
def test_factors_are_checked(name, arguments):
    with pytest.raises(ValueError):
        getattr(S, name)(sgd(), *arguments)


def test_order_of_steps_and_get_lr_warn():
    scheduler = S.ExponentialLR(sgd(), 0.9)
    with pytest.warns(UserWarning, match="before optimizer.step"):
        scheduler.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with pytest.raises(TypeError, match="not an Optimizer"):
        S.ExponentialLR(3, 0.9)


def test_lr_tensors_are_filled():
    lr = treadle.tensor(0.5)
    optimizer = treadle.optim.SGD([treadle.nn.Parameter(treadle.zeros(1))], lr=lr)
    scheduler = S.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert float(lr) == 0.25
    assert float(scheduler.base_lrs[0]) == 0.5


def test_a_scheduler_of_ones_own():
    class Halves(S.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    assert run(Halves, 3) == [0.1, 0.05, 0.025]
    with pytest.raises(NotImplementedError):
        S.LRScheduler(sgd())
