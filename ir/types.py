"""Types of values. Immutable and interned: equal types are one object, so comparison is identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from treadle.ir.dims import Dim, evaluate, product
from treadle.ir.dtypes import DType

__all__ = ["Type", "TensorType", "BufferType", "ScalarType", "IndexType", "INDEX"]


class Type:
    """Base of all types. Subclasses are interned by their field values."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _interned: ClassVar[dict[tuple, Type]] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        values = cls._values(*args, **kwargs)
        key = (cls, *values)
        found = Type._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            for name, value in zip(cls._fields, values, strict=True):
                object.__setattr__(found, name, value)
            found = Type._interned.setdefault(key, found)
        return found

    @classmethod
    def _values(cls, *args: Any, **kwargs: Any) -> tuple:
        return args

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple:
        return type(self), tuple(getattr(self, f) for f in self._fields)

    def __repr__(self) -> str:
        return str(self)


class TensorType(Type):
    """A dense tensor: dtype, shape of Dims, device name ("cpu", "cuda:0")."""

    __slots__ = ("dtype", "shape", "device")
    _fields = ("dtype", "shape", "device")
    dtype: DType
    shape: tuple[Dim, ...]
    device: str

    @classmethod
    def _values(cls, dtype: DType, shape: tuple[Dim, ...] = (), device: str = "cpu") -> tuple:
        return dtype, tuple(shape), device

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        return self.numel * self.dtype.itemsize

    def with_shape(self, shape: tuple[Dim, ...]) -> TensorType:
        return TensorType(self.dtype, shape, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape, self.device)

    def concrete_shape(self, bindings: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(evaluate(d, bindings) for d in self.shape)

    def __str__(self) -> str:
        body = "".join(f"{d}x" if isinstance(d, int) else f"[{d}]x" for d in self.shape)
        tail = "" if self.device == "cpu" else f", {self.device}"
        return f"tensor<{body}{self.dtype.short}{tail}>"


class ScalarType(Type):
    """One element of a dtype: the values of the loop level."""

    __slots__ = ("dtype",)
    _fields = ("dtype",)
    dtype: DType

    def __str__(self) -> str:
        return self.dtype.short


class IndexType(Type):
    """A machine index: loop variables and addresses."""

    __slots__ = ()

    def __str__(self) -> str:
        return "index"


class BufferType(Type):
    """Memory of `size` elements; `space` is "global" (a kernel argument) or "local" (scratch of one task)."""

    __slots__ = ("dtype", "size", "space")
    _fields = ("dtype", "size", "space")
    dtype: DType
    size: Dim
    space: str

    @classmethod
    def _values(cls, dtype: DType, size: Dim, space: str = "global") -> tuple:
        return dtype, size, space

    def __str__(self) -> str:
        size = self.size if isinstance(self.size, int) else f"[{self.size}]"
        return f"buffer<{size}x{self.dtype.short}, {self.space}>"


INDEX = IndexType()
