"""Ops defined by others: each states its decomposition, and a derivative where a better one is known."""

from treadle.ir.ops.composites.activations import Elu, Gelu, LeakyRelu, Relu, Silu, Softplus, Trigamma
from treadle.ir.ops.composites.attention import Attention, Dropout
from treadle.ir.ops.composites.convolution import Conv, ConvTranspose, Linear
from treadle.ir.ops.composites.losses import CrossEntropy
from treadle.ir.ops.composites.normalisation import LayerNorm, LogSoftmax, LogSumExp, Mean, RmsNorm, Softmax, Var
from treadle.ir.ops.composites.optimizers import AdamUpdate, SgdUpdate
from treadle.ir.ops.composites.pooling import AvgPool, MaxPool
from treadle.ir.ops.composites.recurrent import Recurrence

__all__ = [
    "AdamUpdate", "Attention", "AvgPool", "Conv", "ConvTranspose", "CrossEntropy", "Dropout", "Elu", "Gelu",
    "LayerNorm", "LeakyRelu", "Linear", "LogSoftmax", "LogSumExp", "MaxPool", "Mean", "Recurrence", "Relu", "RmsNorm", "SgdUpdate",
    "Silu", "Softmax", "Softplus", "Trigamma", "Var",
]  # fmt: skip
