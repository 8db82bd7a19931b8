"""Activation checkpointing: trade computing a block twice for not keeping its intermediate values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.autograd import Function
from treadle.backward.engine import run_backward
from treadle.backward.modes import enable_grad, is_grad_enabled
from treadle.ir.ops.identity import Barrier
from treadle.ops.creation import zeros
from treadle.ops.random import default_generator
from treadle.recorder.trace import record
from treadle.tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential"]


class _Checkpoint(Function):
    """Runs a function without recording it for backward; backward runs it again (Chen et al. 2016)."""

    @staticmethod
    def forward(ctx: Any, run: Callable, preserve: bool, places: tuple[int, ...], args: tuple, *tensors: Tensor) -> Any:
        ctx.run, ctx.places, ctx.args = run, places, args
        ctx.state = (default_generator._seed, default_generator._draw) if preserve else None
        ctx.save_for_backward(*tensors)
        return run(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        leaves = []
        args = list(ctx.args)
        for place, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            again = record(Barrier(), t).detach()  # keeps the second run from being merged with the first
            args[place] = again.requires_grad_() if t.requires_grad else again
            leaves.append(args[place])
        now = (default_generator._seed, default_generator._draw)
        if ctx.state is not None:
            default_generator._seed, default_generator._draw = ctx.state
        with enable_grad():
            out = ctx.run(*args)
        if ctx.state is not None:
            default_generator._seed, default_generator._draw = now
        outputs = out if isinstance(out, tuple) else (out,)
        roots = [
            (o, g)
            for o, g in zip(outputs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        wanted = [t for t in leaves if t.requires_grad]
        found = iter(
            run_backward(
                [o for o, _ in roots], [g for _, g in roots], wanted, False, False, accumulate=False, others=True
            )
        )
        return (None, None, None, None, *(next(found) if t.requires_grad else None for t in leaves))


def checkpoint(
    function: Callable, *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True, **kwargs: Any
) -> Any:
    """function(*args), whose intermediate values are computed again in backward instead of being kept."""
    for name in ("context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    places = tuple(k for k, a in enumerate(args) if isinstance(a, Tensor))

    def run(*inner: Any) -> Any:
        return function(*inner, **kwargs)

    if is_grad_enabled() and not any(args[k].requires_grad for k in places):
        # Parameters inside may need gradients all the same: an input that does brings backward here.
        return _Checkpoint.apply(
            lambda _, *inner: run(*inner),
            preserve_rng_state,
            (0, *(k + 1 for k in places)),
            (_gate(), *args),
            _gate(),
            *(args[k] for k in places),
        )
    return _Checkpoint.apply(run, preserve_rng_state, places, args, *(args[k] for k in places))


def _gate() -> Tensor:
    return zeros(()).requires_grad_()


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A chain of modules in `segments` checkpointed pieces."""
    layers = list(functions)
    size = -(-len(layers) // segments)

    def run(start: int, stop: int) -> Callable:
        def piece(x: Any) -> Any:
            for f in layers[start:stop]:
                x = f(x)
            return x

        return piece

    for start in range(0, len(layers), size):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
    return input
