"""state_dict and load_state_dict."""

from collections import OrderedDict

import numpy as np
import pytest

import treadle
from treadle import nn


def net():
    return nn.Sequential(OrderedDict(fc=nn.Linear(2, 3), norm=nn.BatchNorm1d(3)))


def test_keys_metadata_and_sharing():
    m = net()
    state = m.state_dict()
    assert list(state) == [
        "fc.weight",
        "fc.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ]
    assert state._metadata["norm"] == {"version": 2} and state._metadata[""] == {"version": 1}
    assert not state["fc.weight"].requires_grad
    assert m.state_dict(keep_vars=True)["fc.weight"] is m.fc.weight
    with treadle.no_grad():
        m.fc.bias.fill_(7)
    np.testing.assert_array_equal(state["fc.bias"].numpy(), [7, 7, 7])
    assert list(m.state_dict(prefix="p."))[0] == "p.fc.weight"


def test_load_copies_values():
    a, b = net(), net()
    weight = b.fc.weight
    assert repr(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert b.fc.weight is weight
    np.testing.assert_array_equal(a.fc.weight.detach().numpy(), weight.detach().numpy())


def test_strict_lists_missing_and_unexpected_keys():
    m = net()
    state = dict(m.state_dict())
    del state["fc.bias"]
    state["extra"] = state["fc.more.x"] = treadle.ones(1)
    with pytest.raises(RuntimeError) as error:
        m.load_state_dict(state)
    assert str(error.value) == (
        'Error(s) in loading state_dict for Sequential:\n\tMissing key(s) in state_dict: "fc.bias". '
        '\n\tUnexpected key(s) in state_dict: "extra", "fc.more.x". '
    )
    missing, unexpected = m.load_state_dict(state, strict=False)
    assert missing == ["fc.bias"] and unexpected == ["extra", "fc.more.x"]


def test_size_mismatch_is_an_error_always():
    with pytest.raises(RuntimeError, match="size mismatch for weight: copying a param with shape"):
        nn.Linear(2, 2).load_state_dict({"weight": treadle.zeros(3, 2), "bias": treadle.zeros(2)}, strict=False)
    with pytest.raises(RuntimeError, match="expected .*Tensor"):
        nn.Linear(2, 2).load_state_dict({"weight": 3, "bias": treadle.zeros(2)})
    with pytest.raises(TypeError, match="dict-like"):
        nn.Linear(2, 2).load_state_dict([1])


def test_assign_takes_the_tensors_themselves():
    m = nn.Linear(2, 2)
    weight = treadle.ones(2, 2, dtype=treadle.float64)
    m.load_state_dict({"weight": weight, "bias": nn.Parameter(treadle.zeros(2))}, assign=True)
    assert m.weight.dtype == treadle.float64 and isinstance(m.weight, nn.Parameter)


def test_one_element_vector_loads_into_a_scalar():
    m = nn.Module()
    m.p = nn.Parameter(treadle.tensor(0.0))
    m.load_state_dict({"p": treadle.tensor([3.0])})
    assert float(m.p) == 3.0


def test_old_batch_norm_without_count():
    m = nn.BatchNorm1d(2)
    state = dict(m.state_dict())
    del state["num_batches_tracked"]
    m.load_state_dict(state)


def test_extra_state_and_hooks():
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.note = "a"

        def get_extra_state(self):
            return {"note": self.note}

        def set_extra_state(self, state):
            self.note = state["note"]

    a, b = nn.Sequential(Extra()), nn.Sequential(Extra())
    a[0].note = "z"
    seen = []
    a.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("pre"))
    a.register_state_dict_post_hook(lambda m, state, prefix, meta: seen.append("post"))
    a._register_state_dict_hook(lambda m, state, prefix, meta: OrderedDict(state, more=1))
    state = a.state_dict()
    assert seen == ["pre", "post"] and state.pop("more") == 1 and list(state) == ["0._extra_state"]

    def rename(module, state, prefix, *rest):
        seen.append("load")

    b.register_load_state_dict_pre_hook(rename)
    b.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    b.load_state_dict({**state, "odd": treadle.ones(1)})
    assert b[0].note == "z" and seen[-1] == "load"
