"""Limiting gradients, in place. Nothing is read back unless `error_if_nonfinite` asks for it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import treadle
from treadle import Tensor

_Tensors = Tensor | Iterable[Tensor]


def _listed(tensors: _Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(
    tensors: _Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors taken as one vector, 0-d; 0 for no tensors.

    Raises RuntimeError for a norm that is not finite with `error_if_nonfinite`, which waits for the value.
    """
    tensors = _listed(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return treadle.tensor(0.0)
    with treadle.no_grad():
        norms = [t.detach().norm(norm_type) for t in tensors]
        total = norms[0] if len(norms) == 1 else treadle.stack(norms).norm(norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
            "anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: _Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients by min(1, max_norm / total_norm)."""
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        return
    with treadle.no_grad():
        # Multiplying by 1 is cheaper than finding out whether one has to.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.to(grad.dtype))


def clip_grad_norm_(
    parameters: _Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients so that their common norm is at most `max_norm`; returns the norm before."""
    listed = _listed(parameters)
    if not listed:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    grads = [p.grad for p in listed if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(listed, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: _Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of `clip_grad_norm_`."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: _Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with treadle.no_grad():
        for param in _listed(parameters):
            if param.grad is not None:
                param.grad.clamp_(min=-clip_value, max=clip_value)
