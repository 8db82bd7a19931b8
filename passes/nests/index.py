"""Index expressions over loop variables: simplification by ranges, splitting and merging of loops.

A loop variable is a symbol of `dims`; `Ranges` gives its extent. Views map indices with + * // %; here // and % go
where ranges allow, or tell how a loop must be split for them to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from treadle.ir import dims
from treadle.ir.dims import Atom, Dim, Expr, Undecided, symbol

__all__ = ["Space", "coefficients", "likely", "linear_index", "simplified"]

Ranges = Mapping[str, Dim]


def likely(d: Dim) -> int:
    """The size a dim is taken for in decisions of profit."""
    return d if isinstance(d, int) else max(1, dims.evaluate(d, dict.fromkeys(dims.symbols_of(d), 64)))


def simplified(e: Dim, ranges: Ranges) -> Dim:
    """`e` with // and % resolved where the ranges of its loop variables allow."""
    if not isinstance(e, Expr) or not any(a.op != "sym" for m, _ in e.terms for a in m):
        return e
    total: Dim = 0
    for mono, coef in e.terms:
        term: Dim = coef
        for a in mono:
            term = term * _atom(a, ranges)
        total = total + term
    return _rejoined(total)


def _atom(a: Atom, ranges: Ranges) -> Dim:
    if a.op == "sym":
        return symbol(a.name)
    x, y = (simplified(v, ranges) for v in a.args)
    if a.op in ("floordiv", "mod"):
        quotient, rest = _divide(x, y)
        inside = _in_range(rest, y, ranges)
        if a.op == "floordiv":
            return quotient if inside else quotient + _floordiv(rest, y)
        return rest if inside else _mod(rest, y)
    return dims.maximum(x, y) if a.op == "max" else dims.minimum(x, y)


def _floordiv(x: Dim, y: Dim) -> Dim:
    return x // y if isinstance(x, int) and isinstance(y, int) else dims._atom("floordiv", x, y)


def _mod(x: Dim, y: Dim) -> Dim:
    return x % y if isinstance(x, int) and isinstance(y, int) else dims._atom("mod", x, y)


def _divide(x: Dim, y: Dim) -> tuple[Dim, Dim]:
    """x = quotient * y + rest, with every term that y divides in the quotient."""
    quotient: Dim = 0
    rest: Dim = 0
    for mono, coef in x.terms if isinstance(x, Expr) else ([((), x)] if x else []):
        term = Expr(((mono, coef),)) if mono else coef
        exact = (
            dims._divide_exactly(term, y)
            if isinstance(term, Expr)
            else (term // y if isinstance(y, int) and term % y == 0 else None)
        )
        if exact is not None:
            quotient = quotient + exact
        elif not mono and isinstance(y, int):
            quotient, rest = quotient + term // y, rest + term % y
        else:
            rest = rest + term
    return quotient, rest


def _in_range(e: Dim, size: Dim, ranges: Ranges) -> bool:
    """0 <= e < size for every value of the loop variables?"""
    top = _upper(e, ranges)
    if top is None:
        return False
    try:
        return bool(top < size) if not isinstance(size - top, int) else size - top > 0
    except Undecided:
        return False


def _upper(e: Dim, ranges: Ranges) -> Dim | None:
    """The greatest value of a sum of non-negative terms; None where a term may be negative or is unknown."""
    if isinstance(e, int):
        return e if e >= 0 else None
    total: Dim = 0
    for mono, coef in e.terms:
        if coef < 0:
            return None
        term: Dim = coef
        for a in mono:
            if a.op == "sym":
                term = term * (ranges[a.name] - 1 if a.name in ranges else symbol(a.name))
            elif a.op == "mod":
                term = term * (a.args[1] - 1)
            else:
                inner = _upper(a.args[0], ranges)
                if inner is None or a.op != "floordiv" or not isinstance(inner, int) or not isinstance(a.args[1], int):
                    return None
                term = term * (inner // a.args[1])
        total = total + term
    return total


def _rejoined(e: Dim) -> Dim:
    """(x // c) * c * k + (x % c) * k -> x * k."""
    if not isinstance(e, Expr):
        return e
    for mono, _ in e.terms:
        for a in mono:
            if a.op == "mod":
                x, c = a.args
                partner = Atom("floordiv", "", (x, c))
                whole = _factor(e, partner)
                part = _factor(e, a)
                if whole is not None and part is not None and whole - part * c == 0:
                    return _rejoined(e - Expr((((a,), 1),)) * part - Expr((((partner,), 1),)) * whole + x * part)
    return e


def _factor(e: Expr, atom: Atom) -> Dim | None:
    """The coefficient of an atom that appears linearly; None where it does not."""
    total: Dim = 0
    for mono, coef in e.terms:
        if atom in mono:
            rest = list(mono)
            rest.remove(atom)
            if atom in rest:
                return None
            total = total + (Expr(((tuple(rest), coef),)) if rest else coef)
    return total if total != 0 else None


def linear_index(index: Iterable[Dim], shape: Iterable[Dim], ranges: Ranges) -> Dim:
    """The place of an element in row-major order."""
    total: Dim = 0
    for i, d in zip(index, shape, strict=True):
        total = total * d + i
    return simplified(total, ranges)


def coefficients(e: Dim, loops: Iterable[str]) -> tuple[dict[Atom, Dim], Dim]:
    """`e` as offset + sum(coefficient * atom), atoms being loop variables or // and % of them."""
    names = set(loops)
    found: dict[Atom, Dim] = {}
    offset: Dim = 0
    for mono, coef in e.terms if isinstance(e, Expr) else ([((), e)] if e else []):
        inner = [a for a in mono if mentions(a, names)]
        rest = [a for a in mono if not mentions(a, names)]
        term: Dim = Expr(((tuple(rest), coef),)) if rest else coef
        if not inner:
            offset = offset + term
        elif len(inner) == 1:
            found[inner[0]] = found.get(inner[0], 0) + term
        else:
            raise NotImplementedError(f"an index that is not linear in the loop variables: {e}")
    return found, offset


def mentions(a: Atom, names: set[str]) -> bool:
    """Does an atom depend on one of the loop variables?"""
    if a.op == "sym":
        return a.name in names
    return any(s in names for d in a.args for s in dims.symbols_of(d))


@dataclass
class Space:
    """Loop variables with extents, outermost first; `value` tells each original variable in terms of the present ones."""

    extents: dict[str, Dim]
    value: dict[str, Dim] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.value:
            self.value = {name: symbol(name) for name in self.extents}

    def index(self, names: Iterable[str]) -> tuple[Dim, ...]:
        """The present expressions of original variables."""
        return tuple(self.value[n] for n in names)

    def rewrite(self, e: Dim) -> Dim:
        """An expression over the original variables, over the present ones."""
        from treadle.ir.substitute import substitute_dim

        if not isinstance(e, Expr):
            return e
        keep = {s: self.value.get(s, symbol(s)) for s in dims.symbols_of(e)}
        return simplified(substitute_dim(e, keep), self.extents)

    def refine(self, expressions: Iterable[Dim]) -> None:
        """Split loops until // and % of single variables by constants are gone from `expressions`."""
        pending = list(expressions)
        for _ in range(8):
            split = next((s for e in pending for s in self._splits(self.rewrite(e))), None)
            if split is None:
                return
            self._split(*split)

    def _splits(self, e: Dim) -> Iterable[tuple[str, Dim]]:
        if not isinstance(e, Expr):
            return
        for mono, _ in e.terms:
            for a in mono:
                if a.op in ("floordiv", "mod"):
                    x, c = a.args
                    for name in dims.symbols_of(x):
                        if name in self.extents and x == symbol(name):
                            extent = self.extents[name]
                            if dims_divide(extent, c):
                                yield name, c

    def _split(self, name: str, size: Dim) -> None:
        high, low = f"{name}h", f"{name}l"
        new: dict[str, Dim] = {}
        for n, extent in self.extents.items():
            if n == name:
                new[high], new[low] = extent // size, size
            else:
                new[n] = extent
        self.extents = new
        from treadle.ir.substitute import substitute_dim

        swap = {name: symbol(high) * size + symbol(low)}
        for k, v in self.value.items():
            if isinstance(v, Expr):
                self.value[k] = simplified(
                    substitute_dim(v, {s: swap.get(s, symbol(s)) for s in dims.symbols_of(v)}), new
                )

    def drop_units(self) -> None:
        """Loops of one iteration become index 0."""
        from treadle.ir.substitute import substitute_dim

        gone = [n for n, d in self.extents.items() if d == 1]
        for n in gone:
            del self.extents[n]
        if gone:
            for k, v in self.value.items():
                if isinstance(v, Expr):
                    self.value[k] = substitute_dim(v, {s: 0 if s in gone else symbol(s) for s in dims.symbols_of(v)})

    def merge(self, addresses: Iterable[Dim], fixed: Iterable[str] = ()) -> None:
        """Join neighbouring loops where every address steps through both like through one."""
        from treadle.ir.substitute import substitute_dim

        tables = []
        for e in addresses:
            found, _ = coefficients(self.rewrite(e), self.extents)
            if any(a.op != "sym" for a in found):
                names = {s for a in found if a.op != "sym" for d in a.args for s in dims.symbols_of(d)}
                fixed = [*fixed, *names]
            tables.append({a.name: c for a, c in found.items() if a.op == "sym"})
        keep = set(fixed)
        names = list(self.extents)
        k = len(names) - 2
        while k >= 0:
            a, b = names[k], names[k + 1]
            size = self.extents[b]
            if a not in keep and b not in keep and all(t.get(a, 0) == t.get(b, 0) * size for t in tables):
                merged = f"{a}_{b}"
                new: dict[str, Dim] = {}
                for n, d in self.extents.items():
                    if n == a:
                        new[merged] = d * size
                    elif n != b:
                        new[n] = d
                self.extents = new
                swap = {a: dims._atom("floordiv", symbol(merged), size), b: dims._atom("mod", symbol(merged), size)}
                for name, v in self.value.items():
                    if isinstance(v, Expr):
                        self.value[name] = substitute_dim(v, {s: swap.get(s, symbol(s)) for s in dims.symbols_of(v)})
                for t in tables:
                    t[merged] = t.get(b, 0)
                names[k : k + 2] = [merged]
            k -= 1


def dims_divide(extent: Dim, size: Dim) -> bool:
    """Is `extent` a multiple of `size`, surely?"""
    if isinstance(extent, int) and isinstance(size, int):
        return extent % size == 0
    return isinstance(extent, Expr) and dims._divide_exactly(extent, size) is not None
