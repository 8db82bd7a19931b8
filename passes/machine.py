"""What fusion and schedules ask of the machine that a program runs on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HOST", "Machine"]


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes. `threads`: that run one task together, each with its own lanes; 1 on CPUs."""

    vector_bits: int = 512
    l1: int = 32768
    l2: int = 524288
    threads: int = 1


HOST = Machine()
