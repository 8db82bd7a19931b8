"""Recurrent layers.

The projections of the inputs are one product for the whole sequence; the recursion is one op, and a Python loop over steps
where sequences are packed or the state is projected.
Sequences are (L, N, F), or (N, L, F) with `batch_first`, or (L, F), or packed (`utils.rnn.PackedSequence`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import treadle
from treadle import Tensor, _ops

from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_State = tuple[Tensor, ...]
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _rnn_step(activate: Callable[[Tensor], Tensor], gates: Tensor, state: _State, w: dict) -> _State:
    return (activate(gates + F.linear(state[0], w["hh"], w["b_hh"])),)


def _tanh_step(gates: Tensor, state: _State, w: dict) -> _State:
    return _rnn_step(Tensor.tanh, gates, state, w)


def _relu_step(gates: Tensor, state: _State, w: dict) -> _State:
    return _rnn_step(Tensor.relu, gates, state, w)


def _lstm_step(gates: Tensor, state: _State, w: dict) -> _State:
    h, c = state
    i, f, g, o = (gates + F.linear(h, w["hh"], w["b_hh"])).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    if w.get("hr") is not None:
        h = F.linear(h, w["hr"])
    return h, c


def _gru_step(gates: Tensor, state: _State, w: dict) -> _State:
    h = state[0]
    in_r, in_z, in_n = gates.chunk(3, -1)
    h_r, h_z, h_n = F.linear(h, w["hh"], w["b_hh"]).chunk(3, -1)
    n = (in_n + (in_r + h_r).sigmoid() * h_n).tanh()
    return (n + (in_z + h_z).sigmoid() * (h - n),)


_STEPS = {"LSTM": _lstm_step, "GRU": _gru_step, "RNN_TANH": _tanh_step, "RNN_RELU": _relu_step}


class RNNBase(Module):
    """Parameters and recursion of RNN, LSTM and GRU.

    Layer k has weight_ih_l{k} (gates * H, input), weight_hh_l{k} (gates * H, out), bias_ih_l{k}, bias_hh_l{k} and, with
    `proj_size`, weight_hr_l{k}; those of the backward direction end in _reverse. All start uniform in +-1 / sqrt(H).
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_options(dropout)
        self._all_weights: list[list[str]] = []
        out = proj_size if proj_size > 0 else hidden_size
        rows = _GATES[mode] * hidden_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                width = input_size if layer == 0 else out * (2 if bidirectional else 1)
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(treadle.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([name + suffix for name in shapes])
        self.reset_parameters()

    def _check_options(self, dropout: float) -> None:
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=4,
            )
        if not isinstance(self.hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(self.hidden_size).__name__}")
        if self.hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if self.num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.proj_size and self.mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}"] + ([f"_l{layer}_reverse"] if self.bidirectional else [])

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: the layout of parameters is the compiler's."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _weights(self, suffix: str) -> dict[str, Tensor | None]:
        names = {"ih": "weight_ih", "hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh", "hr": "weight_hr"}
        return {short: getattr(self, name + suffix, None) for short, name in names.items()}

    def _state_sizes(self) -> tuple[int, ...]:
        """Widths of the parts of the state."""
        out = self.proj_size or self.hidden_size
        return (out, self.hidden_size) if self.mode == "LSTM" else (out,)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(outputs, last state): outputs (L, N, directions * H), the state's parts (layers * directions, N, H)."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        single = input.dim() == 2
        if single:
            input = input.unsqueeze(0 if self.batch_first else 1)
        if self.batch_first:
            input = input.transpose(0, 1)
        state = self._initial(hx, input, input.shape[1], single)
        if input.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        output, state = self._run(input, state, [input.shape[1]] * input.shape[0])
        if self.batch_first:
            output = output.transpose(0, 1)
        if single:
            output = output.squeeze(0 if self.batch_first else 1)
            state = tuple(part.squeeze(1) for part in state)
        return output, state if self.mode == "LSTM" else state[0]

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        sizes = [int(size) for size in input.batch_sizes]
        state = self._initial(hx, input.data, sizes[0], False)
        if hx is not None and input.sorted_indices is not None:
            state = tuple(part.index_select(1, input.sorted_indices) for part in state)
        output, state = self._run(input.data, state, sizes)
        if input.unsorted_indices is not None:
            state = tuple(part.index_select(1, input.unsorted_indices) for part in state)
        packed = PackedSequence(output, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, state if self.mode == "LSTM" else state[0]

    def _initial(self, hx: Any, input: Tensor, batch: int, single: bool) -> _State:
        """The initial state, checked, with a batch dim."""
        if input.dtype != self.weight_ih_l0.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({self.weight_ih_l0.dtype})."
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )
        count = self.num_layers * (2 if self.bidirectional else 1)
        wanted = [(count, batch, size) for size in self._state_sizes()]
        if hx is None:
            return tuple(treadle.zeros(shape, dtype=input.dtype, device=input.device) for shape in wanted)
        parts = tuple(hx) if self.mode == "LSTM" else (hx,)
        for name, part in zip(("hx", "cx") if self.mode == "LSTM" else ("hx",), parts):
            if part.dim() != (2 if single else 3):
                kind = "unbatched 2-D" if single else "batched 3-D"
                raise RuntimeError(
                    f"For {kind} input, {name} should also be {2 if single else 3}-D but got {part.dim()}-D tensor"
                )
        if single:
            parts = tuple(part.unsqueeze(1) for part in parts)
        for i, (part, shape) in enumerate(zip(parts, wanted)):
            if tuple(part.shape) != shape:
                what = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
                raise RuntimeError(f"Expected {what} size {shape}, got {list(part.shape)}")
        return parts

    def _run(self, x: Tensor, state: _State, sizes: list[int]) -> tuple[Tensor, _State]:
        """All layers over x: (L, N, F), or, packed, (sum of sizes, F), step t having `sizes[t]` rows."""
        packed = x.dim() == 2
        last: list[_State] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                w = self._weights(suffix)
                projected = F.linear(x, w["ih"], w["b_ih"])
                start = tuple(part[len(last)] for part in state)
                reverse = suffix.endswith("_reverse")
                if packed or w["hr"] is not None:
                    steps = projected.split(sizes, 0) if packed else projected.unbind(0)
                    ys, end = self._run_one(steps, start, w, reverse)
                    outputs.append(treadle.cat(ys) if packed else treadle.stack(ys))
                else:
                    y, *end = _ops.recurrence(self.mode.lower(), projected, start, w["hh"], w["b_hh"], reverse)
                    outputs.append(y)
                last.append(tuple(end))
            x = outputs[0] if len(outputs) == 1 else treadle.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(treadle.stack(parts) for parts in zip(*last))

    def _run_one(
        self, steps: tuple[Tensor, ...], start: _State, w: dict[str, Tensor | None], reverse: bool
    ) -> tuple[list[Tensor], _State]:
        """One layer in one direction; rows join or leave at the end of the batch as `steps` have more or fewer."""
        step = _STEPS[self.mode]
        rows = steps[-1 if reverse else 0].shape[0]
        state = tuple(part[:rows] for part in start) if rows != start[0].shape[0] else start
        ys: list[Tensor] = []
        ended: list[_State] = []
        for gates in reversed(steps) if reverse else steps:
            count = gates.shape[0]
            if count < rows:
                ended.append(tuple(part[count:] for part in state))
                state = tuple(part[:count] for part in state)
            elif count > rows:
                state = tuple(treadle.cat([part, first[rows:count]]) for part, first in zip(state, start))
            rows = count
            state = step(gates, state, w)
            ys.append(state[0])
        if ended:
            state = tuple(treadle.cat(parts) for parts in zip(state, *reversed(ended)))
        return ys[::-1] if reverse else ys, state

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            "RNN_" + nonlinearity.upper(),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; the gates are in the order input, forget, cell, output and the state is (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """The gated recurrent unit; the gates are in the order reset, update, new."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class RNNCellBase(Module):
    """One step of a recurrent layer: input (N, F) or (F,), state (N, H) or (H,)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(treadle.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(treadle.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(treadle.empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1 / sqrt(H)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, step: Callable, input: Tensor, hx: Any, parts: int) -> _State:
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        if hx is None:
            shape = tuple(input.shape[:-1]) + (self.hidden_size,)
            state = (treadle.zeros(shape, dtype=input.dtype, device=input.device),) * parts
        else:
            state = tuple(hx) if parts > 1 else (hx,)
        for i, part in enumerate(state):
            if part.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected hx to be 1D or 2D, got {part.dim()}D instead")
            if part.shape[-1] != self.hidden_size or tuple(part.shape[:-1]) != tuple(input.shape[:-1]):
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size or batch: got {list(part.shape)} for input "
                    f"{list(input.shape)} and hidden_size {self.hidden_size}"
                )
        gates = F.linear(input, self.weight_ih, self.bias_ih)
        return step(gates, state, {"hh": self.weight_hh, "b_hh": self.bias_hh})

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text + (f", nonlinearity={nonlinearity}" if nonlinearity != "tanh" else "")


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(_tanh_step if self.nonlinearity == "tanh" else _relu_step, input, hx, 1)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: the state and the result are (h, c)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self._step(_lstm_step, input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(_gru_step, input, hx, 1)[0]
