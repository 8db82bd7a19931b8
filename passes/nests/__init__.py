"""kernel -> loop: iteration spaces, index maps and loop nests from the ops' classes. Start in kernel.py."""

from treadle.passes.nests.kernel import LoweredKernel, lower_kernel

__all__ = ["LoweredKernel", "lower_kernel"]
