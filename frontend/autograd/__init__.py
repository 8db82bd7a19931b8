"""torch.autograd: grad, backward, custom Functions, grad modes. The machinery is in treadle.backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.autograd import functional
from treadle.autograd.function import Function, FunctionContext, once_differentiable
from treadle.autograd.gradcheck import gradcheck
from treadle.backward.engine import run_backward
from treadle.backward.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from treadle.tensor import Tensor, _seeds, backward

__all__ = [
    "Function", "FunctionContext", "backward", "enable_grad", "functional", "grad", "gradcheck", "inference_mode",
    "no_grad", "once_differentiable", "set_grad_enabled",
]  # fmt: skip

Variable = Tensor


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Gradients of `outputs` with respect to `inputs`. Raises RuntimeError for an unused input unless allowed."""
    if is_grads_batched:
        raise NotImplementedError("is_grads_batched is not implemented")
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    given: Sequence[Any] = (
        [grad_outputs] if grad_outputs is None or isinstance(grad_outputs, Tensor) else list(grad_outputs)
    )
    if len(given) == 1 and len(roots) > 1 and given[0] is None:
        given = [None] * len(roots)
    for t in wanted:
        if not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    keep = create_graph if retain_graph is None else retain_graph
    found = run_backward(roots, _seeds(roots, list(given)), wanted, create_graph, keep, accumulate=False)
    out = []
    for t, g in zip(wanted, found, strict=True):
        if g is None and materialize_grads:
            g = t.new_zeros(t.shape)
        if g is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if "
                "this is the desired behavior."
            )
        out.append(g)
    return tuple(out)
