"""The CPU this process runs on, as a Target."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from treadle.codegen.target import Target

__all__ = ["host_target"]


@functools.cache
def host_target() -> Target:
    """Features of the host, from LLVM's detection."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    bits, registers = 128, 16
    if features.get("avx512f") and features.get("avx512vl"):
        bits, registers = 512, 32
    elif features.get("avx2"):
        bits = 256
    elif features.get("neon"):
        registers = 32
    return Target("cpu", llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten(), bits, registers)
