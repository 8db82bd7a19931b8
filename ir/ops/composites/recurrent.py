"""Recurrent layers: the recursion over a sequence as one op, unrolled when it is compiled."""

from __future__ import annotations

import numpy as np

from treadle.ir.core import Builder, Value, operation
from treadle.ir.ops.base import Composite, Sample
from treadle.ir.ops.build import Term, emit, expand, reshape
from treadle.ir.ops.composites.common import wide
from treadle.ir.ops.sampling import array

__all__ = ["Recurrence"]

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@operation("graph.recurrence")
class Recurrence(Composite):
    """One layer in one direction: operands (x [T, N, G * H], h [N, H], c [N, H] where `mode` is lstm, w [G * H, H], b [G * H]
    where `bias`) -> (outputs [T, N, H], last h, last c where `mode` is lstm).

    x holds the gates' share of the inputs. Modes lstm (gates i, f, g, o: Hochreiter and Schmidhuber 1997, with the forget
    gate of Gers et al. 2000), gru (r, z, n: Cho et al. 2014, the reset after the product), rnn_tanh and rnn_relu. `reverse`:
    from the last step to the first; the outputs stay at their steps. T is a number.
    """

    mode: str
    bias: bool = True
    reverse: bool = False

    def decompose(self, b: Builder, *operands: Value) -> tuple[Value, ...]:
        dtype = operands[0].dtype
        x, *rest = (Term(b, v).cast(dtype.compute).v for v in operands)  # halves are rounded once, at the end
        offset = rest.pop() if self.bias else None
        w = rest.pop()
        steps, n, width = x.shape
        if not isinstance(steps, int):
            raise RuntimeError(f"recurrence: a sequence of {steps} steps; their number has to be known")
        state = [Term(b, v) for v in rest]
        outputs: list[Value] = [x] * steps
        for t in reversed(range(steps)) if self.reverse else range(steps):
            ranges = {"starts": (t, 0, 0), "limits": (t + 1, n, width), "steps": (1, 1, 1)}
            gates = Term(b, reshape(b, emit(b, "slice", x, **ranges), (n, width)))
            recurrent = emit(b, "contract", state[0].v, w, lhs="nh", rhs="gh", out="ng")
            if offset is not None:
                recurrent = emit(b, "add", recurrent, expand(b, offset, recurrent.shape))
            state = self._step(b, gates, Term(b, recurrent), state)
            outputs[t] = reshape(b, state[0].v, (1, *state[0].v.shape))
        results = (Term(b, emit(b, "concat", *outputs, dim=0)), *state)
        return tuple(r.cast(dtype).v for r in results)

    def _step(self, b: Builder, gates: Term, recurrent: Term, state: list[Term]) -> list[Term]:
        """The state after a step, from the two products."""
        if self.mode == "rnn_tanh":
            return [(gates + recurrent).tanh()]
        if self.mode == "rnn_relu":
            return [(gates + recurrent).clamp_min(0)]
        if self.mode == "lstm":
            i, f, g, o = self._parts(b, gates + recurrent)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return [o.sigmoid() * c.tanh(), c]
        (r, z, new), (hr, hz, hn) = self._parts(b, gates), self._parts(b, recurrent)
        candidate = (new + (r + hr).sigmoid() * hn).tanh()
        return [candidate + (z + hz).sigmoid() * (state[0] - candidate)]

    def _parts(self, b: Builder, gates: Term) -> list[Term]:
        n, width = gates.v.shape
        size = width // GATES[self.mode]
        return [
            Term(b, emit(b, "slice", gates.v, starts=(0, k * size), limits=(n, (k + 1) * size), steps=(1, 1)))
            for k in range(GATES[self.mode])
        ]

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x, *rest = map(wide, arrays)
        offset = rest.pop() if self.bias else 0
        w = rest.pop()
        state, outputs = list(rest), [x] * len(x)
        for t in reversed(range(len(x))) if self.reverse else range(len(x)):
            state = self._numpy_step(x[t], state[0] @ w.T + offset, state)
            outputs[t] = state[0]
        return tuple(a.astype(arrays[0].dtype) for a in (np.stack(outputs), *state))

    def _numpy_step(self, gates: np.ndarray, recurrent: np.ndarray, state: list[np.ndarray]) -> list[np.ndarray]:
        def sigmoid(v: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-v))

        if self.mode.startswith("rnn"):
            total = gates + recurrent
            return [np.tanh(total) if self.mode == "rnn_tanh" else np.maximum(total, 0)]
        if self.mode == "lstm":
            i, f, g, o = np.split(gates + recurrent, 4, -1)
            c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
            return [sigmoid(o) * np.tanh(c), c]
        (r, z, new), (hr, hz, hn) = np.split(gates, 3, -1), np.split(recurrent, 3, -1)
        candidate = np.tanh(new + sigmoid(r + hr) * hn)
        return [candidate + sigmoid(z + hz) * (state[0] - candidate)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> list[Sample]:
        found = []
        for mode, gates in GATES.items():
            for name, bias, reverse in (("f8", True, False), ("f4", False, False), ("f8", False, True)):
                states = [array(rng, (2, 4), name) for _ in range(1 + (mode == "lstm"))]
                offset = [array(rng, (gates * 4,), name)] * bias
                operands = (array(rng, (3, 2, gates * 4), name), *states, array(rng, (gates * 4, 4), name), *offset)
                found.append(Sample(cls(mode, bias, reverse), operands))
        return found
