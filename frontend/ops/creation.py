"""Tensors from data, constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ir.ops.fill import Fill
from treadle.ir.ops.sources import Iota
from treadle.ops.arguments import sizes
from treadle.ops.elementwise import cast, number
from treadle.ops.registration import PUBLIC, public
from treadle.ops.views import clone
from treadle.recorder.build import RuntimeScalar, default_dtype
from treadle.recorder.trace import record
from treadle.tensor import Tensor, as_device, from_array, tensor_method

__all__ = ["as_tensor", "full", "tensor", "zeros"]


def _shape(size: tuple, kw: dict) -> tuple[int, ...]:
    shape = sizes((kw.pop("size"),) if "size" in kw and not size else size)
    for d in shape:
        if d < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {d}: {list(shape)}")
    return shape


def _options(t: Tensor, requires_grad: bool) -> Tensor:
    return t.requires_grad_() if requires_grad else t


def _fill(shape: tuple[int, ...], value: Any, dtype: DType, device: Any, requires_grad: bool) -> Tensor:
    as_device(device)
    return _options(record(Fill(shape, dtype), value), requires_grad)


def _data(data: Any, wide: bool = False) -> np.ndarray:
    """An array of nested lists, numbers and arrays, in the dtype torch would take; Python floats exactly if `wide`."""
    if isinstance(data, np.ndarray | np.generic):
        return np.asarray(data)
    if isinstance(data, bool | int | float):
        return np.asarray(data, dtype=_scalar_type([data], wide))
    if isinstance(data, Tensor):
        return np.asarray(data.detach().numpy())
    data = _plain(data)
    flat = list(_leaves(data))
    if not flat:
        return np.asarray(data, dtype=default_dtype().numpy)
    if all(isinstance(x, bool | int | float) for x in flat):
        try:
            return np.asarray(data, dtype=_scalar_type(flat, wide))
        except ValueError as e:
            raise ValueError(f"expected sequence of equal length at each dimension ({e})") from None
    return np.asarray(data)


def _plain(x: Any) -> Any:
    """Nested lists with tensors and arrays turned into lists and numbers."""
    if isinstance(x, Tensor):
        return x.tolist()
    if isinstance(x, np.ndarray):
        return x.tolist() if x.ndim else x.item()
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, str):
        raise TypeError("new(): invalid data type 'str'")
    if isinstance(x, Sequence | range):
        return [_plain(y) for y in x]
    if isinstance(x, bool | int | float):
        return x
    if hasattr(x, "__array__"):
        return np.asarray(x).tolist()
    found = number(x)
    if found is None:
        raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
    return found


def _leaves(x: Any) -> Any:
    if isinstance(x, list):
        for y in x:
            yield from _leaves(y)
    else:
        yield x


def _scalar_type(values: list, wide: bool) -> np.dtype:
    if any(isinstance(v, float) for v in values):
        if wide:
            return np.dtype("f8")
        return default_dtype().numpy if default_dtype() is not dtypes.bfloat16 else np.dtype("f4")
    if all(isinstance(v, bool) for v in values):
        return np.dtype("?")
    for v in values:
        if not -(2**63) <= v < 2**63:
            raise RuntimeError("Overflow when unpacking long")
    return np.dtype("i8")


def _make(a: np.ndarray, dtype: DType | None, copy: bool) -> Tensor:
    if dtype is None or dtype.numpy == a.dtype and dtype is not dtypes.bfloat16:
        return from_array(a, copy=copy)
    if dtype is dtypes.bfloat16:
        return cast(from_array(np.ascontiguousarray(a, dtype=np.float32).reshape(a.shape)), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return from_array(a.astype(dtype.numpy))


@public(method=False, out=False)
def tensor(
    data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of `data` (numbers, nested sequences, arrays). Floats take the default dtype."""
    as_device(device)
    if isinstance(data, Tensor):
        out = clone(data.detach())
        return _options(out if dtype is None else cast(out, dtype), requires_grad)
    if isinstance(data, np.ndarray) and not data.flags.writeable:
        data = data.copy()
    return _options(_make(_data(data, dtype is not None), dtype, copy=True), requires_grad)


@public(method=False, out=False, aliases=("asarray",))
def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where it is a tensor or an array of the wanted dtype."""
    as_device(device)
    if isinstance(data, Tensor):
        return data if dtype is None else cast(data, dtype)
    if isinstance(data, np.ndarray):
        return _make(data, dtype, copy=False)
    return tensor(data, dtype=dtype)


@public(method=False, out=False)
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on the memory of an array: in-place ops appear in it, and its changes in tensors read later."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return from_array(ndarray, copy=False)


@public(method=False, out=False)
def scalar_tensor(s: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A 0-d tensor of the default dtype."""
    return full((), s, dtype=dtype or default_dtype(), device=device, requires_grad=requires_grad)


def _constant(name: str, value: float) -> Any:
    def f(
        *size: Any,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        memory_format: Any = None,
        **kw: Any,
    ) -> Tensor:
        shape = _shape(size, kw)
        return _fill(shape, value, dtype or default_dtype(), device, requires_grad)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"A tensor of the given size, every element {value:g}."
    return public(method=False)(f)


zeros = _constant("zeros", 0.0)
ones = _constant("ones", 1.0)
empty = _constant("empty", 0.0)


def _scalar_dtype(value: Any) -> DType:
    if isinstance(value, bool):
        return dtypes.bool_
    return dtypes.int64 if isinstance(value, int) else default_dtype()


@public(method=False)
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of the given size, every element `fill_value`."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else number(fill_value)
    if value is None:
        raise TypeError(f"full(): argument 'fill_value' must be Number, not {type(fill_value).__name__}")
    plain = value.value if type(value) is RuntimeScalar else value
    return _fill(
        sizes((size,) if isinstance(size, Sequence) else (size,)),
        value,
        dtype or _scalar_dtype(plain),
        device,
        requires_grad,
    )


def _like(name: str, value: float) -> Any:
    def f(
        input: Tensor,
        *,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        layout: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:
        return _fill(tuple(input.shape), value, dtype or input.dtype, device, requires_grad)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{name[:-5]} with the shape and dtype of `input`."
    return public(method=False, out=False)(f)


zeros_like, ones_like, empty_like = _like("zeros_like", 0.0), _like("ones_like", 1.0), _like("empty_like", 0.0)


@public(method=False, out=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """full with the shape and dtype of `input`."""
    return full(tuple(input.shape), fill_value, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad)


@tensor_method
def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **kw: Any,
) -> Tensor:
    """full with the dtype of this tensor."""
    return full(size, fill_value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


def _new(name: str, value: float) -> None:
    def f(
        self: Tensor,
        *size: Any,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **kw: Any,
    ) -> Tensor:
        return _fill(_shape(size, kw), value, dtype or self.dtype, device, requires_grad)

    f.__name__ = name
    f.__doc__ = f"{name[4:]} with the dtype of this tensor."
    tensor_method(f)


for _name, _value in (("new_zeros", 0.0), ("new_ones", 1.0), ("new_empty", 0.0)):
    _new(_name, _value)


@tensor_method
def new_tensor(
    self: Tensor, data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """tensor(data) with the dtype of this tensor."""
    return tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


PUBLIC["empty_strided"] = lambda size, stride, **kw: empty(size, **kw)


@public(method=False)
def arange(
    *args: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """start, start + step, ... below end (int64 where all are ints)."""
    given = list(args)
    if len(given) == 1 and end is None:
        given = [0, given[0]]
    start = given[0] if len(given) > 0 else (0 if start is None else start)
    end = given[1] if len(given) > 1 else end
    step = given[2] if len(given) > 2 else (1 if step is None else step)
    start, end, step = (x.item() if isinstance(x, Tensor) else number(x) for x in (start, end, step))
    if not all(math.isfinite(x) for x in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if dtype is not None and dtype.is_integral:
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    integers = all(isinstance(x, int) for x in (start, end, step))
    dtype = dtype or (dtypes.int64 if integers else default_dtype())
    as_device(device)
    n = max(0, math.ceil((end - start) / step)) if not integers else max(0, -(-(end - start) // step))
    return _options(_ramp(n, start, step, dtype), requires_grad)


def _ramp(n: int, start: Any, step: Any, dtype: DType) -> Tensor:
    """start + k * step, computed in double for floats as torch does, then rounded."""
    if dtype is dtypes.bool_:
        raise RuntimeError("\"arange\" not implemented for 'Bool'")
    k = record(Iota((n,), 0, dtypes.int64, "cpu"))
    if isinstance(start, int) and isinstance(step, int):
        out = k if step == 1 else k * step
        return cast(out if start == 0 else out + start, dtype)
    return cast(cast(k, dtypes.float64) * float(step) + float(start), dtype)


def _ends(name: str, start: Any, end: Any, steps: Any) -> tuple[Any, Any, int]:
    """The arguments of linspace and logspace as numbers."""
    if isinstance(steps, Tensor):
        steps = steps.item()
    if isinstance(steps, float) or not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    if any(isinstance(x, Tensor) and x.ndim for x in (start, end)):
        raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    return start, end, int(steps)


@public(method=False)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers from start to end, both included."""
    as_device(device)
    start, end, steps = _ends("linspace", start, end, steps)
    dtype = dtype or default_dtype()
    if steps == 1:
        return _options(full((1,), start, dtype=dtype), requires_grad)
    k = cast(record(Iota((steps,), 0, dtypes.int64, "cpu")), dtypes.float64)
    step = (end - start) / (steps - 1) if steps else 0.0
    low = k * float(step) + float(start)
    high = float(end) - (float(steps - 1) - k) * float(step)  # symmetric: both ends are exact
    return _options(cast(PUBLIC["where"](k < steps / 2, low, high), dtype), requires_grad)


@public(method=False)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """base ** linspace(start, end, steps)."""
    start, end, steps = _ends("logspace", start, end, steps)
    out = cast(base ** linspace(start, end, steps, dtype=dtypes.float64), dtype or default_dtype())
    return _options(out, requires_grad)


@public(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """The identity matrix, n x m."""
    as_device(device)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"n must be greater or equal to 0, got {n}")
    shape = (n, n if m is None else m)
    row, col = (record(Iota(shape, d, dtypes.int64, "cpu")) for d in (0, 1))
    return _options(cast(row == col, dtype or default_dtype()), requires_grad)


@public(method=False, out=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; `indexing` is "ij" (default) or "xy"."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    vectors = [x.reshape(1) if not x.ndim else x for x in given]
    if not vectors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1::-1]  # rows run along the second vector
    shape = [x.shape[0] for x in vectors]
    grids = [x.reshape([-1 if k == j else 1 for j in range(len(vectors))]).expand(shape) for k, x in enumerate(vectors)]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)
