"""Loaders, collating and samplers give what PyTorch's give."""

import numpy as np
import pytest

import treadle

torch = pytest.importorskip("torch")

SAMPLES = [
    [1, 2],
    [1.0, 2.0],
    [True, False],
    [np.float32(1), np.float32(2)],
    [np.float16(1), np.float16(2)],
    [np.int8(1), np.int8(2)],
    [np.bool_(True), np.bool_(False)],
    [np.ones((2, 1), np.int32), np.zeros((2, 1), np.int32)],
    [{"a": (1, "x")}, {"a": (2, "y")}],
    [[1, [2.0]], [3, [4.0]]],
]


def plain(value):
    if hasattr(value, "numpy"):
        return str(value.dtype).split(".")[-1], value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [plain(v) for v in value]
    return value


@pytest.mark.parametrize("samples", SAMPLES, ids=[str(i) for i in range(len(SAMPLES))])
def test_collate_and_convert(samples):
    for name in ("default_collate", "default_convert"):
        got = getattr(treadle.utils.data, name)(samples)
        assert plain(got) == plain(getattr(torch.utils.data, name)(samples))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": None},
        {"sampler": [3, 1, 4]},
        {"batch_sampler": [[3, 1], [4]]},
    ],
)
def test_loader(options):
    got, want = [
        [
            plain(b)
            for b in api.utils.data.DataLoader(api.utils.data.TensorDataset(api.arange(10), api.ones(10, 2)), **options)
        ]
        for api in (treadle, torch)
    ]
    if options == {"batch_size": None}:  # single samples are converted: their tuples become lists
        got, want = [g[1] for g in got], [w[1] for w in want]
    assert got == want
