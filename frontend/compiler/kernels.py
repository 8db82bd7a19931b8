"""Code of kernels: shared by content in this process, and kept on disk, keyed by IR text, platform and compiler."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import treadle.codegen
import treadle.ir
import treadle.passes
from treadle.compiler import dumps
from treadle.compiler.counters import COUNTERS
from treadle.compiler.platform import Platform
from treadle.ir.dims import Dim
from treadle.passes.expand_math import expand_math
from treadle.passes.lower import LoweredKernel
from treadle.runtime.cache import default_cache

__all__ = ["KernelBinary", "compiler_version", "kernel_binaries"]


@dataclass(frozen=True)
class KernelBinary:
    """A compiled kernel: object code or PTX, its symbol in it, scratch bytes a task, threads a block (0 on CPUs)."""

    code: bytes
    symbol: str
    scratch: Dim
    threads: int

    def to_bytes(self) -> bytes:
        return json.dumps([self.symbol, self.scratch, self.threads]).encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelBinary:
        head, _, code = data.partition(b"\n")
        return cls(code, *json.loads(head))


_known: dict[tuple[str, Platform], KernelBinary] = {}  # by digest of the loop function


def kernel_binaries(lowered: list[LoweredKernel], platform: Platform, reason: str) -> dict[str, KernelBinary]:
    """The code of each distinct kernel, by digest: from this process, from disk, or compiled as one module."""
    cache = None if dumps.active() else default_cache()
    found: dict[str, KernelBinary] = {}
    missing: dict[str, LoweredKernel] = {}
    for k in lowered:
        if k.digest in found or k.digest in missing:
            continue
        known = None if dumps.active() else _known.get((k.digest, platform))
        if known is None and cache is not None:
            stored = cache.get(_key(k.digest, platform))
            known = None if stored is None else KernelBinary.from_bytes(stored)
        if known is not None:
            found[k.digest] = _known[k.digest, platform] = known
            COUNTERS.cache_hits += 1
        else:
            missing[k.digest] = k
    if missing:
        functions = [expand_math(k.function) for k in missing.values()]
        module = platform.backend.compile_functions(functions, platform.target, dumps.wanted("asm"))
        dumps.module(reason, module)
        rows = zip(missing, module.symbols, module.scratch, module.threads, strict=True)
        for d, symbol, scratch, threads in rows:
            made = found[d] = _known[d, platform] = KernelBinary(module.object_code, symbol, scratch, threads)
            if cache is not None and isinstance(scratch, int):
                cache.put(_key(d, platform), made.to_bytes())
    return found


def _key(digest: str, platform: Platform) -> str:
    return f"kernel {digest} {platform.key()} {compiler_version()}"


@functools.cache
def compiler_version() -> str:
    """Digest of the compiler's own sources: a changed compiler finds none of its predecessor's code."""
    h = hashlib.sha256()
    for package in (treadle.ir, treadle.passes, treadle.codegen):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            h.update(str(file.relative_to(root)).encode())
            h.update(file.read_bytes())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        h.update(file.read_bytes())
    return h.hexdigest()
