"""treadle.cuda: there is no CUDA target yet, and this module says so the way torch does on a machine without a GPU."""

from __future__ import annotations

from typing import Any

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "synchronize",
]


def is_available() -> bool:
    """False: programs fall back to the CPU."""
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported() -> bool:
    return False


def device_count() -> int:
    """0."""
    return 0


def current_device() -> int:
    """Raises RuntimeError: there is no device."""
    raise RuntimeError("No CUDA GPUs are available")


def synchronize(device: Any = None) -> None:
    """Raises RuntimeError: there is no device."""
    raise RuntimeError("No CUDA GPUs are available")


def manual_seed(seed: int) -> None:
    """Accepted; torch ignores it too where CUDA is not available."""


def manual_seed_all(seed: int) -> None:
    """Accepted; torch ignores it too where CUDA is not available."""


def empty_cache() -> None:
    """Accepted: there is no cache."""
