"""Errors come at the user's line and leave what was recorded before intact; every op knows where it was recorded."""

import traceback

import numpy as np
import pytest

import treadle as T
from tests.frontend.recorder.counting import nodes
from treadle.ir.core import Loc
from treadle.recorder import trace


def leaf(*shape):
    return T.from_numpy(np.ones(shape, dtype=np.float32))


BAD = {
    "broadcast": (lambda x: x + leaf(4), RuntimeError, r"size of tensor a \(3\) must match the size of tensor b \(4\)"),
    "matmul": (lambda x: x @ leaf(2, 2), RuntimeError, r"2x3.*2x2"),
    "reshape": (lambda x: x.reshape(4), RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
    "index": (lambda x: x[5], IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    "dim": (lambda x: x.sum(3), IndexError, r"expected to be in range of \[-2, 1\], but got 3"),
    "cat": (lambda x: T.cat([x, leaf(2, 4)]), RuntimeError, "Sizes of tensors must match"),
    "in-place": (lambda x: x.add_(leaf(5, 2, 3)), RuntimeError, r"output with shape \[2, 3\] doesn't match"),
    "cast": (lambda x: x.long().add_(0.5), RuntimeError, "result type Float can't be cast to .* Long"),
    "type": (lambda x: x + "a", TypeError, "unsupported operand"),
    "expand": (lambda x: x.expand(3, 3), RuntimeError, r"expanded size of the tensor \(3\) must match"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_leaves_the_trace_intact(name):
    bad, kind, message = BAD[name]
    x = leaf(2, 3)
    y = x * 2
    before = trace.current_trace()
    with pytest.raises(kind, match=message):
        bad(y)
    assert trace.current_trace() is before
    z = y + 1
    assert z.tolist() == [[3.0] * 3] * 2
    with pytest.raises(kind, match=message):  # and again, when the path exists
        bad(x * 2)
    assert (x * 2 + 1).tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("name", BAD)
def test_an_error_points_at_the_users_line(name):
    bad, kind, _ = BAD[name]
    x = leaf(2, 3) * 2
    with pytest.raises(kind) as caught:
        bad(x)
    frames = traceback.extract_tb(caught.tb)
    assert any(f.filename == __file__ and "lambda x" in (f.line or "") for f in frames)


def test_errors_of_values_do_not_close_a_trace_for_good():
    x = leaf(3)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            (x * 2).item()
        with pytest.raises(RuntimeError, match="ambiguous"):
            bool(x * 2)
    assert (x * 2).tolist() == [2.0] * 3


def test_an_index_out_of_range_in_a_tensor_raises_when_read_and_others_go_on():
    x = T.from_numpy(np.arange(4, dtype=np.float32))
    k = T.from_numpy(np.array([1, 9]))
    with pytest.raises((IndexError, RuntimeError), match="out of bounds|out of range"):
        T.gather(x, 0, k).tolist()
    assert (x + 1).tolist() == [1, 2, 3, 4]
    assert T.gather(x, 0, k.clamp(max=3)).tolist() == [1, 3]


def test_failed_ops_add_no_nodes():
    x = leaf(2, 3)
    (x * 2).realize()
    y = x * 2
    before = nodes()
    for _ in range(5):
        with pytest.raises(RuntimeError):
            y @ y
    assert nodes() <= before + 1
    del y


def test_every_op_carries_the_line_that_recorded_it():
    x = leaf(3)
    y = x.exp()
    z = T.nn.functional.gelu(y)
    first = z.sum()
    path = trace.current_trace().node.path()
    locs = [op.loc for node in path for op in node.ops]
    assert locs and all(isinstance(loc, Loc) for loc in locs)
    assert {loc.file for loc in locs} == {__file__}
    lines = [loc.line for loc in locs]
    start = test_every_op_carries_the_line_that_recorded_it.__code__.co_firstlineno
    assert sorted(set(lines)) == [start + 2, start + 3, start + 4]
    assert {loc.function for loc in locs} == {"test_every_op_carries_the_line_that_recorded_it"}
    assert first.item() > 0


def test_ops_of_a_backward_are_located_too():
    w = leaf(3).requires_grad_()
    w.exp().sum().backward()
    locs = [op.loc for node in trace.current_trace().node.path() for op in node.ops]
    assert all(loc is not None and loc.file == __file__ for loc in locs)
    assert w.grad.tolist() == pytest.approx([np.e] * 3, rel=1e-6)
