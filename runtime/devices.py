"""What the machine is: the facts that the compiler's targets and the user may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from treadle.runtime import _core

__all__ = ["Device", "cpu"]


@dataclass(frozen=True)
class Device:
    """A place where programs run. `kind` is "cpu"."""

    kind: str

    @property
    def num_threads(self) -> int:
        """Threads that a program's launches are spread over."""
        return _core.get_num_threads()

    @cached_property
    def name(self) -> str:
        """LLVM's name of the processor."""
        import llvmlite.binding as llvm

        return llvm.get_host_cpu_name()

    @cached_property
    def features(self) -> frozenset[str]:
        """LLVM's names of the instruction-set features that this processor has."""
        import llvmlite.binding as llvm

        return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@lru_cache(maxsize=1)
def cpu() -> Device:
    """The processor of this process."""
    return Device("cpu")
