"""The steps that random programs are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import treadle as T

__all__ = ["STEPS", "Kind"]

ANY, NUMBER, FLOAT, INT, BOOL = "fib", "fi", "f", "i", "b"


@dataclass(frozen=True)
class Kind:
    """A kind of step: `run(param, *values)`.

    `accepts`: categories of dtypes of each operand; `draw`: makes the parameter; `exact`: elementwise IEEE arithmetic
    or movement; `decides`: small differences of operands would become large ones; `view`, `writes`: aliasing.
    """

    run: Callable[..., Any]
    accepts: tuple[str, ...]
    draw: Callable[[np.random.Generator], Any] | None = None
    exact: bool = True
    decides: bool = False
    view: bool = False
    writes: bool = False
    weight: int = 2

    @property
    def arity(self) -> int:
        return len(self.accepts)


def _dim(rng: np.random.Generator) -> int:
    return int(rng.integers(-2, 2))


def _number(rng: np.random.Generator) -> Any:
    return [2, 3, -1, 0.5, -1.75, True][rng.integers(6)]


def _integer(rng: np.random.Generator) -> int:
    return [1, 2, -3, 5][rng.integers(4)]


def _dtype(rng: np.random.Generator) -> Any:
    found = [T.float32, T.float64, T.float16, T.bfloat16, T.int64, T.int32, T.int16, T.int8, T.uint8, T.bool]
    return found[rng.integers(len(found))]


def _cast(dtype: Any, x: Any) -> Any:
    if x.dtype.is_floating and not dtype.is_floating:  # what does not fit is undefined
        low = 0 if dtype in (T.uint8, T.bool) else -100
        x = T.where(x == x, x.clamp(low, 100), 0.0)
    return x.to(dtype)


def _slice(rng: np.random.Generator) -> slice:
    return [slice(1, None), slice(None, None, 2), slice(None, -1), slice(1, None, 3), slice(0, 4)][rng.integers(5)]


def _sliced(key: tuple[int, slice], x: Any) -> Any:
    dim, part = key
    if x.ndim == 0:
        raise RuntimeError("no dimensions")
    return x[(slice(None),) * (dim % x.ndim) + (part,)]


def _comparison(rng: np.random.Generator) -> str:
    return ["lt", "eq", "ge", "ne"][rng.integers(4)]


def _assign(x: Any, y: Any) -> None:
    if x.dtype is not y.dtype:
        raise RuntimeError("another dtype")
    x.copy_(y)


def _add_(p: Any, x: Any, y: Any) -> Any:
    if x.dtype is not y.dtype or x.dtype is T.bool:
        raise RuntimeError("another dtype")
    return x.add_(y)


def _write_part(key: tuple[int, slice, int], x: Any) -> None:
    _sliced(key[:2], x).fill_(key[2])


def _mul_part(key: tuple[int, slice, int], x: Any) -> None:
    if x.dtype is T.bool:
        raise RuntimeError("no multiplication")
    part = _sliced(key[:2], x)
    part *= key[2]


def _add_row(p: Any, x: Any, y: Any) -> None:
    if x.ndim != 2 or x.dtype is not y.dtype or x.dtype is T.bool or not x.shape[0]:
        raise RuntimeError("no rows")
    x[-1] += y


def _mask(p: Any, x: Any, y: Any) -> None:
    if x.shape != y.shape:
        raise RuntimeError("another shape")
    x[y] = 1


def _gather(p: int, x: Any, k: Any) -> Any:
    flat = x.reshape(-1)
    if not flat.numel():
        raise RuntimeError("nothing to gather from")
    return flat[k.reshape(-1).long() % flat.numel()] if p else flat.gather(0, k.reshape(-1).long() % flat.numel())


def _matmul(p: Any, x: Any, y: Any) -> Any:
    if x.dtype is not y.dtype or x.ndim < 1 or y.ndim < 1:
        raise RuntimeError("another dtype")
    out = x @ y
    return (out / 16).clamp(-16, 16)


def _reduce(name: str) -> Callable[..., Any]:
    def run(p: tuple[Any, bool], x: Any) -> Any:
        dim, keep = p
        if dim is None:
            return getattr(x, name)()
        return getattr(x, name)(dim, keepdim=keep)

    return run


def _where_to_reduce(rng: np.random.Generator) -> tuple[Any, bool]:
    return [None, 0, -1, 1][rng.integers(4)], bool(rng.integers(2))


def _spread(n: int, x: Any) -> Any:
    return x.unsqueeze(0).expand(n, *x.shape)


def _part(rng: np.random.Generator) -> tuple[int, slice, int]:
    return _dim(rng), _slice(rng), _integer(rng)


STEPS: dict[str, Kind] = {
    # elementwise, exact
    "add": Kind(lambda p, x, y: x + y, (NUMBER, ANY), weight=5),
    "sub": Kind(lambda p, x, y: x - y, (NUMBER, NUMBER), weight=4),
    "mul": Kind(lambda p, x, y: x * y, (ANY, ANY), weight=3),
    "div": Kind(lambda p, x, y: x / (y.abs() + 0.5), (NUMBER, NUMBER)),
    "number": Kind(lambda p, x: x * p + p, (NUMBER,), _number, weight=3),
    "from number": Kind(lambda p, x: p - x, (NUMBER,), _number),
    "neg": Kind(lambda p, x: -x, (NUMBER,)),
    "abs": Kind(lambda p, x: x.abs(), (NUMBER,)),
    "square": Kind(lambda p, x: (x * x).clamp(max=64), (NUMBER,)),
    "clamp": Kind(lambda p, x: x.clamp(-p, p), (NUMBER,), lambda rng: int(rng.integers(2, 9))),
    "maximum": Kind(lambda p, x, y: T.maximum(x, y), (ANY, ANY)),
    "minimum": Kind(lambda p, x, y: T.minimum(x, y), (ANY, NUMBER)),
    "relu": Kind(lambda p, x: x.relu(), (NUMBER,)),
    "cast": Kind(_cast, (ANY,), _dtype, decides=True, weight=4),
    "floor": Kind(lambda p, x: x.floor() + x.round() - x.trunc(), (FLOAT,), decides=True),
    "floor_divide": Kind(lambda p, x, y: x // (y.abs() + 1), (INT, INT)),
    "remainder": Kind(lambda p, x, y: x % ((y & 15) + 1), (INT, INT)),
    "bits": Kind(lambda p, x, y: (x & y) | (x ^ p), (INT, INT), _integer),
    "shift": Kind(lambda p, x: (x << p) >> 1, (INT,), lambda rng: int(rng.integers(0, 6))),
    "compare": Kind(lambda p, x, y: getattr(x, p)(y), (ANY, ANY), _comparison, decides=True, weight=4),
    "logic": Kind(lambda p, x, y: (x & ~y) | (y ^ x), (BOOL, BOOL)),
    "where": Kind(lambda p, c, x, y: T.where(c, x, y), (BOOL, ANY, ANY), weight=4),
    "where number": Kind(lambda p, c, x: T.where(c, x, p), (BOOL, NUMBER), _number),
    "lerp": Kind(lambda p, x, y: x + (y - x) * 0.25, (FLOAT, FLOAT)),
    # elementwise, inexact
    "tanh": Kind(lambda p, x: x.tanh(), (NUMBER,), exact=False),
    "exp": Kind(lambda p, x: x.clamp(-4, 4).exp(), (FLOAT,), exact=False),
    "log": Kind(lambda p, x: (x.abs() + 1).log(), (FLOAT,), exact=False),
    "sigmoid": Kind(lambda p, x: x.sigmoid() * 4, (FLOAT,), exact=False),
    "sin": Kind(lambda p, x: x.clamp(-8, 8).sin(), (FLOAT,), exact=False),
    "gelu": Kind(lambda p, x: T.nn.functional.gelu(x), (FLOAT,), exact=False, weight=1),
    "sqrt": Kind(lambda p, x: (x.abs() + 0.25).sqrt(), (FLOAT,)),
    # reductions and contractions
    "sum": Kind(_reduce("sum"), (ANY,), _where_to_reduce, exact=False, weight=3),
    "mean": Kind(_reduce("mean"), (FLOAT,), _where_to_reduce, exact=False),
    "amax": Kind(_reduce("amax"), (NUMBER,), _where_to_reduce),
    "any": Kind(_reduce("any"), (ANY,), _where_to_reduce, decides=True, weight=1),
    "argmax": Kind(lambda p, x: x.argmax(0), (NUMBER,), decides=True, weight=1),
    "softmax": Kind(lambda p, x: x.softmax(p), (FLOAT,), lambda rng: -1, exact=False, weight=1),
    "var": Kind(lambda p, x: x.var(-1, correction=0), (FLOAT,), exact=False, weight=1),
    "cumsum": Kind(lambda p, x: x.cumsum(-1).clamp(-64, 64), (NUMBER,), exact=False, weight=1),
    "sort": Kind(lambda p, x: x.sort(-1)[0], (NUMBER,), weight=1),
    "matmul": Kind(_matmul, (FLOAT, FLOAT), exact=False, weight=4),
    "matmul with itself": Kind(lambda p, x: _matmul(p, x, x.mT) if x.ndim == 2 else x * 2, (FLOAT,), exact=False),
    # movement
    "transpose": Kind(lambda p, x: x.transpose(0, -1), (ANY,), view=True),
    "slice": Kind(_sliced, (ANY,), lambda rng: (_dim(rng), _slice(rng)), view=True, weight=3),
    "flatten": Kind(lambda p, x: x.reshape(-1), (ANY,), view=True),
    "unsqueeze": Kind(lambda p, x: x.unsqueeze(p), (ANY,), lambda rng: int(rng.integers(0, 2)), view=True),
    "expand": Kind(_spread, (ANY,), lambda rng: int(rng.integers(1, 4)), view=True, weight=1),
    "select": Kind(lambda p, x: x.select(p, -1), (ANY,), lambda rng: int(rng.integers(0, 2)), view=True),
    "flip": Kind(lambda p, x: x.flip(-1), (ANY,), weight=1),
    "roll": Kind(lambda p, x: x.roll(1, 0), (ANY,), weight=1),
    "cat": Kind(lambda p, x, y: T.cat([x, y, x], 0), (ANY, ANY)),
    "stack": Kind(lambda p, x, y: T.stack([x, y], -1), (ANY, ANY), weight=1),
    "gather": Kind(_gather, (ANY, INT), lambda rng: int(rng.integers(2))),
    "tril": Kind(lambda p, x: x.tril(p), (ANY,), lambda rng: int(rng.integers(-1, 2)), weight=1),
    "pad": Kind(lambda p, x: T.nn.functional.pad(x, (1, 2), value=3), (NUMBER,), weight=1),
    "clone": Kind(lambda p, x: x.clone(), (ANY,), weight=1),
    # writes
    "add_": Kind(_add_, (NUMBER, NUMBER), writes=True, weight=3),
    "mul_": Kind(lambda p, x: x.mul_(p), (NUMBER,), _integer, writes=True),
    "copy_": Kind(lambda p, x, y: _assign(x, y), (ANY, ANY), writes=True),
    "fill part": Kind(_write_part, (NUMBER,), _part, writes=True, weight=3),
    "scale part": Kind(_mul_part, (NUMBER,), _part, writes=True, weight=3),
    "add to a row": Kind(_add_row, (NUMBER, NUMBER), writes=True),
    "fill under a mask": Kind(_mask, (NUMBER, BOOL), writes=True),
}
