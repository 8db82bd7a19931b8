"""Loops, memory and control of the emitter, against NumPy and the evaluator of the loop level."""

from typing import Any

import numpy as np
import pytest

from tests.codegen.run_kernel import Compiled, buffers, index, kernel, loop
from tests.ir.loop_texts import GATHER, PREFIX, ROW_MAX, SUM_OF_EXP
from treadle.ir import dims
from treadle.ir.core import Function, Value
from treadle.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from treadle.ir.evaluate import evaluate
from treadle.ir.loops import Affine, Alloc, Check, If, IndexCast, IndexDiv, IndexMin, IndexMod, Load, Store
from treadle.ir.parser import parse_function
from treadle.ir.scalar import ScalarBuilder
from treadle.passes.expand_math import expand_math

SIZES = (0, 1, 5, 16, 17, 31, 64, 100)
N = dims.symbol("s0")


def both(fn: Function, arrays: list[np.ndarray], bindings: dict[str, int] | None = None, tasks: int = 1) -> None:
    """Run compiled and evaluated; every buffer must come out the same."""
    got, want = ([a.copy() for a in arrays] for _ in range(2))
    assert Compiled(expand_math(fn))(got, bindings, tasks) == 0
    evaluate(fn, *want, bindings=bindings)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-6 if g.dtype == np.float32 else 1e-13)


# ---- reductions ------------------------------------------------------------------------------------------------------

IDENTITY_OF = {"add": 0, "mul": 1, "and": 1, "or": 0}


def reduction(combiner: str, dtype: DType, size: Any, width: int, unroll: int, init: float) -> Function:
    x, y = buffers((dtype, size), (dtype, 1))

    def write(s: ScalarBuilder) -> None:
        lo, hi = index(s, 0), index(s, size)
        total = loop(
            s,
            lo,
            hi,
            lambda b, i, acc: [b.call(combiner, acc, b.emit(Load((1,)), x, i))],
            [s.const(init, dtype)],
            kind="vector",
            width=width,
            unroll=unroll,
            combiners=(combiner,),
        )
        s.emit(Store((1,)), y, total, lo)

    return kernel([x, y], write, () if isinstance(size, int) else ("s0",))


CASES = [
    (c, d)
    for d in (float32, float64, int32, int64, int8, uint8, bool_)
    for c in ("add", "mul", "maximum", "minimum", "and", "or")
    if not (c in ("and", "or") and d.kind == "f") and not (c in ("add", "mul") and d.kind == "b")
]


@pytest.mark.parametrize("combiner, dtype", CASES, ids=lambda v: getattr(v, "short", v))
@pytest.mark.parametrize("unroll", [1, 3])
def test_reductions(combiner: str, dtype: DType, unroll: int) -> None:
    rng = np.random.default_rng(0)
    compiled = Compiled(reduction(combiner, dtype, N, 8, unroll, 1))
    numpy = {"add": np.add, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or}
    fold = numpy.get(combiner) or getattr(np, combiner)
    for size in SIZES:
        x = rng.uniform(0.9, 1.1, size) if dtype.kind == "f" else rng.integers(0, 2 if dtype.kind == "b" else 99, size)
        x, y = x.astype(dtype.numpy), np.zeros(1, dtype.numpy)
        assert compiled([x, y], {"s0": size}) == 0
        want = fold.reduce(np.concatenate([np.ones(1, dtype.numpy), x]), dtype=dtype.numpy)
        np.testing.assert_allclose(y[0], want, rtol=2e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unroll", [1, 4])
def test_static_sizes_join_the_initial_value_once(size: int, unroll: int) -> None:
    x, y = np.full(size, 2, np.int32), np.zeros(1, np.int32)
    assert Compiled(reduction("add", int32, size, 8, unroll, 1000))([x, y]) == 0
    assert y[0] == 1000 + 2 * size


def test_maximum_of_nothing_but_nan_and_infinities() -> None:
    for size in (1, 8, 21):
        for at in {0, size // 2, size - 1}:
            x, y = np.full(size, -np.inf, np.float32), np.zeros(1, np.float32)
            run = Compiled(reduction("maximum", float32, size, 8, 1, -np.inf))
            run([x, y])
            assert y[0] == -np.inf
            x[at] = np.nan
            run([x, y])
            assert np.isnan(y[0])


def test_sums_do_not_depend_on_where_the_row_begins() -> None:
    """The order of accumulation is that of the loop's bounds, not of addresses."""
    rng = np.random.default_rng(3)
    run = Compiled(reduction("add", float32, N, 16, 2, 0))
    memory, values = np.empty(2100, np.float32), rng.standard_normal(1999).astype(np.float32)
    found = set()
    for shift in range(5):
        memory[shift : shift + 1999] = values
        y = np.zeros(1, np.float32)
        run([memory[shift : shift + 1999], y], {"s0": 1999})
        found.add(float(y[0]))
    assert len(found) == 1


def test_last_runs_in_order() -> None:
    """A carried value that may not be reassociated: x = x / 2 + x[i]."""
    x, y = buffers((float64, N), (float64, 1))

    def write(s: ScalarBuilder) -> None:
        lo = index(s, 0)
        end = loop(
            s,
            lo,
            index(s, N),
            lambda b, i, a: [b.add(b.mul(a, b.const(0.5, a)), b.emit(Load((1,)), x, i))],
            [s.const(0.0, float64)],
            kind="vector",
            width=4,
            combiners=("last",),
        )
        s.emit(Store((1,)), y, end, lo)

    both(kernel([x, y], write, ["s0"]), [np.random.default_rng(0).standard_normal(21), np.zeros(1)], {"s0": 21})


def test_vertical_reduction() -> None:
    """Lanes along columns, a serial loop down the rows within."""
    rows, columns = 7, 21
    x, y = buffers((float32, rows * columns), (float32, columns))

    def column(b: ScalarBuilder, j: Value) -> None:
        total = loop(
            b,
            index(b, 0),
            index(b, rows),
            lambda c, i, a: [c.add(a, c.emit(Load((columns, 1)), x, i, j))],
            [b.const(0.0, float32)],
            combiners=("add",),
        )
        b.emit(Store((1,)), y, total, j)

    def write(s: ScalarBuilder) -> None:
        loop(s, index(s, 0), index(s, columns), column, kind="vector", width=8)

    a = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    both(kernel([x, y], write), [a, np.zeros(columns, np.float32)])


def test_index_carried_through_lanes() -> None:
    """The first place of each column's maximum: a pair of carried values, one of them an index."""
    rows, columns = 9, 13
    x, y = buffers((float32, rows * columns), (int64, columns))

    def step(c: ScalarBuilder, i: Value, best: Value, at: Value, j: Value) -> list[Value]:
        v = c.emit(Load((columns, 1)), x, i, j)
        better = c.gt(v, best)
        here = c.select(better, c.emit(IndexCast(int64), i), c.emit(IndexCast(int64), at))
        return [c.select(better, v, best), c.emit(IndexCast(), here)]

    def column(b: ScalarBuilder, j: Value) -> None:
        inits = [b.const(-np.inf, float32), index(b, 0)]
        _, at = loop(
            b, index(b, 0), index(b, rows), lambda c, i, m, k: step(c, i, m, k, j), inits, combiners=("last", "last")
        )
        b.emit(Store((1,)), y, b.emit(IndexCast(int64), at), j)

    def write(s: ScalarBuilder) -> None:
        loop(s, index(s, 0), index(s, columns), column, kind="vector", width=4)

    a, found = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32), np.zeros(columns, np.int64)
    assert Compiled(kernel([x, y], write))([a, found]) == 0
    assert (found == a.argmax(0)).all()


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float32, bool_, bfloat16, int8, int64], ids=lambda d: d.short)
@pytest.mark.parametrize("stride", [0, 1, 3, -2])
def test_strided_rows(dtype: DType, stride: int) -> None:
    for size in SIZES:
        x, y = buffers((dtype, 600), (dtype, max(size, 1)))

        def body(b: ScalarBuilder, i: Value, x: Value = x, y: Value = y) -> None:
            b.emit(Store((1,)), y, b.emit(Load((stride,), 200), x, i), i)

        fn = kernel(
            [x, y],
            lambda s, size=size, body=body: loop(s, index(s, 0), index(s, size), body, kind="vector", width=8),
        )
        a = np.random.default_rng(0).integers(0, 2 if dtype.kind == "b" else 120, 600).astype(dtype.numpy)
        out = np.zeros(max(size, 1), dtype.numpy)
        assert Compiled(fn)([a, out]) == 0
        assert (out[:size] == a[200 + stride * np.arange(size)]).all()


@pytest.mark.parametrize("size", SIZES)
def test_gather_and_scatter(size: int) -> None:
    x, at, y = buffers((float32, 50), (int64, max(1, size)), (float32, 128))

    def body(b: ScalarBuilder, i: Value) -> None:
        j = b.emit(IndexCast(), b.emit(Load((1,)), at, i))
        v = b.emit(Load((1,)), x, j)
        b.emit(Store((1,)), y, b.mul(v, v), b.emit(Affine((1,), 7), i))

    fn = kernel([x, at, y], lambda s: loop(s, index(s, 0), index(s, size), body, kind="vector", width=8))
    rng = np.random.default_rng(size)
    both(
        fn,
        [rng.standard_normal(50).astype("f"), rng.integers(0, 50, max(1, size)).astype(np.int64), np.zeros(128, "f")],
    )


@pytest.mark.parametrize("dtype", [float32, int8, bool_, float64], ids=lambda d: d.short)
def test_masks(dtype: DType) -> None:
    """A padded row: reads and writes beyond it are masked off, and are never made."""
    inside, size = 37, 61
    x, y, z = buffers((dtype, inside), (dtype, size), (dtype, inside))

    def body(b: ScalarBuilder, i: Value) -> None:
        k = b.emit(IndexCast(int64), i)
        ok = b.lt(k, b.const(inside, k))
        v = b.emit(Load((1,), masked=True), x, i, ok)
        b.emit(Store((1,)), y, v, i)
        b.emit(Store((1,), masked=True), z, v, i, ok)

    fn = kernel([x, y, z], lambda s: loop(s, index(s, 0), index(s, size), body, kind="vector", width=16))
    a = np.random.default_rng(0).integers(0, 2, inside).astype(dtype.numpy)
    fence = np.ones(inside + 200, dtype.numpy)
    z_out, y_out = fence[100 : 100 + inside], np.ones(size, dtype.numpy)
    assert Compiled(fn)([a, y_out, z_out]) == 0
    assert (z_out == a).all() and (y_out[:inside] == a).all() and not y_out[inside:].any()
    assert fence[:100].all() and fence[100 + inside :].all()


@pytest.mark.parametrize("static", [True, False])
def test_the_rest_of_a_vector_loop_touches_nothing_else(static: bool) -> None:
    """Pages around the rows cannot be read or written."""
    import mmap

    page = mmap.PAGESIZE
    for size in (3, 19, 45):
        x, y = buffers((float32, size if static else N), (float32, size if static else N))

        def body(b: ScalarBuilder, i: Value, x: Value = x, y: Value = y) -> None:
            v = b.emit(Load((1,)), x, i)
            for _ in range(8):  # long enough for a masked rest
                v = b.add(b.mul(v, v), v)
            b.emit(Store((1,)), y, v, i)

        end = size if static else N
        fn = kernel(
            [x, y],
            lambda s, end=end, body=body: loop(s, index(s, 0), index(s, end), body, kind="vector", width=16),
            () if static else ["s0"],
        )
        memory = mmap.mmap(-1, 3 * page)
        floats = np.frombuffer(memory, np.float32)
        last = 3 * page // 4
        source, target = floats[last - size :], np.ones(size + 64, np.float32)
        source[:] = 0.125
        assert Compiled(fn)([source, target], {"s0": size}) == 0
        assert (target[size:] == 1).all() and (target[:size] != 1).all()


def test_in_place() -> None:
    (x,) = buffers((float32, 100))

    def body(b: ScalarBuilder, i: Value) -> None:
        v = b.emit(Load((1,)), x, i)
        b.emit(Store((1,)), x, b.add(v, v), i)

    fn = kernel([x], lambda s: loop(s, index(s, 0), index(s, 100), body, kind="vector", width=8, unroll=2))
    both(fn, [np.arange(100, dtype=np.float32)])


@pytest.mark.parametrize("size", [16, 9000, N * 3])
def test_local_buffers(size: Any) -> None:
    """On the stack, in scratch, and in scratch of symbolic size."""
    n = 5000 * 3 if not isinstance(size, int) else size
    (y,) = buffers((float64, size))

    def write(s: ScalarBuilder) -> None:
        lo, hi = index(s, 0), index(s, size)
        first, second = s.emit(Alloc(float64, size)), s.emit(Alloc(float32, size))

        def fill(b: ScalarBuilder, i: Value) -> None:
            k = b.emit(IndexCast(float64), i)
            b.emit(Store((1,)), first, k, i)
            b.emit(Store((1,)), second, b.cast(k, float32), i)

        def read(b: ScalarBuilder, i: Value) -> None:
            v = b.cast(b.emit(Load((1,)), second, i), float64)
            b.emit(Store((1,)), y, b.add(b.emit(Load((1,)), first, i), v), i)

        loop(s, lo, hi, fill, kind="vector", width=4)
        loop(s, lo, hi, read, kind="vector", width=4)

    fn = kernel([y], write, () if isinstance(size, int) else ["s0"])
    run, out = Compiled(fn), np.zeros(n)
    assert run([out], {"s0": 5000}) == 0
    assert (out == 2 * np.arange(n)).all()
    assert (run.module.scratch[0] == 0) == (size == 16)


# ---- indices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [1, 3, 7, 15, 16, 40, 1000, N])
@pytest.mark.parametrize("step", [1, 2])
def test_division_of_indices(divisor: Any, step: int) -> None:
    count = 203
    q, r = buffers((int64, count), (int64, count))

    def body(b: ScalarBuilder, i: Value) -> None:
        k = b.emit(Affine((step,), 5), i)
        b.emit(Store((1,)), q, b.emit(IndexCast(int64), b.emit(IndexDiv(divisor), k)), i)
        b.emit(Store((1,)), r, b.emit(IndexCast(int64), b.emit(IndexMod(divisor), k)), i)

    fn = kernel([q, r], lambda s: loop(s, index(s, 0), index(s, count), body, kind="vector", width=16), ["s0"])
    a, c = np.zeros(count, np.int64), np.zeros(count, np.int64)
    assert Compiled(fn)([a, c], {"s0": 11}) == 0
    k, d = 5 + step * np.arange(count), divisor if isinstance(divisor, int) else 11
    assert (a == k // d).all() and (c == k % d).all()


def test_minimum_of_indices_and_symbolic_strides() -> None:
    x, y = buffers((float32, N * N), (float32, N))

    def body(b: ScalarBuilder, i: Value) -> None:
        capped = b.emit(IndexMin(), i, index(b, 9))
        b.emit(Store((1,)), y, b.emit(Load((N, 1)), x, capped, i), i)

    fn = kernel([x, y], lambda s: loop(s, index(s, 0), index(s, N), body, kind="vector", width=8), ["s0"])
    a = np.random.default_rng(0).standard_normal((21, 21)).astype(np.float32)
    both(fn, [a, np.zeros(21, np.float32)], {"s0": 21})


def test_dims_with_division_and_extrema() -> None:
    (y,) = buffers((int64, 4))
    values = [(N + 3) // 4, N % 3, dims.maximum(N, 7), dims.minimum(N * 2 + 1, 100)]

    def write(s: ScalarBuilder) -> None:
        for k, d in enumerate(values):
            s.emit(Store((1,)), y, s.emit(IndexCast(int64), index(s, d)), index(s, k))

    run = Compiled(kernel([y], write, ["s0"]))
    for n in (2, 5, 8, 77):
        out = np.zeros(4, np.int64)
        run([out], {"s0": n})
        assert out.tolist() == [(n + 3) // 4, n % 3, max(n, 7), min(2 * n + 1, 100)]


# ---- control ---------------------------------------------------------------------------------------------------------


def test_texts_of_the_loop_level() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 4)).astype("f")
    both(parse_function(ROW_MAX), [rows, np.zeros_like(rows)], {"s0": 3}, tasks=3)
    both(parse_function(PREFIX), [np.arange(8, dtype=np.int32)])
    x, at = np.arange(5, dtype=np.float32), np.array([4, -1, 2])
    both(parse_function(GATHER), [x, at, np.full(3, 9, np.float32)])
    values = rng.standard_normal(37).astype("f")
    both(parse_function(SUM_OF_EXP), [values, np.zeros(37, np.uint16), np.zeros(1, "f")], {"s0": 37})


def test_checks_return_their_number() -> None:
    run = Compiled(parse_function(GATHER))
    y = np.zeros(3, np.float32)
    assert run([np.arange(5, dtype=np.float32), np.array([0, 5, 0]), y]) == 7


@pytest.mark.parametrize("bad", [None, 0, 20, 36])
def test_checks_in_vector_loops(bad: int | None) -> None:
    """Dead lanes of the rest fail no check."""
    (x,) = buffers((int32, N))

    def body(b: ScalarBuilder, i: Value) -> None:
        v = b.emit(Load((1,)), x, i)
        b.emit(Check(3, "must be positive"), b.gt(v, b.const(0, v)))

    fn = kernel([x], lambda s: loop(s, index(s, 0), index(s, N), body, kind="vector", width=8), ["s0"])
    values = np.ones(37, np.int32)
    if bad is not None:
        values[bad] = 0
    assert Compiled(fn)([values], {"s0": 37}) == (0 if bad is None else 3)


def test_branches() -> None:
    (y,) = buffers((int32, 10))

    def body(b: ScalarBuilder, i: Value) -> None:
        k = b.emit(IndexCast(int32), i)
        inner = ScalarBuilder()
        inner.emit(Store((1,)), y, k, i)
        b.emit(If(), b.gt(k, b.const(6, k)), regions=(inner.block([], []),))

    both(kernel([y], lambda s: loop(s, index(s, 0), index(s, 10), body, step=2)), [np.zeros(10, np.int32)])


def test_chunks_of_the_parallel_domain() -> None:
    """Two parallel loops follow each other in one domain; any split of it does the same."""
    first, second = 7, 5
    x, y = buffers((int32, first), (int32, 2 * second + 3))

    def put(target: Value, value: int) -> Any:
        def body(b: ScalarBuilder, i: Value) -> None:
            v = b.emit(Load((1,)), target, i)
            b.emit(Store((1,)), target, b.add(v, b.const(value, v)), i)

        return body

    def write(s: ScalarBuilder) -> None:
        loop(s, index(s, 0), index(s, first), put(x, 1), kind="parallel")
        loop(s, index(s, 3), index(s, 2 * second + 3), put(y, 10), kind="parallel", step=2)

    run = Compiled(kernel([x, y], write))
    for cut in range(first + second + 1):
        a, b = np.zeros(first, np.int32), np.zeros(2 * second + 3, np.int32)
        assert run([a, b], tasks=cut) == 0
        assert run([a, b], begin=cut, tasks=first + second) == 0
        assert (a == 1).all() and (b[3::2] == 10).all() and not b[:3].any() and not b[4::2].any()


# ---- the end of a row -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int8, int16, uint8, bool_, int64])
def test_nothing_is_written_behind_a_row(dtype: DType, width: int) -> None:
    """Known and unknown lengths; a wide value that is narrowed as it is stored."""
    for n in (*range(1, 2 * width + 2), "s0"):
        size = N if n == "s0" else n
        x, y = buffers((float32, size), (dtype, size))

        def write(s: ScalarBuilder, x: Value = x, y: Value = y, size: Any = size) -> None:
            def body(b: ScalarBuilder, i: Value) -> None:
                b.emit(Store((1,)), y, b.cast(b.call("abs", b.emit(Load((1,)), x, i)), dtype), i)

            loop(s, index(s, 0), index(s, size), body, kind="vector", width=width)

        compiled = Compiled(expand_math(kernel([x, y], write, () if n != "s0" else ("s0",))))
        for length in (1, width + 1, 3) if n == "s0" else (n,):
            given = np.arange(1, length + 1, dtype=np.float32) % 2 + 1
            out = np.full((length + 16) * dtype.itemsize, 0xAB, np.uint8)
            assert compiled([given, out], {"s0": length}) == 0
            assert (out[length * dtype.itemsize :] == 0xAB).all(), (n, length)
            assert (out[: length * dtype.itemsize] != 0xAB).all()
