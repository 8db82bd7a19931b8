"""The interface of a kind of target: what the compiler asks of `codegen/<kind>/`, and the registry of kinds.

To add a kind of target: write a module with a function `backend()` that gives its Backend, and enter it in `_MODULES`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from treadle.codegen.target import Target
from treadle.ir.core import Function
from treadle.ir.dims import Dim
from treadle.ir.loops import LoopContract

__all__ = ["Backend", "CompiledModule", "backend_of"]


@dataclass(frozen=True)
class CompiledModule:
    """Code of several kernels, in the order they were given: object code, or the text of PTX.

    `scratch`: bytes that each needs a task at a time; `threads`: of a block (0 where a kernel is called, not launched).
    """

    object_code: bytes
    symbols: tuple[str, ...]
    llvm: str
    scratch: tuple[Dim, ...]
    threads: tuple[int, ...]
    assembly: str = ""


@dataclass(frozen=True)
class Backend:
    """What a kind of target does.

    `compile_functions(functions, target, assembly)`: loop-level Functions, through `expand-math`, to code; `assembly`
    asks for its text too. `contraction_tasks(op, target)`: into how many tasks it divides a contraction.
    """

    name: str
    compile_functions: Callable[[list[Function], Target, bool], CompiledModule]
    contraction_tasks: Callable[[LoopContract, Target], Dim]


_MODULES = {"cpu": "treadle.codegen.cpu.backend"}


@functools.cache
def backend_of(kind: str) -> Backend:
    """The backend of `Target.name`. Raises KeyError for an unknown one."""
    made: Backend = importlib.import_module(_MODULES[kind]).backend()
    return made
