"""repr of tensors, like torch's: `tensor([1., 2.])`, summarised when large."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.ir import dtypes
from treadle.recorder.build import default_dtype
from treadle.tensor import to_array, wide

if TYPE_CHECKING:
    from treadle.tensor import Tensor

__all__ = ["set_printoptions", "tensor_repr"]


@dataclass
class _Options:
    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = _Options()


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None, linewidth: int | None = None,
    profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Change how tensors print; `profile` is "default", "short" or "full"."""
    preset = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}.get(profile or "")
    if preset:
        _options.precision, _options.threshold, _options.edgeitems, _options.linewidth = preset  # type: ignore[assignment]
    for name, value in (
        ("precision", precision),
        ("threshold", threshold),
        ("edgeitems", edgeitems),
        ("linewidth", linewidth),
    ):
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


def tensor_repr(t: Tensor) -> str:
    """The text of a tensor. Waits for its value."""
    a = wide(to_array(t), t.dtype)
    extra = []
    if a.size == 0:
        body = "[" * max(1, a.ndim and 1) + "]"
        if a.ndim != 1:
            extra.append(f"size={tuple(a.shape)}")
    else:
        body = _body(a, len("tensor("))
    if t.dtype not in (default_dtype(), dtypes.int64, dtypes.bool_) or (a.size == 0 and t.dtype is not default_dtype()):
        extra.append(f"dtype={t.dtype!r}")
    if t._h.grad:
        extra.append("requires_grad=True" if t.is_leaf else f"grad_fn={t.grad_fn!r}")
    return f"tensor({', '.join([body, *extra])})"


def _body(a: np.ndarray, indent: int) -> str:
    shown = a
    summarise = a.size > _options.threshold
    if summarise:
        shown = a
        for d in range(a.ndim):
            n = a.shape[d]
            if n > 2 * _options.edgeitems:
                keep = np.r_[0 : _options.edgeitems, n - _options.edgeitems : n]
                shown = np.take(shown, keep, axis=d)
    fmt = _formatter(shown)
    return _nested(a, indent, summarise, fmt)


@dataclass(frozen=True)
class _Format:
    """Number -> text, with one width for all of an array."""

    text: Callable[[Any], str]
    width: int

    def __call__(self, x: Any) -> str:
        return self.text(x).rjust(self.width)


def _formatter(a: np.ndarray) -> _Format:
    if a.dtype.kind != "f":
        return _Format(str, max(len(str(x)) for x in a.reshape(-1).tolist()))
    finite = np.abs(a[np.isfinite(a) & (a != 0)].astype(np.float64))
    integral = bool((a[np.isfinite(a)] == np.trunc(a[np.isfinite(a)])).all())
    top, low = (finite.max(), finite.min()) if finite.size else (0.0, 0.0)
    scientific = bool(finite.size) and (top / low > 1000 or top > 1e8 or low < 1e-4)
    if integral:
        scientific = bool(finite.size) and (top / low > 1000 or top > 1e8)
    if _options.sci_mode is not None:
        scientific = _options.sci_mode

    def text(x: float) -> str:
        if not math.isfinite(x):
            return str(x)
        if scientific:
            return f"{x:.{_options.precision}e}"
        return f"{x:.0f}." if integral else f"{x:.{_options.precision}f}"

    shown = a[np.isfinite(a) & (a != 0)]  # torch aligns by these only
    width = max((len(text(x)) for x in shown.tolist()), default=1)
    return _Format(text, width)


def _nested(a: np.ndarray, indent: int, summarise: bool, fmt: _Format) -> str:
    if a.ndim == 0:
        return fmt(a.item()).strip()
    n = a.shape[0]
    edge = _options.edgeitems
    cut = summarise and n > 2 * edge
    rows = [*range(edge), *range(n - edge, n)] if cut else list(range(n))
    if a.ndim == 1:
        words = [fmt(a[k].item()) for k in rows]
        if cut:
            words.insert(edge, " ...")
        return _wrapped(words, indent, fmt.width)
    parts = [_nested(a[k], indent + 1, summarise, fmt) for k in rows]
    if cut:
        parts.insert(edge, "...")
    glue = "," + "\n" * (a.ndim - 1) + " " * (indent + 1)
    return "[" + glue.join(parts) + "]"


def _wrapped(words: list[str], indent: int, width: int) -> str:
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [", ".join(words[k : k + per_line]) for k in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
