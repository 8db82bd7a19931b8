"""Averaged weights and batch-norm statistics."""

import copy

import numpy as np
import pytest

import treadle

swa = treadle.optim.swa_utils
nn = treadle.nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(treadle.zeros(3))
        self.register_buffer("seen", treadle.zeros(2))

    def forward(self, x):
        return x * self.weight


def fill(model, value):
    with treadle.no_grad():
        model.weight.fill_(value)
        model.seen.fill_(value)


def averaged(values, **options):
    model = Model()
    average = swa.AveragedModel(model, **options)
    for value in values:
        fill(model, value)
        average.update_parameters(model)
    return average


def value(average, name="weight"):
    return getattr(average.module, name).detach().numpy()[0]


def test_mean():
    average = averaged([1.0, 2.0, 6.0])
    assert value(average) == pytest.approx(3.0)
    assert value(average, "seen") == 6.0
    assert int(average.n_averaged) == 3
    assert average.n_averaged.dtype == treadle.int64
    np.testing.assert_allclose(average(treadle.ones(3)).detach().numpy(), [3, 3, 3], rtol=1e-6)


def test_buffers_are_averaged_on_request():
    assert value(averaged([1.0, 2.0, 6.0], use_buffers=True), "seen") == pytest.approx(3.0)


@pytest.mark.parametrize(
    "options", [{"avg_fn": swa.get_ema_avg_fn(0.5)}, {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.5)}]
)
def test_exponential_average(options):
    assert value(averaged([1.0, 2.0, 6.0], **options)) == pytest.approx(0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 6)


@pytest.mark.parametrize("options", [{"avg_fn": swa.get_swa_avg_fn()}, {"multi_avg_fn": swa.get_swa_multi_avg_fn()}])
def test_mean_by_the_functions(options):
    assert value(averaged([1.0, 2.0, 6.0], **options)) == pytest.approx(3.0)


def test_the_model_is_not_touched():
    model = Model()
    average = swa.AveragedModel(model)
    fill(model, 4.0)
    average.update_parameters(model)
    fill(average.module, 0.0)
    assert model.weight.detach().numpy()[0] == 4.0


def test_loading_a_state():
    first = averaged([1.0, 3.0])
    second = averaged([9.0])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    model = Model()
    fill(model, 5.0)
    second.update_parameters(model)
    assert value(second) == pytest.approx(3.0)
    assert int(second.n_averaged) == 3


def test_checks():
    with pytest.raises(ValueError, match="Only one"):
        swa.AveragedModel(Model(), avg_fn=swa.get_swa_avg_fn(), multi_avg_fn=swa.get_swa_multi_avg_fn())
    for make in (swa.get_ema_avg_fn, swa.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="decay"):
            make(1.5)
    optimizer = treadle.optim.SGD([treadle.nn.Parameter(treadle.zeros(1))], lr=0.1)
    with pytest.raises(ValueError, match="anneal_strategy"):
        swa.SWALR(optimizer, 0.1, anneal_strategy="fast")
    with pytest.raises(ValueError, match="anneal_epochs"):
        swa.SWALR(optimizer, 0.1, anneal_epochs=-1)


def test_swalr_reaches_its_rate_and_stays():
    optimizer = treadle.optim.SGD([treadle.nn.Parameter(treadle.zeros(1))], lr=0.1)
    scheduler = swa.SWALR(optimizer, 0.02, anneal_epochs=4, anneal_strategy="linear")
    rates = []
    for _ in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02, 0.02, 0.02])


def test_update_bn():
    model = nn.Sequential(nn.BatchNorm1d(2))
    model.eval()
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((5, 2)).astype(np.float32) for _ in range(4)]
    swa.update_bn([(treadle.tensor(batch), 0) for batch in batches], model)
    mean = np.mean([batch.mean(0) for batch in batches], 0)
    var = np.mean([batch.var(0, ddof=1) for batch in batches], 0)
    np.testing.assert_allclose(model[0].running_mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model[0].running_var.numpy(), var, rtol=1e-5)
    assert model[0].momentum == 0.1
    assert not model.training
    swa.update_bn(None, nn.Sequential(nn.Identity()))  # nothing to do: the loader is not looked at
