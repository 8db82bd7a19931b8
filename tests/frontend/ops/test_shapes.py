"""Shape functions against NumPy, and the errors they raise."""

import numpy as np
import pytest

import treadle as T

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

CASES = {
    "reshape": (lambda x: x.reshape(4, -1), lambda a: a.reshape(4, -1)),
    "reshape list": (lambda x: T.reshape(x, [6, 4]), lambda a: a.reshape(6, 4)),
    "flatten": (lambda x: x.flatten(1), lambda a: a.reshape(2, 12)),
    "flatten middle": (lambda x: T.flatten(x, 0, 1), lambda a: a.reshape(6, 4)),
    "ravel": (lambda x: x.ravel(), np.ravel),
    "unflatten": (lambda x: x.unflatten(2, (2, -1)), lambda a: a.reshape(2, 3, 2, 2)),
    "permute": (lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "permute negative": (lambda x: x.permute((-1, 0, 1)), lambda a: a.transpose(2, 0, 1)),
    "transpose": (lambda x: x.transpose(0, -1), lambda a: a.swapaxes(0, 2)),
    "swapaxes": (lambda x: x.swapaxes(0, 1), lambda a: a.swapaxes(0, 1)),
    "mT": (lambda x: x.mT, lambda a: a.swapaxes(1, 2)),
    "movedim": (lambda x: x.movedim((0, 1), (2, 0)), lambda a: np.moveaxis(a, (0, 1), (2, 0))),
    "squeeze": (lambda x: x[:1].squeeze(), lambda a: a[0]),
    "squeeze dim": (lambda x: x[:1, :1].squeeze(1), lambda a: a[:1, 0]),
    "squeeze other": (lambda x: x.squeeze(0), lambda a: a),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda a: a[..., None]),
    "expand": (lambda x: x[:, :1].expand(-1, 5, -1), lambda a: np.repeat(a[:, :1], 5, 1)),
    "expand new": (lambda x: x.expand(2, 2, 3, 4), lambda a: np.stack([a, a])),
    "broadcast_to": (lambda x: T.broadcast_to(x[0, 0], (3, 4)), lambda a: np.broadcast_to(a[0, 0], (3, 4))),
    "narrow": (lambda x: x.narrow(2, 1, 2), lambda a: a[:, :, 1:3]),
    "select": (lambda x: x.select(1, -1), lambda a: a[:, -1]),
    "flip": (lambda x: x.flip(0, 2), lambda a: np.flip(a, (0, 2))),
    "fliplr": (lambda x: T.fliplr(x), np.fliplr),
    "roll": (lambda x: x.roll((1, -2), (0, 2)), lambda a: np.roll(a, (1, -2), (0, 2))),
    "roll flat": (lambda x: x.roll(5), lambda a: np.roll(a, 5)),
    "rot90": (lambda x: T.rot90(x, 1, (1, 2)), lambda a: np.rot90(a, 1, (1, 2))),
    "rot270": (lambda x: T.rot90(x, -1, (0, 2)), lambda a: np.rot90(a, -1, (0, 2))),
    "repeat": (lambda x: x.repeat(2, 1, 1, 3), lambda a: np.tile(a, (2, 1, 1, 3))),
    "tile": (lambda x: T.tile(x, (2,)), lambda a: np.tile(a, 2)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), lambda a: np.repeat(a, 2, 1)),
    "repeat counts": (
        lambda x: x.repeat_interleave(T.tensor([0, 2, 1]), 1), lambda a: np.repeat(a, [0, 2, 1], 1),
    ),
    "cat": (lambda x: T.cat([x, x[:, :1]], 1), lambda a: np.concatenate([a, a[:, :1]], 1)),
    "cat negative": (lambda x: T.cat((x, x), dim=-1), lambda a: np.concatenate([a, a], -1)),
    "cat empty": (lambda x: T.cat([T.zeros(0), x[0, 0]]), lambda a: a[0, 0]),
    "stack": (lambda x: T.stack([x, x], 1), lambda a: np.stack([a, a], 1)),
    "hstack": (lambda x: T.hstack([x[0], x[1]]), lambda a: np.hstack([a[0], a[1]])),
    "vstack": (lambda x: T.vstack([x[0, 0], x[0, 1]]), lambda a: np.vstack([a[0, 0], a[0, 1]])),
    "diagonal": (lambda x: x.diagonal(1, 1, 2), lambda a: a.diagonal(1, 1, 2)),
    "diagonal below": (lambda x: x.diagonal(-1, 0, 2), lambda a: a.diagonal(-1, 0, 2)),
    "diag": (lambda x: T.diag(x[0, 0], 1), lambda a: np.diag(a[0, 0], 1)),
    "diag of matrix": (lambda x: T.diag(x[0]), lambda a: np.diag(a[0])),
    "diag_embed": (lambda x: T.diag_embed(x[0, :, :2])[1], lambda a: np.diag(a[0, 1, :2])),
    "unfold": (lambda x: x.unfold(2, 2, 1)[1, 2], lambda a: np.lib.stride_tricks.sliding_window_view(a[1, 2], 2)),
    "atleast_2d": (lambda x: T.atleast_2d(x[0, 0]), lambda a: a[:1, 0]),
    "trace": (lambda x: x[0].trace(), lambda a: np.trace(a[0])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    f, reference = CASES[name]
    got, want = f(T.tensor(A)), reference(A)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize(
    "pieces, want",
    [
        (lambda x: x.split(3, 1), [3, 3, 1]), (lambda x: x.split([2, 5], 1), [2, 5]),
        (lambda x: x.chunk(3, 1), [3, 3, 1]),
        (lambda x: T.chunk(x, 9, 1), [1] * 7), (lambda x: x.tensor_split(3, 1), [3, 2, 2]),
        (lambda x: x.tensor_split((1, 4), 1), [1, 3, 3]), (lambda x: T.split(x, 7, 1), [7]),
    ],
)  # fmt: skip
def test_pieces(pieces, want):
    a = np.arange(14).reshape(2, 7)
    found = pieces(T.tensor(a))
    assert isinstance(found, tuple)
    assert [p.shape[1] for p in found] == want
    np.testing.assert_array_equal(np.concatenate([p.numpy() for p in found], 1), a)


def test_unbind():
    assert [p.tolist() for p in T.tensor([[1, 2], [3, 4]]).unbind(1)] == [[1, 3], [2, 4]]


ERRORS = [
    (lambda x: x.reshape(5, 5), RuntimeError, r"shape '\[5, 5\]' is invalid for input of size 24"),
    (lambda x: x.reshape(-1, -1), RuntimeError, "only one dimension can be inferred"),
    (lambda x: x.reshape(-1, 7), RuntimeError, "is invalid for input of size 24"),
    (lambda x: x.permute(0, 1), RuntimeError, "number of dimensions"),
    (lambda x: x.permute(0, 0, 1), RuntimeError, "duplicate dims"),
    (lambda x: x.transpose(0, 3), IndexError, r"expected to be in range of \[-3, 2\], but got 3"),
    (lambda x: x.T.view(-1), RuntimeError, "view size is not compatible"),
    (lambda x: x.expand(2, 3), RuntimeError, "number of sizes provided"),
    (lambda x: x.expand(2, 3, 5), RuntimeError, r"size of the tensor \(5\) must match the existing size \(4\)"),
    (lambda x: x.narrow(0, 1, 2), RuntimeError, r"start \(1\) \+ length \(2\) exceeds dimension size \(2\)"),
    (lambda x: x.select(0, 2), IndexError, "index 2 out of range"),
    (lambda x: T.cat([x, x[0]]), RuntimeError, "same number of dimensions"),
    (lambda x: T.cat([x, x[:, :1]]), RuntimeError, "Sizes of tensors must match except in dimension 0"),
    (lambda x: T.cat([]), RuntimeError, "non-empty"),
    (lambda x: T.stack([x, x[:1]]), RuntimeError, "stack expects each tensor to be equal size"),
    (lambda x: x.split([1, 2, 3]), RuntimeError, "sum exactly to 2"),
    (lambda x: x.chunk(0), RuntimeError, "greater than 0"),
    (lambda x: x.repeat(2), RuntimeError, "can not be smaller"),
    (lambda x: x.flip(0, 0), RuntimeError, "multiple times"),
    (lambda x: x.diagonal(0, 1, 1), RuntimeError, "cannot be identical"),
    (lambda x: x.unfold(0, 5, 1), RuntimeError, "maximum size for tensor at dimension 0 is 2 but size is 5"),
    (lambda x: x.as_strided((5, 5), (5, 1)), RuntimeError, "out of bounds for storage of size 96"),
    (lambda x: x.unsqueeze(5), IndexError, r"range of \[-4, 3\], but got 5"),
    (lambda x: x.unflatten(2, (3, 3)), RuntimeError, "multiply up to the size"),
    (lambda x: T.ones(2, 2).t().t().view(3), RuntimeError, "invalid for input of size 4"),
]


@pytest.mark.parametrize("bad, kind, message", ERRORS)
def test_errors(bad, kind, message):
    with pytest.raises(kind, match=message):
        bad(T.tensor(A))


@pytest.mark.parametrize(
    "make, strides, offset, contiguous",
    [
        (lambda x: x, (12, 4, 1), 0, True),
        (lambda x: x.T, (1, 4, 12), 0, False),
        (lambda x: x[1], (4, 1), 12, True),
        (lambda x: x[:, 1:, ::2], (12, 4, 2), 4, False),
        (lambda x: x[:, :1].expand(2, 5, 4), (12, 0, 1), 0, False),
        (lambda x: x.permute(1, 0, 2), (4, 12, 1), 0, False),
        (lambda x: x.reshape(6, 4)[:, 1], (4,), 1, False),
        (lambda x: x.T.contiguous(), (6, 2, 1), 0, True),
        (lambda x: x[0].diagonal(), (5,), 0, False),
        (lambda x: x.unsqueeze(0), (24, 12, 4, 1), 0, True),
        (lambda x: x.unfold(2, 2, 2), (12, 4, 2, 1), 0, True),
    ],
)
def test_strides(make, strides, offset, contiguous):
    t = make(T.tensor(A))
    assert (t.stride(), t.storage_offset(), t.is_contiguous()) == (strides, offset, contiguous)


def test_size_type():
    s = T.zeros(2, 3).shape
    assert s == (2, 3) and isinstance(s, tuple) and s.numel() == 6
    assert repr(s) == "treadle.Size([2, 3])"
    assert isinstance(s[:1], T.Size) and isinstance(s + (1,), T.Size)
    assert T.broadcast_shapes((2, 1), (3,)) == (2, 3)
