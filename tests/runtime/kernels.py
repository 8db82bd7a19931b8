"""Small kernels in LLVM IR for the runtime's tests, and programs around them."""

from __future__ import annotations

from functools import lru_cache

import llvmlite.binding as llvm

from treadle.runtime import DimCode, DimTable, KernelCode, Launch, ProgramSpec, Slot, SlotKind

_SIGNATURE = "(ptr %bufs, ptr %ints, ptr %scratch, i64 %begin, i64 %end)"

# What every kernel's loop over its tasks needs; the body sees %i and the pointers %a, %b, %c.
_LOOP = """
define i64 @{name}{signature} {{
entry:
  %a = load ptr, ptr %bufs
  %slot1 = getelementptr ptr, ptr %bufs, i64 1
  %b = load ptr, ptr %slot1
  {setup}
  %empty = icmp sge i64 %begin, %end
  br i1 %empty, label %done, label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %latch ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  {body}
  br label %latch
latch:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i64 0
{blocks}
}}
"""

# name: (setup, body, blocks)
_KERNELS = {
    # b = a + 1
    "increment": ("", "%x = load float, ptr %pa\n  %y = fadd float %x, 1.0\n  store float %y, ptr %pb", ""),
    # c = a + b
    "add": (
        "%slot2 = getelementptr ptr, ptr %bufs, i64 2\n  %c = load ptr, ptr %slot2",
        """%x = load float, ptr %pa
  %z = load float, ptr %pb
  %y = fadd float %x, %z
  %pc = getelementptr float, ptr %c, i64 %i
  store float %y, ptr %pc""",
        "",
    ),
    # b = a * scalar
    "scale": (
        "%slot2 = getelementptr ptr, ptr %bufs, i64 2\n  %c = load ptr, ptr %slot2\n  %k = load float, ptr %c",
        "%x = load float, ptr %pa\n  %y = fmul float %x, %k\n  store float %y, ptr %pb",
        "",
    ),
    # b = a, by way of the scratch memory; fails check 2 where a is negative
    "checked_copy": (
        "",
        """%x = load float, ptr %pa
  %bad = fcmp olt float %x, 0.0
  br i1 %bad, label %fail, label %good
good:
  store float %x, ptr %scratch
  %y = load float, ptr %scratch
  store float %y, ptr %pb""",
        "fail:\n  ret i64 2",
    ),
    # b[i] = ints[0] + i, as float
    "iota": (
        "%start = load i64, ptr %ints",
        "%n = add i64 %start, %i\n  %y = sitofp i64 %n to float\n  store float %y, ptr %pa",
        "",
    ),
    # b[i] = a[i] after about ints[0] additions: takes a while
    "slow": (
        "%count = load i64, ptr %ints",
        """%x = load float, ptr %pa
  br label %spin
spin:
  %j = phi i64 [ 0, %loop ], [ %j1, %spin ]
  %s = phi float [ %x, %loop ], [ %s1, %spin ]
  %s1 = fadd float %s, 1.0
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, %count
  br i1 %again, label %spin, label %over
over:
  store float %x, ptr %pb""",
        "",
    ),
}


@lru_cache
def blob() -> bytes:
    """Object code of all the kernels."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = "\n".join(
        _LOOP.format(name=name, signature=_SIGNATURE, setup=setup, body=body, blocks=blocks)
        for name, (setup, body, blocks) in _KERNELS.items()
    )
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1, reloc="pic", codemodel="default")
    return machine.emit_object(module)


CHECKS = ((1, "never"), (2, "IndexError: a negative element"))


def _times(dims: DimTable, size: tuple[int, ...], factor: int) -> int:
    return dims.add((*size, DimCode.PUSH_CONST, factor, DimCode.MUL))


def chain(
    kernels: list[str],
    *,
    n: int | None = None,
    grain: int = 1024,
    ints: tuple[int, ...] = (0,),
    work: bool = False,
    name: str = "chain",
) -> ProgramSpec:
    """out = k_n(... k_2(k_1(input))) on float vectors of `n` elements, or of as many as the symbol says."""
    dims = DimTable()
    elements = (DimCode.PUSH_CONST, n) if n is not None else (DimCode.PUSH_SYM, 0)
    size = (*elements, DimCode.PUSH_CONST, 4, DimCode.MUL)
    stride = (*size, DimCode.PUSH_CONST, 64, DimCode.CEILDIV, DimCode.PUSH_CONST, 64, DimCode.MUL)
    count, nbytes = dims.add(elements), dims.add(size)
    slots = [Slot(SlotKind.INPUT, 0, nbytes), Slot(SlotKind.OUTPUT, 0, nbytes, alias=0)]
    launches = []
    source = 0
    for step in range(len(kernels)):
        if step == len(kernels) - 1:
            target = 1
        else:
            slots.append(Slot(SlotKind.TEMP, 0, nbytes, offset=_times(dims, stride, step % 2)))
            target = len(slots) - 1
        launches.append(
            Launch(
                kernel=step,
                slots=(source, target),
                ints=tuple(dims.const(v) for v in ints),
                tasks=count,
                grain=dims.const(grain),
                scratch=dims.const(64),
                location=step,
            )
        )
        source = target
    return ProgramSpec(
        name=name,
        inputs=1,
        outputs=1,
        symbols=() if n is not None else ("s0",),
        slots=tuple(slots),
        launches=tuple(launches),
        kernels=tuple(KernelCode(kernel, 0, CHECKS) for kernel in kernels),
        locations=tuple(f"model.py:{step + 1}" for step in range(len(kernels))),
        arena=_times(dims, stride, 2),
        work=count if work else -1,
        dims=dims.expressions(),
        blobs=(blob(),),
    )
