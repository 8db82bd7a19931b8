"""Loop-level functions to object code for a CPU: one LLVM module for several kernels.

The functions have been through `expand-math` and `legalize`. The text is explicit about vectors, so LLVM runs no pass
pipeline, only code generation (level 1, which measures within a percent of 2).
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

import treadle.codegen.emit_loops
import treadle.codegen.emit_memory  # noqa: F401  (both register what they lower)
from treadle.codegen.backend import Backend, CompiledModule
from treadle.codegen.cpu.contract import emit_contract
from treadle.codegen.cpu.contract_schedule import contraction_tasks
from treadle.codegen.emit import Emitter, lowers
from treadle.codegen.target import Target
from treadle.ir.core import Function
from treadle.ir.loops import LoopContract
from treadle.ir.printer import digest

__all__ = ["backend", "compile_functions"]

lowers(LoopContract)(emit_contract)


def compile_functions(functions: list[Function], target: Target, assembly: bool = False) -> CompiledModule:
    """Emit, verify and compile. Symbols are digests of the functions' text, so equal kernels have equal names."""
    emitters = [Emitter(fn, f"k_{digest(fn)[:24]}", target) for fn in functions]
    bodies = {e.name: e.emit() for e in emitters}
    text = "\n".join([f'target triple = "{target.triple}"', *bodies.values(), _attributes(target), *_METADATA])
    machine = _machine(target.triple, target.cpu, target.features)
    # Emission changes the module: each has one of its own.
    shown = machine.emit_assembly(_parsed(text)) if assembly else ""
    code = machine.emit_object(_parsed(text))
    names, scratch = tuple(e.name for e in emitters), tuple(e.scratch for e in emitters)
    return CompiledModule(code, names, text, scratch, (0,) * len(names), shown)


def backend() -> Backend:
    """CPUs of any architecture that LLVM knows."""
    return Backend("cpu", compile_functions, contraction_tasks)


_METADATA = ("!0 = !{}", '!1 = !{!"branch_weights", i32 1000000, i32 1}')


def _attributes(target: Target) -> str:
    words = ["nounwind"]
    if target.cpu:
        words.append(f'"target-cpu"="{target.cpu}"')
    if target.features:
        words.append(f'"target-features"="{target.features}"')
    words.append(f'"prefer-vector-width"="{target.vector_bits}"')
    return f"attributes #0 = {{ {' '.join(words)} }}"


def _parsed(text: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    return module


@functools.cache
def _machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    if llvm.get_process_triple() != triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple(triple)
    return found.create_target_machine(cpu=cpu, features=features, opt=1, reloc="pic", codemodel="small")
