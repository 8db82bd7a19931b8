"""Text of tensors."""

import numpy as np
import pytest

import treadle as T

TEXTS = [
    (lambda: T.tensor(3), "tensor(3)"),
    (lambda: T.tensor(2.5), "tensor(2.5000)"),
    (lambda: T.tensor(True), "tensor(True)"),
    (lambda: T.tensor([1, -2]), "tensor([ 1, -2])"),
    (lambda: T.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
    (lambda: T.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: T.tensor([-1.0, 2.0]), "tensor([-1.,  2.])"),
    (lambda: T.tensor([True, False]), "tensor([ True, False])"),
    (lambda: T.tensor([]), "tensor([])"),
    (lambda: T.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: T.tensor([1], dtype=T.int32), "tensor([1], dtype=treadle.int32)"),
    (lambda: T.tensor([1.0], dtype=T.float64), "tensor([1.], dtype=treadle.float64)"),
    (lambda: T.tensor([0.5], dtype=T.float16), "tensor([0.5000], dtype=treadle.float16)"),
    (lambda: T.tensor([0.5], dtype=T.bfloat16), "tensor([0.5000], dtype=treadle.bfloat16)"),
    (lambda: T.tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
    (lambda: T.tensor([1e10]), "tensor([1.0000e+10])"),
    (lambda: T.tensor([float("nan"), float("inf"), 1.0]), "tensor([nan, inf, 1.])"),
    (lambda: T.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    (lambda: T.zeros(2, 1, 1), "tensor([[[0.]],\n\n        [[0.]]])"),
    (lambda: T.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: T.tensor([123456.0, 0.5]), "tensor([1.2346e+05, 5.0000e-01])"),
]


@pytest.mark.parametrize("make, text", TEXTS)
def test_repr(make, text):
    assert repr(make()) == text
    assert str(make()) == text


def test_computed_tensors_show_their_grad_fn():
    x = T.ones(1, requires_grad=True)
    assert repr(x * 2).startswith("tensor([2.], grad_fn=<")


def test_long_tensors_are_cut():
    text = repr(T.arange(10_000))
    assert text == "tensor([   0,    1,    2,  ..., 9997, 9998, 9999])"
    rows = repr(T.zeros(2000, 2)).splitlines()
    assert len(rows) == 7 and rows[3].strip() == "...,"


def test_wide_rows_wrap():
    lines = repr(T.arange(40)).splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines)


def test_print_options():
    T.set_printoptions(precision=2)
    try:
        assert repr(T.tensor([1.23456])) == "tensor([1.23])"
        T.set_printoptions(sci_mode=True)
        assert "e" in repr(T.tensor([1.5]))
    finally:
        T.set_printoptions(profile="default")
    assert repr(T.tensor([1.23456])) == "tensor([1.2346])"


def test_format():
    assert f"{T.tensor(1.23456):.2f}" == "1.23"
    assert f"{T.tensor(7):03d}" == "007"
    assert f"{T.tensor([1])}" == "tensor([1])"


@pytest.mark.parametrize("seed", range(6))
def test_the_same_text_as_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    for scale in (1e-6, 1e-3, 1, 1e3, 1e6):
        for shape in ((), (3,), (2, 3), (2, 2, 2), (40,)):
            a = (rng.standard_normal(shape) * scale).astype(np.float32)
            a = a.round() if seed % 2 else a
            assert repr(T.tensor(a)) == repr(torch.tensor(a))
            n = (rng.standard_normal(shape) * 1000).astype(np.int64)
            assert repr(T.tensor(n)) == repr(torch.tensor(n))
