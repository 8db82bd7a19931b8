"""Object code: no undefined symbols, on any target; deterministic; code for lesser machines runs and agrees."""

import struct

import numpy as np
import pytest

from tests.codegen.run_kernel import Compiled, index, kernel, loop, map_kernel
from treadle.codegen.cpu.backend import compile_functions
from treadle.codegen.cpu.target import cpu_target, host_target
from treadle.codegen.target import Target
from treadle.ir.core import Function, Value
from treadle.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64
from treadle.ir.scalar import FUNCTIONS, PREDICATES, TRANSCENDENTAL
from treadle.ir.types import BufferType
from treadle.passes.expand_math import expand_math
from treadle.passes.legalize import legalize

PLAIN = cpu_target("x86_64-unknown-linux-gnu", "x86-64", "")
TARGETS = {
    "host": host_target(),
    "plain": PLAIN,
    "avx512": cpu_target(
        "x86_64-unknown-linux-gnu",
        "skylake-avx512",
        "+avx2,+fma,+f16c,+sse4.1,+avx512f,+avx512vl,+avx512bw,+avx512dq",
    ),
    "aarch64": cpu_target("aarch64-unknown-linux-gnu", "generic", "+neon"),
}


def undefined_symbols(code: bytes) -> set[str]:
    """Names that an ELF object of 64 bits expects others to define."""
    assert code[:5] == b"\x7fELF\x02"
    sections, size, count = struct.unpack_from("<Q", code, 40)[0], *struct.unpack_from("<HH", code, 58)
    table = [struct.unpack_from("<IIQQQQIIQQ", code, sections + size * k) for k in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _, _, entry in table:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = table[link][4]
        for at in range(offset + entry, offset + length, entry):  # the first is null
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if section == 0:
                end = code.index(b"\0", names + name)
                found.add(code[names + name : end].decode())
    return found


def prepared(fn: Function, target: Target) -> Function:
    return legalize(expand_math(fn), target.lacks)


def every_function(dtype: DType, width: int, plain: bool) -> list[Function]:
    """A kernel for each function; on plain machines, whose code is long, for some."""
    made = []
    for fn, arity in FUNCTIONS.items():
        if plain and fn in TRANSCENDENTAL and fn not in ("exp", "sin"):
            continue
        if fn == "select" or (dtype.kind == "f") == (fn in ("idiv", "irem", "and", "or", "xor", "not", "mulhi")):
            continue
        if fn in ("shl", "shr", "lshr") and dtype.kind == "f":
            continue
        if dtype.kind != "f" and fn not in ("add", "mul", "idiv", "irem", "mulhi", "shl", "minimum", "abs", "pow"):
            continue
        out = bool_ if fn in PREDICATES else dtype
        made.append(map_kernel(lambda s, *xs, fn=fn: s.call(fn, *xs), [dtype] * arity, out, 37, width))
    return made


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int8, int32, int64], ids=lambda d: d.short)
def test_no_library_is_called(name: str, dtype: DType) -> None:
    target = TARGETS[name]
    functions = [prepared(fn, target) for fn in every_function(dtype, target.vector_width(float32), bool(target.lacks))]
    others = [float32, float64, float16, bool_, int8, int64]
    functions += [map_kernel(lambda s, x, d=d: s.cast(x, d), [dtype], d, 37, 4) for d in others]
    module = compile_functions(functions, target)
    assert undefined_symbols(module.object_code) == set()


def test_equal_functions_give_equal_code() -> None:
    def made() -> Function:
        return expand_math(map_kernel(lambda s, x: s.exp(x), [float32], float32, 100, 8))

    first, second = (compile_functions([made()], host_target()) for _ in range(2))
    assert first == second
    both = compile_functions([made(), made()], host_target())
    assert both.symbols[0] == both.symbols[1]


def test_assembly_is_of_the_module() -> None:
    fn = map_kernel(lambda s, x: s.add(x, x), [float32], float32, 100, 8)
    module = compile_functions([fn], host_target(), assembly=True)
    assert f"{module.symbols[0]}:" in module.assembly


def test_keys_of_targets_differ() -> None:
    assert len({t.key() for t in TARGETS.values()}) == len(TARGETS)
    assert TARGETS["avx512"].vector_width(float32) == 16
    assert TARGETS["aarch64"].vector_width(float64) == 2
    assert PLAIN.lacks == {"fma", "half", "round"} and not TARGETS["aarch64"].lacks


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=lambda d: d.short)
@pytest.mark.parametrize("fn", ["fma", "floor", "ceil", "rint", "trunc", "exp", "tanh", "log", "sin"])
def test_a_plain_machine_gives_the_same_bits(fn: str, dtype: DType) -> None:
    """Fused multiply-add, rounding and halves in software, run on this machine."""
    if not host_target().triple.startswith("x86_64"):
        pytest.skip("runs code for x86-64")
    rng = np.random.default_rng(7)
    n, arity = 20011, FUNCTIONS[fn]
    if dtype.bits == 16:
        arrays = [rng.integers(0, 65536, n).astype(np.uint16).view(dtype.numpy) for _ in range(arity)]
    else:
        scale = 2.0 ** rng.integers(-30, 30, (arity, n))
        arrays = list((rng.standard_normal((arity, n)) * scale).astype(dtype.numpy))
        arrays[-1][::3] = -(arrays[0] * arrays[1 % arity])[::3]  # sums that cancel
        arrays[0][:9] = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5]
    source = map_kernel(lambda s, *xs: s.call(fn, *xs), [dtype] * arity, dtype, n, 4)
    found = []
    for target in (host_target(), PLAIN):
        out = np.zeros(n, dtype.numpy)
        assert Compiled(prepared(source, target), target)([*arrays, out]) == 0
        found.append(out)
    a, b = found
    equal = a.view(f"u{dtype.itemsize}") == b.view(f"u{dtype.itemsize}")
    if dtype.numpy.kind == "f":
        equal |= np.isnan(a) & np.isnan(b)
    assert equal.all(), (*(x[~equal][:3] for x in arrays), a[~equal][:3], b[~equal][:3])


def test_a_module_of_many_kernels() -> None:
    names = ("exp", "log", "tanh", "sqrt", "neg")
    functions = [expand_math(map_kernel(lambda s, x, f=f: s.call(f, x), [float32], float32, 50, 8)) for f in names]
    module = compile_functions(functions, host_target())
    assert len(set(module.symbols)) == len(names) == len(module.scratch)


def test_a_kernel_that_does_nothing() -> None:
    (x,) = [Value(BufferType(float32, 1))]
    fn = kernel([x], lambda s: loop(s, index(s, 0), index(s, 0), lambda b, i: None, kind="vector", width=8))
    assert Compiled(fn)([np.zeros(1, np.float32)]) == 0
