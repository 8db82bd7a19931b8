"""A disk cache of bytes by key: compiled kernels and programs of earlier processes.

An entry is one file with a header (magic, length, digest). Writers write a temporary file and rename it, so readers
see whole entries or none, and any number of processes may share the folder; a damaged entry counts as absent and is
deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from pathlib import Path

__all__ = ["DiskCache", "default_cache"]

_MAGIC = b"treadleC\x01"
_HEADER = struct.Struct("<9sQ16s")
_DEFAULT_LIMIT = 1 << 30

# Files a writer left behind when it was killed are older than any write takes.
_STALE_SECONDS = 3600


class DiskCache:
    """Entries in one folder, at most about `limit` bytes; the least recently used go first."""

    def __init__(self, folder: str | os.PathLike[str], limit: int = _DEFAULT_LIMIT) -> None:
        self.folder = Path(folder)
        self.limit = limit
        self._size: int | None = None  # our estimate: measured at the first put, then kept up to date by our own puts

    def path(self, key: str | bytes) -> Path:
        """Where the entry of a key lies."""
        raw = key.encode() if isinstance(key, str) else key
        name = hashlib.blake2b(raw, digest_size=20).hexdigest()
        return self.folder / name[:2] / name[2:]

    def get(self, key: str | bytes) -> bytes | None:
        """The value, or None if there is no sound entry."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        value = _unpack(data)
        with contextlib.suppress(OSError):
            if value is None:
                path.unlink()
            else:
                os.utime(path)  # eviction goes by the time of last use
        return value

    def put(self, key: str | bytes, value: bytes) -> None:
        """Stores a value. A cache that cannot be written (full disk, no rights) stores nothing and says nothing."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix="tmp-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_pack(value))
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._account(len(value) + _HEADER.size)

    def clear(self) -> None:
        """Removes every entry."""
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
        self._size = 0

    def _account(self, added: int) -> None:
        if self._size is None:
            self._size = sum(size for _, size, _ in self._entries())
        else:
            self._size += added
        if self._size > self.limit:
            self._evict()

    def _evict(self) -> None:
        entries = sorted(self._entries())
        size = sum(s for _, s, _ in entries)
        newest = entries[-1][0] if entries else 0.0
        for used, nbytes, path in entries:
            abandoned = path.name.startswith("tmp-") and newest - used > _STALE_SECONDS
            # Down to 90 %, so that not every put evicts. Fresh temporary files belong to writers at work.
            if abandoned or (size > self.limit * 0.9 and not path.name.startswith("tmp-")):
                with contextlib.suppress(OSError):
                    path.unlink()
                    size -= nbytes
        self._size = size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of every file."""
        found = []
        for path in (*self.folder.glob("tmp-*"), *self.folder.glob("[0-9a-f][0-9a-f]/*")):
            with contextlib.suppress(OSError):  # another process may just have removed it
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        return found


def _pack(value: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(value), hashlib.blake2b(value, digest_size=16).digest()) + value


def _unpack(data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(data)
    value = data[_HEADER.size :]
    sound = magic == _MAGIC and length == len(value) and hashlib.blake2b(value, digest_size=16).digest() == digest
    return value if sound else None


def default_cache() -> DiskCache | None:
    """The user's cache as the environment says: TREADLE_CACHE=0 switches it off, TREADLE_CACHE_DIR moves it,
    TREADLE_CACHE_LIMIT bounds it (bytes)."""
    if os.environ.get("TREADLE_CACHE") == "0":
        return None
    folder = os.environ.get("TREADLE_CACHE_DIR")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(base, "treadle")
    return _open(folder, int(os.environ.get("TREADLE_CACHE_LIMIT") or _DEFAULT_LIMIT))


_open_caches: dict[tuple[str, int], DiskCache] = {}


def _open(folder: str, limit: int) -> DiskCache:
    """One object a folder, so that its estimate of the size is shared."""
    return _open_caches.setdefault((folder, limit), DiskCache(folder, limit))
