"""The package at which PyTorch's users expect `utils.data`, and the handles of hooks."""

from treadle.utils import data as data
from treadle.utils import hooks as hooks

__all__ = ["data", "hooks"]
