"""Sequences of different lengths in one tensor: padded, or packed.

A packed batch holds the sequences by steps, the longest sequence first: step t has the rows of the `batch_sizes[t]`
sequences that are longer than t.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import treadle
from treadle import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation` (n,)."""
    return None if permutation is None else permutation.argsort()


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """data (sum of lengths, *), batch_sizes (longest,), and the permutations to and from order of length."""

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            data, batch_sizes = data  # torch of old took one pair
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data converted as by `Tensor.to`."""
        return PackedSequence(
            self.data.to(*args, **kwargs), self.batch_sizes, self.sorted_indices, self.unsorted_indices
        )

    def cpu(self) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a CUDA device."""
        return self.to(treadle.device("cuda"), *args, **kwargs)

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(treadle.float64)

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(treadle.float32)

    def half(self) -> PackedSequence:
        """As float16."""
        return self.to(treadle.float16)

    def long(self) -> PackedSequence:
        """As int64."""
        return self.to(treadle.int64)

    def int(self) -> PackedSequence:
        """As int32."""
        return self.to(treadle.int32)


def _length_list(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (T, N, *), or (N, T, *) with `batch_first`, by the lengths of the N sequences.

    Raises RuntimeError for lengths that are not positive, or not falling while `enforce_sorted`.
    """
    if batch_first:
        input = input.transpose(0, 1)
    counts = _length_list(lengths)
    order = None
    if not enforce_sorted:
        by_length = sorted(range(len(counts)), key=lambda i: -counts[i])
        order = treadle.tensor(by_length, dtype=treadle.int64)
        counts = [counts[i] for i in by_length]
        input = input.index_select(1, order)
    if len(counts) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={input.shape[1]})"
        )
    if not counts or min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in zip(counts, counts[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
            "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
            "requirement"
        )
    if counts[0] > input.shape[0]:
        raise RuntimeError(f"Expected lengths of at most {input.shape[0]}, got {counts[0]}")
    sizes = [sum(n > t for n in counts) for t in range(counts[0])]
    data = treadle.cat([input[t, :size] for t, size in enumerate(sizes)])
    return PackedSequence(data, treadle.tensor(sizes, dtype=treadle.int64), order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded (T, N, *), lengths (N,)): the inverse of packing, in the original order."""
    sizes = _length_list(sequence.batch_sizes)
    steps, batch = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but "
                f"got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    lengths = [sum(size > i for size in sizes) for i in range(batch)]
    data = sequence.data
    padded = data.new_full((steps, batch) + tuple(data.shape[1:]), padding_value)
    for t, part in enumerate(data.split(sizes, 0)):
        padded[t, : sizes[t]] = part
    lengths_tensor = treadle.tensor(lengths, dtype=treadle.int64)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths_tensor = lengths_tensor.index_select(0, sequence.unsorted_indices)
    return (padded.transpose(0, 1) if batch_first else padded), lengths_tensor


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack tensors (L_i, *) into (longest, N, *), or (N, longest, *) with `batch_first`, filled up at one side."""
    if padding_side not in ("left", "right"):
        raise RuntimeError("padding_side should be one of 'left' or 'right'")
    if not isinstance(sequences, (Tensor, Iterable)):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        fill = s.new_full((longest - s.shape[0],) + tuple(s.shape[1:]), padding_value)
        rows.append(s if s.shape[0] == longest else treadle.cat([s, fill] if padding_side == "right" else [fill, s]))
    return treadle.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, without their padding."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(padded_sequences.unbind(0), _length_list(lengths))]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of tensors (L_i, *)."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
