"""A line search for the strong Wolfe conditions.

The scheme is that of Nocedal and Wright, Numerical Optimization (2nd ed.), algorithms 3.5 and 3.6, with safeguarded
cubic interpolation as in Schmidt's minFunc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Point", "strong_wolfe"]

_ARMIJO = 1e-4  # c1 of the sufficient decrease condition
_CURVATURE = 0.9  # c2 of the curvature condition


class Point(NamedTuple):
    """A point on the line: distance `t` from its start, the loss, the flat gradient and the slope along the line."""

    t: float
    value: float
    grad: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, largest: float, tolerance: float, max_evaluations: int
) -> Point:
    """Find a point with enough decrease and a flat enough slope.

    `start.t` is the first distance to try, its other fields belong to distance 0. `largest` is the greatest component
    of the direction: a bracket that moves no parameter by `tolerance` or more ends the search.
    """
    origin = start._replace(t=0.0)
    found, used = _bracket(evaluate, origin, start.t, max_evaluations)
    if len(found) == 1:
        return found[0]
    return _zoom(evaluate, origin, found, largest, tolerance, max_evaluations - used)


def _enough_decrease(point: Point, origin: Point) -> bool:
    return point.value <= origin.value + _ARMIJO * point.t * origin.slope


def _flat(point: Point, origin: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * origin.slope


def _bracket(evaluate: Callable[[float], Point], origin: Point, t: float, limit: int) -> tuple[list[Point], int]:
    """Walk outwards until one point satisfies the conditions or two enclose such a point; with the trials used."""
    previous, point = origin, evaluate(t)
    for used in range(limit):
        if not _enough_decrease(point, origin) or (used > 1 and point.value >= previous.value):
            return [previous, point], used
        if _flat(point, origin):
            return [point], used
        if point.slope >= 0:
            return [previous, point], used
        bounds = (point.t + 0.01 * (point.t - previous.t), point.t * 10)
        t = _cubic_minimum(previous, point, bounds)
        previous, point = point, evaluate(t)
    return [origin, point], limit


def _zoom(
    evaluate: Callable[[float], Point], origin: Point, ends: list[Point], largest: float, tolerance: float, limit: int
) -> Point:
    """Shrink the bracket until a point satisfies the conditions; returns it, or the best one within `limit` trials."""
    low, high = sorted(ends, key=lambda end: end.value)
    stalled = False
    for _ in range(limit):
        if abs(high.t - low.t) * largest < tolerance:
            break
        left, right = min(low.t, high.t), max(low.t, high.t)
        t, stalled = _away_from_ends(_cubic_minimum(low, high, (left, right)), left, right, stalled)
        point = evaluate(t)
        if not _enough_decrease(point, origin) or point.value >= low.value:
            low, high = sorted((low, point), key=lambda end: end.value)
        elif _flat(point, origin):
            return point
        else:
            if point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
    return low


def _away_from_ends(t: float, left: float, right: float, stalled: bool) -> tuple[float, bool]:
    """Push a trial that is near an end inwards if it is at it, or was near one the last time too."""
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if not (stalled or t >= right or t <= left):
        return t, True
    return (right - margin if abs(t - right) < abs(t - left) else left + margin), False


def _cubic_minimum(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through both values and slopes has its minimum, within `bounds`; their middle if nowhere."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (bounds[0] + bounds[1]) / 2
    d2 = math.sqrt(square)
    scale = b.slope - a.slope + 2 * d2
    if scale == 0:
        return (bounds[0] + bounds[1]) / 2
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / scale), bounds[0]), bounds[1])
