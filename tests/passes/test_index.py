"""Index expressions: whatever is simplified, the numbers stay."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from treadle.ir.dims import symbol
from treadle.passes.lower.index import Ix, LoopVar, Quotient, Remainder, Space, linear


def value(ix: object, at: dict[LoopVar, int]) -> int:
    if isinstance(ix, int):
        return ix
    assert isinstance(ix, Ix) and isinstance(ix.const, int)
    total = ix.const
    for a, c in ix.parts:
        assert isinstance(c, int)
        if isinstance(a, LoopVar):
            total += c * at[a]
        elif isinstance(a, Quotient):
            total += c * (value(a.of, at) // a.by)  # type: ignore[operator]
        elif isinstance(a, Remainder):
            total += c * (value(a.of, at) % a.by)  # type: ignore[operator]
    return total


def points(space: Space) -> list[dict[LoopVar, int]]:
    variables = list(space.variables.values())
    return [dict(zip(variables, p, strict=True)) for p in itertools.product(*(range(v.extent) for v in variables))]  # type: ignore[arg-type]


@given(
    extents=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    steps=st.lists(st.tuples(st.sampled_from("+*/%-"), st.integers(1, 7)), max_size=6),
    weights=st.tuples(st.integers(-3, 8), st.integers(-3, 8)),
)
def test_arithmetic(extents: tuple[int, int], steps: list[tuple[str, int]], weights: tuple[int, int]) -> None:
    space = Space()
    i, j = (space.index((k,), n) for k, n in enumerate(extents))
    x = i * weights[0] + j * weights[1] + 40
    here = {id(p): p for p in points(space)}
    wanted = {k: value(x, p) for k, p in here.items()}
    for sign, n in steps:
        x = {"+": x + n, "*": x * n, "/": x // n, "%": x % n, "-": x - n}[sign]
        for k, w in wanted.items():
            wanted[k] = {"+": w + n, "*": w * n, "/": w // n, "%": w % n, "-": w - n}[sign]
    for k, p in here.items():
        assert value(x, p) == wanted[k]
        if isinstance(x, Ix) and (bounds := x.bounds()) is not None:
            assert bounds[0] <= wanted[k] <= bounds[1]


def test_reshapes_vanish() -> None:
    space = Space()
    i, j = space.index(("i",), 6), space.index(("j",), 4)
    flat = linear((6, 4), (i, j))
    assert flat // 4 == i and flat % 4 == j
    assert linear((12, 2), (flat // 2, flat % 2)) == flat


def test_symbolic_extents() -> None:
    s = symbol("s0")
    space = Space()
    i, j = space.index(("i",), 8), space.index(("j",), s)
    flat = linear((8, s), (i, j))
    assert flat // s == i and flat % s == j
    assert (i * s * 4 + j) // (s * 4) == i


def test_splits_are_asked_for() -> None:
    space = Space()
    i = space.index(("i",), 12)
    assert isinstance((i // 4), Ix) and space.wanted == {("i",): 4}
    again = Space(splits={("i",): 4})
    i = again.index(("i",), 12)
    assert [v.extent for v in again.variables.values()] == [3, 4]
    assert str(i // 4) == f"1*{again.variables['i', 'h']} + 0"


def test_negative_offsets_are_lifted() -> None:
    """Machines divide what is not negative."""
    space = Space()
    i, k = space.index(("i",), 3), space.index(("k",), 2)
    x = i * 2 - k
    for part in (x // 2, x % 2):
        assert isinstance(part, Ix)
        inner = [a.of for a, _ in part.parts if isinstance(a, Quotient | Remainder)]
        assert all(of.bounds()[0] >= 0 for of in inner)  # type: ignore[index]
        for p in points(space):
            whole = value(x, p)
            assert value(part, p) == (whole // 2 if part is not x % 2 and part == x // 2 else whole % 2)
