"""From a tree and storages back to the object. Only what the encoder writes is accepted."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import treadle
from treadle.serialization.blob import FLOATING, SAFE_NAMES, FormatError, are_sizes, tensor_of
from treadle.serialization.encode import DEEPEST, VERSION
from treadle.serialization.places import dense_strides, extent

__all__ = ["build", "check", "place"]


Arrays = Mapping[str, tuple[np.ndarray, str]]


def check(tree: Any, arrays: Arrays) -> None:
    """Refuse a tree whose tables do not describe the storages that are there."""
    if not isinstance(tree, dict) or tree.get("format") != "treadle":
        raise FormatError("not a file written by treadle.save")
    if tree.get("version") != VERSION:
        raise FormatError(f"version {tree.get('version')!r} of the format is not known to this version of treadle")
    devices = _expect(tree["storages"], dict)
    if set(devices) != set(arrays) or any(type(device) is not str for device in devices.values()):
        raise FormatError("the storages listed are not those in the file")
    for entry in _expect(tree["tensors"], list):
        _check_place(entry, arrays)


def place(tree: dict[str, Any], arrays: Arrays, map_location: Any) -> dict[str, Any]:
    """The storages as vectors, where `map_location` wants them."""
    return {
        name: _move(tensor_of(array.reshape(-1), safe), tree["storages"][name], map_location)
        for name, (array, safe) in arrays.items()
    }


def build(tree: dict[str, Any], storages: dict[str, Any]) -> Any:
    """The object of a checked tree."""
    tensors = [_view(storages[entry["storage"]], entry) for entry in tree["tensors"]]
    return _Decoder(tensors).value(tree["root"])


def _check_place(entry: dict[str, Any], arrays: Arrays) -> None:
    """Refuse an entry of the table of tensors that does not lie within its storage."""
    shape, strides, offset = entry["shape"], entry["stride"], entry["offset"]
    available = arrays[entry["storage"]][0].size
    if not are_sizes([*shape, *strides, offset]) or len(shape) != len(strides) or len(shape) > 64:
        raise FormatError("a tensor's shape or strides are not sizes")
    numel = math.prod(shape)
    end = offset + (extent(shape, strides) if numel else 0)
    if numel > available or end > available:
        raise FormatError(f"a tensor of shape {shape} does not fit its storage of {available} elements")
    if type(entry["requires_grad"]) is not bool or type(entry["parameter"]) is not bool:
        raise FormatError("a tensor's flags are not true or false")
    if entry["requires_grad"] and arrays[entry["storage"]][1] not in FLOATING:
        raise FormatError("only tensors of floating point can require gradients")


def _move(storage: Any, device: Any, map_location: Any) -> Any:
    """A storage, where `map_location` wants it, or else where it was saved."""
    if callable(map_location):
        moved = map_location(storage, device)
        if moved is not None:
            return moved
    elif isinstance(map_location, Mapping):
        device = map_location.get(device, device)
    elif map_location is not None:
        device = map_location
    return storage if str(device) == str(storage.device) else storage.to(device)


def _view(storage: Any, entry: dict[str, Any]) -> Any:
    """The tensor of a checked entry."""
    shape, strides, offset = tuple(entry["shape"]), tuple(entry["stride"]), entry["offset"]
    numel = math.prod(shape)
    if strides == tuple(dense_strides(shape)) or numel == 0:
        tensor = (storage if numel == len(storage) else storage[offset : offset + numel]).view(shape)
    else:
        tensor = storage.as_strided(shape, strides, offset)
    if entry["parameter"]:
        return treadle.nn.Parameter(tensor, entry["requires_grad"])
    tensor = tensor.detach()
    return tensor.requires_grad_() if entry["requires_grad"] else tensor


class _Decoder:
    """Builds the object of a tree; only what `_Encoder` writes is accepted."""

    def __init__(self, tensors: list[Any]) -> None:
        self._tensors = tensors
        self._depth = 0
        self._readers: dict[str, Callable[[Any], Any]] = {
            "dict": lambda body: dict(self._items(body)),
            "OrderedDict": lambda body: OrderedDict(self._items(body)),
            "Counter": lambda body: Counter(dict(self._items(body))),
            "list": lambda body: list(self._values(body)),
            "tuple": lambda body: tuple(self._values(body)),
            "set": lambda body: set(self._values(body)),
            "frozenset": lambda body: frozenset(self._values(body)),
            "bytes": lambda body: base64.b64decode(body, validate=True),
            "int": self._int,
            "float": self._float,
            "complex": self._complex,
            "size": self._size,
            "dtype": self._dtype,
            "device": lambda body: treadle.device(_expect(body, str)),
            "tensor": self._tensor,
        }

    def value(self, node: Any) -> Any:
        """The object of a node."""
        if node is None or type(node) in (bool, int, float, str):
            return node
        tags = list(node) if isinstance(node, dict) else []
        if tags == ["OrderedDict", "metadata"]:
            made = OrderedDict(self._items(node["OrderedDict"]))
            made._metadata = self.value(node["metadata"])  # type: ignore[attr-defined]
            return made
        reader = self._readers.get(tags[0]) if len(tags) == 1 else None
        if reader is None:
            raise FormatError(f"unknown kind of object {str(tags or type(node).__name__)[:80]}")
        self._depth += 1
        if self._depth > DEEPEST + 1:  # the innermost may be a size or the like, which the encoder does not count
            raise FormatError(f"containers nested in more than {DEEPEST} levels")
        made = reader(node[tags[0]])
        self._depth -= 1
        return made

    def _values(self, body: Any) -> Iterator[Any]:
        return map(self.value, _expect(body, list))

    def _items(self, body: Any) -> Iterator[tuple[Any, Any]]:
        for pair in _expect(body, list):
            key, value = _expect(pair, list)
            yield self.value(key), self.value(value)

    def _int(self, body: Any) -> int:
        return int(_expect(body, str), 16)

    def _float(self, body: Any) -> float:
        if body not in ("nan", "inf", "-inf"):
            raise FormatError(f"{body!r} is not a number")
        return float(body)

    def _complex(self, body: Any) -> complex:
        real, imag = (float(_expect(part, float)) for part in self._values(body))
        return complex(real, imag)

    def _size(self, body: Any) -> Any:
        if not are_sizes(_expect(body, list)):
            raise FormatError("a size is not made of sizes")
        return treadle.Size(body)

    def _dtype(self, body: Any) -> Any:
        found = getattr(treadle, body, None) if body in SAFE_NAMES else None
        if not isinstance(found, treadle.dtype):
            raise FormatError(f"unknown dtype {body!r}")
        return found

    def _tensor(self, body: Any) -> Any:
        if type(body) is not int or not 0 <= body < len(self._tensors):
            raise FormatError(f"there is no tensor number {body!r}")
        return self._tensors[body]


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise FormatError(f"expected {kind.__name__} in the tree, found {type(value).__name__}")
    return value
