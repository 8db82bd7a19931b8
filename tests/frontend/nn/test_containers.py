"""Containers of modules and parameters."""

from collections import OrderedDict

import pytest

import treadle
from treadle import nn


def layers(n):
    return [nn.Linear(i + 1, i + 2) for i in range(n)]


def test_sequential_as_a_list():
    a, b, c, d = layers(4)
    s = nn.Sequential(a, b, c)
    assert tuple(s(treadle.ones(2, 1)).shape) == (2, 4)
    assert s[-1] is c and len(s[1:]) == 2 and list(s) == [a, b, c]
    s.append(d)
    assert s.pop(0) is a and [k for k, _ in s.named_children()] == ["0", "1", "2"]
    s.insert(0, a)
    assert list(s) == [a, b, c, d]
    del s[1:3]
    assert list(s) == [a, d]
    s[1] = b
    assert list(s + nn.Sequential(c)) == [a, b, c]
    assert len(s * 2) == 4
    with pytest.raises(IndexError):
        s[5]
    named = nn.Sequential(OrderedDict(first=a, second=b))
    assert named.first is a and named[1] is b


def test_module_list():
    a, b, c = layers(3)
    m = nn.ModuleList([a, b])
    m += [c]
    m.insert(1, a)
    assert list(m) == [a, a, b, c] and isinstance(m[1:], nn.ModuleList)
    del m[0]
    assert m.pop(-1) is c and list(m) == [a, b]
    m[0] = c
    assert m[0] is c
    assert len(list(nn.ModuleList([a, a]).parameters())) == 2
    with pytest.raises(TypeError):
        m.extend(3)
    with pytest.raises(NotImplementedError):
        m(1)
    assert repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])) == (
        "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)"
    )


def test_module_dict():
    m = nn.ModuleDict({"a": nn.ReLU()})
    m.update([("b", nn.Tanh())])
    m["c"] = nn.GELU()
    assert list(m) == ["a", "b", "c"] and "b" in m and len(m) == 3
    assert isinstance(m.pop("b"), nn.Tanh) and list(m.keys()) == ["a", "c"]
    del m["a"]
    m.clear()
    assert len(m) == 0
    with pytest.raises(ValueError):
        m.update([("a", nn.ReLU(), 3)])


def test_parameter_list():
    p = nn.ParameterList([treadle.ones(2), nn.Parameter(treadle.zeros(3))])
    p.append(treadle.ones(1))
    p.extend([nn.Parameter(treadle.ones(4))])
    assert len(p) == 4 and all(isinstance(x, nn.Parameter) for x in p)
    assert [n for n, _ in p.named_parameters()] == ["0", "1", "2", "3"]
    p[0] = treadle.zeros(5)
    assert tuple(p[0].shape) == (5,) and len(p[1:3]) == 2
    with pytest.raises(IndexError):
        p[9]


def test_parameter_dict():
    p = nn.ParameterDict({"a": treadle.ones(1), "b": treadle.ones(2)})
    p["c"] = nn.Parameter(treadle.ones(3))
    assert list(p) == ["a", "b", "c"] and "b" in p and len(list(p.parameters())) == 3
    assert tuple(p.pop("b").shape) == (2,) and "b" not in p
    assert p.get("zz") is None and p.setdefault("d", treadle.ones(4)) is p["d"]
    assert p.popitem()[0] == "d"
    assert list((p | nn.ParameterDict({"e": treadle.ones(1)})).keys()) == ["a", "c", "e"]
    with pytest.raises(KeyError):
        p["none"]
