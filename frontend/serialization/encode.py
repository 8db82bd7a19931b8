"""From an object to its tree, and to the storages of the tensors in it."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from typing import Any

import numpy as np

import treadle
from treadle.serialization.blob import bits_of, dtype_name
from treadle.serialization.places import dense_strides, extent

__all__ = ["DEEPEST", "VERSION", "encode"]

VERSION = 1
DEEPEST = 100  # levels of nesting; twice as many in JSON, whose reader recurses


def encode(obj: Any) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, str]]]:
    """The tree of an object, and by name the storages of its tensors: elements and dtype."""
    encoder = _Encoder()
    root = encoder.node(obj)
    table, storages = encoder.layout()
    devices = {name: device for name, (_, _, device) in storages.items()}
    tree = {"format": "treadle", "version": VERSION, "root": root, "tensors": table, "storages": devices}
    return tree, {name: (array, dtype) for name, (array, dtype, _) in storages.items()}


def _storage_of(tensor: Any) -> Any:
    """What identifies the storage of a tensor. Not the address: unrelated tensors of one value may share a buffer."""
    alias = tensor._alias
    return ("alone", id(tensor)) if alias is None else id(alias.storage)


class _Placed:
    """A tensor to be saved: its place in a storage, in elements."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.dtype = dtype_name(tensor.dtype)
        self.shape = [int(size) for size in tensor.shape]
        self.strides = dense_strides(self.shape)
        self.offset = 0
        numel = math.prod(self.shape)
        self.key: Any = ("alone", id(tensor))
        if numel == 0:
            return
        strides = [int(stride) for stride in tensor.stride()]
        # A view with elements that coincide, such as an expanded one, is written out: its place would let a small file
        # ask for any amount of memory, and such views are not written to anyway.
        if numel <= extent(self.shape, strides) and all(s or n == 1 for s, n in zip(strides, self.shape, strict=True)):
            self.key = (_storage_of(tensor), self.dtype)
            self.strides, self.offset = strides, int(tensor.storage_offset())

    @property
    def end(self) -> int:
        """Where it ends in the storage."""
        return self.offset + (extent(self.shape, self.strides) if math.prod(self.shape) else 0)

    @property
    def dense(self) -> bool:
        """Whether it is a contiguous piece of the storage."""
        return self.strides == dense_strides(self.shape)


def _storage_bits(views: list[_Placed]) -> tuple[np.ndarray, int]:
    """The elements of a storage that the views of it touch, and at which element they begin."""
    if len(views) == 1:  # nobody else to share with: the tensor itself, without the gaps of its strides
        views[0].strides, views[0].offset = dense_strides(views[0].shape), 0
        return bits_of(views[0].tensor), 0
    begin, end = min(view.offset for view in views), max(view.end for view in views)
    for view in views:
        if view.dense and (view.offset, view.end) == (begin, end):
            return bits_of(view.tensor), begin
    whole = views[0].tensor.detach().as_strided((end - begin,), (1,), begin)
    return bits_of(whole), begin


class _Encoder:
    """Builds the tree of an object; collects its tensors on the way."""

    def __init__(self) -> None:
        self._open: list[int] = []  # the containers that the walk is inside of
        self._numbers: dict[int, int] = {}
        self._placed: list[_Placed] = []

    def node(self, obj: Any) -> Any:
        """The JSON form of `obj`; compound things are objects with one key, the tag of their type."""
        kind = type(obj)
        if obj is None or kind in (bool, str):
            return obj
        if kind is int:
            return obj if abs(obj) < 2**63 else {"int": hex(obj)}
        if kind is float:
            return obj if math.isfinite(obj) else {"float": repr(obj)}
        if kind is complex:
            return {"complex": [self.node(obj.real), self.node(obj.imag)]}
        if kind is bytes:
            return {"bytes": base64.b64encode(obj).decode("ascii")}
        if isinstance(obj, treadle.Tensor):
            return {"tensor": self._number(obj)}
        if isinstance(obj, treadle.Size):
            return {"size": [int(size) for size in obj]}
        if isinstance(obj, treadle.dtype):
            return {"dtype": repr(obj).rpartition(".")[2]}
        if isinstance(obj, treadle.device):
            return {"device": str(obj)}
        return self._container(obj, kind)

    def _container(self, obj: Any, kind: type) -> Any:
        if kind not in (dict, OrderedDict, Counter, list, tuple, set, frozenset):
            raise TypeError(
                f"cannot save an object of type {kind.__module__}.{kind.__qualname__}: only dicts, lists, tuples, "
                "sets, strings, bytes, numbers, None, dtypes, devices and tensors are saved (of a module or an "
                "optimizer, save its state_dict())"
            )
        if id(obj) in self._open:
            raise ValueError(f"cannot save a {kind.__name__} that contains itself")
        if len(self._open) == DEEPEST:
            raise ValueError(f"cannot save containers nested in more than {DEEPEST} levels")
        self._open.append(id(obj))
        if issubclass(kind, dict):
            node: dict[str, Any] = {kind.__name__: [[self.node(k), self.node(v)] for k, v in obj.items()]}
            if kind is OrderedDict and hasattr(
                obj, "_metadata"
            ):  # versions of modules, beside the items of their state
                node["metadata"] = self.node(obj._metadata)
        else:
            node = {kind.__name__: [self.node(element) for element in obj]}
        self._open.pop()
        return node

    def _number(self, tensor: Any) -> int:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._placed)
            self._placed.append(_Placed(tensor))
        return number

    def layout(self) -> tuple[list[dict[str, Any]], dict[str, tuple[np.ndarray, str, str]]]:
        """The table of tensors, and by name the storages: their elements, dtype and device."""
        groups: dict[Any, list[_Placed]] = {}
        for placed in self._placed:
            groups.setdefault(placed.key, []).append(placed)
        storages, places = {}, {}
        for number, views in enumerate(groups.values()):
            bits, begin = _storage_bits(views)
            storages[str(number)] = (bits, views[0].dtype, str(views[0].tensor.device))
            for view in views:
                places[id(view)] = (str(number), view.offset - begin)
        table = []
        for placed in self._placed:
            storage, offset = places[id(placed)]
            table.append(
                {
                    "storage": storage, "shape": placed.shape, "stride": placed.strides, "offset": offset,
                    "requires_grad": bool(placed.tensor.requires_grad),
                    "parameter": isinstance(placed.tensor, treadle.nn.Parameter),
                }
            )  # fmt: skip
        return table, storages
