"""Files: opening them, and the zip archive that holds a tree and a blob."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from treadle.serialization.blob import ALIGNMENT, FormatError, write_blob

__all__ = ["PathOrFile", "opened", "read_archive", "read_into", "refusing", "size_of", "write_archive"]

_TREE, _BLOB = "treadle.json", "tensors.safetensors"
_CHUNK = 1 << 24
_LOCAL_HEADER = 30  # bytes before the name of a zip member; 20 more follow the name of one written as zip64
_ZIP64_EXTRA = 20

# What parsing raises on things that are not of the expected kind.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)

PathOrFile = str | os.PathLike | IO[bytes]


def write_archive(file: IO[bytes], tree: Any, storages: Mapping[str, tuple[np.ndarray, str]]) -> None:
    """Write the tree and, beginning at a multiple of the alignment, the storages (elements and dtype by name)."""
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode("ascii")
    before = 2 * _LOCAL_HEADER + len(_TREE) + len(_BLOB) + _ZIP64_EXTRA
    text += b" " * (-(before + len(text)) % ALIGNMENT)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_TREE), text)
        with archive.open(zipfile.ZipInfo(_BLOB), "w", force_zip64=True) as member:
            write_blob(member, storages)


@contextmanager
def opened(f: PathOrFile, mode: str) -> Iterator[IO[bytes]]:
    """`f` itself, or the file of that path for the time being; one that cannot seek is read to memory."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, mode) as file:
            yield file
    elif not hasattr(f, "read" if mode == "rb" else "write"):
        raise TypeError(f"expected a path or a binary file, got {type(f).__name__}")
    elif mode == "rb" and not (hasattr(f, "seekable") and f.seekable()):
        yield io.BytesIO(f.read())
    else:
        yield f


@contextmanager
def refusing(f: Any) -> Iterator[None]:
    """Turn whatever reading a damaged file may raise into FormatError."""
    try:
        yield
    except FormatError:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, *_DAMAGE) as error:
        raise FormatError(f"cannot load {_name_of(f)}: damaged file ({error})") from error
    except RecursionError as error:
        raise FormatError(f"cannot load {_name_of(f)}: nested too deeply") from error


def _name_of(f: Any) -> str:
    return repr(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else "the file"


def size_of(file: IO[bytes]) -> int:
    """Bytes from here to the end."""
    here = file.tell()
    size = file.seek(0, io.SEEK_END) - here
    file.seek(here)
    return size


def read_into(file: IO[bytes], array: np.ndarray) -> None:
    """Fill a byte array from `file`; FormatError if there are fewer bytes."""
    done = 0
    while done < len(array):
        chunk = file.read(min(_CHUNK, len(array) - done))
        if not chunk:
            raise FormatError(f"truncated file: {len(array) - done} bytes are missing")
        array[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)


def read_archive(file: IO[bytes], mapped: Any) -> tuple[Any, np.ndarray]:
    """The JSON tree and the bytes of the storages; these are mapped from the path `mapped` if that is not None."""
    size = size_of(file)
    head = file.read(16)
    file.seek(-len(head), io.SEEK_CUR)
    if not head.startswith(b"PK\x03\x04"):
        raise FormatError(_what_else(head))
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if any(name.rpartition("/")[2] == "data.pkl" for name in members):
            raise FormatError("this is a pickle-based checkpoint of PyTorch's torch.save, which cannot be read yet")
        if set(members) != {_TREE, _BLOB} or len(archive.infolist()) != 2:
            raise FormatError("not a file written by treadle.save")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise FormatError(f"member {info.filename} is compressed or encrypted")
        if sum(info.file_size for info in members.values()) > size:
            raise FormatError("the members' stated sizes exceed that of the file")
        tree = json.loads(archive.read(members[_TREE]))
        with archive.open(members[_BLOB]) as member:
            if mapped is not None:
                start = _data_offset(file, members[_BLOB])
                return tree, _map(mapped, start, members[_BLOB].file_size)
            blob = np.empty(members[_BLOB].file_size, np.uint8)
            read_into(member, blob)
            member.read(1)  # at the end of the member its checksum is compared
    return tree, blob


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where the data of a member begins in the file, after its local header, name and extra field."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    return info.header_offset + _LOCAL_HEADER + int.from_bytes(header[26:28], "little") + int.from_bytes(
        header[28:30], "little"
    )  # fmt: skip


def _map(path: Any, start: int, size: int) -> np.ndarray:
    """Bytes of a file as an array that is copied page by page when written to."""
    if start + size > os.path.getsize(path):
        raise FormatError("truncated file")
    return np.memmap(path, np.uint8, "c", start, (size,)) if size else np.empty(0, np.uint8)


def _what_else(head: bytes) -> str:
    if re.match(rb"\x80[\x02-\x05]", head):
        return "this is a pickle, perhaps of an old version of PyTorch: it cannot be loaded without running code"
    if head[8:9] == b"{":
        return "this is a .safetensors file: use load_safetensors"
    return "not a file written by treadle.save, or cut off at its beginning"
