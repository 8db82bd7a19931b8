"""kernel -> loop. A region is traced to a graph of scalars (trace.py, nest.py), scheduled, and written (loops.py).

Start in kernel.py.
"""

from treadle.passes.lower.kernel import LoweredKernel, lower_kernel

__all__ = ["LoweredKernel", "lower_kernel"]
