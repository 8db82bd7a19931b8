"""Random programs, run as one fused trace, forced after every op, and evaluated in NumPy: all three must agree.

    python -m tests.e2e.fuzz --count 500 --seed 7 [--structure]

A structure is a list of steps that is valid at several sizes (0, 1, 7, about 70,000 elements); it runs on several
sizes and inputs, so that its programs are compiled once and generalised. A value is exact while it comes from integers,
bools and elementwise IEEE arithmetic: then all runs must agree to the bit, float16 and bfloat16 included. What follows
a float reduction, a matmul or a transcendental function is compared with a tolerance of the dtype, scaled to the values
that entered, and decides nothing (no comparison, no rounding).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import treadle as T
from tests.e2e.fuzz_steps import STEPS
from treadle.compiler.executable import Interpreted
from treadle.passes.pipeline import Context, run_pipeline
from treadle.recorder import flush as flushing
from treadle.recorder import trace
from treadle.tensor import to_array, wide

__all__ = ["Mismatch", "Structure", "check", "generate", "instances"]

# Name of a size -> shapes of the leaves: a vector, a matrix, a row of it.
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "small": ((7,), (5, 7), (7,)),
    "other": ((9,), (4, 9), (9,)),
    "one": ((1,), (1, 1), (1,)),
    "zero": ((0,), (3, 0), (0,)),
    "large": ((70_000,), (280, 250), (250,)),
}
DTYPES = [T.float32, T.float32, T.float64, T.float16, T.bfloat16, T.int64, T.int32, T.int8, T.uint8, T.bool]
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-4, "float64": 1e-9}


class Mismatch(AssertionError):
    """Two runs of a program differ."""


@dataclass
class Step:
    """`name` of a step on the values numbered `args`; `makes`: it gives a new value (else it writes to the first)."""

    name: str
    args: tuple[int, ...]
    param: Any
    makes: bool


@dataclass
class Structure:
    """Leaves (dtype, which shape), steps, which values are exact, and whether a backward follows."""

    seed: int
    leaves: list[tuple[Any, int]]
    sizes: list[str]
    backward: bool
    steps: list[Step] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"structure {self.seed}, sizes {', '.join(self.sizes)}{', backward' if self.backward else ''}"]
        lines += [f"  v{k} = leaf {d!r} of shape {which}" for k, (d, which) in enumerate(self.leaves)]
        n = len(self.leaves)
        for step in self.steps:
            text = f"{step.name}({', '.join(f'v{a}' for a in step.args)}; {step.param})"
            lines.append(f"  v{n} = {text}{'' if self.exact[n] else '  ~'}" if step.makes else f"  {text}")
            n += step.makes
        return "\n".join(lines)


# ---- generation ------------------------------------------------------------------------------------------------------


def generate(seed: int) -> Structure:
    """The structure of `seed`. Steps are tried on lazy tensors of every size, which say whether they are valid."""
    rng = np.random.default_rng(seed)
    backward = bool(rng.integers(3) == 0)
    leaves = [(DTYPES[rng.integers(len(DTYPES))], k % 3) for k in range(3)]
    if backward:
        leaves[rng.integers(2)] = (T.float32 if rng.integers(2) else T.float64, int(rng.integers(2)))
    sizes = ["small", "other", "large", *(s for s in ("one", "zero") if rng.integers(3))]
    made = Structure(seed, leaves, sizes, backward, exact=[True] * len(leaves))
    worlds = {s: [T.zeros(SIZES[s][which], dtype=d) for d, which in leaves] for s in sizes}
    groups = list(range(len(leaves)))  # which values share memory
    wanted, tries = int(rng.integers(5, 16)), 0
    while len(made.steps) < wanted and tries < 400:
        tries += 1
        name = _NAMES[rng.integers(len(_NAMES))]
        _try_step(rng, made, name, worlds, groups)
    trace.state.trace = trace.Trace(0)  # nothing of this runs
    return made


_NAMES = [name for name, kind in STEPS.items() for _ in range(kind.weight)]


def _try_step(
    rng: np.random.Generator, made: Structure, name: str, worlds: dict[str, list[Any]], groups: list[int]
) -> None:
    kind = STEPS[name]
    first = worlds[made.sizes[0]]
    args = tuple(_pick(rng, len(first)) for _ in range(kind.arity))
    if not all(_fits(c, first[a].dtype) for c, a in zip(kind.accepts, args)):
        return
    if kind.decides and not all(made.exact[a] for a in args):
        return
    param = kind.draw(rng) if kind.draw else None
    results = {}
    try:
        for size, values in worlds.items():
            results[size] = kind.run(param, *(values[a] for a in args))
    except (RuntimeError, IndexError, ValueError):
        return
    exact = all(made.exact[a] for a in args) and (kind.exact or not first[args[0]].dtype.is_floating)
    if kind.writes:
        made.steps.append(Step(name, args, param, False))
        for k, g in enumerate(groups):
            if g == groups[args[0]]:
                made.exact[k] = made.exact[k] and exact
        return
    shapes = {s: tuple(r.shape) for s, r in results.items()}
    if sum(np.prod(s) for s in shapes.values()) > 300_000:
        return
    made.steps.append(Step(name, args, param, True))
    made.exact.append(exact)
    groups.append(groups[args[0]] if kind.view else max(groups) + 1)
    for size, values in worlds.items():
        values.append(results[size])


def _pick(rng: np.random.Generator, count: int) -> int:
    """A value, later ones more often: programs become deep."""
    return int(count - 1 - min(rng.geometric(0.35) - 1, count - 1)) if rng.integers(3) else int(rng.integers(count))


def _fits(category: str, dtype: Any) -> bool:
    found = "f" if dtype.is_floating else "b" if dtype is T.bool else "i"
    return found in category


# ---- runs ------------------------------------------------------------------------------------------------------------


def inputs(structure: Structure, size: str, seed: int) -> list[np.ndarray]:
    """Leaves: multiples of 1/4 and small integers, so that ties and zeros come up."""
    rng = np.random.default_rng([structure.seed, seed])
    found = []
    for dtype, which in structure.leaves:
        a = rng.integers(-16, 17, SIZES[size][which])
        found.append(a / 4 if dtype.is_floating else a)
    return found


@dataclass
class Outcome:
    values: list[np.ndarray]
    dtypes: list[Any]
    grads: list[np.ndarray]


def execute(structure: Structure, arrays: list[np.ndarray], forced: bool) -> Outcome:
    """Run the steps; all values at the end, and gradients of the leaves."""
    wide_of = {True: np.float64, False: np.int64}
    pairs = zip(structure.leaves, arrays)
    values = [T.tensor(a.astype(wide_of[d.is_floating])).to(d) for (d, _), a in pairs]
    T.realize(*values)
    leaves = []
    if structure.backward:
        for k, v in enumerate(values):
            if v.dtype in (T.float32, T.float64):
                leaves.append(v.requires_grad_())
                values[k] = v * 1
    for step in structure.steps:
        found = STEPS[step.name].run(step.param, *(values[a] for a in step.args))
        if step.makes:
            values.append(found)
        if forced:
            (found if step.makes else values[step.args[0]]).realize()
    grads = []
    if leaves:
        ends = [v for v in values if v.requires_grad]
        total = sum((_weighted(v) for v in ends), start=T.zeros((), dtype=T.float64))
        if total.requires_grad:
            total.backward()
            grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    kept = values[len(structure.leaves) :]
    if not forced:
        T.flush()
    return Outcome([_array(v) for v in kept], [v.dtype for v in kept], [_array(g) for g in grads])


def _weighted(v: Any) -> Any:
    """A sum with weights that differ between elements, bounded."""
    n = v.numel()
    weights = T.arange(n, dtype=T.float64).reshape(v.shape) % 7 - 3
    return (v.double() * weights).sum() / max(n, 1)


def _array(v: Any) -> np.ndarray:
    return np.array(wide(to_array(v.detach()), v.dtype))


@contextmanager
def evaluated_in_numpy() -> Iterator[list[tuple[Any, list[np.ndarray], list[np.ndarray]]]]:
    """Every program that runs is evaluated in NumPy first; collects (step, NumPy's results, compiled results)."""
    runs: list[tuple[Any, list[np.ndarray], list[np.ndarray]]] = []
    original: Callable = flushing.run_step

    def both(step: Any, buffers: list[Any], scalars: list[Any], bindings: dict[str, int]) -> list[Any]:
        leaves = len(buffers)
        plain = Interpreted(run_pipeline(step.function, "expand-grad,decompose", Context()), leaves)
        arrays = [[_of(b, t, bindings) for b, t in zip(plain.run(buffers, scalars, bindings), step.types)]]
        made = original(step, buffers, scalars, bindings)
        arrays.append([_of(b, t, bindings) for b, t in zip(made, step.types)])
        runs.append((step, *arrays))
        return made

    flushing.run_step = both
    try:
        yield runs
    finally:
        flushing.run_step = original


def _of(buffer: Any, type_: Any, bindings: dict[str, int]) -> np.ndarray:
    return np.array(wide(buffer.array(type_.dtype.numpy, list(type_.concrete_shape(bindings))), type_.dtype))


# ---- comparison ------------------------------------------------------------------------------------------------------


def compare(what: str, a: np.ndarray, b: np.ndarray, dtype: str, exact: bool, scale: float) -> None:
    """Raises Mismatch."""
    if a.shape != b.shape:
        raise Mismatch(f"{what}: shapes {a.shape} and {b.shape}")
    if exact or a.dtype.kind != "f":
        same = (a == b) | ((a != a) & (b != b))
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            raise Mismatch(f"{what}: {int((~same).sum())} of {a.size} elements differ, at {at}: {a[at]} and {b[at]}")
        return
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    limit = TOLERANCE[dtype] * max(1.0, scale, float(np.abs(x[finite]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        off = np.where(finite, np.abs(x - y) > limit, False) | (np.isnan(x) != np.isnan(y))
    # An inexact value at a kink (clamp, relu) may take the other slope, one near an overflow may overflow.
    if off.sum() > a.size / 500:
        at = tuple(np.argwhere(off)[0])
        raise Mismatch(
            f"{what}: {int(off.sum())} of {a.size} elements differ by over {limit:.3g}, at {at}: {a[at]} and {b[at]}"
        )


def check(structure: Structure, size: str, seed: int, numpy_too: bool = True) -> None:
    """Run an instance in all ways. Raises Mismatch with the program's text."""
    arrays = inputs(structure, size, seed)
    try:
        with evaluated_in_numpy() if numpy_too else _nothing() as runs:
            fused = execute(structure, arrays, False)
        for step, wanted, got in runs:
            _compare_program(structure, step, wanted, got)
        unfused = execute(structure, arrays, True)
        first = len(structure.leaves)
        scale = _largest(unfused.values)
        for k, (a, b, d) in enumerate(zip(fused.values, unfused.values, unfused.dtypes)):
            name = _coarsest(structure, a) if d.is_floating else d.name
            compare(f"v{first + k} fused and unfused", a, b, name, structure.exact[first + k], scale)
        if len(fused.grads) != len(unfused.grads):
            raise Mismatch("gradients are missing")
        for k, (a, b) in enumerate(zip(fused.grads, unfused.grads)):
            compare(f"gradient {k} fused and unfused", a, b, _coarsest(structure, a), False, scale)
    except Exception as error:
        raise Mismatch(f"{type(error).__name__}: {error}\nsize {size}, inputs {seed} of\n{structure}") from error


def _compare_program(structure: Structure, step: Any, wanted: list[np.ndarray], got: list[np.ndarray]) -> None:
    """Compiled results against NumPy's; exact where everything is."""
    everything = all(structure.exact) and not structure.backward
    scale = _largest(wanted)
    for k, (w, g, t) in enumerate(zip(wanted, got, step.types)):
        name = _coarsest(structure, w) if w.dtype.kind == "f" else t.dtype.name
        compare(f"result {k} in NumPy and compiled", w, g, name, everything, scale)


def _largest(arrays: list[np.ndarray]) -> float:
    """The largest finite magnitude among floats."""
    return max((float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in arrays if a.dtype.kind == "f"), default=0.0)


def _coarsest(structure: Structure, a: np.ndarray) -> str:
    """The dtype of the largest tolerance that takes part: a wide result may come from halves."""
    names = [d.name for d, _ in structure.leaves if d.is_floating] + [
        s.param.name for s in structure.steps if s.name == "cast" and s.param.is_floating
    ]
    if not all(d.is_floating for d, _ in structure.leaves):
        names.append("float32")  # what division and sine make of integers
    return max([*names, "float32" if a.dtype.itemsize < 8 else "float64"], key=TOLERANCE.__getitem__)


@contextmanager
def _nothing() -> Iterator[list]:
    yield []


def instances(structure: Structure) -> list[tuple[str, int]]:
    """(size, seed of the inputs) of the ten runs of a structure: literal sizes, then general programs."""
    sizes = structure.sizes
    extra = [s for s in ("one", "zero") if s in sizes]
    plan = ["small", "small", "other", "large", *extra, "small", "other", "other", "small", "large", "small"]
    return [(s, k) for k, s in enumerate(plan[:10])]


def run(count: int, seed: int) -> Iterator[tuple[int, float, Mismatch | None]]:
    """Run `count` programs; of each structure its seed, the seconds it took, and what failed."""
    for k in range(seed, seed + -(-count // 10)):
        start, failure = time.perf_counter(), None
        structure = generate(k)
        for size, inputs_seed in instances(structure):
            try:
                check(structure, size, inputs_seed, numpy_too=inputs_seed < 6)
            except Mismatch as found:
                failure = found
                break
        yield k, time.perf_counter() - start, failure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="programs (ten of each structure)")
    parser.add_argument("--seed", type=int, default=0, help="of the first structure")
    parser.add_argument("--structure", action="store_true", help="print the structure of --seed and run only it")
    parser.add_argument("--slow", type=float, default=20, help="name structures that take longer, in seconds")
    options = parser.parse_args()
    if options.structure:
        print(generate(options.seed))
    start, failures = time.perf_counter(), 0
    for seed, seconds, failure in run(10 if options.structure else options.count, options.seed):
        if seconds > options.slow:
            print(f"structure {seed} took {seconds:.0f} s", flush=True)
        if failure is not None:
            failures += 1
            print(f"{failure}\n", flush=True)
    print(f"{failures} structures failed in {time.perf_counter() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
