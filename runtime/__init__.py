"""Buffers, programs, executor (C++ core) and JIT linking. Imports nothing of ours. Start reading in program.py."""

import atexit
import os

from treadle.runtime import _core
from treadle.runtime._core import (
    REQUIRE,
    Buffer,
    Program,
    available_cores,
    empty_cache,
    executor_stats,
    get_num_threads,
    host_function_address,
    host_function_names,
    memory_stats,
    reset_peak_memory,
    set_memory_limit,
    set_num_threads,
    submit,
    synchronize,
)
from treadle.runtime.devices import Device, cpu
from treadle.runtime.program import (
    DimCode,
    DimTable,
    KernelCode,
    Launch,
    ProgramSpec,
    Slot,
    SlotKind,
    load,
)

__all__ = [
    "REQUIRE",
    "Buffer",
    "Device",
    "DimCode",
    "DimTable",
    "KernelCode",
    "Launch",
    "Program",
    "ProgramSpec",
    "Slot",
    "SlotKind",
    "available_cores",
    "cpu",
    "empty_cache",
    "executor_stats",
    "get_num_threads",
    "host_function_address",
    "host_function_names",
    "load",
    "memory_stats",
    "reset_peak_memory",
    "set_memory_limit",
    "set_num_threads",
    "submit",
    "synchronize",
]

# The threads must be gone before the interpreter takes objects and linked code away.
atexit.register(_core._shutdown)
os.register_at_fork(
    before=_core._before_fork,
    after_in_parent=_core._after_fork_in_parent,
    after_in_child=_core._after_fork_in_child,
)
