"""Every optimizer follows PyTorch's over many steps, and its checkpoints have PyTorch's form."""

import numpy as np
import pytest

import treadle

torch = pytest.importorskip("torch")

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "amsgrad": True, "betas": (0.7, 0.9), "eps": 1e-3}),
    ("NAdam", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.9, 0.99)}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Adamax", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"lr": 1.0}),
    ("Adadelta", {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.01}),
    ("Rprop", {"lr": 0.01, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.05), "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "t0": 3.0, "lambd": 0.01, "weight_decay": 0.1}),
]
IDS = [f"{name}-{number}" for number, (name, _) in enumerate(CASES)]


def params(api, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (5,), ()]
    return [api.nn.Parameter(api.tensor(rng.standard_normal(s).astype(np.float32))) for s in shapes]


def train(api, optimizer, ps, steps, seed=1):
    rng = np.random.default_rng(seed)
    for step in range(steps):
        for number, p in enumerate(ps):
            g = rng.standard_normal(tuple(p.shape)).astype(np.float32)
            p.grad = None if number == 1 and step == 2 else api.tensor(g)
        optimizer.step()


def values(ps):
    return [p.detach().numpy().copy() for p in ps]


def assert_same_state(mine, theirs):
    assert list(mine["state"]) == list(theirs["state"])
    for key, entry in theirs["state"].items():
        assert set(mine["state"][key]) == set(entry)
        for name, value in entry.items():
            got = mine["state"][key][name]
            assert str(got.dtype).split(".")[-1] == str(value.dtype).split(".")[-1], name
            np.testing.assert_allclose(got.numpy(), value.numpy(), rtol=2e-5, atol=1e-6, err_msg=name)
    assert mine["param_groups"] == theirs["param_groups"]


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_follows_torch(name, options):
    mine, theirs = params(treadle), params(torch)
    ours = getattr(treadle.optim, name)(mine, **options)
    ref = getattr(torch.optim, name)(theirs, **options)
    train(treadle, ours, mine, 12)
    train(torch, ref, theirs, 12)
    for got, want in zip(values(mine), values(theirs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    assert_same_state(ours.state_dict(), ref.state_dict())
    assert repr(ours) == repr(ref)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_follows_torch(search):
    results = []
    for api in (treadle, torch):
        x = api.nn.Parameter(api.tensor([-1.2, 1.0]))
        unused = api.nn.Parameter(api.tensor([3.0]))
        optimizer = api.optim.LBFGS([x, unused], lr=0.05 if search is None else 1, line_search_fn=search, max_iter=7)
        losses = []

        def closure(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        for _ in range(4):
            losses.append(float(optimizer.step(closure)))
        state = optimizer.state_dict()["state"][0]
        results.append((losses, x.detach().numpy(), state["n_iter"], state["func_evals"]))
    (losses, x, *counts), (want_losses, want_x, *want_counts) = results
    np.testing.assert_allclose(losses, want_losses, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(x, want_x, rtol=1e-3)
    assert counts == want_counts


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -0.1}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
        ("SGD", {"fused": True, "foreach": True}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"betas": (0.9, -0.1)}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"fused": True, "differentiable": True}),
        ("Adam", {"fused": True, "foreach": True}),
        ("AdamW", {"weight_decay": -1.0}),
        ("NAdam", {"momentum_decay": -1.0}),
        ("RAdam", {"eps": -1.0}),
        ("Adamax", {"betas": (0.5, 1.0)}),
        ("RMSprop", {"alpha": -1.0}),
        ("Adagrad", {"lr_decay": -1.0}),
        ("Adadelta", {"rho": 1.5}),
        ("Rprop", {"etas": (1.1, 1.2)}),
        ("ASGD", {"weight_decay": -1.0}),
        ("LBFGS", {"lr": -1.0}),
    ],
)
def test_bad_options_raise_as_in_torch(name, options):
    with pytest.raises((ValueError, RuntimeError)) as theirs:
        getattr(torch.optim, name)(params(torch), **options)
    with pytest.raises(type(theirs.value)):
        getattr(treadle.optim, name)(params(treadle), **options)
