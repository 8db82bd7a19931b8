"""Schedules give the rates, and the momenta, that PyTorch's give."""

import warnings

import pytest

import treadle

torch = pytest.importorskip("torch")

CASES = [
    ("LambdaLR", (lambda e: 0.9**e,), {}),
    ("MultiplicativeLR", (lambda e: 0.95,), {}),
    ("StepLR", (4, 0.3), {}),
    ("MultiStepLR", ([3, 7, 7],), {}),
    ("ConstantLR", (0.3, 4), {}),
    ("LinearLR", (0.3, 0.9, 6), {}),
    ("ExponentialLR", (0.93,), {}),
    ("PolynomialLR", (8, 1.7), {}),
    ("CosineAnnealingLR", (5, 0.01), {}),
    ("CosineAnnealingWarmRestarts", (3,), {}),
    ("CosineAnnealingWarmRestarts", (2, 3, 0.01), {}),
    ("CyclicLR", (0.01, 0.3, 3, 5), {}),
    ("CyclicLR", (0.01, [0.3, 0.4], 3), {"mode": "triangular2", "base_momentum": 0.5}),
    ("CyclicLR", (0.01, 0.3, 3), {"mode": "exp_range", "gamma": 0.9}),
    ("CyclicLR", (0.01, 0.3, 3), {"scale_fn": lambda x: 1 / (5**x), "scale_mode": "iterations"}),
    ("OneCycleLR", (0.3, 29), {}),
    ("OneCycleLR", (0.3, 29), {"three_phase": True, "anneal_strategy": "linear", "pct_start": 0.4}),
    ("OneCycleLR", (0.3,), {"epochs": 6, "steps_per_epoch": 5, "cycle_momentum": False}),
]
IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]


def groups(api):
    return [{"params": [api.nn.Parameter(api.zeros(1))], "lr": lr} for lr in (0.1, 0.5)]


def rates(api, make, epochs=29, kind="SGD", steps=()):
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(api.optim, kind)(groups(api), lr=0.1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(api.optim.lr_scheduler, optimizer)
        seen = []
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                seen.append((group["lr"], group["momentum"] if kind == "SGD" else group["betas"][0]))
            optimizer.step()
            scheduler.step(*steps[epoch : epoch + 1])
    return [value for pair in seen for value in pair]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "arguments", "options"), CASES, ids=IDS)
def test_schedules(name, arguments, options, kind):
    def make(api, optimizer):
        return getattr(api, name)(optimizer, *arguments, **options)

    assert rates(treadle, make, kind=kind) == pytest.approx(rates(torch, make, kind=kind), rel=1e-9)


@pytest.mark.parametrize(
    "name", ["StepLR", "ExponentialLR", "LinearLR", "ConstantLR", "PolynomialLR", "CosineAnnealingLR"]
)
def test_jumps(name):
    arguments = {"StepLR": (2,), "ExponentialLR": (0.5,), "CosineAnnealingLR": (9,)}.get(name, ())

    def make(api, optimizer):
        return getattr(api, name)(optimizer, *arguments)

    jumps = [5, 2, 9, 3]
    assert rates(treadle, make, 4, steps=jumps) == pytest.approx(rates(torch, make, 4, steps=jumps))


def test_fractional_epochs_of_warm_restarts():
    def make(api, optimizer):
        return api.CosineAnnealingWarmRestarts(optimizer, 2, 2)

    steps = [0.25, 1.5, 2.0, 3.75, 6.0, 13.5, 1.0, 30.0]
    assert rates(treadle, make, 8, steps=steps) == pytest.approx(rates(torch, make, 8, steps=steps))


@pytest.mark.parametrize("milestones", [[4, 9], [1, 2], [0, 3]])
def test_sequential(milestones):
    def make(api, optimizer):
        parts = [
            api.LinearLR(optimizer, 0.1, total_iters=4),
            api.CosineAnnealingLR(optimizer, 5),
            api.ChainedScheduler([api.ExponentialLR(optimizer, 0.9)]),
        ]
        return api.SequentialLR(optimizer, parts[:2] + [api.ExponentialLR(optimizer, 0.9)], milestones)

    assert rates(treadle, make) == pytest.approx(rates(torch, make))


def test_chained():
    def make(api, optimizer):
        return api.ChainedScheduler([api.ConstantLR(optimizer, 0.1, 3), api.CosineAnnealingLR(optimizer, 7)])

    assert rates(treadle, make) == pytest.approx(rates(torch, make))


@pytest.mark.parametrize("options", [{}, {"mode": "max"}, {"threshold_mode": "abs", "threshold": 0.05, "cooldown": 2}])
def test_plateau(options):
    metrics = [1.0, 0.9, 0.95, 0.94, 0.96, 0.93, 0.92, 0.8, 0.85, 0.85, 0.9, 1.1, 1.2, 1.15, 1.1] * 3

    def make(api, optimizer):
        return api.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, min_lr=0.01, **options)

    got, want = (rates(api, make, len(metrics), steps=metrics) for api in (treadle, torch))
    assert got == pytest.approx(want)


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear", "anneal_epochs": 4}, {"anneal_epochs": 0}])
def test_swalr(options):
    got, want = (
        rates(api, lambda _, optimizer, api=api: api.optim.swa_utils.SWALR(optimizer, [0.05, 0.02], **options))
        for api in (treadle, torch)
    )
    assert got == pytest.approx(want)
