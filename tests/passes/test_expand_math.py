"""Transcendental functions, expanded and compiled: errors in units in the last place, special values as C99 has them.

References: NumPy's functions of f64 for f32, where it has them; mpmath elsewhere. Seeds are fixed.
"""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tests.codegen.run_kernel import map_kernel, run_map
from treadle.ir.core import Block
from treadle.ir.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, int64, uint8
from treadle.ir.evaluate_scalars import bits_from_float32, float32_from_bits, run_scalar
from treadle.ir.scalar import FUNCTIONS, TRANSCENDENTAL, Scalar
from treadle.passes.expand_math import EXPANDED, expand_math
from treadle.passes.pipeline import run_pipeline

# Where a function is sampled uniformly (f32, f64), besides bit patterns of every exponent; errors allowed, in ulp.
RANGES: dict[str, tuple[tuple[float, float], tuple[float, float], float, float]] = {
    "exp": ((-104, 89), (-746, 710), 1, 1), "exp2": ((-150, 128), (-1080, 1024), 1, 1),
    "expm1": ((-20, 89), (-40, 709), 2, 2), "sigmoid": ((-104, 30), (-700, 40), 2, 2),
    "tanh": ((-10, 10), (-20, 20), 2, 3), "sinh": ((-90, 90), (-711, 711), 2.5, 2.5),
    "cosh": ((-90, 90), (-711, 711), 2, 2), "log": ((0, 4), (0, 4), 1, 1), "log2": ((0, 4), (0, 4), 1, 1),
    "log10": ((0, 4), (0, 4), 1, 1), "log1p": ((-1, 4), (-1, 4), 1, 1), "sin": ((-1e5, 1e5), (-1e5, 1e5), 2, 1),
    "cos": ((-1e5, 1e5), (-1e5, 1e5), 2, 1), "tan": ((-1e5, 1e5), (-1e5, 1e5), 3.5, 2),
    "asin": ((-1, 1), (-1, 1), 2, 2), "acos": ((-1, 1), (-1, 1), 2, 2), "atan": ((-5, 5), (-5, 5), 2, 2),
    "asinh": ((-5, 5), (-5, 5), 2, 2), "acosh": ((1, 9), (1, 9), 2, 2), "atanh": ((-1, 1), (-1, 1), 2, 2),
    "erf": ((-4, 4), (-6, 6), 2, 1),
    "erfc": ((-6, 10.2), (-6, 27.5), 4, 3), "erfinv": ((-1, 1), (-1, 1), 4, 3), "lgamma": ((0, 20), (0, 20), 1, 8),
    "digamma": ((0, 20), (0, 20), 1, 8),
}  # fmt: skip
NUMPY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
}  # fmt: skip
POSITIVE = frozenset({"log", "log2", "log10", "lgamma", "digamma"})
UNIT = frozenset({"asin", "acos", "atanh", "erfinv"})
mpmath.mp.prec = 140


def precise(fn: str) -> Callable[[Any], Any]:
    """The function of mpmath."""
    special = {
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
        "log2": lambda x: mpmath.log(x, 2),
        "exp2": lambda x: mpmath.power(2, x),
        "lgamma": mpmath.loggamma,
    }
    return special.get(fn) or getattr(mpmath, fn)


def points(fn: str, dtype: DType, count: int) -> np.ndarray:
    """Bit patterns, a uniform range, and what is near zero; within the function's domain."""
    rng = np.random.default_rng(11)
    low, high = RANGES[fn][dtype is float64]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype.numpy)
    more = (rng.uniform(low, high, 2 * count), rng.uniform(-1, 1, count))
    x = np.concatenate([bits, *(v.astype(dtype.numpy) for v in more)])
    x = np.abs(x) if fn in POSITIVE else x
    keep = np.isfinite(x) & (x != 0)
    keep &= {fn in UNIT: np.abs(x) < 1, fn == "log1p": x > -1, fn == "acosh": x >= 1}.get(True, True)
    keep &= np.abs(x) < {"sin": 2.0**40, "cos": 2.0**40, "tan": 2.0**40, "erfc": 30.0}.get(fn, np.inf)
    return x[keep]


def errors(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Distance in ulp of f32 results from references in f64."""
    big = np.finfo(dtype.numpy).max
    with np.errstate(all="ignore"):
        over = np.abs(want) > float(big) * (1 + 2.0**-25)
        exponent = np.maximum(np.frexp(np.where(over, 1, want))[1] - 1, -126)
        ulps = np.abs(got.astype(np.float64) - want) / np.ldexp(1.0, exponent - 23)
        return np.where(over, np.where(np.isinf(got) & ((got > 0) == (want > 0)), 0, np.inf), ulps)


def worst(fn: str, x: np.ndarray, got: np.ndarray, dtype: DType) -> tuple[float, Any]:
    """The largest error in ulp against mpmath, and where."""
    smallest, mantissa = (-126, 23) if dtype is float32 else (-1022, 52)
    big, found = float(np.finfo(dtype.numpy).max), (0.0, None)
    function = precise(fn)
    for v, g in zip(x.tolist(), got.tolist(), strict=True):
        want = mpmath.re(function(mpmath.mpf(v)))
        if abs(want) > big:
            error = 0.0 if g == math.copysign(math.inf, want) or abs(want) < big * (1 + 2.0**-mantissa) else math.inf
        else:
            exponent = max(smallest, int(mpmath.floor(mpmath.log(abs(want), 2)))) if want else smallest
            error = float(abs(mpmath.mpf(g) - want) / mpmath.mpf(2) ** (exponent - mantissa))
        if not error <= found[0]:
            found = (error, (v, g, mpmath.nstr(want, 20)))
    return found


def call(fn: str, arrays: list[np.ndarray], dtype: DType, width: int = 8) -> np.ndarray:
    return run_map(lambda s, *xs: s.call(fn, *xs), arrays, [dtype] * len(arrays), dtype, width)


@pytest.mark.parametrize("fn", RANGES)
def test_f32_within_ulps(fn: str) -> None:
    dense = fn in NUMPY
    x = points(fn, float32, 30000 if dense else 150)
    got = call(fn, [x], float32)
    if dense:
        with np.errstate(all="ignore"):
            ulps = errors(got, NUMPY[fn](x.astype(np.float64)), float32)
        k = int(np.nanargmax(ulps))
        assert not np.isnan(ulps).any() and ulps[k] <= RANGES[fn][2], (ulps[k], x[k], got[k])
    else:
        error, where = worst(fn, x, got, float32)
        assert error <= RANGES[fn][2], (error, where)


@pytest.mark.parametrize("fn", RANGES)
def test_f64_within_ulps(fn: str) -> None:
    x = points(fn, float64, 120)
    error, where = worst(fn, x, call(fn, [x], float64), float64)
    assert error <= RANGES[fn][3], (error, where)


@pytest.mark.parametrize("fn", ["lgamma", "digamma"])
def test_gamma_functions_of_negative_numbers(fn: str) -> None:
    x = np.random.default_rng(0).uniform(-30, 0, 200)
    got = call(fn, [x], float64)
    want = np.array([float(mpmath.re(precise(fn)(mpmath.mpf(v)))) for v in x.tolist()])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        call(fn, [x.astype("f")], float32), call(fn, [x.astype("f").astype(float)], float64), 1e-6
    )


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
def test_pow_within_ulps(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-40, 40, 400)).astype(dtype.numpy)
    y = (rng.uniform(-80, 80, 400) / np.maximum(1, np.abs(np.log(x)))).astype(dtype.numpy)
    x[:50] = (1 + rng.uniform(-1, 1, 50) * 1e-3).astype(dtype.numpy)
    y[:50] = rng.uniform(-3e4, 3e4, 50).astype(dtype.numpy)
    got, bits = call("pow", [x, y], dtype), 23 if dtype is float32 else 52
    for a, b, g in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        want = mpmath.power(mpmath.mpf(a), mpmath.mpf(b))
        ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(want, 2)) - bits)
        assert abs(mpmath.mpf(g) - want) <= (1 if dtype is float32 else 2) * ulp, (a, b, g)


def test_powers_that_are_integers_are_exact() -> None:
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(np.arange(-9.0, 10.0), np.arange(0.0, 7.0)))
    assert (call("pow", [x, y], float32) == np.power(x.astype(np.float64), y)).all()
    assert (call("exp2", [np.arange(-20, 20, dtype=np.float32)], float32) == 2.0 ** np.arange(-20, 20)).all()
    assert (call("log2", [2.0 ** np.arange(-20, 20, dtype=np.float32)], float32) == np.arange(-20, 20)).all()
    assert (call("log10", [10.0 ** np.arange(0, 10)], float64) == np.arange(0, 10)).all()


# ---- special values --------------------------------------------------------------------------------------------------


def specials(dtype: DType) -> np.ndarray:
    info = np.finfo(dtype.numpy)
    numbers = [0, np.inf, np.nan, info.smallest_subnormal, info.tiny / 4, info.tiny, 1, 2, 0.5, 3, 10, 100, info.max]
    numbers += [1 + info.eps, 1 - info.epsneg, 35, 88, 89, 103, 104, 105, 170, 709, 710, 745, 746, 2.0**23, 1e-10, 1e5]
    return np.array([*numbers, *(-v for v in numbers)]).astype(dtype.numpy)


def agrees(got: np.ndarray, want: np.ndarray, ulps: float) -> np.ndarray:
    """Within ulps; infinities, NaN and the signs of zeros exactly."""
    with np.errstate(all="ignore"):
        near = np.isfinite(got) & np.isfinite(want) & (np.abs(got - want) <= ulps * np.abs(np.spacing(want)))
    exact = (got == want) & (np.signbit(got) == np.signbit(want))
    return near & ((want != 0) | exact) | exact | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
@pytest.mark.parametrize("fn", RANGES)
def test_special_values(fn: str, dtype: DType) -> None:
    x = specials(dtype)
    if fn in ("sin", "cos", "tan"):
        x = x[~(np.isfinite(x) & (np.abs(x) > 1e6))]
    if fn in ("lgamma", "digamma"):  # next to zeros and poles the reference has no digits
        x = x[~((np.abs(np.abs(x) - 1) < 1e-6) & (np.abs(x) != 1))]
    with np.errstate(all="ignore"):
        want = run_scalar(Scalar(fn), (float64,), [x.astype(np.float64)]).astype(dtype.numpy)
    if fn == "lgamma":  # +inf at both infinities
        want[np.isinf(x)] = np.inf
    ok = agrees(call(fn, [x], dtype), want, RANGES[fn][2 + (dtype is float64)] + 1)
    assert ok.all(), (x[~ok], call(fn, [x], dtype)[~ok], want[~ok])


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
@pytest.mark.parametrize("fn", ["pow", "atan2", "frem", "nextafter"])
def test_special_pairs(fn: str, dtype: DType) -> None:
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(specials(dtype), specials(dtype)))
    exact = fn in ("frem", "nextafter")
    inputs = (a, b) if exact or dtype is float64 else (a.astype(np.float64), b.astype(np.float64))
    with np.errstate(all="ignore"):
        want = run_scalar(Scalar(fn), (float64, float64), list(inputs)).astype(dtype.numpy)
    ok = agrees(call(fn, [a, b], dtype), want, 0 if exact else 2)
    assert ok.all(), (a[~ok][:4], b[~ok][:4], call(fn, [a, b], dtype)[~ok][:4], want[~ok][:4])


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
def test_frem_is_exact_for_any_quotient(dtype: DType) -> None:
    rng, unsigned = np.random.default_rng(5), np.dtype(f"u{dtype.itemsize}")
    x, y = (rng.integers(0, np.iinfo(unsigned).max, 20000, dtype=unsigned).view(dtype.numpy) for _ in range(2))
    with np.errstate(all="ignore"):
        assert agrees(call("frem", [x, y], dtype), np.fmod(x, y), 0).all()


@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.short)
def test_huge_angles_stay_bounded(fn: str, dtype: DType) -> None:
    x = np.array([1e10, 1e20, 1e30, np.finfo(dtype.numpy).max]).astype(dtype.numpy)
    got = call(fn, [np.concatenate([x, -x])], dtype)
    assert np.isfinite(got).all() and (fn == "tan" or (np.abs(got) <= 1).all())


# ---- 16-bit floats, integers, the pass -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.short)
@pytest.mark.parametrize("fn", ["exp", "tanh", "log", "sigmoid", "erf", "sin", "log1p"])
def test_16_bits_are_f32_rounded(fn: str, dtype: DType) -> None:
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    wide = float32_from_bits(bits) if dtype is bfloat16 else bits.view(np.float16).astype(np.float32)
    keep = np.abs(wide) < 1e9
    bits, wide = bits[keep], wide[keep]
    single = call(fn, [wide], float32)
    with np.errstate(over="ignore"):
        want = bits_from_float32(single) if dtype is bfloat16 else single.astype(np.float16)
    got = call(fn, [bits.view(dtype.numpy)], dtype)
    assert ((got == want) | np.isnan(single)).all()


def test_nextafter_steps_in_its_own_format() -> None:
    for dtype in (float16, bfloat16):
        x = np.random.default_rng(0).integers(0, 65536, 3000).astype(np.uint16)
        y = np.random.default_rng(1).integers(0, 65536, 3000).astype(np.uint16)
        got = call("nextafter", [x.view(dtype.numpy), y.view(dtype.numpy)], dtype)
        inside = [float32_from_bits(v) if dtype is bfloat16 else v.view(np.float16) for v in (x, y)]
        want = run_scalar(Scalar("nextafter"), (dtype, dtype), inside)
        value = float32_from_bits(got) if dtype is bfloat16 else got
        assert ((value == want) | (np.isnan(value) & np.isnan(want))).all()


@pytest.mark.parametrize("dtype", [uint8, int8, int32, int64], ids=lambda d: d.short)
def test_integer_powers_wrap(dtype: DType) -> None:
    rng, info = np.random.default_rng(3), np.iinfo(dtype.numpy)
    x = rng.integers(max(info.min, -12), 13, 500).astype(dtype.numpy)
    y = rng.integers(max(info.min, -4), 70, 500).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        want = run_scalar(Scalar("pow"), (dtype, dtype), [x, y])
    assert (call("pow", [x, y], dtype) == want).all()


def scalar_functions(block: Block) -> set[str]:
    found = {op.operation.fn for op in block.ops if isinstance(op.operation, Scalar)}
    return found.union(*(scalar_functions(r) for op in block.ops for r in op.regions))


@pytest.mark.parametrize("fn", sorted(EXPANDED))
def test_nothing_transcendental_is_left(fn: str) -> None:
    assert EXPANDED >= TRANSCENDENTAL
    source = map_kernel(lambda s, *xs: s.call(fn, *xs), [float32] * FUNCTIONS[fn], float32, 10, 8)
    assert not scalar_functions(expand_math(source).body) & EXPANDED
    assert expand_math(source) == run_pipeline(source, "expand-math")


def test_width_does_not_change_a_bit() -> None:
    x = np.random.default_rng(0).standard_normal(333).astype(np.float32) * 3
    for fn in ("exp", "tanh", "erf", "sin", "pow"):
        arrays = [np.abs(x)] + [x] * (FUNCTIONS[fn] - 1)
        found = [call(fn, arrays, float32, width) for width in (1, 4, 16)]
        assert all((f == found[0]).all() for f in found)


def test_common_functions_are_short() -> None:
    """Ops of a kernel with one function, with its load and store; constants are not counted."""
    limits = {"exp": 26, "sigmoid": 34, "tanh": 34, "log": 36, "erf": 36, "sin": 40}
    for fn, limit in limits.items():
        body = expand_math(map_kernel(lambda s, x, fn=fn: s.call(fn, x), [float32], float32, 10, 8)).ops[-1].regions[0]
        count = sum(op.operation.name != "scalar.const" for op in body.ops)
        assert count <= limit, (fn, count)
