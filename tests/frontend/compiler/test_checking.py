"""check_mode: right programs pass, wrong ones are caught, and the op that went wrong is named."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import treadle as torch
from treadle import nn
from treadle.compiler import CheckError, check_mode
from treadle.compiler.checking import run_checked
from treadle.compiler.executable import Interpreted
from treadle.ir.core import Block, Function, Op
from treadle.ir.ops.arithmetic import Add, Mul
from treadle.ir.parser import parse_function
from treadle.runtime import Buffer

GRAPH = """
graph.func @f(%x: tensor<[s0]xf32>, %y: tensor<[s0]xf32>) symbols(s0) {
  %0 = "graph.neg"(%x) : (tensor<[s0]xf32>) -> tensor<[s0]xf32> loc("train.py":1)
  %1 = "graph.exp"(%0) : (tensor<[s0]xf32>) -> tensor<[s0]xf32> loc("train.py":2)
  %2 = "graph.add"(%1, %y) : (tensor<[s0]xf32>, tensor<[s0]xf32>) -> tensor<[s0]xf32> loc("train.py":3)
  %3 = "graph.sqrt"(%2) : (tensor<[s0]xf32>) -> tensor<[s0]xf32> loc("train.py":4)
  %4 = "graph.neg"(%3) : (tensor<[s0]xf32>) -> tensor<[s0]xf32> loc("train.py":5)
  return %4 : tensor<[s0]xf32>
}
"""


def broken(op: Op) -> Op:
    """A compiler's fault: additions multiply."""
    return replace(op, operation=Mul()) if isinstance(op.operation, Add) else op


@dataclass
class Faulty:
    """An executable of a function whose additions multiply."""

    function: Function
    leaves: int

    def run(self, buffers: list[Any], scalars: list[Any], bindings: dict[str, int]) -> list[Any]:
        body = self.function.body
        wrong = replace(self.function, body=Block(body.params, tuple(map(broken, body.ops)), body.yields))
        return Interpreted(wrong, self.leaves).run(buffers, scalars, bindings)


def buffers() -> list[Buffer]:
    rng = np.random.default_rng(0)
    return [Buffer.from_bytes(rng.random(6).astype(np.float32).tobytes()) for _ in range(2)]


def test_the_first_wrong_op_is_named() -> None:
    fn = parse_function(GRAPH)
    with pytest.raises(CheckError) as caught:
        run_checked(Faulty(fn, 2), fn, buffers(), [], {"s0": 6}, compile=Faulty)
    error = caught.value
    assert error.op is not None and error.op.operation.name == "graph.add"
    assert error.loc is not None and (error.loc.file, error.loc.line) == ("train.py", 3)
    assert error.max_difference > 0.01
    assert "add" in str(error) and "train.py:3" in str(error)


def test_a_fault_of_the_whole_program_only() -> None:
    fn = parse_function(GRAPH)
    with pytest.raises(CheckError, match="in the whole program only") as caught:
        run_checked(Faulty(fn, 2), fn, buffers(), [], {"s0": 6}, compile=Interpreted)
    assert caught.value.op is not None and caught.value.op.loc is not None and caught.value.op.loc.line == 5


def test_a_right_program_passes() -> None:
    fn = parse_function(GRAPH)
    (made,) = run_checked(Interpreted(fn, 2), fn, buffers(), [], {"s0": 6})
    assert made.array(np.float32, [6]).max() < 0


def test_integers_are_exact() -> None:
    fn = parse_function("""
    graph.func @f(%x: tensor<2xi64>) {
      %0 = "graph.add"(%x, %x) : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
      return %0 : tensor<2xi64>
    }""")
    x = Buffer.from_bytes(np.array([2, 3]).tobytes())
    with pytest.raises(CheckError, match=r"element\[1\] is 9 compiled, 6 by NumPy"):
        run_checked(Faulty(fn, 1), fn, [x], [], {}, compile=Faulty)


def test_rounding_is_no_fault() -> None:
    """A sum that cancels to noise: its relative error is large, and is rounding."""
    fn = parse_function("""
    graph.func @f(%x: tensor<1000xf32>) {
      %0 = "graph.sum"(%x) {dims = [0]} : (tensor<1000xf32>) -> tensor<f32>
      return %0 : tensor<f32>
    }""")
    rng = np.random.default_rng(1)
    half = rng.standard_normal(500).astype(np.float32)
    x = rng.permutation(np.concatenate([half, -half]))

    class Reordered:
        def run(self, buffers: list[Any], scalars: list[Any], bindings: dict[str, int]) -> list[Any]:
            values = buffers[0].array(np.float32, [1000])
            return [Buffer.from_bytes(np.float32(np.cumsum(values)[-1] + 1e-7).tobytes())]

    run_checked(Reordered(), fn, [Buffer.from_bytes(x.tobytes())], [], {})


def test_a_training_run_passes() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    with check_mode():
        for n in (8, 8, 5):
            x, y = torch.rand(n, 1, 4, 4), torch.randint(0, 3, (n,))
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert all(np.isfinite(losses))


def test_check_mode_catches_a_wrong_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(4)
    torch.sync()
    for module in ("driver", "checking"):
        monkeypatch.setattr(f"treadle.compiler.{module}.make_executable", lambda fn, leaves, *_: Faulty(fn, leaves))
    with check_mode(), pytest.raises(CheckError, match="add") as caught:
        (x.exp() + x).sum().item()
    assert caught.value.loc is not None and caught.value.loc.file == __file__
