"""Where the coefficients of `passes/expand_math_*.py` come from: minimax fits by the exchange algorithm of Remez.

    python -m tests.codegen.fit_polynomials [name ...]

prints, for each polynomial, its coefficients rounded to its type, with the largest weighted error before rounding. Weights
make the error relative to the function that the polynomial is a part of. The test beside this file checks the coefficients
in use against the same functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

from treadle.passes import expand_math_erf as erfs
from treadle.passes import expand_math_exp as exps
from treadle.passes import expand_math_gamma as gammas
from treadle.passes import expand_math_log as logs
from treadle.passes import expand_math_pow as pows
from treadle.passes import expand_math_trig as trigs

__all__ = ["FITS", "Fit", "error_of", "remez"]

Number = Any
TINY = mp.mpf(10) ** -15
LN2 = mp.log(2)


@dataclass(frozen=True)
class Fit:
    """P in place of g on low..high: `weight` times the error is at most `bound` (roundings of coefficients included)."""

    used: Sequence[float]
    g: Callable[[Number], Number]
    low: Number
    high: Number
    weight: Callable[[Number], Number]
    bound: float
    single: bool = False


def remez(fit: Fit, grid: int = 400, rounds: int = 12) -> tuple[list[Number], Number]:
    """Coefficients of the best polynomial of the degree in use, and its weighted error."""
    n, a, b = len(fit.used) - 1, mp.mpf(fit.low), mp.mpf(fit.high)
    at = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * k / (n + 1)) for k in range(n + 2)]
    points = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * k / grid) for k in range(grid + 1)]
    values = [(x, fit.g(x), fit.weight(x)) for x in points]
    for _ in range(rounds):
        matrix, right = mp.matrix(n + 2, n + 2), mp.matrix(n + 2, 1)
        for i, x in enumerate(at):
            for j in range(n + 1):
                matrix[i, j] = x**j
            matrix[i, n + 1] = (-1) ** i / fit.weight(x)
            right[i] = fit.g(x)
        solved = mp.lu_solve(matrix, right)
        coefficients = [solved[j] for j in range(n + 1)]
        errors = [w * (mp.polyval(coefficients[::-1], x) - v) for x, v, w in values]
        places = _alternating(errors, n + 2)
        if len(places) < n + 2 or [points[k] for k in places] == at:
            break
        at = [points[k] for k in places]
    return coefficients, max(map(abs, errors))


def _alternating(errors: list[Number], count: int) -> list[int]:
    """Places of the extrema, of alternating sign; the largest `count` in a row."""
    places, best = [], 0
    for k in range(1, len(errors)):
        if mp.sign(errors[k]) != mp.sign(errors[best]):
            places.append(best)
            best = k
        elif abs(errors[k]) > abs(errors[best]):
            best = k
    places.append(best)
    while len(places) > count:
        places.pop(0 if abs(errors[places[0]]) < abs(errors[places[-1]]) else -1)
    return places


def error_of(fit: Fit, points: int = 120) -> float:
    """The largest weighted error of the coefficients in use."""
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    worst = mp.mpf(0)
    for k in range(points + 1):
        x = low + (high - low) * k / points
        p = mp.polyval([mp.mpf(c) for c in reversed(fit.used)], x)
        worst = max(worst, abs(fit.weight(x) * (p - fit.g(x))))
    return float(worst)


# ---- functions, in the variables of the polynomials ------------------------------------------------------------------


def odd(f: Callable[[Number], Number], limit: Number) -> Callable[[Number], Number]:
    """(f(x) / x - 1) / x**2 as a function of u = x**2."""

    def g(u: Number) -> Number:
        if abs(u) < TINY:
            return limit
        x = mp.sqrt(u)
        return (f(x) / x - 1) / u

    return g


def exp_rest(r: Number) -> Number:
    """(e**r - 1 - r) / r**2."""
    return (mp.expm1(r) - r) / r**2 if abs(r) > TINY else mp.mpf(1) / 2


def log_rest(f: Number) -> Number:
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > TINY else mp.mpf(1) / 3


def atanh_rest(z: Number) -> Number:
    """(2 atanh(s) / s - 2) / s**2 in z = s**2."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z if abs(z) > TINY else mp.mpf(2) / 3


def atanh_far_rest(z: Number) -> Number:
    return (atanh_rest(z) - mp.mpf(2) / 3) / z if abs(z) > mp.mpf(10) ** -12 else mp.mpf(2) / 5


def cos_rest(u: Number) -> Number:
    """(cos(x) - 1 + x**2 / 2) / x**4 in u = x**2."""
    return (mp.cos(mp.sqrt(u)) - 1 + u / 2) / u**2 if abs(u) > TINY else mp.mpf(1) / 24


def erf_near(u: Number) -> Number:
    """erf(x) / x - 1 in u = x**2."""
    x = mp.sqrt(u)
    return mp.erf(x) / x - 1 if x > TINY else 2 / mp.sqrt(mp.pi) - 1


def erfc_scaled(k: int) -> Callable[[Number], Number]:
    """e**(x**2) erfc(x) (1 + 2 x) in t = (x - k) / (x + k)."""

    def g(t: Number) -> Number:
        x = k * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)

    return g


def erfinv_ratio(w: Number) -> Number:
    """erfinv(x) / x with w = -log(1 - x**2): Halley's iterations from an approximation."""
    if w < mp.mpf(10) ** -12:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    rest = -mp.expm1(mp.log1p(-mp.exp(-w)) / 2)  # 1 - x
    y = mp.sqrt(mp.sqrt((mp.mpf("4.33") - w / 2) ** 2 + w / mp.mpf("0.147")) - (mp.mpf("4.33") - w / 2))
    for _ in range(6):
        error = rest - mp.erfc(y) if x > 0.5 else mp.erf(y) - x
        step = error / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))
        y -= step / (1 + y * step)
    return y / x


def digamma_ratio(t: Number) -> Number:
    """digamma(x) / (x - zero) in t = x - 3/2."""
    x = mp.mpf("1.5") + t
    zero = mp.mpf("1.461632144968362341262659542325721328468")
    return mp.digamma(x) / (x - zero) if abs(x - zero) > TINY else mp.psi(1, zero)


def tail_fit(fmt: str, highest: str, bound: float) -> Fit:
    k = 2 if fmt == "f32" else 3
    low, high = ((mp.mpf(x) - k) / (mp.mpf(x) + k) for x in ("0.5", highest))
    return Fit(erfs._TAIL[fmt], erfc_scaled(k), low, high, one, bound, fmt == "f32")


def inverse_fit(fmt: str, largest: str, bound: float) -> Fit:
    center, used = erfs._INVERSE_TAIL[fmt]

    def g(t: Number) -> Number:
        return erfinv_ratio((mp.mpf(center) + t) ** 2)

    low, high = mp.sqrt(5) - mp.mpf(center), mp.sqrt(mp.mpf(largest)) - mp.mpf(center)
    return Fit(used, g, low, high, lambda t: 1 / g(t), bound, fmt == "f32")


def one(x: Number) -> Number:
    return mp.mpf(1)


def size(x: Number) -> Number:
    return abs(x) + TINY


def square(x: Number) -> Number:
    return x * x + TINY


def _sin_pi(u: Number) -> Number:
    return mp.sin(mp.pi * mp.sqrt(u)) / mp.sqrt(u) if u > TINY else mp.pi


_R = LN2 / 2
_EIGHTH = (mp.sqrt(2) - 1) ** 2  # of a circle: the square of tan(pi / 8)
_QUARTER = (mp.pi / 4) ** 2
_ROOT = mp.sqrt(2)
_S = ((_ROOT - 1) / (_ROOT + 1)) ** 2

FITS: dict[str, Fit] = {
    "exp32": Fit(exps._SINGLE.series, exp_rest, -_R, _R, square, 2e-8, True),
    "exp64": Fit(exps._DOUBLE.series, exp_rest, -_R, _R, square, 1e-17),
    "tanh32": Fit(exps._TANH, odd(mp.tanh, -mp.mpf(1) / 3), 0, mp.mpf("0.36"), size, 1e-8, True),
    "log32": Fit(logs._SINGLE, log_rest, 1 / _ROOT - 1, _ROOT - 1, square, 2e-8, True),
    "log64": Fit(logs._DOUBLE, atanh_rest, 0, _S, size, 1e-17),
    "pow32 log": Fit(pows._LOG_SHORT, atanh_rest, 0, _S, size, 2e-11),
    "pow32 exp": Fit(pows._EXP_SHORT, exp_rest, -_R, _R, square, 1e-10),
    "pow64 log": Fit(pows._LOG_LONG, atanh_far_rest, 0, _S, square, 1e-19),
    "sin32": Fit(trigs._SIN["f32"], odd(mp.sin, -mp.mpf(1) / 6), 0, _QUARTER, size, 1e-8, True),
    "sin64": Fit(trigs._SIN["f64"], odd(mp.sin, -mp.mpf(1) / 6), 0, _QUARTER, size, 1e-17),
    "cos32": Fit(trigs._COS["f32"], cos_rest, 0, _QUARTER, square, 1e-9, True),
    "cos64": Fit(trigs._COS["f64"], cos_rest, 0, _QUARTER, square, 1e-17),
    "asin32": Fit(trigs._ASIN["f32"], odd(mp.asin, mp.mpf(1) / 6), 0, 0.25, size, 1e-8, True),
    "asin64": Fit(trigs._ASIN["f64"], odd(mp.asin, mp.mpf(1) / 6), 0, 0.25, size, 1e-17),
    "atan32": Fit(trigs._ATAN["f32"], odd(mp.atan, -mp.mpf(1) / 3), 0, 1, size, 1e-8, True),
    "atan64": Fit(trigs._ATAN["f64"], odd(mp.atan, -mp.mpf(1) / 3), 0, _EIGHTH, size, 1e-17),
    "erf32": Fit(erfs._NEAR["f32"], erf_near, 0, 1, one, 4e-8, True),
    "erf64": Fit(erfs._NEAR["f64"], erf_near, 0, 1, one, 3e-17),
    "erf32 far": Fit(erfs._FAR, lambda t: mp.erf(mp.mpf("2.5") + mp.mpf("1.5") * t), -1, 1, one, 5e-8, True),
    "erfc32": tail_fit("f32", "10.2", 1e-7),
    "erfc64": tail_fit("f64", "27.5", 2e-16),
    "erfinv": Fit(
        erfs._INVERSE, lambda t: erfinv_ratio(mp.mpf("2.5") + t), -2.5, 2.5, lambda t: mp.mpf("1.2"), 2.5e-7, True
    ),
    "erfinv32 tail": inverse_fit("f32", "16", 3e-7),
    "erfinv64 tail": inverse_fit("f64", "36.7", 6e-7),
    "lgamma": Fit(
        gammas._LGAMMA, lambda t: mp.loggamma(2 + t) / t if abs(t) > TINY else 1 - mp.euler, -0.5, 0.5, one, 1e-16
    ),
    "digamma": Fit(gammas._DIGAMMA, digamma_ratio, -0.5, 0.5, one, 3e-16),
    "sin pi": Fit(gammas._SIN_PI, _sin_pi, 0, 0.25, one, 3e-16),
}


def main(names: Sequence[str]) -> None:
    """Print the fits called `names`, or all."""
    for name in names or FITS:
        fit = FITS[name]
        coefficients, error = remez(fit)
        kind = np.float32 if fit.single else np.float64
        print(f"{name}: error {mp.nstr(error, 3)}")
        print("    (" + ", ".join(repr(float(kind(float(c)))) for c in coefficients) + ")")


if __name__ == "__main__":
    mp.mp.dps = 50
    main(sys.argv[1:])
