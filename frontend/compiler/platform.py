"""Platforms: where programs run. A device, the target its code is for, what schedules ask of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from treadle.codegen.backend import Backend, backend_of
from treadle.codegen.cpu.target import host_target
from treadle.codegen.target import Target
from treadle.passes.machine import HOST, Machine

__all__ = ["Platform", "platform_of"]


@dataclass(frozen=True)
class Platform:
    """`device` as tensors name it ("cpu", "cuda:0")."""

    device: str
    target: Target
    machine: Machine

    @property
    def backend(self) -> Backend:
        return backend_of(self.target.name)

    def key(self) -> str:
        """Identifies the code that this platform gets."""
        return f"{self.target.key()} {self.machine}"


@functools.cache
def platform_of(device: str) -> Platform:
    """The platform of a device. Raises RuntimeError for devices there is no platform for."""
    if device == "cpu":
        return Platform(device, host_target(), HOST)
    raise RuntimeError(f"no platform for device {device!r}")
