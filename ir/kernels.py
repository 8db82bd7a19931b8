"""The kernel level: a Function whose ops are launches over whole tensors.

Regions hold graph-level primitives on the region's parameters; the lowering to loops derives iteration spaces and index
maps from the ops' classes.
"""

from __future__ import annotations

from treadle.ir.core import Level, Operation, operation
from treadle.ir.types import TensorType, Type

__all__ = ["Fused", "Contraction", "Host", "KernelOp"]


class KernelOp(Operation):
    """Base of launches. Result types are given by the region's yields (passed to `Builder.emit` as `types`)."""

    level = Level.KERNEL


@operation("kernel.fused")
class Fused(KernelOp):
    """One launch of one or more loop nests. One region a nest: params are the op's operands (all of them, for every
    region), yields are that nest's results; the op's results are the nests' results in order. Nests of one op are
    independent of each other. In a region every value is used at the same point of the nest's outer space by its readers
    (see passes/fuse.py for the legality rule).
    """

    kind: str = "loops"  # loops | scatter | scan: which lowering
    # 0: the regions are independent. Otherwise the first `parallel` are, and the others run after them, in order, on one
    # thread; their parameters are the operands, then the results of all regions before.
    parallel: int = 0


@operation("kernel.contract")
class Contraction(KernelOp):
    """A contraction with prologue and epilogue in one region: View chains and casts on operands, one `graph.contract`,
    then elementwise ops (and their other operands) on its result."""


@operation("kernel.host")
class Host(KernelOp):
    """A function of the runtime, by name, on contiguous buffers: `tasks` calls with integer arguments `ints`."""

    function: str
    result_types: tuple[TensorType, ...]
    ints: tuple
    tasks: object  # Dim

    def infer(self, *types: Type) -> tuple[Type, ...]:
        return self.result_types
