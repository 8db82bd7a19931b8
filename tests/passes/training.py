"""Graphs of whole training steps, for counts of launches and for compile times."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir import dtypes
from treadle.ir.core import Builder, Function, Value
from treadle.ir.ops.composites.activations import Relu
from treadle.ir.ops.composites.convolution import Linear
from treadle.ir.ops.composites.losses import CrossEntropy
from treadle.ir.ops.composites.normalisation import LayerNorm, Mean
from treadle.ir.ops.composites.optimizers import AdamUpdate, SgdUpdate
from treadle.ir.ops.control import Grad
from treadle.ir.ops.sources import Constant
from treadle.ir.types import TensorType
from treadle.passes.decompose import decompose
from treadle.passes.expand_grad import expand_grad
from treadle.passes.simplify import simplify

__all__ = ["layer_norm_backward", "mlp_step"]

F32 = dtypes.float32
SCALAR = TensorType(F32)


def prepared(fn: Function) -> Function:
    return simplify(decompose(expand_grad(fn)))


def _sgd(b: Builder, p: Value, g: Value, states: list[Value], scalars: list[Value]) -> tuple[Value, ...]:
    return tuple(b.emit(SgdUpdate(momentum=0.9, first=False), p, g, states[0], scalars[0]))


def _adam(b: Builder, p: Value, g: Value, states: list[Value], scalars: list[Value]) -> tuple[Value, ...]:
    return tuple(b.emit(AdamUpdate(), p, g, *states, *scalars))


def mlp_step(optimizer: str, sizes: tuple[int, ...] = (784, 512, 256, 10), batch: int = 128) -> Function:
    """(x, target, scalars.., parameters.., states..) -> (loss, new parameters and states..)."""
    update: Callable[..., tuple[Value, ...]] = _sgd if optimizer == "sgd" else _adam
    count, states = (1, 1) if optimizer == "sgd" else (3, 2)
    x, target = Value(TensorType(F32, (batch, sizes[0]))), Value(TensorType(dtypes.int64, (batch,)))
    scalars = [Value(SCALAR) for _ in range(count)]
    shapes = [s for i, o in zip(sizes, sizes[1:], strict=False) for s in ((o, i), (o,))]
    weights = [Value(TensorType(F32, s)) for s in shapes]
    memory = [[Value(TensorType(F32, s)) for s in shapes] for _ in range(states)]
    b = Builder()
    h = x
    for k in range(0, len(weights), 2):
        h = b.emit(Linear(), h, weights[k], weights[k + 1])
        if k + 2 < len(weights):
            h = b.emit(Relu(), h)
    loss = b.emit(Mean((0,)), b.emit(CrossEntropy(), h, target))
    seed = b.emit(Constant(1.0, F32))
    grads = b.emit(Grad(1, (False,) * len(weights)), loss, seed, *weights)
    made: list[Value] = []
    for k, (p, g) in enumerate(zip(weights, grads, strict=True)):
        made += update(b, p, g, [m[k] for m in memory], scalars)
    params = [x, target, *scalars, *weights, *(v for m in memory for v in m)]
    return prepared(Function("step", b.block(params, [loss, *made])))


def layer_norm_backward(rows: int = 64, size: int = 96) -> Function:
    """(x, w, b, cotangent) -> gradients of x, w and b."""
    x, w, c = (Value(TensorType(F32, s)) for s in ((rows, size), (size,), (size,)))
    ct = Value(x.type)
    b = Builder()
    y = b.emit(LayerNorm(1), x, w, c)
    return prepared(Function("ln", b.block([x, w, c, ct], b.emit(Grad(1, (False,) * 3), y, ct, x, w, c))))
