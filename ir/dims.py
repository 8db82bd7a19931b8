"""Symbolic dimensions: integers, or polynomials over named symbols in a canonical form.

A `Dim` is an `int` or an `Expr`. Arithmetic on an Expr gives an int where the result is constant, so code that
computes shapes is the same for both. Two dims that are structurally equal are equal for every binding; nothing
else is assumed (`Expr.__eq__` never guesses).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Dim", "Expr", "Undecided", "evaluate", "product", "symbol", "symbols_of"]


class Undecided(Exception):
    """A question about symbolic dims has no answer that holds for every binding."""


@dataclass(frozen=True, order=True)
class Atom:
    """A symbol (`op` is "sym") or floor division / modulo / maximum / minimum of two dims."""

    op: str
    name: str = ""
    args: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        if self.op == "sym":
            return self.name
        sign = {"floordiv": "//", "mod": "%"}.get(self.op)
        a, b = self.args
        return f"(({a}) {sign} ({b}))" if sign else f"{self.op}({a}, {b})"


Monomial = tuple[Atom, ...]


class Expr:
    """A polynomial with integer coefficients over atoms, kept sorted: structural equality is canonical."""

    __slots__ = ("terms", "_hash")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __str__(self) -> str:
        parts = []
        for mono, coef in self.terms:
            factors = [str(a) for a in mono]
            if coef != 1 or not factors:
                factors.insert(0, str(coef))
            parts.append("*".join(factors))
        return " + ".join(parts)

    __repr__ = __str__

    def __add__(self, other: Dim) -> Dim:
        return _from_dict(_merge(_terms(self), _terms(other), 1))

    def __sub__(self, other: Dim) -> Dim:
        return _from_dict(_merge(_terms(self), _terms(other), -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _from_dict(_merge(_terms(other), _terms(self), -1))

    def __neg__(self) -> Dim:
        return 0 - self

    def __mul__(self, other: Dim) -> Dim:
        out: dict[Monomial, int] = {}
        for m1, c1 in _terms(self).items():
            for m2, c2 in _terms(other).items():
                mono = tuple(sorted(m1 + m2, key=str))
                out[mono] = out.get(mono, 0) + c1 * c2
        return _from_dict(out)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        exact = _divide_exactly(self, other)
        return exact if exact is not None else _atom("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return 0 if other == 0 else _atom("floordiv", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return 0 if _divide_exactly(self, other) is not None else _atom("mod", self, other)

    def __bool__(self) -> bool:
        return True  # symbols stand for sizes other than 0 and 1

    def __lt__(self, other: Dim) -> bool:
        return self._sign_of_difference(other) < 0

    def __gt__(self, other: Dim) -> bool:
        return self._sign_of_difference(other) > 0

    def __le__(self, other: Dim) -> bool:
        return self._sign_of_difference(other) <= 0

    def __ge__(self, other: Dim) -> bool:
        return self._sign_of_difference(other) >= 0

    def _sign_of_difference(self, other: Dim) -> int:
        diff = self - other
        if isinstance(diff, int):
            return (diff > 0) - (diff < 0)
        # Every atom that is a symbol is at least 2: a lower bound is enough for the common questions.
        if all(c > 0 or not m for m, c in diff.terms) and all(a.op == "sym" for m, _ in diff.terms for a in m):
            if sum(c * 2 ** len(m) for m, c in diff.terms) > 0:
                return 1
        neg = -diff
        if isinstance(neg, Expr) and all(c > 0 or not m for m, c in neg.terms):
            if all(a.op == "sym" for m, _ in neg.terms for a in m):
                if sum(c * 2 ** len(m) for m, c in neg.terms) > 0:
                    return -1
        raise Undecided(f"cannot decide {self} against {other} for every value of its symbols")


Dim = int | Expr


def symbol(name: str) -> Expr:
    """The symbol `name`; it stands for an integer of at least 2."""
    return Expr((((Atom("sym", name),), 1),))


def _terms(d: Dim) -> dict[Monomial, int]:
    return dict(d.terms) if isinstance(d, Expr) else ({(): int(d)} if d else {})


def _merge(a: dict[Monomial, int], b: dict[Monomial, int], sign: int) -> dict[Monomial, int]:
    for mono, coef in b.items():
        a[mono] = a.get(mono, 0) + sign * coef
    return a


def _from_dict(terms: dict[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if list(kept) == [()]:
        return kept[()]
    return Expr(tuple(sorted(kept.items(), key=lambda t: (-len(t[0]), str(t[0])))))


def _atom(op: str, a: Dim, b: Dim) -> Dim:
    return Expr((((Atom(op, "", (a, b)),), 1),))


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is one term and divides every term of a; None otherwise."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    ((dmono, dcoef),) = divisor.items()
    out: dict[Monomial, int] = {}
    for mono, coef in _terms(a).items():
        rest = list(mono)
        for atom in dmono:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coef % dcoef:
            return None
        out[tuple(rest)] = coef // dcoef
    return _from_dict(out)


def maximum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _atom("max", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else _atom("min", a, b)


def ceildiv(a: Dim, b: int) -> Dim:
    return (a + (b - 1)) // b


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    return math.prod(dims)


def evaluate(d: Dim, bindings: Mapping[str, int]) -> int:
    """The integer that `d` stands for when its symbols are bound."""
    if isinstance(d, int):
        return d
    return sum(coef * math.prod(_evaluate_atom(a, bindings) for a in mono) for mono, coef in d.terms)


def _evaluate_atom(a: Atom, bindings: Mapping[str, int]) -> int:
    if a.op == "sym":
        return bindings[a.name]
    x, y = (evaluate(arg, bindings) for arg in a.args)
    return {"floordiv": lambda: x // y, "mod": lambda: x % y, "max": lambda: max(x, y), "min": lambda: min(x, y)}[
        a.op
    ]()


def symbols_of(d: Dim) -> tuple[str, ...]:
    """Names of the symbols in `d`, sorted."""
    found: set[str] = set()
    if isinstance(d, Expr):
        for mono, _ in d.terms:
            for a in mono:
                found.update([a.name] if a.op == "sym" else (s for arg in a.args for s in symbols_of(arg)))
    return tuple(sorted(found))


def postfix(d: Dim, index: Mapping[str, int]) -> tuple[int | str, ...]:
    """`d` as postfix code for the runtime's dim table: ints are constants, "s<i>" symbols, names operations."""
    if isinstance(d, int):
        return (d,)
    code: list[int | str] = []
    for n, (mono, coef) in enumerate(d.terms):
        code.append(coef)
        for a in mono:
            if a.op == "sym":
                code += [f"s{index[a.name]}", "mul"]
            else:
                code += [*postfix(a.args[0], index), *postfix(a.args[1], index), a.op, "mul"]
        if n:
            code.append("add")
    return tuple(code)
