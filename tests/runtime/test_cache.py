"""The disk cache: damage, concurrent writers, bounds, environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.runtime.cache import DiskCache, default_cache


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def test_values_come_back(cache: DiskCache) -> None:
    assert cache.get("a") is None
    cache.put("a", b"1")
    cache.put(b"\x00binary", b"")
    cache.put("a/../b", b"x" * 100_000)
    assert cache.get("a") == b"1"
    assert cache.get(b"\x00binary") == b""
    assert DiskCache(cache.folder).get("a/../b") == b"x" * 100_000
    cache.put("a", b"2")
    assert cache.get("a") == b"2"
    cache.clear()
    assert cache.get("a") is None


def test_truncated_and_damaged_entries_are_absent_and_rebuilt(cache: DiskCache) -> None:
    value = bytes(range(200))
    cache.put("k", value)
    whole = cache.path("k").read_bytes()
    for damaged in (b"", whole[:5], whole[:-1], whole[:40], whole + b"x", b"x" + whole[1:], whole[:-1] + b"\x00"):
        cache.path("k").write_bytes(damaged)
        assert cache.get("k") is None
        assert not cache.path("k").exists()
        cache.put("k", value)
        assert cache.get("k") == value


def test_concurrent_writers_and_readers_see_whole_entries(tmp_path: Path) -> None:
    code = """
import sys
from treadle.runtime.cache import DiskCache
cache = DiskCache(sys.argv[1], limit=300_000)
me = int(sys.argv[2])
for step in range(150):
    key = f"k{step % 7}"
    cache.put(key, bytes([me]) * (20_000 + me))
    value = cache.get(key)
    assert value is None or len(value) == 20_000 + value[0] and value == value[:1] * len(value)
"""
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "c"), str(i)]) for i in range(1, 5)]
    assert [w.wait(timeout=120) for w in workers] == [0] * 4
    assert not list((tmp_path / "c").glob("tmp-*"))


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=10_000)
    for i in range(8):
        cache.put(f"k{i}", bytes(1000))
        os.utime(cache.path(f"k{i}"), (1000 + i, 1000 + i))
    assert cache.get("k0") == bytes(1000)  # used just now
    for i in range(8, 12):
        cache.put(f"k{i}", bytes(1000))
    assert cache.get("k0") == bytes(1000)
    assert cache.get("k1") is None
    assert cache.get("k11") == bytes(1000)
    assert sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()) <= 10_000


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file")
    cache.put("k", b"v")
    assert cache.get("k") is None


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE", "0")
    assert default_cache() is None
    monkeypatch.delenv("TREADLE_CACHE")
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "here"))
    cache = default_cache()
    assert cache is not None and cache.folder == tmp_path / "here"
    assert default_cache() is cache
    monkeypatch.delenv("TREADLE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cache = default_cache()
    assert cache is not None and cache.folder == tmp_path / "xdg" / "treadle"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = default_cache()
    assert cache is not None and cache.folder == tmp_path / ".cache" / "treadle"
