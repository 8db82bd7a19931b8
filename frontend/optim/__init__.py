"""Optimizers, learning-rate schedules and weight averaging."""

from treadle.optim import lr_scheduler as lr_scheduler
from treadle.optim import swa_utils as swa_utils
from treadle.optim.adadelta import Adadelta
from treadle.optim.adagrad import Adagrad
from treadle.optim.adam import Adam, AdamW
from treadle.optim.adamax import Adamax
from treadle.optim.asgd import ASGD
from treadle.optim.lbfgs import LBFGS
from treadle.optim.nadam import NAdam
from treadle.optim.optimizer import Optimizer
from treadle.optim.radam import RAdam
from treadle.optim.rmsprop import RMSprop
from treadle.optim.rprop import Rprop
from treadle.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]
