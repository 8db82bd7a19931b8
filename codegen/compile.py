"""Loop-level functions to object code: one LLVM module for several kernels."""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

import treadle.codegen.emit_loops  # noqa: F401  (loops and memory ops register themselves)
from treadle.codegen.emit import Emitter
from treadle.codegen.target import Target
from treadle.ir.core import Function
from treadle.ir.dims import Dim
from treadle.ir.printer import digest

__all__ = ["CompiledModule", "compile_functions"]


@dataclass(frozen=True)
class CompiledModule:
    """Object code of several kernels, in the order they were given; scratch bytes each needs."""

    object_code: bytes
    symbols: tuple[str, ...]
    llvm: str
    scratch: tuple[Dim, ...]
    assembly: str = ""


def compile_functions(functions: list[Function], target: Target, assembly: bool = False) -> CompiledModule:
    """Emit, verify and compile; symbol names are digests of the functions' text."""
    emitters = []
    texts = []
    declarations: set[str] = set()
    for fn in functions:
        e = Emitter(fn, f"k_{digest(fn)[:24]}", target)
        texts.append(e.emit())
        declarations |= e.declarations
        emitters.append(e)
    attributes = f'attributes #0 = {{ nounwind "target-cpu"="{target.cpu}" "target-features"="{target.features}" "prefer-vector-width"="{target.vector_bits}" }}'
    text = "\n".join(
        [f'target triple = "{target.triple}"', *texts, *sorted(declarations), attributes, "!0 = !{}", '!1 = !{!"branch_weights", i32 1000000, i32 1}']
    )
    machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.verify()
    asm = machine.emit_assembly(llvm.parse_assembly(text)) if assembly else ""
    code = machine.emit_object(module)
    return CompiledModule(code, tuple(e.name for e in emitters), text, tuple(e.scratch for e in emitters), asm)


