"""Straight-line writing of the control flow that the contraction generator needs.

Values are LLVM operands as text; 64-bit integers that are known are kept as decimal literals and folded here, since
kernels go to LLVM without a pass pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["Code", "Sink"]

I64 = "i64"
Carried = tuple[str, str]  # (LLVM type, value)


class Sink(Protocol):
    """Where instructions go: the kernel emitter."""

    def fresh(self, hint: str = "v") -> str:
        """A value name that is not in use, with its percent sign."""
        ...

    def line(self, text: str) -> None:
        """Append an instruction to the block being written."""
        ...

    def label(self, hint: str = "b") -> str:
        """A block name that is not in use, without a percent sign."""
        ...

    def place(self, label: str) -> None:
        """Start the block `label`; what was being written ended with a terminator."""
        ...

    @property
    def current(self) -> str:
        """The label of the block being written."""
        ...


def known(value: str) -> int | None:
    """The integer behind a literal operand, or None for a computed value."""
    return int(value) if value.lstrip("-").isdigit() else None


class Code:
    """Arithmetic, loops and branches on top of a sink."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    # Values ----------------------------------------------------------------------------------------------------------

    def let(self, text: str, hint: str = "v") -> str:
        """`name = text`; the name."""
        name = self.sink.fresh(hint)
        self.sink.line(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.sink.line(text)

    def add(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(x + y)
        return b if x == 0 else a if y == 0 else self.let(f"add nsw i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(x - y)
        return a if y == 0 else self.let(f"sub nsw i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(x * y)
        if x == 0 or y == 0:
            return "0"
        return b if x == 1 else a if y == 1 else self.let(f"mul nsw i64 {a}, {b}")

    def div(self, a: str, b: str) -> str:
        """a // b for non-negative a and positive b."""
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(x // y)
        return a if y == 1 else self.let(f"udiv i64 {a}, {b}")

    def rem(self, a: str, b: str) -> str:
        """a % b for non-negative a and positive b."""
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(x % y)
        return "0" if y == 1 else self.let(f"urem i64 {a}, {b}")

    def ceildiv(self, a: str, b: int) -> str:
        return self.div(self.add(a, str(b - 1)), str(b))

    def smaller(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(min(x, y))
        return a if a == b else self.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def larger(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return str(max(x, y))
        return a if a == b else self.let(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def less(self, a: str, b: str) -> str:
        """a < b as an i1 operand."""
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return "true" if x < y else "false"
        return self.let(f"icmp slt i64 {a}, {b}")

    def equal(self, a: str, b: str) -> str:
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return "true" if x == y else "false"
        return self.let(f"icmp eq i64 {a}, {b}")

    def both(self, a: str, b: str) -> str:
        """a and b on i1."""
        if "false" in (a, b):
            return "false"
        return b if a == "true" else a if b == "true" else self.let(f"and i1 {a}, {b}")

    def select(self, condition: str, a: str, b: str, kind: str = I64) -> str:
        """condition ? a : b."""
        if condition in ("true", "false") or a == b:
            return b if condition == "false" else a
        return self.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def at(self, element: str, base: str, index: str) -> str:
        """The address of base[index] in elements of LLVM type `element`."""
        if index == "0":
            return base
        return self.let(f"getelementptr {element}, ptr {base}, i64 {index}", "p")

    # Control ---------------------------------------------------------------------------------------------------------

    def loop(
        self,
        lo: str,
        hi: str,
        body: Callable[..., Sequence[str] | None],
        carried: Sequence[Carried] = (),
        step: str = "1",
        runs: bool = False,
        plain: bool = False,
    ) -> list[str]:
        """for iv in range(lo, hi, step): carried = body(iv, *carried); the last carried values. `runs`: never empty.

        `plain`: the body's addresses are as they should be. Indices and pointers pass through an empty piece of
        assembly, where LLVM's loop strength reduction loses sight of them: it takes a fifth of code generation.
        """
        first, last = known(lo), known(hi)
        if first is not None and last is not None:
            if first >= last:
                return [value for _, value in carried]
            runs = True
            if last - first <= int(step):
                return list(body(lo, *(value for _, value in carried)) or ())
        sink = self.sink
        before, head, after = sink.current, sink.label("loop"), sink.label("done")
        if runs:
            self.do(f"br label %{head}")
        else:
            self.do(f"br i1 {self.less(lo, hi)}, label %{head}, label %{after}")
        at = [sink.fresh("i"), *(sink.fresh("c") for _ in carried)]
        counter, following = at[0], sink.fresh("n")
        # Phi nodes come first but name the values that the body computes last: fixed names stand in for those.
        news = [sink.fresh("t") for _ in carried]
        sink.place(head)
        latch = sink.label("latch")
        self.do(f"{at[0]} = phi i64 [ {lo}, %{before} ], [ {following}, %{latch} ]")
        for name, new, (kind, value) in zip(at[1:], news, carried):
            self.do(f"{name} = phi {kind} [ {value}, %{before} ], [ {new}, %{latch} ]")
        if plain:
            kinds = [I64, *(kind for kind, _ in carried)]
            at = [self.hidden(kind, x) if kind in (I64, "ptr") else x for kind, x in zip(kinds, at, strict=True)]
        results = list(body(*at) or ())
        assert len(results) == len(carried)
        self.do(f"br label %{latch}")
        sink.place(latch)
        for new, result, (kind, _) in zip(news, results, carried):
            self.copy(new, kind, result)
        self.do(f"{following} = add nsw i64 {counter}, {step}")
        more = self.let(f"icmp slt i64 {following}, {hi}")
        self.do(f"br i1 {more}, label %{head}, label %{after}")
        sink.place(after)
        if runs:
            return news
        return [
            self.let(f"phi {kind} [ {value}, %{before} ], [ {new}, %{latch} ]", "c")
            for new, (kind, value) in zip(news, carried)
        ]

    def hidden(self, kind: str, x: str) -> str:
        """The same value, of which LLVM knows nothing."""
        return self.let(f'call {kind} asm "", "=r,0"({kind} {x})')

    def copy(self, name: str, kind: str, value: str) -> None:
        """Bind `name` to `value`: a no-op cast that instruction selection drops."""
        same = f"getelementptr i8, ptr {value}, i64 0" if kind == "ptr" else f"bitcast {kind} {value} to {kind}"
        self.do(f"{name} = {same}")

    def branch(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Callable[[], Sequence[str] | None] | None = None,
        kinds: Sequence[str] = (),
    ) -> list[str]:
        """Run one of two writers; what they return, of LLVM types `kinds`, is merged."""
        otherwise = otherwise or (lambda: ())
        if condition in ("true", "false"):
            return list((then if condition == "true" else otherwise)() or ())
        sink = self.sink
        yes, no, after = sink.label("then"), sink.label("else"), sink.label("join")
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        ends = []
        for label, write in ((yes, then), (no, otherwise)):
            sink.place(label)
            values = list(write() or ())
            ends.append((sink.current, values))
            self.do(f"br label %{after}")
        sink.place(after)
        (a_end, a), (b_end, b) = ends
        return [self.let(f"phi {k} [ {x}, %{a_end} ], [ {y}, %{b_end} ]") for k, x, y in zip(kinds, a, b, strict=True)]
