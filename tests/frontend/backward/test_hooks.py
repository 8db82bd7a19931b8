"""Python code inside a backward: hooks and custom Functions that read values, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle

torch = pytest.importorskip("torch")


def leaf(T: Any, *values: float) -> Any:
    return T.tensor(list(values), dtype=T.float64, requires_grad=True)


def hooked(T: Any, t: Any, log: list, read: bool, factor: float = 1.0) -> Any:
    """Note the gradient's sum when the hook runs (`read`) or when all is over, and scale the gradient."""

    def hook(g: Any) -> Any:
        log.append(float(g.detach().sum()) if read else g.detach().clone())
        return g * factor

    return t.register_hook(hook)


def one(T: Any, log: list, read: bool, force: Callable) -> list:
    x = leaf(T, 1, 2, 3)
    y = x * 2
    hooked(T, y, log, read, 2.0)
    z = (y * 3 * y).sum()
    force(z)
    z.backward()
    return [x.grad]


def chain(T: Any, log: list, read: bool, force: Callable) -> list:
    x, w = leaf(T, 1, 2, 3), leaf(T, 3, 2, 1)
    y = x * x
    hooked(T, y, log, read, 2.0)
    z = y * w * y
    hooked(T, z, log, read, 3.0)
    force(z)
    (z * y).sum().backward()
    return [x.grad, w.grad]


def siblings(T: Any, log: list, read: bool, force: Callable) -> list:
    x = leaf(T, 1, 2, 3)
    c = x * x * x
    a, b = c * c, c.exp()
    hooked(T, a, log, read, 2.0)
    hooked(T, b, log, read, 3.0)
    z = (a * b).sum()
    force(z)
    z.backward()
    return [x.grad]


def dropped(T: Any, log: list, read: bool, force: Callable) -> list:
    """Values that nobody holds any more but their hooks."""
    x = leaf(T, 0.1, 0.2, 0.3)
    t = x
    for k in range(3):
        t = (t * t).exp() * x
        hooked(T, t, log, read, 1.0 + k)
    loss = t.sum()
    del t
    force(loss)
    loss.backward()
    return [x.grad]


def leaves(T: Any, log: list, read: bool, force: Callable) -> list:
    x, w = leaf(T, 1, 2), leaf(T, 3, 4)
    hooked(T, x, log, read, 2.0)
    hooked(T, w, log, read)
    y = x * w
    force(y)
    (y * y).sum().backward()
    return [x.grad, w.grad]


def retained(T: Any, log: list, read: bool, force: Callable) -> list:
    x = leaf(T, 1, 2)
    y = x * x
    y.retain_grad()
    z = y * x
    hooked(T, z, log, read)
    force(z)
    (z * y).sum().backward(retain_graph=True)
    (z * z).sum().backward()
    return [x.grad, y.grad]


def removed(T: Any, log: list, read: bool, force: Callable) -> list:
    x = leaf(T, 1, 2)
    y = x * x
    handle = hooked(T, y, log, read, 5.0)
    z = (y * y).sum()
    force(z)
    handle.remove()
    z.backward()
    return [x.grad]


def gradients(T: Any, log: list, read: bool, force: Callable) -> list:
    x = leaf(T, 1, 2)
    y = x * x
    hooked(T, y, log, read, 2.0)
    z = (y * y * x).sum()
    force(z)
    return [*T.autograd.grad(z, [y], retain_graph=True), *T.autograd.grad(z, [x])]


def functions(T: Any, log: list, read: bool, force: Callable) -> list:
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log.append(float(g.sum()) if read else g)
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(T, 1, 2, 3)
    y = x * x
    u = Double.apply(y)
    v = Double.apply(u * y)
    hooked(T, v, log, read, 2.0)
    z = (u * v * y).sum()
    force(z)
    z.backward()
    return [x.grad]


PROGRAMS = [one, chain, siblings, dropped, leaves, retained, removed, gradients, functions]


def outcome(T: Any, program: Callable, read: bool, early: bool) -> list[np.ndarray]:
    log: list = []
    found = program(T, log, read, (lambda t: t.detach().numpy()) if early else (lambda t: None))
    return [np.asarray(g.detach()) for g in found] + [np.asarray(v if read else float(v.sum())) for v in log]


@pytest.mark.parametrize("early", [False, True], ids=["recorded", "executed"])
@pytest.mark.parametrize("read", [False, True], ids=["lazy", "reads"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_python_in_a_backward(program: Callable, read: bool, early: bool) -> None:
    want = outcome(torch, program, read, early)
    for _ in range(3):  # recorded, then found in the tree
        got = outcome(treadle, program, read, early)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_reading_and_not_reading_share_no_programs() -> None:
    for read in (False, True, False, True):
        for early in (True, False, True):
            for a, b in zip(outcome(treadle, chain, read, early), outcome(torch, chain, read, early), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_create_graph_through_a_hook() -> None:
    found = []
    for T in (treadle, torch):
        x = leaf(T, 1, 2)
        y = x * x
        y.register_hook(lambda g: g * 2)
        (g,) = T.autograd.grad((y * y * x).sum(), [x], create_graph=True)
        (g * g).sum().backward()
        found.append((np.asarray(g.detach()), np.asarray(x.grad)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b)


def test_a_second_backward_is_refused() -> None:
    x = leaf(treadle, 1, 2)
    y = x * x
    y.register_hook(lambda g: g * float(g.sum()))
    z = (y * y).sum()
    z.numpy(force=True)
    z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()
