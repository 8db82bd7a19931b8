"""Tensor data as in .safetensors files: a JSON header with names, types and places, then the bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

import treadle

__all__ = [
    "ALIGNMENT",
    "FLOATING",
    "SAFE_NAMES",
    "FormatError",
    "are_sizes",
    "bits_of",
    "dtype_name",
    "parse_blob",
    "tensor_of",
    "write_blob",
]

ALIGNMENT = 64  # bytes, of the beginning of the data in a file
_LARGEST_HEADER = 100_000_000  # bytes, the limit that the safetensors format sets
_MOST_DIMS = 64

SAFE_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip
_BITS = {  # the NumPy type with the same bits
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F16": "<f2", "BF16": "<i2",
    "F32": "<f4", "F64": "<f8", "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip
FLOATING = ("F16", "BF16", "F32", "F64")


class FormatError(RuntimeError):
    """A file that is damaged, or not of the format that is being read."""


def write_blob(
    out: IO[bytes], arrays: Mapping[str, tuple[np.ndarray, str]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays in the safetensors format; the widest first, so that each is aligned to its items."""
    header: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "treadle"})}
    ordered = sorted(arrays.items(), key=lambda item: -item[1][0].itemsize)
    offset = 0
    for name, (array, dtype) in ordered:
        end = offset + array.nbytes
        header[name] = {"dtype": SAFE_NAMES[dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    out.write(len(text).to_bytes(8, "little") + text)
    for _, (array, _) in ordered:
        if array.nbytes:
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def parse_blob(blob: np.ndarray) -> dict[str, tuple[np.ndarray, str]]:
    """Arrays (views of `blob`) and safetensors dtypes by name; every size is compared with what is there."""
    length = int.from_bytes(blob[:8].tobytes(), "little")
    if len(blob) < 8 or length > min(_LARGEST_HEADER, len(blob) - 8):
        raise FormatError("the header of the tensor data is cut off")
    header = json.loads(blob[8 : 8 + length].tobytes())
    data = blob[8 + length :]
    if not isinstance(header, dict):
        raise FormatError("the header of the tensor data is not an object")
    header.pop("__metadata__", None)
    found, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        safe, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if safe not in _BITS:
            raise FormatError(f"tensor data of unknown type {safe!r}")
        dtype = np.dtype(_BITS[safe])
        if not are_sizes([*shape, start, stop]) or len(shape) > _MOST_DIMS or start != end or stop > len(data):
            raise FormatError(f"tensor {name!r} is not where the header says")
        if math.prod(shape) * dtype.itemsize != stop - start:
            raise FormatError(f"tensor {name!r} of shape {shape} cannot have {stop - start} bytes")
        array = data[start:stop]
        if array.ctypes.data % dtype.alignment:
            array = array.copy()
        found[name] = (array.view(dtype).reshape(shape), safe)
        end = stop
    if end != len(data):
        raise FormatError("there is tensor data that belongs to no tensor")
    return found


def are_sizes(values: Iterable[Any]) -> bool:
    """Whether all are integers that sizes and offsets in bytes can be."""
    return all(type(value) is int and 0 <= value < 2**62 for value in values)


def dtype_name(dtype: Any) -> str:
    """The name of a dtype, such as "float32"; TypeError if there is no form for it in files."""
    name = repr(dtype).rpartition(".")[2]
    if name not in SAFE_NAMES:
        raise TypeError(f"tensors of dtype {dtype} cannot be saved")
    return name


def bits_of(tensor: Any) -> np.ndarray:
    """All elements in row-major order, as a vector of a NumPy type with the same bits."""
    tensor = tensor.detach().cpu().contiguous().reshape(-1)
    if tensor.dtype == treadle.bfloat16:
        tensor = tensor.view(treadle.int16)
    return np.ascontiguousarray(tensor.numpy())


def tensor_of(array: np.ndarray, safe: str) -> Any:
    """A tensor of the elements of `array`, which it may share."""
    tensor = treadle.from_numpy(array)
    return tensor.view(treadle.bfloat16) if safe == "BF16" else tensor
