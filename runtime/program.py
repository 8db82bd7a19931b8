"""Programs as plain data: what the compiler hands to the runtime, and what the disk cache keeps.

A `ProgramSpec` refers to everything by number: slots and launches to dim-table entries, launches to kernels and slots,
kernels to object-code blobs. `load` links the code and gives the native Program that `submit` runs.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from treadle.runtime import _core, jit

__all__ = [
    "DimCode",
    "DimExpr",
    "DimTable",
    "KernelCode",
    "Launch",
    "ProgramSpec",
    "Slot",
    "SlotKind",
    "load",
]


class DimCode(enum.IntEnum):
    """Postfix code on 64-bit integers; the two PUSH codes are followed by their operand."""

    PUSH_CONST = 0
    PUSH_SYM = 1
    ADD = 2
    SUB = 3
    MUL = 4
    FLOORDIV = 5
    MOD = 6
    MAX = 7
    MIN = 8
    CEILDIV = 9


DimExpr = tuple[int, ...]


class DimTable:
    """Collects the distinct dim expressions of a program under construction; an expression's id is its position."""

    def __init__(self) -> None:
        self._ids: dict[DimExpr, int] = {}

    def add(self, code: Sequence[int]) -> int:
        """The id of a postfix expression."""
        return self._ids.setdefault(tuple(int(c) for c in code), len(self._ids))

    def const(self, value: int) -> int:
        """The id of a constant."""
        return self.add((DimCode.PUSH_CONST, value))

    def symbol(self, index: int) -> int:
        """The id of the program's symbol number `index`."""
        return self.add((DimCode.PUSH_SYM, index))

    def expressions(self) -> tuple[DimExpr, ...]:
        """All expressions, in the order of their ids: the `dims` of a ProgramSpec."""
        return tuple(self._ids)


class SlotKind(enum.IntEnum):
    """Where the memory behind a slot comes from."""

    INPUT = 0
    OUTPUT = 1
    TEMP = 2
    CONSTANT = 3
    SCALAR = 4


# By code: the numbers of the core's ScalarType.
_SCALAR_TYPES = ("i1", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Slot:
    """A numbered piece of memory that launches point at."""

    kind: SlotKind
    # Which input, output, constant or scalar; 0 for a temp.
    index: int
    # Dim id. An input may be larger.
    nbytes: int
    # A temp's place in the arena (dim id), a multiple of 64.
    offset: int = -1
    # The input whose memory an output takes over when the caller donates it; -1 for none.
    alias: int = -1
    # The kernels expect the aliased input's contents in the output: copied there when its memory is not taken over.
    read_first: bool = False


@dataclass(frozen=True)
class KernelCode:
    """A function with the kernel ABI: `symbol` of an object-code blob, or a host function of that name."""

    symbol: str
    # Which blob; -1 for a host function.
    blob: int = -1
    # Messages by check number. A message may begin with "IndexError: ", "ValueError: " or "ZeroDivisionError: ".
    checks: tuple[tuple[int, str], ...] = ()
    # Of a block, where the blob is PTX; 0 for functions of this machine.
    threads: int = 0


@dataclass(frozen=True)
class Launch:
    """One call of a kernel over `tasks` tasks, cut into chunks of at least `grain`."""

    kernel: int
    slots: tuple[int, ...]
    # Dim ids, like the next three.
    ints: tuple[int, ...]
    tasks: int
    grain: int
    scratch: int
    # Index into the program's locations.
    location: int
    # Dim id: how many of the last tasks run after the others, in order, on one thread; -1 for none.
    tail: int = -1


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program. Immutable, hashable and independent of this process."""

    name: str
    inputs: int
    outputs: int
    dims: tuple[DimExpr, ...] = ()
    slots: tuple[Slot, ...] = ()
    launches: tuple[Launch, ...] = ()
    kernels: tuple[KernelCode, ...] = ()
    locations: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    # Types of the runtime scalars, as in the IR's text: "f32", "i64", ...
    scalars: tuple[str, ...] = ()
    # Dim id of the size of the temps' arena; -1 for no temps.
    arena: int = -1
    # Dim id of an estimate of the run's work, in elements touched; -1 for unknown. Small runs skip the worker thread.
    work: int = -1
    # Where it runs: "cpu" or "cuda:0".
    device: str = "cpu"
    # Object code, or PTX as text.
    blobs: tuple[bytes, ...] = field(default=(), repr=False)
    # Contents of the constants.
    constants: tuple[bytes, ...] = field(default=(), repr=False)

    def to_bytes(self) -> bytes:
        """The serialised form: magic, digest of the rest, length of the header, JSON header, blobs and constants."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("blobs", "constants")}
        plain["slots"] = [_row(slot) for slot in self.slots]
        plain["kernels"] = [_row(kernel) for kernel in self.kernels]
        plain["launches"] = [_row(launch) for launch in self.launches]
        plain["blob_sizes"] = [len(b) for b in self.blobs]
        plain["constant_sizes"] = [len(c) for c in self.constants]
        header = json.dumps(plain, separators=(",", ":")).encode()
        body = b"".join((struct.pack("<Q", len(header)), header, *self.blobs, *self.constants))
        return _MAGIC + hashlib.blake2b(body, digest_size=_DIGEST).digest() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> ProgramSpec:
        """Inverse of `to_bytes`; ValueError for data that is not exactly what it wrote."""
        start = len(_MAGIC) + _DIGEST
        body = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or len(body) < 8:
            raise ValueError("not a serialised program of this version")
        if hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[len(_MAGIC) : start]:
            raise ValueError("a serialised program is truncated or damaged")
        at = 8 + struct.unpack_from("<Q", body)[0]
        plain = json.loads(body[8:at])
        pieces = []
        for size in (*plain["blob_sizes"], *plain["constant_sizes"]):
            pieces.append(body[at : at + size])
            at += size
        blobs = len(plain.pop("blob_sizes"))
        del plain["constant_sizes"]
        plain["slots"] = tuple(Slot(SlotKind(row[0]), *row[1:]) for row in plain["slots"])
        plain["kernels"] = tuple(KernelCode(*_frozen(row)) for row in plain["kernels"])
        plain["launches"] = tuple(Launch(*_frozen(row)) for row in plain["launches"])
        for name in ("dims", "locations", "symbols", "scalars"):
            plain[name] = _frozen(plain[name])
        return cls(**plain, blobs=tuple(pieces[:blobs]), constants=tuple(pieces[blobs:]))


# The last byte is the version of the format.
_MAGIC = b"treadleP\x02"
_DIGEST = 16


def _row(item: Slot | KernelCode | Launch) -> list:
    """A dataclass as a list of its fields' values."""
    return [getattr(item, f.name) for f in fields(item)]


def _frozen(value: Any) -> Any:
    """JSON's lists back to tuples."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def load(spec: ProgramSpec) -> _core.Program:
    """Links the program's code into this process. ValueError if the spec is malformed."""
    wanted: dict[int, list[str]] = {}
    for kernel in spec.kernels:
        if kernel.blob >= 0:
            wanted.setdefault(kernel.blob, []).append(kernel.symbol)
    linked = {blob: jit.link(spec.blobs[blob], symbols) for blob, symbols in wanted.items()}

    def address(kernel: KernelCode) -> int:
        if kernel.blob < 0:
            return _core.host_function_address(kernel.symbol)
        return linked[kernel.blob].address(kernel.symbol)

    return _core.Program(
        name=spec.name,
        symbols=len(spec.symbols),
        dims=spec.dims,
        slots=[(int(s.kind), s.index, s.nbytes, s.offset, s.alias, s.read_first) for s in spec.slots],
        launches=[tuple(_row(launch)) for launch in spec.launches],
        kernels=[(address(kernel), kernel.checks) for kernel in spec.kernels],
        constants=[_core.Buffer.from_bytes(c) for c in spec.constants],
        locations=spec.locations,
        inputs=spec.inputs,
        outputs=spec.outputs,
        scalars=[_SCALAR_TYPES.index(name) for name in spec.scalars],
        arena=spec.arena,
        work=spec.work,
        owner=tuple(linked.values()),
    )
