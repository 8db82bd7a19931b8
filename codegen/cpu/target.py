"""CPUs as Targets: the one this process runs on, or any other by its LLVM features.

What a CPU `lacks` is named as the pass `legalize` knows it: "fma" and "round" (floor, ceil, rint, trunc) become library
calls where there is no instruction; "half" (conversions of float16) likewise, which the emitter writes with integers.
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from treadle.codegen.target import Target

__all__ = ["cpu_target", "host_target"]


@functools.cache
def host_target() -> Target:
    """The host, as LLVM detects it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return cpu_target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def cpu_target(triple: str, cpu: str = "", features: str = "") -> Target:
    """The target of an LLVM triple. Nothing is assumed but what `features` says and the architecture guarantees."""
    on = {f[1:] for f in features.split(",") if f.startswith("+")}
    if triple.startswith(("x86_64", "i686", "i386")):
        return _x86(triple, cpu, features, on)
    if triple.startswith(("aarch64", "arm64")):
        # NEON has fused multiply-add, rounding and conversions of halves; 32 registers of 128 bits.
        return Target("cpu", triple, cpu, features, 128, 32)
    bits = 128 if "simd128" in on else 64
    return Target("cpu", triple, cpu, features, bits, 16, lacks=frozenset({"fma", "half"}))


def _x86(triple: str, cpu: str, features: str, on: set[str]) -> Target:
    wanted = {"fma": "fma", "half": "f16c", "round": "sse4.1"}
    lacks = frozenset(name for name, feature in wanted.items() if feature not in on)
    if {"avx512f", "avx512vl", "avx512dq"} <= on:
        masked = {4, 8, 1, 2} if "avx512bw" in on else {4, 8}
        return Target("cpu", triple, cpu, features, 512, 32, lacks=lacks, masked_sizes=frozenset(masked))
    if "avx2" in on:
        return Target("cpu", triple, cpu, features, 256, 16, lacks=lacks, masked_sizes=frozenset({4, 8}))
    return Target("cpu", triple, cpu, features, 128, 16, lacks=lacks)
