"""How a function becomes public: `treadle.name`, the Tensor method, the in-place form, `out=`, aliases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from treadle.ir.dtypes import category
from treadle.storage import check_writable, write
from treadle.tensor import Tensor

__all__ = ["PUBLIC", "assign", "public"]

PUBLIC: dict[str, Any] = {}  # what `treadle.<name>` offers


def public(
    *,
    method: bool = True,
    function: bool = True,
    inplace: bool = False,
    out: bool = True,
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable], Callable]:
    """Decorator: publish a function under its name and `aliases`."""

    def publish(f: Callable) -> Callable:
        for name in (f.__name__.strip("_") if f.__name__.endswith("_") and not inplace else f.__name__, *aliases):
            if function:
                PUBLIC[name] = with_out(f) if out else f
            if method:
                setattr(Tensor, name, f)
            if inplace:
                form = in_place_form(f, name)
                setattr(Tensor, form.__name__, form)
                if function:
                    PUBLIC[form.__name__] = form
        return f

    return publish


def with_out(f: Callable) -> Callable:
    """`f` that also takes `out=`: a tensor (or tuple) that receives the result."""

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "out" not in kwargs:
            return f(*args, **kwargs)
        out = kwargs.pop("out")
        result = f(*args, **kwargs)
        if out is None:
            return result
        if isinstance(result, tuple):
            for o, r in zip(out, result, strict=True):
                _into(o, r)
            return out
        return _into(out, result)

    return wrapper


def _into(out: Tensor, result: Tensor) -> Tensor:
    """Store `result` in `out`, which takes its shape (torch resizes)."""
    if out._h.grad or result._h.grad:
        raise RuntimeError(
            "out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )
    if out.shape != result.shape:
        out._alias = None
        out._h = _cast_to(result, out.dtype)._h
        return out
    return assign(out, result)


def _cast_to(result: Tensor, dtype: Any) -> Tensor:
    if result.dtype is dtype:
        return result
    if category(result.dtype) > category(dtype):
        raise RuntimeError(
            f"result type {type_name(result.dtype)} can't be cast to the desired output type {type_name(dtype)}"
        )
    return result.to(dtype)


def type_name(dtype: Any) -> str:
    """torch's name of a dtype in messages."""
    return {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
            "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}[dtype.name]  # fmt: skip


def assign(t: Tensor, result: Tensor) -> Tensor:
    """The last step of an in-place op: `t` takes the value `result`. Raises RuntimeError on shape or dtype mismatch."""
    if result.shape != t.shape:
        raise RuntimeError(f"output with shape {list(t.shape)} doesn't match the broadcast shape {list(result.shape)}")
    return write(t, _cast_to(result, t.dtype))


def in_place_form(f: Callable, name: str) -> Callable:
    """`name_`: computes `f` and assigns the result to the first argument."""

    @functools.wraps(f)
    def form(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        return assign(self, f(self, *args, **kwargs))

    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place form of `{name}`."
    return form
