"""Saving and loading without pickle: nothing in a file is ever run.

A file is a zip archive of two uncompressed members. `treadle.json` is a tree of the saved object, in which tensors are
numbers, and a table that says for each tensor where in which storage it lies. `tensors.safetensors` holds the storages,
as vectors. Views of one storage share it in the file, and again once loaded.

Files from anywhere may be loaded: sizes are compared with the file's own before memory is taken, members must not be
compressed, and whatever is not in the format is refused with `FormatError`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

import treadle
from treadle.serialization.archive import PathOrFile, opened, read_archive, read_into, refusing, size_of, write_archive
from treadle.serialization.blob import FormatError, bits_of, dtype_name, parse_blob, tensor_of, write_blob
from treadle.serialization.decode import build, check, place
from treadle.serialization.encode import encode

__all__ = ["FormatError", "load", "load_safetensors", "save", "save_safetensors"]


def save(obj: Any, f: PathOrFile) -> None:
    """Write `obj` to the path or binary file `f`.

    `obj` is made of dicts, OrderedDicts, Counters, lists, tuples, sets, strings, bytes, numbers, None, sizes, dtypes,
    devices and tensors. Of tensors are kept: aliasing within `obj`, dtype, device, requires_grad and being a Parameter.
    Raises TypeError for anything else (save a module's `state_dict()`, not the module), ValueError for cycles; an
    existing file is then left as it is.
    """
    tree, storages = encode(obj)
    with opened(f, "wb") as file:
        write_archive(file, tree, storages)


def load(
    f: PathOrFile,
    map_location: Any = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Read what `save` wrote to the path or binary file `f`.

    `map_location` says where storages go: a device, a dict from saved to wanted devices, or a function
    (storage as a vector, saved device) -> vector or None for no change. `mmap` maps the file, which has to be a path,
    instead of reading it. `weights_only` has no effect: no code in a file is ever run.
    Raises FormatError, a RuntimeError, for files that are damaged or of another format, such as PyTorch's.
    """
    if pickle_module is not None:
        raise ValueError("load never unpickles: pickle_module has to be None")
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("mmap=True needs a path")
    with opened(f, "rb") as file, refusing(f):
        tree, blob = read_archive(file, os.fspath(f) if mmap else None)  # type: ignore[arg-type]
        arrays = parse_blob(blob)
        check(tree, arrays)
    storages = place(tree, arrays, map_location)
    with refusing(f):
        return build(tree, storages)


def save_safetensors(tensors: Mapping[str, Any], f: PathOrFile, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name to a .safetensors file; views are written out, aliasing is lost."""
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, treadle.Tensor):
            raise TypeError("save_safetensors takes a dict from names to tensors")
        arrays[name] = (bits_of(tensor).reshape(tuple(tensor.shape)), dtype_name(tensor.dtype))
    with opened(f, "wb") as file:
        write_blob(file, arrays, metadata)


def load_safetensors(f: PathOrFile, device: Any = None) -> dict[str, Any]:
    """The tensors, by name, of a .safetensors file. Raises FormatError for damaged files."""
    with opened(f, "rb") as file, refusing(f):
        size = size_of(file)
        blob = np.empty(size, np.uint8)
        read_into(file, blob)
        found = parse_blob(blob)
    tensors = {name: tensor_of(array, safe) for name, (array, safe) in found.items()}
    return tensors if device is None else {name: tensor.to(device) for name, tensor in tensors.items()}
