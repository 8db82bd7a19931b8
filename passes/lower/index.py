"""Index expressions: affine forms over loop variables, and where nothing else works, their quotients and remainders.

An `Ix` is a `Dim` to the `index_map`s of views, so they work on it unchanged. Its arithmetic knows the ranges of the
variables: `//` and `%` vanish where those allow. Where a variable would have to be split for that (`i // 4` of an `i`
that runs to 32), the split is asked for (`Space.splits`), and whoever made the variables starts again with two in its
place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from treadle.ir.dims import Dim, Expr, Undecided

__all__ = [
    "Atom",
    "Ix",
    "LoopVar",
    "Picked",
    "Quotient",
    "Remainder",
    "Space",
    "is_one",
    "linear",
    "nonnegative",
    "ratio",
]

VarKey = tuple[Any, ...]


class Atom:
    """What an Ix is affine in. Ordered by age; `space` takes requests for splits."""

    __slots__ = ("number", "space")

    def __init__(self, space: Space) -> None:
        self.space = space
        self.number = space.count
        space.count += 1

    def bounds(self) -> tuple[Dim, Dim] | None:
        """(least, largest) value, where known."""
        return None

    def inner(self) -> Ix | None:
        """The expression of which this is a quotient or remainder."""
        return None


class LoopVar(Atom):
    """A loop variable in range(extent)."""

    __slots__ = ("key", "extent")

    def __init__(self, space: Space, key: VarKey, extent: Dim) -> None:
        super().__init__(space)
        self.key = key
        self.extent = extent

    def bounds(self) -> tuple[Dim, Dim] | None:
        return 0, self.extent - 1

    def __repr__(self) -> str:
        return f"i{self.number}<{self.extent}>"


class _Part(Atom):
    __slots__ = ("of", "by")

    def __init__(self, space: Space, of: Ix, by: Dim) -> None:
        super().__init__(space)
        self.of = of
        self.by = by

    def inner(self) -> Ix | None:
        return self.of


class Quotient(_Part):
    """of // by."""

    __slots__ = ()

    def bounds(self) -> tuple[Dim, Dim] | None:
        found = self.of.bounds()
        if found is None or not nonnegative(found[0]):
            return None
        return found[0] // self.by, found[1] // self.by

    def __repr__(self) -> str:
        return f"({self.of} // {self.by})"


class Remainder(_Part):
    """of % by."""

    __slots__ = ()

    def bounds(self) -> tuple[Dim, Dim] | None:
        return 0, self.by - 1

    def __repr__(self) -> str:
        return f"({self.of} % {self.by})"


class Picked(Atom):
    """An index that was read from memory; `node` gives it. Checked to be in range(size)."""

    __slots__ = ("node", "size")

    def __init__(self, space: Space, node: Any, size: Dim) -> None:
        super().__init__(space)
        self.node = node
        self.size = size

    def bounds(self) -> tuple[Dim, Dim] | None:
        return 0, self.size - 1

    def __repr__(self) -> str:
        return f"picked{self.number}"


@dataclass(eq=False)
class Space:
    """The variables of one nest. `splits` persists over restarts: variable key -> the size of its low part."""

    splits: dict[VarKey, Dim] = field(default_factory=dict)
    wanted: dict[VarKey, Dim] = field(default_factory=dict)
    count: int = 0
    variables: dict[VarKey, LoopVar] = field(default_factory=dict)
    _parts: dict[tuple, Atom] = field(default_factory=dict)

    def index(self, key: VarKey, extent: Dim) -> Dim:
        """The index that runs over range(extent): a variable, or the sum of the parts it was split into."""
        if is_one(extent):
            return 0
        low = self.splits.get(key)
        if low is None:
            return Ix.of(self.variable(key, extent))
        high = ratio(extent, low)
        assert high is not None, (extent, low)
        return self.index((*key, "h"), high) * low + self.index((*key, "l"), low)

    def variable(self, key: VarKey, extent: Dim) -> LoopVar:
        found = self.variables.get(key)
        if found is None:
            found = self.variables[key] = LoopVar(self, key, extent)
        return found

    def ask(self, v: Atom, low: Dim) -> None:
        """Remember that splitting `v` into (extent / low, low) would make an index affine."""
        if not isinstance(v, LoopVar):
            return
        high = ratio(v.extent, low)
        if high is not None and not is_one(high) and not is_one(low) and nonnegative(high - 1):
            self.wanted.setdefault(v.key, low)

    def part(self, kind: type[_Part], of: Ix, by: Dim) -> Dim:
        key = (kind, of, by)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = kind(self, of, by)
        return Ix.of(found)


class Ix(Expr):
    """const + sum of coefficient * atom; at least one atom. Immutable; equal where atoms and coefficients are."""

    __slots__ = ("parts", "const", "_hash")
    parts: tuple[tuple[Atom, Dim], ...]
    const: Dim

    def __init__(self, parts: tuple[tuple[Atom, Dim], ...], const: Dim) -> None:
        self.parts = parts
        self.const = const
        self._hash = hash((parts, const))

    @staticmethod
    def of(atom: Atom) -> Ix:
        return Ix(((atom, 1),), 0)

    @staticmethod
    def make(parts: dict[Atom, Dim], const: Dim) -> Dim:
        """The sum in canonical form: an Ix, or a plain Dim where no atom is left."""
        kept = {a: c for a, c in parts.items() if not (isinstance(c, int) and c == 0)}
        if not kept:
            return const
        if any(type(a) is Remainder for a in kept):
            kept, const = _rejoin(kept, const)
            if not kept:
                return const
        if len(kept) > 1:
            return Ix(tuple(sorted(kept.items(), key=lambda p: p[0].number)), const)
        return Ix(tuple(kept.items()), const)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ix) and self.parts == other.parts and self.const == other.const

    def __str__(self) -> str:
        return " + ".join([*(f"{c}*{a}" for a, c in self.parts), str(self.const)])

    __repr__ = __str__

    @property
    def space(self) -> Space:
        return self.parts[0][0].space

    def bounds(self) -> tuple[Dim, Dim] | None:
        """(least, largest), each attained or not; None where unknown."""
        low = high = self.const
        for atom, c in self.parts:
            found = atom.bounds()
            if found is None:
                return None
            a, b = found[0] * c, found[1] * c
            if nonnegative(c):
                low, high = low + a, high + b
            elif nonnegative(-c):
                low, high = low + b, high + a
            else:
                return None
        return low, high

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, Ix):
            return Ix(self.parts, self.const + other)
        parts = dict(self.parts)
        for a, c in other.parts:
            known = parts.get(a)
            parts[a] = c if known is None else known + c
        return Ix.make(parts, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, Ix):
            raise TypeError("an index is not multiplied by an index")
        if isinstance(other, int):
            if other == 1:
                return self
            if other == 0:
                return 0
        return Ix(tuple((a, c * other) for a, c in self.parts), self.const * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _divide(self, other)[0]

    def __mod__(self, other: Dim) -> Dim:
        return _divide(self, other)[1]

    # Comparisons come with conditions only, which ask `bounds`.
    def _sign_of_difference(self, other: Dim) -> int:
        raise Undecided(f"{self} against {other}")


def is_one(d: Dim) -> bool:
    return isinstance(d, int) and d == 1


def ratio(a: Dim, b: Dim) -> Dim | None:
    """a / b where that is exact for every binding; else None."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 or a % b else a // b
    if a == b:
        return 1
    if isinstance(a, int):
        return 0 if a == 0 else None
    q = a // b
    return q if q * b == a else None


def nonnegative(d: Dim) -> bool:
    """Is `d` at least 0 for every binding? False where that cannot be told."""
    if isinstance(d, int):
        return d >= 0
    try:
        return bool(d >= 0)
    except Undecided:
        return False


def linear(shape: Iterable[Dim], index: Iterable[Dim]) -> Dim:
    """The row-major number of an element."""
    at: Dim = 0
    for size, i in zip(shape, index, strict=True):
        at = at * size + i
    return at


def _rejoin(parts: dict[Atom, Dim], const: Dim) -> tuple[dict[Atom, Dim], Dim]:
    """Replace c * (x % d) + c * d * (x // d) by c * x."""
    for atom in [a for a in parts if type(a) is Remainder]:
        c = parts.get(atom)
        whole = atom.space._parts.get((Quotient, atom.of, atom.by))
        if c is None or whole not in parts or parts[whole] != c * atom.by:
            continue
        parts = {a: v for a, v in parts.items() if a is not atom and a is not whole}
        for a, v in atom.of.parts:
            parts[a] = parts.get(a, 0) + v * c
        const = const + atom.of.const * c
        parts = {a: v for a, v in parts.items() if not (isinstance(v, int) and v == 0)}
    return parts, const


def _divide(x: Ix, d: Dim) -> tuple[Dim, Dim]:
    """(x // d, x % d) for d > 0."""
    if is_one(d):
        return x, 0
    whole: dict[Atom, Dim] = {}
    rest: dict[Atom, Dim] = {}
    for atom, c in x.parts:
        q = ratio(c, d)
        (rest if q is None else whole)[atom] = c if q is None else q
    whole_const: Dim
    rest_const: Dim
    if isinstance(x.const, int) and isinstance(d, int):
        whole_const, rest_const = divmod(x.const, d)
    else:
        q = ratio(x.const, d)
        whole_const, rest_const = (0, x.const) if q is None else (q, 0)
    outer = Ix.make(whole, whole_const)
    inner = Ix.make(rest, rest_const)
    if _within(inner, d):
        return outer, inner
    if not isinstance(inner, Ix):
        return outer + inner // d, inner % d  # type: ignore[operator]
    # Machines divide what is not negative: lift the rest by a multiple of d, or divide it all.
    found = inner.bounds()
    if found is None or not nonnegative(found[0]):
        if found is None or not isinstance(found[0], int) or not isinstance(d, int):
            return x.space.part(Quotient, x, d), x.space.part(Remainder, x, d)
        lift = -(found[0] // d)
        outer, inner = outer - lift, inner + lift * d
        assert isinstance(inner, Ix)
    q, r = _divide_rest(inner, d)
    return outer + q, r


def _within(x: Dim, d: Dim) -> bool:
    """0 <= x < d for every binding?"""
    found = x.bounds() if isinstance(x, Ix) else (x, x)
    return found is not None and nonnegative(found[0]) and nonnegative(d - 1 - found[1])


def _divide_rest(x: Ix, d: Dim) -> tuple[Dim, Dim]:
    """x // d and x % d where no term is a multiple of d."""
    # x = c * y + z with 0 <= z < c and c dividing d: only y has to be divided, by d / c.
    for _, c in x.parts:
        by = ratio(d, c) if nonnegative(c) else None
        if by is None or is_one(c):
            continue
        high: dict[Atom, Dim] = {}
        low: dict[Atom, Dim] = {}
        for a, v in x.parts:
            q = ratio(v, c)
            (low if q is None else high)[a] = v if q is None else q
        high_const: Dim
        low_const: Dim
        if isinstance(x.const, int) and isinstance(c, int):
            high_const, low_const = divmod(x.const, c)
        else:
            high_const, low_const = 0, x.const
        rest = Ix.make(low, low_const)
        if _within(rest, c):
            y = Ix.make(high, high_const)
            return y // by, (y % by) * c + rest  # type: ignore[operator]
    for atom, c in x.parts:
        # c * i runs past d: with i split at d / c the high part is a multiple of d.
        by = ratio(d, c)
        if by is not None:
            x.space.ask(atom, by if nonnegative(by) else -by)
    space = x.space
    return space.part(Quotient, x, d), space.part(Remainder, x, d)
