"""Neural network layers in torch's `nn` API: Module, the layers, losses, `functional`, `init` and `utils`.

Everything here is written on top of the public tensor API and the recorded composites of `treadle._ops`.
"""

from . import functional, parameter
from .module import Module
from .parameter import Buffer, Parameter
