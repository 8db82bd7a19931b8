"""Random numbers: counter-based Philox. A draw depends on (seed, number of the draw, element) only, fused or not."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ir.ops.logic import BitsToUniform
from treadle.ir.ops.sources import RandomBits
from treadle.ops.arguments import sizes
from treadle.ops.creation import tensor
from treadle.ops.elementwise import cast, where
from treadle.ops.registration import PUBLIC, assign, public
from treadle.recorder.build import RuntimeScalar, default_dtype
from treadle.recorder.trace import record
from treadle.recorder.tree import intern_operation
from treadle.storage import check_writable
from treadle.tensor import Tensor, as_device, tensor_method

__all__ = ["Generator", "default_generator", "initial_seed", "manual_seed", "next_draw", "seed"]


class Generator:
    """A stream of random numbers: a 64-bit seed and the number of the next draw."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = as_device(device)
        self._seed = 67280421310721
        self._draw = 0
        self._lock = threading.Lock()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` from its beginning."""
        if not isinstance(seed, int):
            seed = int(seed)
        self._seed, self._draw = seed & (2**64 - 1), 0
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        """Start a stream with a seed from the clock; returns it."""
        self.manual_seed(time.time_ns() & (2**53 - 1))
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor of 16 bytes."""
        raw = self._seed.to_bytes(8, "little") + self._draw.to_bytes(8, "little")
        return tensor(list(raw), dtype=dtypes.uint8)

    def set_state(self, new_state: Tensor) -> None:
        raw = bytes(new_state.tolist())
        if len(raw) != 16:
            raise RuntimeError("the generator state is a uint8 tensor of 16 bytes")
        self._seed, self._draw = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    def take_draw(self) -> tuple[int, int]:
        """(seed, number of the draw), counting it."""
        with self._lock:
            draw = self._draw
            self._draw += 1
        return self._seed, draw


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the clock; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """Seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """State of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore the default generator."""
    default_generator.set_state(new_state)


for _f in (manual_seed, seed, initial_seed, get_rng_state, set_rng_state):
    PUBLIC[_f.__name__] = _f


def next_draw(generator: Generator | None) -> tuple[RuntimeScalar, RuntimeScalar]:
    """(seed, draw number) of the next draw, as arguments of the program."""
    s, d = (generator or default_generator).take_draw()
    return RuntimeScalar(s if s < 2**63 else s - 2**64), RuntimeScalar(d)


def bits(shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    """Uniform int32 bit patterns."""
    return record(RandomBits(shape, "cpu"), *next_draw(generator))


_UNIFORM = {d: intern_operation(BitsToUniform(d)) for d in (dtypes.float32, dtypes.float64)}


def uniform(shape: tuple[int, ...], dtype: DType, generator: Generator | None) -> Tensor:
    """Uniform on [0, 1) in a floating dtype."""
    if not dtype.is_floating:
        raise RuntimeError(f"\"check_uniform_bounds\" not implemented for '{dtype.name}'")
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    return cast(record(_UNIFORM[wide], bits(shape, generator)), dtype)


def normal_values(shape: tuple[int, ...], dtype: DType, generator: Generator | None) -> Tensor:
    """Standard normal by Box and Muller (1958)."""
    if not dtype.is_floating:
        raise RuntimeError(f"\"normal_kernel_cpu\" not implemented for '{dtype.name}'")
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    u, v = uniform(shape, wide, generator), uniform(shape, wide, generator)
    radius = ((1.0 - u).log() * -2.0).sqrt()
    return cast(radius * (v * (2 * math.pi)).cos(), dtype)


def _sampler(name: str, draw: Any, doc: str) -> None:
    def f(
        *size: Any,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **kw: Any,
    ) -> Tensor:
        as_device(device)
        shape = sizes((kw.pop("size"),) if "size" in kw and not size else size)
        out = draw(shape, dtype or default_dtype(), generator)
        return out.requires_grad_() if requires_grad else out

    def like(
        input: Tensor,
        *,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        layout: Any = None,
        generator: Generator | None = None,
    ) -> Tensor:
        as_device(device)
        out = draw(tuple(input.shape), dtype or input.dtype, generator)
        return out.requires_grad_() if requires_grad else out

    f.__name__, like.__name__ = name, f"{name}_like"
    f.__doc__, like.__doc__ = doc, f"{doc[:-1]}, with the shape and dtype of `input`."
    public(method=False)(f)
    public(method=False, out=False)(like)


_sampler("rand", uniform, "Uniform numbers on [0, 1).")
_sampler("randn", normal_values, "Standard normal numbers.")


def integers(low: int, high: int, shape: tuple[int, ...], dtype: DType, generator: Generator | None) -> Tensor:
    """Uniform integers in [low, high): the high part of a 32-bit draw times the range (a 63-bit one for large ranges)."""
    span = high - low
    if span <= 0:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    word = cast(bits(shape, generator), dtypes.int64) & 0xFFFFFFFF
    if span <= 2**31:
        found = (word * span) >> 32
    else:
        found = ((word << 31) | (cast(bits(shape, generator), dtypes.int64) & 0x7FFFFFFF)) % span
    return cast(found + low, dtype)


@public(method=False)
def randint(
    *args: Any,
    low: int | None = None,
    high: int | None = None,
    size: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Uniform integers in [low, high) of a shape: randint(high, size) or randint(low, high, size)."""
    as_device(device)
    given = list(args)
    if size is None and given and not isinstance(given[-1], int):
        size = given.pop()
    if len(given) == 2:
        low, high = given
    elif len(given) == 1:
        high, low = (given[0], 0) if high is None else (high, given[0])
    out = integers(int(low or 0), int(high), sizes((size,)), dtype or dtypes.int64, generator)  # type: ignore[arg-type]
    return out.requires_grad_() if requires_grad else out


@public(method=False, out=False)
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    layout: Any = None,
) -> Tensor:
    """randint with the shape and dtype of `input`."""
    low, high = (0, low) if high is None else (low, high)
    return integers(int(low), int(high), tuple(input.shape), dtype or input.dtype, None)


@public(method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A random permutation of 0..n-1: the order of n random 63-bit keys."""
    as_device(device)
    high = cast(bits((n,), generator), dtypes.int64) & 0x7FFFFFFF
    keys = (high << 32) | (cast(bits((n,), generator), dtypes.int64) & 0xFFFFFFFF)
    return cast(keys.argsort(), dtype or dtypes.int64)


def _check_std(std: Any) -> None:
    if isinstance(std, int | float) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


@public(method=False)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, dtype: DType | None = None,
    device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers with the given means and standard deviations (tensors or numbers)."""
    _check_std(std)
    if size is None:
        shape = PUBLIC["broadcast_shapes"](*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
        kind = next(x.dtype for x in (mean, std) if isinstance(x, Tensor))
    else:
        shape, kind = sizes((size,)), dtype or default_dtype()
    out = normal_values(tuple(shape), kind, generator) * std + mean
    return out.requires_grad_() if requires_grad else out


@public(inplace=False)
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """1 with probability `input` (or p), else 0."""
    chance = input if p is None else p
    kind = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    return cast(uniform(tuple(input.shape), kind, generator) < chance, input.dtype)


@public()
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with probability proportional to each row of `input`."""
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype!r}")
    rows = input if input.ndim == 2 else input.unsqueeze(0)
    n, k = rows.shape
    if k > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > k:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if replacement:
        edges = rows.double().cumsum(1)
        draws = uniform((n, num_samples), dtypes.float64, generator) * edges[:, -1:]
        out = (draws.unsqueeze(2) >= edges.unsqueeze(1)).sum(2).clamp(max=k - 1)
    else:  # the largest keys of an exponential race (Efraimidis and Spirakis 2006)
        race = (1.0 - uniform((n, k), dtypes.float64, generator)).log() / rows.double()
        out = where(rows > 0, race, float("-inf")).topk(num_samples, 1)[1]
    return out if input.ndim == 2 else out.squeeze(0)


def _filler(name: str, draw: Any, doc: str) -> None:
    def f(self: Tensor, *args: Any, generator: Generator | None = None, **kw: Any) -> Tensor:
        check_writable(self)
        return assign(self, draw(self, generator, *args, **kw))

    f.__name__ = name
    f.__doc__ = doc
    tensor_method(f)


def _compute_type(t: Tensor) -> DType:
    return t.dtype if t.dtype.is_floating else default_dtype()


def _draw_uniform(t: Tensor, g: Any, from_: float = 0.0, to: float = 1.0, **kw: Any) -> Tensor:
    from_ = kw.get("from", kw.get("a", from_))
    to = kw.get("b", to)
    if from_ > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}")
    return uniform(tuple(t.shape), t.dtype, g) * (to - from_) + from_


def _draw_random(t: Tensor, g: Any, from_: int = 0, to: int | None = None, **kw: Any) -> Tensor:
    if to is None and from_:
        from_, to = 0, from_
    top = {"f": 2**24, "b": 2}.get(t.dtype.kind, 2 ** (t.dtype.bits - (t.dtype.kind == "i")) - 1)
    return integers(int(kw.get("from", from_)), int(to or min(top, 2**62)), tuple(t.shape), t.dtype, g)


_filler("uniform_", _draw_uniform, "Filled with uniform numbers on [from, to).")


def _draw_normal(t: Tensor, g: Any, mean: float = 0.0, std: float = 1.0) -> Tensor:
    _check_std(std)
    return normal_values(tuple(t.shape), t.dtype, g) * std + mean


_filler("normal_", _draw_normal, "Filled with normal numbers.")
_filler("random_", _draw_random, "Filled with uniform integers in [from, to).")
_filler(
    "bernoulli_",
    lambda t, g, p=0.5: cast(uniform(tuple(t.shape), dtypes.float32, g) < p, t.dtype),
    "Filled with 0 and 1.",
)
_filler(
    "exponential_",
    lambda t, g, lambd=1.0: -(1.0 - uniform(tuple(t.shape), _compute_type(t), g)).log() / lambd,
    "Filled with exponential numbers.",
)
