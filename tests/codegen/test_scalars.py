"""Every scalar function on every dtype, compiled, against the evaluator: bit for bit, in scalar and vector loops."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.codegen.run_kernel import Compiled, map_kernel, run_map
from treadle.ir.core import Value
from treadle.ir.dtypes import DTYPES, DType, bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits, run_scalar
from treadle.ir.scalar import FUNCTIONS, PREDICATES, TRANSCENDENTAL, Scalar, ScalarBitcast, ScalarBuilder, ScalarCast

RNG_SEED = 5
FLOAT_ONLY = frozenset({"fdiv", "sqrt", "floor", "ceil", "rint", "trunc", "copysign", "frem", "nextafter"})
INTEGER_ONLY = frozenset({"idiv", "irem", "and", "or", "xor", "not", "shl", "shr", "lshr", "mulhi"})
BASIC = sorted(set(FUNCTIONS) - TRANSCENDENTAL - {"select"})
COUNT = 103  # no multiple of a width


def takes(fn: str, dtype: DType) -> bool:
    """Is the function defined on the dtype?"""
    if dtype.kind == "f":
        return fn not in INTEGER_ONLY
    if dtype.kind == "b":
        return fn in ("and", "or", "xor", "not", "eq", "ne", "minimum", "maximum")
    return fn not in FLOAT_ONLY | {"fma"}


PAIRS = [(fn, dtype) for fn in BASIC for dtype in DTYPES.values() if takes(fn, dtype)]


def inside(a: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of memory elements as the evaluator carries it."""
    return float32_from_bits(a) if dtype is bfloat16 else a


def outside(a: np.ndarray, dtype: DType) -> np.ndarray:
    """What the evaluator carries, as memory elements."""
    return bits_from_float32(a) if dtype is bfloat16 else np.asarray(a, dtype.numpy)


def samples(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Random values, and the special ones."""
    rng = np.random.default_rng(RNG_SEED + seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind != "f":
        info = np.iinfo(dtype.numpy)
        wide = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
        small = rng.integers(-9 if info.min else 0, 9, count).astype(dtype.numpy)
        special = np.array([0, 1, info.max, info.min, info.min + 1, info.max - 1], dtype.numpy)
        values = np.where(rng.random(count) < 0.5, wide, small).astype(dtype.numpy)
    else:
        values = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float64)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-45, 3e38, 65520.0, 6e-8])
        with np.errstate(all="ignore"):
            values, special = (
                bits_from_float32(v) if dtype is bfloat16 else v.astype(dtype.numpy) for v in (values, special)
            )
    at = rng.integers(0, count, count // 3)
    values[at] = special[rng.integers(0, special.size, at.size)]
    return values


def same(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Equal bits; a NaN equals any NaN."""
    got, want = inside(got, dtype), inside(want, dtype)
    if dtype.kind != "f":
        return got == want
    return (np.isnan(got) & np.isnan(want)) | ((got == want) & (np.signbit(got) == np.signbit(want)))


def expected(operation: object, dtypes: Sequence[DType], arrays: Sequence[np.ndarray], out: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        value = run_scalar(operation, tuple(dtypes), [inside(a, d) for a, d in zip(arrays, dtypes, strict=True)])
    return outside(np.broadcast_to(value, arrays[0].shape), out)


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("fn, dtype", PAIRS, ids=lambda v: getattr(v, "short", v))
def test_basic_functions(fn: str, dtype: DType, width: int) -> None:
    out = bool_ if fn in PREDICATES else dtype
    arrays = [samples(dtype, COUNT, k) for k in range(FUNCTIONS[fn])]
    got = run_map(lambda s, *xs: s.call(fn, *xs), arrays, [dtype] * len(arrays), out, width)
    want = expected(Scalar(fn), [dtype] * len(arrays), arrays, out)
    equal = same(got, want, out)
    if fn in ("minimum", "maximum", "fmin", "fmax") and dtype.kind == "f":  # zeros of either sign are equal
        equal |= inside(got, out) == inside(want, out)
    if fn == "fma" and dtype is not float64:  # the reference rounds twice
        with np.errstate(invalid="ignore"):
            equal |= np.abs(inside(got, out) - inside(want, out)) <= np.abs(inside(want, out)) * 2.0**-7
    if fn == "fma" and dtype is float64:
        equal |= np.isclose(got, want, rtol=1e-12)
    assert equal.all(), [(a[~equal][:3]) for a in (*arrays, got, want)]


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("target", DTYPES.values(), ids=lambda d: d.short)
@pytest.mark.parametrize("source", DTYPES.values(), ids=lambda d: d.short)
def test_casts(source: DType, target: DType, width: int) -> None:
    x = samples(source, COUNT, 1)
    got = run_map(lambda s, v: s.cast(v, target), [x], [source], target, width)
    with np.errstate(all="ignore"):
        # 16-bit floats are rounded by way of float32, as torch does.
        wide = inside(x, source).astype(np.float32) if target.kind == "f" and target.bits == 16 else inside(x, source)
        want = expected(ScalarCast(target), [source if wide.dtype == x.dtype else float32], [wide], target)
    equal = same(got, want, target)
    assert equal.all(), (x[~equal][:4], got[~equal][:4], want[~equal][:4])


@pytest.mark.parametrize("source, target", [(float32, int32), (int64, float64), (float16, DTYPES["int16"])])
def test_bitcasts(source: DType, target: DType) -> None:
    x = samples(source, COUNT, 2)
    got = run_map(lambda s, v: s.bitcast(v, target), [x], [source], target)
    assert same(got, expected(ScalarBitcast(target), [source], [x], target), target).all()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda d: d.short)
def test_select(dtype: DType) -> None:
    condition, a, b = samples(bool_, COUNT, 0), samples(dtype, COUNT, 1), samples(dtype, COUNT, 2)
    got = run_map(lambda s, c, x, y: s.select(c, x, y), [condition, a, b], [bool_, dtype, dtype], dtype)
    assert same(got, np.where(condition, a, b), dtype).all()


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.short)
def test_chains_of_16_bits_round_at_every_step(dtype: DType) -> None:
    x, y = samples(dtype, 4001, 3), samples(dtype, 4001, 4)

    def write(s: ScalarBuilder, a: Value, b: Value) -> Value:
        return s.add(s.mul(s.add(a, b), s.const(0.7, a)), s.mul(a, b))

    def rounded(v: np.ndarray) -> np.ndarray:
        return float32_from_bits(bits_from_float32(v)) if dtype is bfloat16 else v.astype(np.float16).astype(np.float32)

    with np.errstate(all="ignore"):
        a, b = (inside(v, dtype).astype(np.float32) for v in (x, y))
        factor = rounded(np.array(0.7, np.float32))
        want = rounded(rounded(rounded(a + b) * factor) + rounded(a * b))
        want = bits_from_float32(want) if dtype is bfloat16 else want.astype(np.float16)
    assert same(run_map(write, [x, y], [dtype, dtype], dtype), want, dtype).all()


def test_every_half_survives_memory() -> None:
    x = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    got = run_map(lambda s, v: s.cast(v, float32), [x], [float16], float32)
    assert same(got, x.astype(np.float32), float32).all()


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
def test_nothing_is_contracted(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x, y, z = (rng.standard_normal(1000).astype(dtype.numpy) for _ in range(3))
    got = run_map(lambda s, a, b, c: s.add(s.mul(a, b), c), [x, y, z], [dtype] * 3, dtype)
    assert (got == x * y + z).all()


def test_transcendental_functions_must_be_expanded() -> None:
    with pytest.raises(NotImplementedError, match="expand-math"):
        Compiled(map_kernel(lambda s, v: s.exp(v), [float32], float32, 8))


def test_constants_wrap_and_round() -> None:
    x = np.zeros(20, np.uint8)
    assert (run_map(lambda s, v: s.add(v, s.const(257, v)), [x], [uint8], uint8) == 1).all()
    got = run_map(lambda s, v: s.const(1.00390625, bfloat16), [x], [uint8], bfloat16)
    assert (float32_from_bits(got) == 1.0).all()
