"""torch.autograd.functional: jacobian, hessian, vjp and products, by backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.backward.engine import run_backward
from treadle.backward.modes import enable_grad
from treadle.ops.views import stack
from treadle.tensor import Tensor

__all__ = ["hessian", "jacobian", "vjp"]


def _leaves(inputs: Any, create_graph: bool) -> tuple[bool, list[Tensor]]:
    single = isinstance(inputs, Tensor)
    given = [inputs] if single else list(inputs)
    return single, [t if create_graph and t.requires_grad else t.detach().requires_grad_() for t in given]


def jacobian(
    func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False
) -> Any:
    """d func / d inputs: for each output (and input) a tensor of shape output.shape + input.shape."""
    single, xs = _leaves(inputs, create_graph)
    with enable_grad():
        out = func(*xs)
    outs = [out] if isinstance(out, Tensor) else list(out)
    rows = [_rows(y, xs, create_graph) for y in outs]
    tables = [r[0] if single else tuple(r) for r in rows]
    return tables[0] if isinstance(out, Tensor) else tuple(tables)


def _rows(y: Tensor, xs: list[Tensor], create_graph: bool) -> list[Tensor]:
    flat = y.reshape(-1)
    columns: list[list[Tensor]] = [[] for _ in xs]
    for i in range(flat.shape[0]):
        seed = flat.new_zeros(flat.shape).detach()
        seed[i] = 1.0
        found = (
            run_backward([flat], [seed], xs, create_graph, True, accumulate=False)
            if y.requires_grad
            else [None] * len(xs)
        )
        for column, g, x in zip(columns, found, xs, strict=True):
            column.append(x.new_zeros(x.shape) if g is None else g)
    return [
        stack(c).reshape(*y.shape, *x.shape) if c else x.new_zeros((*y.shape, *x.shape))
        for c, x in zip(columns, xs, strict=True)
    ]


def hessian(
    func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False
) -> Any:
    """Second derivatives of a scalar function."""
    single, xs = _leaves(inputs, create_graph)

    def gradient(*args: Tensor) -> Any:
        y = func(*args)
        grads = run_backward([y], [y.new_ones(y.shape)], list(args), True, True, accumulate=False)
        return tuple(x.new_zeros(x.shape) if g is None else g for g, x in zip(grads, args, strict=True))

    table = jacobian(gradient, tuple(xs), create_graph)
    return table[0][0] if single else table


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v^T J)."""
    single, xs = _leaves(inputs, create_graph)
    with enable_grad():
        out = func(*xs)
    outs = [out] if isinstance(out, Tensor) else list(out)
    seeds = [y.new_ones(y.shape) for y in outs] if v is None else ([v] if isinstance(v, Tensor) else list(v))
    found = run_backward(outs, seeds, xs, create_graph, create_graph, accumulate=False)
    grads = [x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs, strict=True)]
    return out, grads[0] if single else tuple(grads)
