"""Links object code into this process. llvmlite is imported when the first kernel is linked: it takes tens of
milliseconds, and a process that only reads data never needs it."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterable
from typing import Any

__all__ = ["LinkedObject", "link"]


class LinkedObject:
    """Object code in memory. Its addresses are valid as long as this object lives."""

    def __init__(self, jit: Any, library: str, code: bytes, symbols: Iterable[str]) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        names = sorted(set(symbols))
        for name in names:
            builder.export_symbol(name)
        self._jit = jit
        self._library = library
        tracker = builder.link(jit, library)
        self._trackers = [tracker]
        self._addresses = {name: tracker[name] for name in names}

    def address(self, symbol: str) -> int:
        """The address of a function of this object."""
        if symbol not in self._addresses:
            tracker = self._jit.lookup(self._library, symbol)
            self._trackers.append(tracker)
            self._addresses[symbol] = tracker[symbol]
        return self._addresses[symbol]


_lock = threading.Lock()
_jit: Any = None
_linked: weakref.WeakValueDictionary[bytes, LinkedObject] = weakref.WeakValueDictionary()
_libraries = 0  # the linker takes a library's name once only


def link(code: bytes, symbols: Iterable[str]) -> LinkedObject:
    """Links an object file, or returns the one that was linked from equal bytes and is still alive."""
    global _jit, _libraries
    symbols = list(symbols)
    key = hashlib.blake2b(code, digest_size=16).digest()
    with _lock:
        found = _linked.get(key)
        if found is None:
            if _jit is None:
                _jit = _create_jit()
            _libraries += 1
            found = LinkedObject(_jit, f"treadle{_libraries}", code, symbols)
            _linked[key] = found
        for symbol in symbols:
            found.address(symbol)
        return found


def _create_jit() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()
