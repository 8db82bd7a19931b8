"""Recurrent layers against their equations."""

import numpy as np
import pytest

import treadle
from tests.frontend.nn.numeric import rand
from treadle import nn
from treadle.nn.utils import rnn as sequences


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(mode, x, state, w):
    gi, gh = x @ w["weight_ih"].T + w["bias_ih"], state[0] @ w["weight_hh"].T + w["bias_hh"]
    if mode == "RNN":
        return (np.tanh(gi + gh),)
    if mode == "LSTM":
        i, f, g, o = np.split(gi + gh, 4, -1)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (ir, iz, i_n), (hr, hz, hn) = np.split(gi, 3, -1), np.split(gh, 3, -1)
    z = sigmoid(iz + hz)
    return ((1 - z) * np.tanh(i_n + sigmoid(ir + hr) * hn) + z * state[0],)


def run(mode, m, x, layers, directions):
    """The whole network, step by step."""
    parts = 2 if mode == "LSTM" else 1
    last = []
    for layer in range(layers):
        outs = []
        for d in range(directions):
            suffix = f"_l{layer}" + ("_reverse" if d else "")
            w = {n: getattr(m, n + suffix).detach().numpy() for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            state = tuple(np.zeros((x.shape[1], m.hidden_size)) for _ in range(parts))
            ys = {}
            for t in reversed(range(len(x))) if d else range(len(x)):
                state = step(mode, x[t], state, w)
                ys[t] = state[0]
            outs.append(np.stack([ys[t] for t in range(len(x))]))
            last.append(state)
        x = np.concatenate(outs, -1)
    return x, [np.stack(p) for p in zip(*last)]


def states(mode, state):
    return [s.detach().numpy() for s in (state if mode == "LSTM" else (state,))]


@pytest.mark.parametrize("mode", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layers, both", [(1, False), (2, True)])
def test_equations(mode, layers, both):
    m = getattr(nn, mode)(3, 4, num_layers=layers, bidirectional=both).double()
    x = rand(5, 2, 3)
    y, state = m(treadle.tensor(x))
    wanted, wanted_state = run(mode, m, x, layers, 1 + both)
    np.testing.assert_allclose(y.detach().numpy(), wanted, atol=1e-12)
    for got, want in zip(states(mode, state), wanted_state):
        np.testing.assert_allclose(got, want, atol=1e-12)
    one, _ = m(treadle.tensor(x[:, 0]))
    np.testing.assert_allclose(one.detach().numpy(), wanted[:, 0], atol=1e-12)


@pytest.mark.parametrize("mode", ["RNN", "LSTM", "GRU"])
def test_packed_sequences_match_each_alone(mode):
    m = getattr(nn, mode)(3, 4, num_layers=2, bidirectional=True).double()
    rows = [treadle.tensor(rand(n, 3, seed=n)) for n in (2, 5, 3)]
    packed = sequences.pack_sequence(rows, enforce_sorted=False)
    out, state = m(packed)
    padded, lengths = sequences.pad_packed_sequence(out)
    assert lengths.tolist() == [2, 5, 3] and tuple(padded.shape) == (5, 3, 8)
    for i, row in enumerate(rows):
        y, s = m(row)
        np.testing.assert_allclose(padded[: len(row), i].detach().numpy(), y.detach().numpy(), atol=1e-12)
        assert not np.any(padded[len(row) :, i].detach().numpy())
        for got, want in zip(states(mode, state), states(mode, s)):
            np.testing.assert_allclose(got[:, i], want, atol=1e-12)


@pytest.mark.parametrize("mode", ["RNN", "LSTM", "GRU"])
def test_cell_is_one_step(mode):
    m = getattr(nn, mode)(3, 4)
    cell = getattr(nn, mode + "Cell")(3, 4)
    cell.load_state_dict({k[:-3]: v for k, v in m.state_dict().items()})
    x = treadle.tensor(rand(1, 2, 3).astype(np.float32))
    y, _ = m(x)
    h = cell(x[0])
    h = h[0] if mode == "LSTM" else h
    np.testing.assert_allclose(h.detach().numpy(), y[0].detach().numpy(), atol=1e-6)


def test_given_state_continues():
    m = nn.LSTM(3, 4, batch_first=True).double()
    x = treadle.tensor(rand(2, 6, 3))
    whole, _ = m(x)
    first, state = m(x[:, :4])
    second, _ = m(x[:, 4:], state)
    np.testing.assert_allclose(treadle.cat([first, second], 1).detach().numpy(), whole.detach().numpy(), atol=1e-12)


def test_gradients_reach_everything():
    m = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2, dropout=0.1)
    y, _ = m(treadle.ones(3, 2, 3))
    assert tuple(y.shape) == (3, 2, 4)
    y.sum().backward()
    assert all(p.grad is not None for p in m.parameters())
    assert [n for n, _ in m.named_parameters()][:5] == [
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
        "weight_hr_l0",
    ]


def test_zero_batch_and_zero_length():
    m = nn.LSTM(2, 3)
    y, (h, c) = m(treadle.zeros(4, 0, 2))
    assert tuple(y.shape) == (4, 0, 3) and tuple(h.shape) == tuple(c.shape) == (1, 0, 3)
    with pytest.raises(RuntimeError):
        m(treadle.zeros(0, 2, 2))


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: nn.RNN(2, 3)(treadle.ones(4)), ValueError),
        (lambda: nn.GRU(2, 3)(treadle.ones(4, 1, 3)), RuntimeError),
        (lambda: nn.GRU(2, 3)(treadle.ones(4, 1, 2), treadle.zeros(2, 1, 3)), RuntimeError),
        (lambda: nn.GRU(2, 3)(treadle.ones(4, 1, 2), treadle.zeros(1, 3)), RuntimeError),
        (lambda: nn.RNN(2, 3, nonlinearity="x"), ValueError),
        (lambda: nn.LSTM(2, 3, proj_size=3), ValueError),
        (lambda: nn.GRU(2, 0), ValueError),
        (lambda: nn.GRU(2, 3, dropout=2.0), ValueError),
        (lambda: nn.LSTMCell(2, 3)(treadle.ones(1, 3)), RuntimeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_padding_helpers():
    rows = [treadle.tensor([1.0, 2.0]), treadle.tensor([3.0])]
    assert sequences.pad_sequence(rows, batch_first=True, padding_value=9.0).tolist() == [[1, 2], [3, 9]]
    assert sequences.pad_sequence(rows, batch_first=True, padding_side="left").tolist() == [[1, 2], [0, 3]]
    packed = sequences.pack_sequence(rows)
    assert packed.batch_sizes.tolist() == [2, 1] and packed.data.tolist() == [1, 3, 2]
    assert [r.tolist() for r in sequences.unpack_sequence(packed)] == [[1, 2], [3]]
    with pytest.raises(RuntimeError, match="enforce_sorted"):
        sequences.pack_sequence(rows[::-1])
    with pytest.raises(RuntimeError):
        sequences.pad_sequence([])
