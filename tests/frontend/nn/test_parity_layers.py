"""Layers against torch's: printing, state_dict keys, outputs, gradients, running statistics."""

import numpy as np
import pytest

import treadle
from treadle import nn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

_rng = np.random.default_rng(0)


def r(*shape):
    return _rng.normal(size=shape).astype(np.float32)


def i(high, *shape):
    return _rng.integers(0, high, shape)


def softmax(x):
    e = np.exp(x)
    return e / e.sum(1, keepdims=True)


def _layer_cases():
    """(name, constructor arguments, options, inputs, options of the call)."""
    for name in (
        "ReLU SELU SiLU Mish Hardswish Hardsigmoid Hardtanh ReLU6 LeakyReLU ELU CELU GELU GLU Softplus "
        "Hardshrink Softshrink PReLU Sigmoid Tanh LogSigmoid Softsign Tanhshrink Identity"
    ).split():
        yield name, (), {}, (r(3, 4, 6),), {}
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        yield name, (1,), {}, (r(3, 4, 6),), {}
    yield "Softmax2d", (), {}, (r(2, 3, 4, 5),), {}
    yield "Threshold", (0.1, 2.0), {}, (r(3, 4),), {}
    yield "Linear", (4, 5), {}, (r(3, 4),), {}
    yield "Linear", (4, 5, False), {}, (r(4),), {}
    yield "Bilinear", (3, 4, 5), {}, (r(6, 3), r(6, 4)), {}
    yield "Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}, (r(2, 4, 9),), {}
    for mode in ("zeros", "reflect", "replicate", "circular"):
        yield "Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": mode}, (r(2, 4, 9, 8),), {}
        yield "Conv2d", (4, 6, (2, 3)), {"padding": "same", "padding_mode": mode}, (r(2, 4, 9, 8),), {}
    yield "Conv3d", (2, 3, (2, 3, 1)), {}, (r(2, 2, 5, 5, 5),), {}
    yield "Conv2d", (4, 6, 3), {"bias": False}, (r(4, 9, 8),), {}
    yield "ConvTranspose1d", (4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (r(2, 4, 9),), {}
    yield ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "groups": 2}, (r(2, 4, 5, 6),), {"output_size": (12, 14)})
    yield "ConvTranspose3d", (2, 3, 2), {"stride": 2}, (r(1, 2, 3, 4, 5),), {}


def _norm_and_pool_cases():
    for n, shape in (("1d", (5, 4)), ("1d", (5, 4, 3)), ("2d", (3, 4, 5, 6)), ("3d", (2, 4, 2, 3, 4))):
        for options in ({}, {"momentum": None}, {"affine": False, "track_running_stats": False}, {"bias": False}):
            yield "BatchNorm" + n, (4,), options, (r(*shape),), {}
    for n, shape in (("1d", (5, 4, 3)), ("2d", (3, 4, 5, 6)), ("3d", (2, 4, 2, 3, 4)), ("2d", (4, 5, 6))):
        for options in ({}, {"affine": True, "track_running_stats": True}):
            yield "InstanceNorm" + n, (4,), options, (r(*shape),), {}
    yield "LayerNorm", ((4, 6),), {}, (r(3, 4, 6),), {}
    yield "LayerNorm", (6,), {"bias": False}, (r(3, 4, 6),), {}
    yield "RMSNorm", (6,), {}, (r(3, 4, 6),), {}
    yield "GroupNorm", (2, 4), {}, (r(3, 4, 6, 2),), {}
    yield "LocalResponseNorm", (3,), {}, (r(3, 4, 6, 2),), {}
    for k in (1, 2, 3):
        shape = (2, 3, *(7, 8, 9)[:k])
        for name in ("MaxPool", "AvgPool"):
            yield f"{name}{k}d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (r(*shape),), {}
        yield f"LPPool{k}d", (2, 2), {}, (r(*shape),), {}
        yield f"AdaptiveAvgPool{k}d", (4,), {}, (r(*shape),), {}
        yield f"AdaptiveMaxPool{k}d", (4,), {"return_indices": True}, (r(*shape),), {}
        yield f"MaxPool{k}d", (2,), {"return_indices": True}, (r(*shape),), {}
        for name in ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad"):
            yield f"{name}{k}d", (1,), {}, (r(*shape),), {}
        yield f"ConstantPad{k}d", (2, 3.5), {}, (r(*shape),), {}
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        yield "Upsample", (), {"scale_factor": 1.7, "mode": mode}, (r(2, 3, 5, 5),), {}
    yield "UpsamplingBilinear2d", ((7, 9),), {}, (r(2, 3, 5, 5),), {}
    yield "PixelShuffle", (2,), {}, (r(2, 8, 3, 3),), {}
    yield "PixelUnshuffle", (2,), {}, (r(2, 8, 4, 4),), {}
    yield "Unfold", (2,), {}, (r(2, 3, 5, 5),), {}
    yield "Fold", ((5, 5), 2), {}, (r(2, 12, 16),), {}
    yield "Flatten", (), {}, (r(2, 3, 4),), {}


def _loss_cases():
    a, b = r(5, 4), r(5, 4)
    signs = (i(2, 5, 4) * 2 - 1).astype(np.float32)
    for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
        yield name, (), {}, (a, b), {}
    yield "BCELoss", (), {}, (1 / (1 + np.exp(-a)), 1 / (1 + np.exp(-b))), {}
    yield "BCEWithLogitsLoss", (), {}, (a, 1 / (1 + np.exp(-b))), {}
    yield "CrossEntropyLoss", (), {"label_smoothing": 0.1, "ignore_index": 2}, (a, i(4, 5)), {}
    yield "CrossEntropyLoss", (), {}, (r(2, 4, 3, 3), i(4, 2, 3, 3)), {}
    yield "CrossEntropyLoss", (), {"label_smoothing": 0.1}, (a, softmax(b)), {}
    yield "NLLLoss", (), {}, (np.log(softmax(a)), i(4, 5)), {}
    yield "KLDivLoss", (), {"reduction": "batchmean"}, (np.log(softmax(a)), softmax(b)), {}
    yield "PoissonNLLLoss", (), {"full": True}, (a, np.exp(b)), {}
    yield "GaussianNLLLoss", (), {"full": True}, (a, b, np.exp(b)), {}
    yield "HingeEmbeddingLoss", (), {}, (a, signs), {}
    yield "CosineEmbeddingLoss", (0.1,), {}, (a, b, signs[:, 0]), {}
    yield "MarginRankingLoss", (0.1,), {}, (a, b, signs), {}
    yield "SoftMarginLoss", (), {}, (a, signs.astype(np.int64)), {}
    yield "MultiMarginLoss", (2,), {}, (a, i(4, 5)), {}
    yield "MultiLabelMarginLoss", (), {}, (a, np.array([[1, 2, -1, 0]] * 5)), {}
    yield "MultiLabelSoftMarginLoss", (), {}, (a, i(2, 5, 4).astype(np.float32)), {}
    yield "TripletMarginLoss", (), {"swap": True}, (a, b, r(5, 4)), {}
    yield "CosineSimilarity", (), {}, (a, b), {}
    yield "PairwiseDistance", (), {}, (a, b), {}


def _sequence_cases():
    for name in ("RNN", "LSTM", "GRU"):
        for options in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}):
            yield name, (4, 5), options, (r(3, 6, 4),), {}
        yield name + "Cell", (4, 5), {}, (r(3, 4),), {}
    yield "RNN", (4, 5, 2, "relu"), {}, (r(3, 6, 4),), {}
    yield "LSTM", (4, 5), {"proj_size": 2, "num_layers": 2, "bidirectional": True}, (r(3, 6, 4),), {}
    e = r(5, 2, 8)
    for options in ({}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"batch_first": True}):
        for call in ({}, {"need_weights": False}, {"average_attn_weights": False}):
            yield "MultiheadAttention", (8, 2), options, (e, e, e), call
    padding = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=bool)
    yield (
        "MultiheadAttention",
        (8, 2),
        {"kdim": 6, "vdim": 7},
        (r(4, 2, 8), r(5, 2, 6), r(5, 2, 7)),
        {"key_padding_mask": padding, "attn_mask": r(4, 5)},
    )
    yield (
        "MultiheadAttention",
        (8, 2),
        {},
        (r(4, 2, 8), r(5, 2, 8), r(5, 2, 8)),
        {"key_padding_mask": padding, "attn_mask": r(4, 4, 5), "need_weights": False},
    )
    for options in ({}, {"norm_first": True, "batch_first": True}, {"bias": False, "activation": "gelu"}):
        yield "TransformerEncoderLayer", (8, 2, 16, 0.0), options, (e,), {}
        yield "TransformerDecoderLayer", (8, 2, 16, 0.0), options, (e, r(5, 2, 8)), {}
        yield "Transformer", (8, 2, 2, 2, 16, 0.0), options, (e, r(5, 2, 8)), {}
    yield "Embedding", (10, 3), {"padding_idx": -3}, (i(10, 4, 2),), {}
    for mode in ("sum", "mean", "max"):
        yield "EmbeddingBag", (10, 3), {"mode": mode, "padding_idx": 2}, (i(10, 4, 2),), {}
        yield "EmbeddingBag", (10, 3), {"mode": mode}, (i(10, 8), np.array([0, 3, 3, 6])), {}


CASES = [*_layer_cases(), *_norm_and_pool_cases(), *_loss_cases(), *_sequence_cases()]


def tensors(module, arrays):
    """The arrays as tensors of `module`, one for each distinct array; floats ask for gradients."""
    made = {}
    for a in arrays:
        if id(a) not in made:
            t = module.tensor(a)
            made[id(a)] = t.requires_grad_() if a.dtype.kind == "f" else t
    return [made[id(a)] for a in arrays]


def flat(out):
    if isinstance(out, (tuple, list)):
        return [t for part in out for t in flat(part)]
    return [] if out is None else [out]


def close(got, want, what):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_layer(case, training):
    name, args, options, inputs, call = CASES[case]
    torch.manual_seed(case)
    theirs = getattr(torch.nn, name)(*args, **options).train(training)
    mine = getattr(nn, name)(*args, **options).train(training)
    assert repr(mine) == repr(theirs)
    state = theirs.state_dict()
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict({k: treadle.tensor(v.numpy()) for k, v in state.items()})

    def run(module, layer):
        given = tensors(module, inputs)
        extra = {k: module.tensor(v) if isinstance(v, np.ndarray) else v for k, v in call.items()}
        outs = flat(layer(*given, **extra))
        rng = np.random.default_rng(1)
        wanted = [o for o in outs if o.requires_grad]
        if wanted:
            weights = [module.tensor(rng.normal(size=tuple(o.shape)).astype(np.float32)) for o in wanted]
            sum((o * w).sum() for o, w in zip(wanted, weights)).backward()
        return given, outs

    given, outs = run(treadle, mine)
    their_given, their_outs = run(torch, theirs)
    assert len(outs) == len(their_outs)
    for got, want in zip(outs, their_outs):
        assert tuple(got.shape) == tuple(want.shape)
        close(got, want, "output")
    for got, want in zip(given, their_given):
        if want.grad is not None:
            close(got.grad, want.grad, "gradient of an input")
    for (key, got), (_, want) in zip(mine.named_parameters(), theirs.named_parameters()):
        assert (got.grad is None) == (want.grad is None), key
        if want.grad is not None:
            close(got.grad, want.grad, key)
    for key, want in theirs.state_dict().items():
        close(mine.state_dict()[key], want, key)
