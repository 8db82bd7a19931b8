"""Custom differentiable functions: a user's forward and backward as one node of the graph."""

from __future__ import annotations

from typing import Any

from treadle.backward.engine import FunctionCell
from treadle.backward.modes import no_grad
from treadle.recorder.handle import Handle, concrete
from treadle.recorder.segment import serial
from treadle.recorder.trace import current_trace, make_tensor, state
from treadle.tensor import Tensor, force

__all__ = ["Function", "FunctionContext", "once_differentiable"]


class FunctionContext:
    """What forward passes to backward."""

    def __init__(self) -> None:
        self._saved: tuple = ()
        self._plain: set[int] = set()
        self._dirty: set[int] = set()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs and outputs (or other tensors, or None) for backward."""
        self._saved = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple:
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These outputs get no gradient."""
        self._plain.update(id(t) for t in tensors)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """These inputs were changed in place by forward."""
        self._dirty.update(id(t) for t in tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default) or None for outputs without a gradient."""
        self._materialize = value


class _Node:
    """One application: ordered in time among segments, and by trace index inside its trace."""

    def __init__(self, function: type[Function], context: FunctionContext, inputs: list[Handle | None]) -> None:
        self.function = function
        self.context = context
        self.inputs = inputs
        self.outputs: list[Tensor] = []
        self.order = serial()
        self.segment_order = -1
        self.trace: Any = None
        self.index = -1
        self.freed = False

    def run(self, cots: dict[int, Tensor], retain: bool) -> list[tuple[Handle, Any]]:
        """Call the user's backward; (input handle, cotangent) of each input that needs one."""
        if self.freed:
            raise RuntimeError("Trying to backward through the graph a second time")
        given: list[Any] = []
        for k, (shape, dtype) in enumerate(self.outputs):
            cot = cots.get(k)
            if cot is None and self.context._materialize and shape is not None:
                from treadle.ops.creation import zeros

                cot = zeros(shape, dtype=dtype)
            given.append(cot)
        grads = self.function.backward(self.context, *given)
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) < len(self.inputs) or any(g is not None for g in grads[len(self.inputs) :]):
            raise RuntimeError(
                f"function {self.function.__name__}Backward returned an incorrect number of gradients (expected {len(self.inputs)}, got {len(grads)})"
            )
        if not retain:
            self.freed = True
            self.context._saved = ()
        return [(h, g) for h, g in zip(self.inputs, grads, strict=False) if h is not None and h.grad and g is not None]


class Function:
    """Subclass with static `forward(ctx, ...)` (or `forward(...)` and `setup_context`) and `backward(ctx, *grads)`."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward; outputs remember how to run backward."""
        context = FunctionContext()
        for a in args:
            if isinstance(a, Tensor):
                _settle(a)
        inputs = [a._h if isinstance(a, Tensor) else None for a in args]
        context.needs_input_grad = tuple(h is not None and h.grad for h in inputs)
        tracked = any(context.needs_input_grad) and not state.trace.no_grad
        with no_grad():
            if "setup_context" in cls.__dict__ or hasattr(cls, "setup_context"):
                out = cls.forward(*args, **kwargs)
                cls.setup_context(context, args, out)  # type: ignore[attr-defined]
            else:
                out = cls.forward(context, *args, **kwargs)
        if not tracked:
            return out
        outputs = out if isinstance(out, tuple) else (out,)
        node = _Node(cls, context, inputs)
        made = tuple(_attach(node, k, t, context, args) for k, t in enumerate(outputs))
        return made if isinstance(out, tuple) else made[0]


def _settle(t: Tensor) -> None:
    while t._h.resolve is not None:
        t._h = t._h.resolve()


def _attach(node: _Node, k: int, t: Any, context: FunctionContext, args: tuple) -> Any:
    if not isinstance(t, Tensor) or not t.dtype.is_floating or id(t) in context._plain:
        node.outputs.append((tuple(t.shape) if isinstance(t, Tensor) else None, getattr(t, "dtype", None)))
        return t
    node.outputs.append((tuple(t.shape), t.dtype))
    cell = FunctionCell(node, k)
    _settle(t)
    h = t._h
    tr = current_trace()
    if h.buffer is None and h.trace is tr:
        made = tr.mark(cell, h)
        node.trace, node.index = tr, made.index
    else:
        force(t)
        made = concrete(h.buffer, h.type, True, cell)
    if id(t) in context._dirty:
        t._h = made
        return t
    result = make_tensor(made)
    context._saved = (
        tuple(result if s is t else s for s in context._saved) if not any(t is a for a in args) else context._saved
    )
    return result


def once_differentiable(fn: Any) -> Any:
    """Decorator of a backward that is not itself differentiated."""

    def wrapped(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            return fn(ctx, *grads)

    return wrapped
