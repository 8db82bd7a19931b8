"""treadle.testing: assert_close."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.tensor import Tensor, to_array, wide

__all__ = ["assert_close"]

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
    check_dtype: bool = True, check_device: bool = True, check_stride: bool = False, msg: Any = None,
    allow_subclasses: bool = True, check_layout: bool = True,
) -> None:  # fmt: skip
    """Raises AssertionError where |actual - expected| > atol + rtol * |expected|, or shapes or dtypes differ."""
    if isinstance(expected, dict):
        for key in expected:
            assert_close(actual[key], expected[key], rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
        return
    if isinstance(expected, list | tuple) and not isinstance(actual, Tensor):
        if len(actual) != len(expected):
            raise AssertionError(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        for a, e in zip(actual, expected, strict=True):
            assert_close(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
        return
    a, e = _array(actual), _array(expected)
    if a.shape != e.shape:
        raise AssertionError(_text(msg, f"The values for attribute 'shape' do not match: {a.shape} != {e.shape}."))
    kinds = [getattr(x, "dtype", None) for x in (actual, expected)]
    if check_dtype and None not in kinds and kinds[0] != kinds[1]:
        raise AssertionError(_text(msg, f"The values for attribute 'dtype' do not match: {kinds[0]} != {kinds[1]}."))
    default = max((_TOLERANCES.get(getattr(k, "name", ""), (0.0, 0.0)) for k in kinds), default=(0.0, 0.0))
    if None in kinds and a.dtype.kind == "f":
        default = max(default, _TOLERANCES["float64"])
    r, t = default if rtol is None or atol is None else (rtol, atol)
    close = np.isclose(a.astype(np.float64), e.astype(np.float64), rtol=r, atol=t, equal_nan=equal_nan)
    if not close.all():
        worst = np.abs(a.astype(np.float64) - e.astype(np.float64))
        raise AssertionError(
            _text(msg, f"Tensor-likes are not close!\n\nMismatched elements: {int((~close).sum())} / {close.size}\n"
            f"Greatest absolute difference: {np.nanmax(worst) if worst.size else 0} (up to {t} allowed)\nrtol: {r}")
        )  # fmt: skip


def _array(x: Any) -> np.ndarray:
    return wide(to_array(x.detach()), x.dtype) if isinstance(x, Tensor) else np.asarray(x)


def _text(msg: Any, default: str) -> str:
    return msg(default) if callable(msg) else msg or default
