"""Module: registration, look-up, traversal, modes, printing, copies."""

import copy
import pickle

import numpy as np
import pytest

import treadle
from treadle import nn


class Block(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.act = nn.ReLU()
        self.scale = nn.Parameter(treadle.ones(width))
        self.register_buffer("count", treadle.zeros(1))
        self.register_buffer("scratch", treadle.zeros(1), persistent=False)

    def forward(self, x):
        return self.act(self.fc(x)) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = Block()
        self.b.fc.weight = self.a.fc.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_named_parameters_visit_shared_ones_once():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == ["a.scale", "a.fc.weight", "a.fc.bias", "b.scale", "b.fc.bias"]
    assert "b.fc.weight" in dict(net.named_parameters(remove_duplicate=False))
    assert [n for n, _ in net.named_parameters(recurse=False)] == []
    assert [n for n, _ in net.a.named_parameters(prefix="x", recurse=False)] == ["x.scale"]


def test_named_modules_children_and_buffers():
    net = Net()
    assert [n for n, _ in net.named_modules()] == ["", "a", "a.fc", "a.act", "b", "b.fc", "b.act"]
    assert [n for n, _ in net.named_children()] == ["a", "b"]
    assert [n for n, _ in net.named_buffers()] == ["a.count", "a.scratch", "b.count", "b.scratch"]
    shared = nn.ReLU()
    twice = nn.Sequential(shared, shared)
    assert len(list(twice.modules())) == 2
    assert [n for n, _ in twice.named_modules(remove_duplicate=False)] == ["", "0", "1"]


def test_assignment_moves_a_name_between_tables():
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(treadle.ones(1))
    assert "x" in m._parameters and "x" not in m.__dict__
    with pytest.raises(TypeError, match="cannot assign 'int' as parameter 'x'"):
        m.x = 3
    m.x = None
    assert m.x is None and list(m.parameters()) == []
    m.child = nn.ReLU()
    with pytest.raises(TypeError, match="as child module 'child'"):
        m.child = 3
    m.child = None
    assert m.child is None
    m.register_buffer("buf", treadle.zeros(2))
    m.buf = treadle.ones(3)
    assert tuple(m._buffers["buf"].shape) == (3,)
    with pytest.raises(TypeError, match="as buffer 'buf'"):
        m.buf = "no"
    del m.buf
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'buf'"):
        _ = m.buf


def test_buffer_objects_register_themselves():
    m = nn.Module()
    m.kept = nn.Buffer(treadle.ones(2))
    m.dropped = nn.Buffer(treadle.ones(2), persistent=False)
    assert list(m.state_dict()) == ["kept"]
    assert sorted(dict(m.named_buffers())) == ["dropped", "kept"]


@pytest.mark.parametrize("name, error", [("a.b", KeyError), ("", KeyError), ("forward", KeyError), (3, TypeError)])
def test_bad_names_are_refused(name, error):
    m = nn.Module()
    for register in (m.register_parameter, m.register_buffer, m.add_module):
        with pytest.raises(error):
            register(name, None)


def test_register_parameter_wants_leaf_parameters():
    m = nn.Module()
    with pytest.raises(TypeError):
        m.register_parameter("w", treadle.ones(2))
    with pytest.raises(TypeError):
        m.add_module("m", 3)
    with pytest.raises(TypeError):
        m.register_buffer("b", 3)


def test_assigning_before_init_is_an_error():
    class Bad(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(treadle.ones(1))

    with pytest.raises(AttributeError, match="before Module.__init__"):
        Bad()
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        nn.Module(x=1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 3 were given"):
        nn.Module(1, 2)


def test_get_and_set_by_path():
    net = Net()
    assert net.get_submodule("a.fc") is net.a.fc and net.get_submodule("") is net
    assert net.get_parameter("a.fc.bias") is net.a.fc.bias
    assert net.get_buffer("a.count") is net.a.count
    for bad in (
        lambda: net.get_submodule("a.none"),
        lambda: net.get_submodule("a.scale"),
        lambda: net.get_parameter("a.fc"),
        lambda: net.get_buffer("a.scale"),
    ):
        with pytest.raises(AttributeError):
            bad()
    new = nn.Tanh()
    net.set_submodule("a.act", new)
    assert net.a.act is new


def test_modes_and_freezing():
    net = Net()
    assert net.eval() is net and not net.a.fc.training
    assert net.train().b.act.training
    with pytest.raises(ValueError):
        net.train("yes")
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_apply_goes_from_the_leaves_up():
    seen = []
    Net().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "ReLU", "Block", "Linear", "ReLU", "Block", "Net"]


def test_zero_grad():
    m = nn.Linear(2, 1, bias=False)
    m(treadle.ones(1, 2)).sum().backward()
    grad = m.weight.grad
    m.zero_grad(set_to_none=False)
    assert m.weight.grad is grad and not np.any(grad.numpy())
    m.zero_grad()
    assert m.weight.grad is None


def test_missing_forward():
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)


def test_repr_nests_and_indents():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU())))
    assert text == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): Sequential(\n    (0): ReLU()\n  )\n)"
    )


def test_dir_lists_members():
    names = dir(Block())
    assert {"fc", "scale", "count", "forward"} <= set(names)
    assert "0" not in dir(nn.Sequential(nn.ReLU()))


def test_deepcopy_keeps_ties_and_copies_values():
    net = Net()
    twin = copy.deepcopy(net)
    assert twin.a.fc.weight is twin.b.fc.weight is not net.a.fc.weight
    with treadle.no_grad():
        twin.a.fc.weight.zero_()
    assert np.any(net.a.fc.weight.detach().numpy())


def test_pickle_round_trip():
    net = Net()
    back = pickle.loads(pickle.dumps(net))
    assert isinstance(back.a.fc.weight, nn.Parameter)
    assert back.a.fc.weight is back.b.fc.weight
    x = treadle.ones(1, 2)
    np.testing.assert_array_equal(net(x).detach().numpy(), back(x).detach().numpy())


def test_compile_returns_nothing():
    assert nn.ReLU().compile(mode="max-autotune") is None
