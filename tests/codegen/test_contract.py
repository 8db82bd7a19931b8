"""Contractions through LLVM against NumPy: layouts, types, index groups, schedules, epilogues."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from treadle.codegen.cpu.backend import compile_functions
from treadle.codegen.cpu.contract_schedule import choose_tile, contraction_tasks
from treadle.codegen.target import Target
from treadle.ir import dims, dtypes
from treadle.ir.core import Block, Builder, Function, Level, Value
from treadle.ir.dims import Dim, product, symbol
from treadle.ir.dtypes import DType
from treadle.ir.evaluate import evaluate
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits
from treadle.ir.loops import Check, IndexCast, Load, LoopContract, Store, TileShape
from treadle.ir.scalar import ScalarBuilder
from treadle.ir.types import INDEX, BufferType, ScalarType

GUARD = 64  # bytes after the scratch and elements after outputs that must stay as they are
F32 = dtypes.float32


def host(bits: int = 256, registers: int = 16) -> Target:
    features = llvm.get_host_cpu_features().flatten()
    return Target("host", llvm.get_process_triple(), llvm.get_host_cpu_name(), features, bits, registers)


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
JIT = llvm.create_lljit_compiler()
COUNT = itertools.count()

# (builder, acc, b, i, j, buffers) -> None: writes the epilogue.
Writer = Callable[[ScalarBuilder, Value, Value, Value, Value, list[Value]], None]


def plain(op: LoopContract) -> Writer:
    """out[b, i, j] = acc."""
    m, n = product(op.m), product(op.n)

    def write(s: ScalarBuilder, acc: Value, b: Value, i: Value, j: Value, buffers: list[Value]) -> None:
        s.emit(Store((m * n, n, 1)), buffers[-1], s.cast(acc, buffers[-1].dtype), b, i, j)

    return write


def function(
    op: LoopContract, types: list[tuple[DType, Dim]], writer: Writer, symbols: tuple[str, ...] = ()
) -> Function:
    """A kernel of one contraction; its buffers are A, B, then what the epilogue touches."""
    buffers = [Value(BufferType(dtype, size)) for dtype, size in types]
    params = [Value(ScalarType(op.accumulate)), Value(INDEX), Value(INDEX), Value(INDEX)]
    s = ScalarBuilder()
    writer(s, *params, buffers[2:])  # type: ignore[call-arg,arg-type]
    body = Builder()
    body.emit(op, *buffers[:2], regions=(s.block(params, ()),))
    return Function("contract", body.block([*buffers, *(Value(INDEX) for _ in symbols)], ()), Level.LOOP, symbols)


def run(fn: Function, arrays: list[np.ndarray], target: Target | None = None, chunk: int = 0, **sizes: int) -> int:
    """Compile and run a kernel on arrays, in chunks of tasks; its result."""
    target = target or host()
    module = compile_functions([fn], target)
    library = f"test{next(COUNT)}"
    (name,) = module.symbols
    code = llvm.JITLibraryBuilder().add_object_img(module.object_code).export_symbol(name).link(JIT, library)
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(code[name])
    pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    ints = (ctypes.c_int64 * (len(sizes) + 1))(*(sizes[s] for s in fn.symbols))
    size = dims.evaluate(module.scratch[0], sizes)
    memory = np.full(size + 64 + GUARD, 0xFF, np.uint8)  # NaN where read before it is written
    start = -memory.ctypes.data % 64
    (contract,) = (op.operation for op in fn.ops)
    assert isinstance(contract, LoopContract)
    tasks = dims.evaluate(contraction_tasks(contract, target), sizes)
    result = 0
    for begin in range(0, tasks, chunk or max(1, tasks)):
        end = min(tasks, begin + (chunk or tasks))
        scratch = memory.ctypes.data + start
        result = result or kernel(ctypes.addressof(pointers), ctypes.addressof(ints), scratch, begin, end)
    assert (memory[start + size :] == 0xFF).all(), "the scratch was overrun"
    return result


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def matmul(m: Dim, n: Dim, k: Dim, left: str = "N", right: str = "N", **more: object) -> LoopContract:
    """A plain matrix product whose operands are stored as they are (N) or transposed (T)."""
    a = (k, 1) if left == "N" else (1, m)
    b = (n, 1) if right == "N" else (1, k)
    options: dict = {"accumulate": F32, "batch": (), "a_batch": (), "b_batch": (), **more}
    return LoopContract(m=(m,), n=(n,), k=(k,), a_m=a[:1], a_k=a[1:], b_k=b[:1], b_n=b[1:], **options)


def stored(array: np.ndarray, order: str) -> np.ndarray:
    return np.ascontiguousarray(array if order == "N" else array.swapaxes(-1, -2))


def guarded(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Memory for an output that is longer than it should be written."""
    return np.full(int(np.prod(shape)) + GUARD, 77, dtype)


def taken(out: np.ndarray, *shape: int) -> np.ndarray:
    size = int(np.prod(shape))
    assert (out[size:] == 77).all(), "written past the end"
    return out[:size].reshape(shape)


SIZES = [
    (1, 1, 1), (6, 16, 8), (5, 3, 7), (64, 64, 64), (100, 50, 33), (33, 130, 1700), (7, 17, 900), (1, 200, 70),
    (130, 1, 9), (130, 2, 77), (3, 50, 16), (2, 1100, 2000),
]  # fmt: skip


@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_operand_orders(orders: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    op = matmul(m, n, k, *orders)
    a, b, out = normal(m, k), normal(k, n), guarded(m, n)
    fn = function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op))
    run(fn, [stored(a, orders[0]), stored(b, orders[1]), out])
    np.testing.assert_allclose(taken(out, m, n), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("tile", [TileShape(), TileShape(12, 32, 24), TileShape(10, 24, 40, 4, 8)], ids=str)
def test_tiles_and_chunks_do_not_matter(tile: TileShape, chunk: int) -> None:
    m, n, k = 50, 70, 100
    op = matmul(m, n, k, "N", "T", tile=tile)
    a, b, out = normal(m, k), normal(k, n), guarded(m, n)
    run(function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op)), [a, stored(b, "T"), out], chunk=chunk)
    np.testing.assert_allclose(taken(out, m, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [host(128), host(256, 32), host(512, 32)], ids=lambda t: str(t.vector_bits))
def test_other_vector_shapes(target: Target) -> None:
    """Wider or narrower vectors than the machine has are split or padded by LLVM: tiles must be right all the same."""
    m, n, k = 45, 75, 70
    op = matmul(m, n, k)
    a, b, out = normal(m, k), normal(k, n), guarded(m, n)
    run(function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op)), [a, b, out], target)
    np.testing.assert_allclose(taken(out, m, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("name", ["float64", "int64", "int32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("m", [3, 19])
def test_types(name: str, orders: str, m: int) -> None:
    n, k = 37, 45
    dtype = dtypes.DTYPES[name]
    acc = dtypes.int32 if name == "uint8" else dtype.compute
    op = matmul(m, n, k, *orders, accumulate=acc)
    if dtype.is_floating:
        a, b = (normal(*s, dtype=np.float64) for s in ((m, k), (k, n)))
        if name == "bfloat16":
            a, b = (float32_from_bits(bits_from_float32(x.astype(np.float32))) for x in (a, b))
        else:
            a, b = a.astype(dtype.numpy), b.astype(dtype.numpy)
    else:
        rng = np.random.default_rng(0)
        a, b = (rng.integers(0 if dtype.kind == "u" else -100, 100, s).astype(dtype.numpy) for s in ((m, k), (k, n)))
    encode = bits_from_float32 if name == "bfloat16" else np.asarray
    out = guarded(m, n, dtype=acc.numpy.type)
    fn = function(op, [(dtype, m * k), (dtype, k * n), (acc, m * n)], plain(op))
    run(fn, [encode(stored(a, orders[0])), encode(stored(b, orders[1])), out])
    wide = np.float64 if dtype.is_floating else np.int64
    expected = a.astype(wide) @ b.astype(wide)
    tolerance = 0 if not dtype.is_floating else 1e-12 if name == "float64" else 1e-4
    np.testing.assert_allclose(taken(out, m, n), expected, rtol=tolerance, atol=tolerance)


def test_narrow_output() -> None:
    m, n, k = 9, 21, 30
    op = matmul(m, n, k)
    a, b, out = normal(m, k), normal(k, n), guarded(m, n, dtype=np.float16)
    run(function(op, [(F32, m * k), (F32, k * n), (dtypes.float16, m * n)], plain(op)), [a, b, out])
    np.testing.assert_allclose(taken(out, m, n), (a @ b).astype(np.float16), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shared", ["", "a", "b"])
def test_batches(shared: str) -> None:
    """Batch groups of two extents, one operand possibly the same for all (stride 0)."""
    batch, m, n, k = (3, 2), 13, 30, 21
    a_batch = (0, 0) if shared == "a" else (2 * m * k, m * k)
    b_batch = (0, k * n) if shared == "b" else (2 * k * n, k * n)
    op = matmul(m, n, k, batch=batch, a_batch=a_batch, b_batch=b_batch)
    a = normal(1, 1, m, k) if shared == "a" else normal(*batch, m, k)
    b = normal(1, 2, k, n) if shared == "b" else normal(*batch, k, n)
    out = guarded(*batch, m, n)
    run(function(op, [(F32, a.size), (F32, b.size), (F32, out.size - GUARD)], plain(op)), [a, b, out], chunk=4)
    np.testing.assert_allclose(taken(out, *batch, m, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(16, 3, 5, 12, 1), (12, 5, 1, 16, 1), (21, 3, 4, 7, 2), (8, 1, 9, 6, 1)], ids=str)
def test_convolution_windows(shape: tuple[int, ...]) -> None:
    size, kernel, channels, filters, stride = shape
    images, side = 2, (size - kernel) // stride + 1
    plane = size * size
    op = LoopContract(
        batch=(images,), m=(filters,), n=(side, side), k=(channels, kernel, kernel), a_batch=(0,),
        a_m=(channels * kernel**2,), a_k=(kernel**2, kernel, 1), b_batch=(channels * plane,),
        b_k=(plane, size, 1), b_n=(size * stride, stride), accumulate=F32,
    )  # fmt: skip
    w, x = normal(filters, channels, kernel, kernel), normal(images, channels, size, size)
    out = guarded(images, filters, side, side)
    run(function(op, [(F32, w.size), (F32, x.size), (F32, out.size - GUARD)], plain(op)), [w, x, out])
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    expected = np.einsum("fckl,bcijkl->bfij", w, windows)
    np.testing.assert_allclose(taken(out, images, filters, side, side), expected, rtol=1e-4, atol=1e-4)


def test_convolution_weight_gradient() -> None:
    """k = (image, row, column): contiguous along k in runs, for both operands."""
    images, channels, filters, size, kernel = 3, 4, 9, 11, 3
    side = size - kernel + 1
    plane = size * size
    op = LoopContract(
        batch=(), m=(filters,), n=(channels, kernel, kernel), k=(images, side, side), a_batch=(), b_batch=(),
        a_m=(side**2,), a_k=(filters * side**2, side, 1), b_k=(channels * plane, size, 1), b_n=(plane, size, 1),
        accumulate=F32,
    )  # fmt: skip
    g, x = normal(images, filters, side, side), normal(images, channels, size, size)
    out = guarded(filters, channels * kernel**2)
    run(function(op, [(F32, g.size), (F32, x.size), (F32, out.size - GUARD)], plain(op)), [g, x, out])
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))
    expected = np.einsum("bfij,bcijkl->fckl", g, windows).reshape(filters, -1)
    np.testing.assert_allclose(taken(out, *expected.shape), expected, rtol=1e-4, atol=1e-3)


def test_multiple_extents_with_odd_strides() -> None:
    """Flipped, strided and interleaved groups: every lane goes by the offset table."""
    a, b = normal(6, 4, 10), normal(10, 3, 8)
    m, n, k = (3, 4), (3, 4), (5,)
    op = LoopContract(
        batch=(), m=m, n=n, k=k, a_batch=(), b_batch=(), a_m=(80, -10), a_k=(2,), b_k=(48,), b_n=(8, -2),
        accumulate=F32, a_offset=30, b_offset=7,
    )  # fmt: skip
    out = guarded(12, 12)
    run(function(op, [(F32, a.size), (F32, b.size), (F32, 144)], plain(op)), [a, b, out])
    expected = np.einsum("ijk,kuv->ijuv", a[::2, ::-1, ::2], b[::2, :, ::-2]).reshape(12, 12)
    np.testing.assert_allclose(taken(out, 12, 12), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("orders", ["NN", "NT", "TN"])
@pytest.mark.parametrize("size", [(3, 5, 2), (70, 90, 1200)], ids=str)
def test_symbolic_extents(orders: str, size: tuple[int, int, int]) -> None:
    names = ("m", "n", "k")
    m, n, k = map(symbol, names)
    op = matmul(m, n, k, *orders)
    fn = function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op), names)
    a, b, out = normal(size[0], size[2]), normal(size[2], size[1]), guarded(size[0], size[1])
    run(fn, [stored(a, orders[0]), stored(b, orders[1]), out], m=size[0], n=size[1], k=size[2])
    np.testing.assert_allclose(taken(out, *size[:2]), a @ b, rtol=1e-4, atol=1e-3)


def test_symbolic_windows() -> None:
    side, size = symbol("s"), symbol("t")
    op = LoopContract(
        batch=(), m=(4,), n=(side, side), k=(2, 3, 3), a_batch=(), b_batch=(), a_m=(18,), a_k=(9, 3, 1),
        b_k=(size * size, size, 1), b_n=(size, 1), accumulate=F32,
    )  # fmt: skip
    fn = function(op, [(F32, 72), (F32, size * size * 2), (F32, side * side * 4)], plain(op), ("s", "t"))
    w, x, out = normal(4, 2, 3, 3), normal(2, 13, 13), guarded(4, 11, 11)
    run(fn, [w, x, out], s=11, t=13)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    np.testing.assert_allclose(taken(out, 4, 11, 11), np.einsum("fckl,cijkl->fij", w, windows), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [16, 37])
def test_epilogue_with_bias_residual_and_two_stores(n: int) -> None:
    m, k = 20, 40
    op = matmul(m, n, k)

    def write(s: ScalarBuilder, acc: Value, b: Value, i: Value, j: Value, buffers: list[Value]) -> None:
        bias, scale, residual, pre, out = buffers
        x = s.add(acc, s.emit(Load((1,)), bias, j))
        x = s.mul(x, s.emit(Load((1,)), scale, i))
        s.emit(Store((n, 1)), pre, x, i, j)
        y = s.maximum(x, s.const(0.0, x))
        y = s.add(y, s.emit(Load((1, n)), residual, j, i))
        y = s.add(y, s.emit(IndexCast(F32), j))
        s.emit(Store((1, m)), out, y, i, j)  # transposed

    sizes = (m * k, k * n, n, m, m * n, m * n, m * n)
    fn = function(op, [(F32, size) for size in sizes], write)
    arrays = [normal(size) for size in sizes[:5]]
    pre, out = guarded(m, n), guarded(m, n)
    run(fn, [*arrays, pre, out])
    a, b, bias, scale, residual = arrays
    x = (a.reshape(m, k) @ b.reshape(k, n) + bias) * scale[:, None]
    np.testing.assert_allclose(taken(pre, m, n), x, rtol=1e-4, atol=1e-4)
    y = np.maximum(x, 0) + residual.reshape(m, n) + np.arange(n, dtype=np.float32)
    np.testing.assert_allclose(taken(out, n, m), y.T, rtol=1e-4, atol=1e-4)


def test_epilogue_with_masks() -> None:
    """A masked load and store of the region meet the mask of the edge."""
    m, n, k = 5, 19, 8
    op = matmul(m, n, k)

    def write(s: ScalarBuilder, acc: Value, b: Value, i: Value, j: Value, buffers: list[Value]) -> None:
        extra, out = buffers
        ok = s.gt(acc, s.const(0.0, acc))
        x = s.add(acc, s.emit(Load((n, 1), masked=True), extra, i, j, ok))
        s.emit(Store((n, 1), masked=True), out, x, i, j, ok)

    fn = function(op, [(F32, m * k), (F32, k * n), (F32, m * n), (F32, m * n)], write)
    a, b, extra, out = normal(m, k), normal(k, n), normal(m, n), guarded(m, n)
    run(fn, [a, b, extra, out])
    np.testing.assert_allclose(taken(out, m, n), np.where(a @ b > 0, a @ b + extra, 77), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("limit", [100.0, -100.0])
def test_epilogue_with_a_check(limit: float) -> None:
    m, n, k = 4, 11, 6
    op = matmul(m, n, k)

    def write(s: ScalarBuilder, acc: Value, b: Value, i: Value, j: Value, buffers: list[Value]) -> None:
        s.emit(Check(3, "too large"), s.lt(acc, s.const(limit, acc)))
        s.emit(Store((n, 1)), buffers[0], acc, i, j)

    a, b, out = normal(m, k), normal(k, n), guarded(m, n)
    result = run(function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], write), [a, b, out])
    assert result == (0 if limit > 0 else 3)
    if limit > 0:
        np.testing.assert_allclose(taken(out, m, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(5, 20, 0), (0, 20, 5), (5, 0, 5)], ids=str)
def test_empty(size: tuple[int, int, int]) -> None:
    """A sum over nothing is 0; an output of nothing is not touched."""
    m, n, k = size
    op = matmul(m, n, k)
    fn = function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op))
    out = guarded(m, n)
    run(fn, [np.ones(max(1, m * k), np.float32), np.ones(max(1, k * n), np.float32), out])
    assert (taken(out, m, n) == 0).all()


def test_not_finite_values_stay_in_their_place() -> None:
    m, n, k = 7, 17, 20
    op = matmul(m, n, k)
    a, b, out = normal(m, k), normal(k, n), guarded(m, n)
    a[3, 4], b[2, 16] = np.nan, np.inf
    run(function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op)), [a, b, out])
    expected = a @ b
    np.testing.assert_array_equal(np.isfinite(taken(out, m, n)), np.isfinite(expected))


def test_agrees_with_the_evaluator() -> None:
    m, n, k = 9, 14, 10
    op = matmul(m, n, k, "T", "N")
    fn = function(op, [(F32, m * k), (F32, k * n), (F32, m * n)], plain(op))
    a, b, out, reference = normal(k, m), normal(k, n), np.zeros(m * n, np.float32), np.zeros(m * n, np.float32)
    run(fn, [a, b, out])
    evaluate(fn, a.reshape(-1), b.reshape(-1), reference)
    np.testing.assert_allclose(out, reference, rtol=1e-5, atol=1e-5)


def test_schedule_leaves_work_for_every_core() -> None:
    target = host()
    for size in ((1024, 1024, 1024), (128, 512, 784), (8, 4096, 1024)):
        tasks = contraction_tasks(matmul(*size), target)
        assert isinstance(tasks, int) and tasks >= 4
    tile = choose_tile(matmul(1024, 1024, 1024), target)
    assert (tile.mr, tile.nr) == (6, 16)


def test_region_is_shared() -> None:
    """The emitter does not change the region that it is given."""
    op = matmul(4, 5, 6)
    fn = function(op, [(F32, 24), (F32, 30), (F32, 20)], plain(op))
    before: Block = fn.ops[0].regions[0]
    compile_functions([fn], host())
    assert fn.ops[0].regions[0] is before
