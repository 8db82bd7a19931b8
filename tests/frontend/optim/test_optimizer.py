"""Groups, hooks, checkpoints and copies of optimizers; two rules against NumPy."""

import copy

import numpy as np
import pytest

import treadle

optim = treadle.optim
NAMES = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD"]


def make(name, ps, **options):
    if name in ("SGD", "RMSprop"):
        options.setdefault("momentum", 0.9)
    if name == "ASGD":
        options.setdefault("t0", 2.0)
    return getattr(optim, name)(ps, lr=0.05, **options)


def new_params():
    rng = np.random.default_rng(0)
    return [treadle.nn.Parameter(treadle.tensor(rng.standard_normal(s).astype(np.float32))) for s in ((2, 3), (4,))]


def train(optimizer, ps, steps, start=0):
    for step in range(start, start + steps):
        rng = np.random.default_rng(step)
        for p in ps:
            p.grad = treadle.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32))
        optimizer.step()


def bits(ps):
    return [p.detach().numpy().copy() for p in ps]


def assert_equal(got, want):
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


# -------------------------------------------------------------------- rules


def test_sgd_momentum_against_numpy():
    p = treadle.nn.Parameter(treadle.tensor([1.0, -2.0]))
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.5)
    want, buf = np.array([1.0, -2.0]), None
    for g in ([0.5, 1.0], [-1.0, 2.0]):
        p.grad = treadle.tensor(g)
        optimizer.step()
        grad = np.array(g) + 0.5 * want
        buf = grad if buf is None else 0.9 * buf + grad
        want = want - 0.1 * buf
    np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-6)


def test_adam_against_numpy():
    p = treadle.nn.Parameter(treadle.tensor([1.0, -2.0]))
    optimizer = optim.Adam([p], lr=0.1)
    want, m, v = np.array([1.0, -2.0]), 0.0, 0.0
    for t, g in enumerate(([0.5, 1.0], [-1.0, 2.0], [0.0, 3.0]), 1):
        p.grad = treadle.tensor(g)
        optimizer.step()
        m = 0.9 * m + 0.1 * np.array(g)
        v = 0.999 * v + 0.001 * np.array(g) ** 2
        want = want - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-5)


def test_lbfgs_minimises_a_quadratic():
    x = treadle.nn.Parameter(treadle.tensor([3.0, -4.0]))
    optimizer = optim.LBFGS([x], line_search_fn="strong_wolfe")
    scale = treadle.tensor([1.0, 10.0])

    def closure():
        optimizer.zero_grad()
        loss = (scale * x * x).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert float(first) == pytest.approx(169.0)
    np.testing.assert_allclose(x.detach().numpy(), [0.0, 0.0], atol=1e-4)


def test_lbfgs_refuses_other_line_searches_and_groups():
    x = treadle.nn.Parameter(treadle.tensor([3.0]))
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [x]}, {"params": new_params()}])


@pytest.mark.parametrize("name", NAMES)
def test_step_leaves_gradients_and_frozen_parameters(name):
    a, frozen = new_params()
    optimizer = make(name, [a, frozen], maximize=True)
    before = frozen.detach().numpy().copy()
    a.grad = treadle.ones(2, 3)
    optimizer.step()
    optimizer.step()
    np.testing.assert_array_equal(a.grad.numpy(), np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(frozen.detach().numpy(), before)


def test_closure_is_called_with_gradients_on_and_its_loss_returned():
    (p, _) = new_params()
    optimizer = optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with treadle.no_grad():
        loss = optimizer.step(closure)
    assert float(loss) > 0
    assert p.requires_grad


# -------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("name", NAMES)
def test_resumed_run_is_bit_equal(name, tmp_path):
    ps = new_params()
    straight = make(name, ps)
    train(straight, ps, 7)

    first = new_params()
    optimizer = make(name, first)
    train(optimizer, first, 4)
    path = tmp_path / "checkpoint.pt"
    treadle.save({"p": [p.detach() for p in first], "o": optimizer.state_dict()}, path)
    loaded = treadle.load(path)
    second = [treadle.nn.Parameter(p) for p in loaded["p"]]
    resumed = make(name, second)
    resumed.load_state_dict(loaded["o"])
    train(resumed, second, 3, start=4)
    assert_equal(bits(second), bits(ps))

    third, copied = copy.deepcopy((first, optimizer))
    train(copied, third, 3, start=4)
    assert_equal(bits(third), bits(ps))


@pytest.mark.parametrize("name", NAMES)
def test_loaded_state_shares_nothing_with_its_source(name):
    first, second = new_params(), new_params()
    source, target = make(name, first), make(name, second)
    train(source, first, 2)
    saved = source.state_dict()
    frozen = copy.deepcopy(saved)
    target.load_state_dict(saved)
    train(target, second, 2, start=2)
    after = source.state_dict()
    for number, entry in frozen["state"].items():
        for key, value in entry.items():
            np.testing.assert_array_equal(after["state"][number][key].numpy(), value.numpy())


def test_step_is_a_float_tensor_in_checkpoints_and_a_number_in_state():
    ps = new_params()
    optimizer = optim.Adam(ps)
    train(optimizer, ps, 3)
    step = optimizer.state_dict()["state"][0]["step"]
    assert step.dtype == treadle.float32
    assert float(step) == 3.0
    assert optimizer.state[ps[0]]["step"] == 3
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = 5  # an old checkpoint with a plain number
    optimizer.load_state_dict(saved)
    assert optimizer.state[ps[0]]["step"] == 5


def test_state_is_cast_to_the_parameters_type():
    source = new_params()
    optimizer = optim.Adam(source)
    train(optimizer, source, 1)
    doubles = [treadle.nn.Parameter(p.detach().to(treadle.float64)) for p in source]
    other = optim.Adam(doubles)
    other.load_state_dict(optimizer.state_dict())
    assert other.state[doubles[0]]["exp_avg"].dtype == treadle.float64


def test_load_checks_the_groups():
    a, b = new_params()
    one, two = optim.SGD([a, b], lr=0.1), optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one.load_state_dict(two.state_dict())
    with pytest.raises(ValueError, match="size"):
        optim.SGD([a], lr=0.1).load_state_dict(one.state_dict())


def test_adamw_keeps_its_decay_when_it_loads_adam():
    ps = new_params()
    optimizer = optim.AdamW(ps)
    optimizer.load_state_dict(optim.Adam(ps).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


# -------------------------------------------------------------------- groups


def test_groups_have_their_own_options():
    a, b = new_params()
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
    c = treadle.nn.Parameter(treadle.zeros(2))
    optimizer.add_param_group({"params": c, "momentum": 0.5})
    assert optimizer.param_groups[2]["momentum"] == 0.5
    assert optimizer.state_dict()["param_groups"][2]["params"] == [2]


def test_bad_parameters_are_refused():
    a, b = new_params()
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(a, lr=0.1)
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([1.0], lr=0.1)
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([a * 2], lr=0.1)
    with pytest.raises(TypeError, match="ordered"):
        optim.SGD([{"params": {a, b}}], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [a]}, {"params": [a]}], lr=0.1)
    with pytest.warns(UserWarning, match="duplicate"):
        optim.SGD([a, a], lr=0.1)
    with pytest.raises(TypeError, match="must be a dict"):
        optim.SGD([a], lr=0.1).add_param_group([b])


def test_named_parameters():
    a, b = new_params()
    optimizer = optim.SGD([("a", a), ("b", b)], lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    assert optimizer.param_groups[0]["params"][1] is b
    with pytest.raises(ValueError, match="names"):
        optim.SGD([("a", a), b], lr=0.1)
    with pytest.raises(ValueError, match="names"):
        optim.SGD([("a", a)], lr=0.1).add_param_group({"params": [b]})


def test_zero_grad():
    a, b = new_params()
    optimizer = optim.SGD([a, b], lr=0.1)
    a.grad = treadle.ones(2, 3)
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(a.grad.numpy(), np.zeros((2, 3)))
    assert b.grad is None
    optimizer.zero_grad()
    assert a.grad is None


def test_lr_as_a_tensor():
    (p, _) = new_params()
    want = p.detach().numpy() - 0.25
    optimizer = optim.SGD([p], lr=treadle.tensor(0.25))
    p.grad = treadle.ones(2, 3)
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-6)
    with pytest.raises(ValueError, match="foreach"):
        optim.SGD([p], lr=treadle.tensor(0.25), foreach=True)
    with pytest.raises(ValueError, match="1-element"):
        optim.SGD([p], lr=treadle.tensor([0.25, 0.5]))


# -------------------------------------------------------------------- hooks


def test_step_hooks_run_once_and_can_be_removed():
    ps = new_params()
    calls = []

    class Mine(optim.SGD):
        def step(self, closure=None):
            calls.append("step")
            return super().step(closure)

    optimizer = Mine(ps, lr=0.1)
    pre = optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("post"))
    optimizer.step()
    assert calls == ["pre", "step", "post"]
    pre.remove()
    optimizer.step()
    assert calls[3:] == ["step", "post"]


def test_global_step_hooks():
    calls = []
    handle = optim.optimizer.register_optimizer_step_pre_hook(lambda o, args, kwargs: calls.append(o))
    optimizer = optim.SGD(new_params(), lr=0.1)
    with handle:
        optimizer.step()
    optimizer.step()
    assert calls == [optimizer]


def test_bad_pre_hook_result():
    optimizer = optim.SGD(new_params(), lr=0.1)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="pre hook"):
        optimizer.step()


def test_state_dict_hooks():
    optimizer = optim.SGD(new_params(), lr=0.1)
    order = []
    optimizer.register_state_dict_pre_hook(lambda o: order.append("pre"))
    optimizer.register_state_dict_pre_hook(lambda o: order.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "extra"})
    optimizer.register_load_state_dict_post_hook(lambda o: order.append("loaded"))
    state = optimizer.state_dict()
    assert state["extra"] == 1
    optimizer.load_state_dict(state)
    assert order == ["first", "pre", "loaded"]


def test_an_optimizer_of_ones_own():
    class Signs(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @treadle.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad.sign() * group["lr"])

    p = treadle.nn.Parameter(treadle.tensor([1.0, 2.0]))
    optimizer = Signs([p], 0.5)
    p.grad = treadle.tensor([3.0, -3.0])
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), [0.5, 2.5])
    with pytest.raises(NotImplementedError):
        optim.Optimizer([p], {}).step()
