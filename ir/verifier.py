"""Checks that a Function is well-formed: SSA, levels, types, symbols, and the rules of ir/loops.py and ir/kernels.py.

`verify(fn)` raises VerificationError, which names the op, its operands' types and the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from treadle.ir.core import REGISTRY, Block, Function, Level, Op, Value
from treadle.ir.dtypes import bool_
from treadle.ir.kernels import Contraction, Fused
from treadle.ir.loops import (
    COMBINERS,
    Affine,
    Check,
    For,
    If,
    IndexCast,
    IndexConst,
    IndexDiv,
    IndexMin,
    IndexMod,
    Load,
    LoopContract,
    Store,
)
from treadle.ir.ops.base import Composite
from treadle.ir.ops.control import Call
from treadle.ir.printer import print_op
from treadle.ir.scalar import ScalarBitcast, ScalarCast, ScalarConst
from treadle.ir.substitute import symbols_in, used_symbols
from treadle.ir.types import INDEX, BufferType, IndexType, ScalarType, TensorType, Type

__all__ = ["VerificationError", "verify"]

I1 = ScalarType(bool_)
FUSED_KINDS = ("loops", "scatter", "scan")
LOOP_KINDS = ("serial", "parallel", "vector")
INDEX_ARITHMETIC = (IndexConst, Affine, IndexDiv, IndexMod, IndexMin)
# Graph ops that a kernel's region may not hold although they are not composites.
NOT_PRIMITIVE = frozenset({"graph.call", "graph.grad", "graph.leaf", "graph.stop_gradient"})


class VerificationError(Exception):
    """A Function breaks a rule of the IR."""


def verify(fn: Function) -> None:
    """Raise VerificationError where `fn` is not well-formed."""
    _Verifier(fn).run()


class _Verifier:
    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.defined: set[Value] = set()
        self.loops: list[For] = []  # the enclosing loops, outermost first
        self.indices: set[Value] = set()  # top-level indices that depend on constants and symbols only

    def fail(self, message: str, op: Op | None = None) -> NoReturn:
        where = f"\n  in {print_op(op)}" if op is not None else ""
        line = f"\n  at {op.loc}" if op is not None and op.loc is not None else ""
        raise VerificationError(f"{self.fn.level.value}.func @{self.fn.name}: {message}{where}{line}")

    def run(self) -> None:
        fn = self.fn
        if len(set(fn.symbols)) != len(fn.symbols):
            self.fail(f"symbols {fn.symbols} are declared twice")
        undeclared = [s for s in used_symbols(fn.body) if s not in fn.symbols]
        if undeclared:
            self.fail(f"symbol {undeclared[0]} is used and not declared ({self.first_use(undeclared[0])})")
        self.signature()
        if fn.level is Level.LOOP:
            self.top_level()
        self.block(fn.body, set())

    def first_use(self, name: str) -> str:
        for v in self.fn.params:
            if name in symbols_in(v.type):
                return f"parameter {v!r}"
        for op in self.fn.ops:
            if name in used_symbols(Block((), (op,))):
                return print_op(op)
        return ""

    def signature(self) -> None:
        fn = self.fn
        if fn.level is not Level.LOOP:
            for v in (*fn.params, *fn.returns):
                if not isinstance(v.type, TensorType):
                    self.fail(f"a value of type {v.type} at the boundary of a {fn.level.value} function")
            return
        if fn.returns:
            self.fail("a loop function returns nothing")
        buffers = [v for v in fn.params if isinstance(v.type, BufferType)]
        sizes = [v for v in fn.params if isinstance(v.type, IndexType)]
        if [*buffers, *sizes] != list(fn.params):
            self.fail("parameters of a loop function are buffers, then its sizes")
        if len(sizes) != len(fn.symbols):
            self.fail(f"{len(sizes)} size parameters for {len(fn.symbols)} symbols")
        for v in buffers:
            if v.type.space != "global":  # type: ignore[attr-defined]
                self.fail(f"parameter {v!r} is not in global memory")

    # Blocks ----------------------------------------------------------------------------------------------------------

    def define(self, values: Iterable[Value], scope: set[Value], op: Op | None) -> None:
        for v in values:
            if v in self.defined:
                self.fail(f"{v!r} is defined twice", op)
            self.defined.add(v)
            scope.add(v)

    def block(self, block: Block, outer: set[Value], owner: Op | None = None) -> None:
        scope = set(outer)
        self.define(block.params, scope, owner)
        for op in block.ops:
            for v in op.operands:
                if v not in scope:
                    self.fail(f"operand {v!r} is not defined before its use", op)
            self.op(op, scope)
            self.define(op.results, scope, op)
        for v in block.yields:
            if v not in scope:
                self.fail(f"{v!r} is returned and not defined", owner)

    def op(self, op: Op, scope: set[Value]) -> None:
        operation = op.operation
        if REGISTRY.get(operation.name) is not type(operation):
            self.fail(f"{operation.name!r} is not a registered operation", op)
        if operation.level is not self.fn.level:
            self.fail(f"{operation.name} does not belong at the {self.fn.level.value} level", op)
        self.types(op, self.inferred(op))
        if self.fn.level is Level.LOOP:
            _RULES.get(type(operation), _Verifier.leaf)(self, op, scope)
        elif self.fn.level is Level.KERNEL:
            self.kernel(op)
        elif op.regions:
            self.fail("a graph op has no regions", op)
        elif isinstance(operation, Call):
            verify(operation.callee)

    def inferred(self, op: Op) -> tuple[Type, ...]:
        if isinstance(op.operation, Fused | Contraction):
            return tuple(v.type for region in op.regions for v in region.yields)
        try:
            return tuple(op.operation.infer(*(v.type for v in op.operands)))
        except Exception as error:
            message = f"{op.operation.name} rejects its operands: {type(error).__name__}: {error}"
            try:
                self.fail(message, op)
            except VerificationError as failure:
                raise failure from error

    def types(self, op: Op, inferred: tuple[Type, ...]) -> None:
        recorded = tuple(v.type for v in op.results)
        if inferred != recorded:
            wanted, found = (f"({', '.join(map(str, ts))})" for ts in (inferred, recorded))
            self.fail(f"results have types {found} where {wanted} are inferred", op)

    # Kernel level ----------------------------------------------------------------------------------------------------

    def kernel(self, op: Op) -> None:
        operation = op.operation
        if not isinstance(operation, Fused | Contraction):
            if op.regions:
                self.fail(f"{operation.name} has no regions", op)
            return
        if not op.regions:
            self.fail("a kernel needs a region", op)
        if isinstance(operation, Fused) and operation.kind not in FUSED_KINDS:
            self.fail(f"kind {operation.kind!r} is none of {', '.join(FUSED_KINDS)}", op)
        known = tuple(v.type for v in op.operands)
        for k, region in enumerate(op.regions):
            if tuple(v.type for v in region.params) != known:
                self.fail("a region's parameters must have the types of the operands", op)
            self.primitives(region, op)
            if isinstance(operation, Fused) and operation.parallel and k + 1 >= operation.parallel:
                known = (*(v.type for v in op.operands), *(v.type for r in op.regions[: k + 1] for v in r.yields))
        if isinstance(operation, Contraction):
            inside = [o for region in op.regions for o in region.ops if o.operation.name == "graph.contract"]
            if len(op.regions) != 1 or len(inside) != 1:
                self.fail("kernel.contract has one region with one graph.contract", op)

    def primitives(self, region: Block, owner: Op) -> None:
        """A region of a kernel: graph primitives that see its parameters only."""
        scope: set[Value] = set()
        self.define(region.params, scope, owner)
        for op in region.ops:
            operation = op.operation
            composite = isinstance(operation, Composite) or operation.name in NOT_PRIMITIVE
            if operation.level is not Level.GRAPH or composite or op.regions:
                self.fail(f"{operation.name} is not a graph primitive, which is what a kernel's region holds", op)
            for v in op.operands:
                if v not in scope:
                    self.fail(f"operand {v!r} is not defined in the region", op)
            self.types(op, self.inferred(op))
            self.define(op.results, scope, op)
        for v in region.yields:
            if v not in scope:
                self.fail(f"{v!r} is yielded and not defined in the region", owner)

    # Loop level ------------------------------------------------------------------------------------------------------

    def top_level(self) -> None:
        """Where the parallel domain comes from, and what may stand beside it."""
        ops = self.fn.ops
        parallel = [op for op in ops if isinstance(op.operation, For) and op.operation.kind == "parallel"]
        contracts = [op for op in ops if isinstance(op.operation, LoopContract)]
        if len(contracts) > 1 or (contracts and parallel):
            self.fail("loop.contract is the whole parallel domain of its kernel", contracts[0])
        self.indices = {v for v in self.fn.params if isinstance(v.type, IndexType)}
        for op in ops:
            if isinstance(op.operation, INDEX_ARITHMETIC) and all(v in self.indices for v in op.operands):
                self.indices.update(op.results)
            elif (parallel or contracts) and op not in parallel and op not in contracts:
                if not isinstance(op.operation, ScalarConst):
                    self.fail("beside parallel loops only index arithmetic may stand at top level", op)

    def expect(self, op: Op, *wanted: Type) -> None:
        if tuple(v.type for v in op.operands) != wanted:
            found = ", ".join(str(v.type) for v in op.operands)
            self.fail(f"takes ({', '.join(map(str, wanted))}), not ({found})", op)

    def leaf(self, op: Op, scope: set[Value]) -> None:
        """Any loop-level op without regions."""
        if op.regions:
            self.fail(f"{op.operation.name} has no regions", op)
        operation, types = op.operation, [v.type for v in op.operands]
        if isinstance(operation, Affine):
            self.expect(op, *[INDEX] * len(operation.coeffs))
        elif isinstance(operation, IndexDiv | IndexMod):
            self.expect(op, INDEX)
            if isinstance(operation.divisor, int) and operation.divisor <= 0:
                self.fail("the divisor must be positive", op)
        elif isinstance(operation, IndexMin):
            self.expect(op, INDEX, INDEX)
        elif isinstance(operation, IndexCast):
            if operation.dtype is not None:
                self.expect(op, INDEX)
            elif len(types) != 1 or not isinstance(types[0], ScalarType) or not types[0].dtype.is_integral:
                self.fail("an index is made of an integer scalar", op)
        elif isinstance(operation, Check):
            self.expect(op, I1)
            if operation.number <= 0:
                self.fail("the number of a check is positive", op)
        elif isinstance(operation, ScalarCast | ScalarBitcast):
            if len(types) != 1 or not isinstance(types[0], ScalarType):
                self.fail("takes one scalar", op)
            if isinstance(operation, ScalarBitcast) and types[0].dtype.bits != operation.dtype.bits:
                self.fail("a bitcast keeps the width", op)
        elif any(not isinstance(t, ScalarType) for t in types):
            self.fail("takes scalars", op)

    def access(self, op: Op, scope: set[Value]) -> None:
        operation = op.operation
        assert isinstance(operation, Load | Store)
        first = 1 if isinstance(operation, Load) else 2
        last = len(op.operands) - operation.masked
        if any(v.type is not INDEX for v in op.operands[first:last]):
            self.fail("addresses are made of indices", op)
        if operation.masked and op.operands[-1].type is not I1:
            self.fail(f"the mask is an i1, not {op.operands[-1].type}", op)
        if op.regions:
            self.fail(f"{operation.name} has no regions", op)

    def loop(self, op: Op, scope: set[Value]) -> None:
        operation = op.operation
        assert isinstance(operation, For)
        if operation.kind not in LOOP_KINDS:
            self.fail(f"kind {operation.kind!r} is none of {', '.join(LOOP_KINDS)}", op)
        if min(operation.width, operation.unroll, operation.step) < 1:
            self.fail("width, unroll and step are at least 1", op)
        for name in operation.combiners:
            if name not in COMBINERS:
                self.fail(f"combiner {name!r} is none of {', '.join(COMBINERS)}", op)
            if name == "last" and operation.kind != "serial":
                self.fail(f'a value carried with "last" needs a serial loop, not {operation.kind}', op)
        if operation.kind == "parallel":
            if self.loops:
                self.fail("a parallel loop stands at top level only", op)
            if operation.combiners:
                self.fail("a parallel loop carries no values", op)
            if any(v not in self.indices for v in op.operands[:2]):
                self.fail("the range of a parallel loop depends on constants and symbols only", op)
        carried = tuple(v.type for v in op.operands[2:])
        region = self.region(op, (INDEX, *carried), carried)
        self.loops.append(operation)
        self.block(region, scope, op)
        self.loops.pop()

    def branch(self, op: Op, scope: set[Value]) -> None:
        self.expect(op, I1)
        if any(loop.kind == "vector" for loop in self.loops):
            self.fail("loop.if does not stand in a vector loop: use masks or select", op)
        region = self.region(op, (), ())
        self.loops.append(For("serial"))  # what is inside is not at top level
        self.block(region, scope, op)
        self.loops.pop()

    def contract(self, op: Op, scope: set[Value]) -> None:
        o = op.operation
        assert isinstance(o, LoopContract)
        if self.loops:
            self.fail("loop.contract stands at top level only", op)
        for extents, *strides in (
            ("batch", "a_batch", "b_batch"), ("m", "a_m"), ("n", "b_n"), ("k", "a_k", "b_k"),
        ):  # fmt: skip
            for name in strides:
                if len(getattr(o, name)) != len(getattr(o, extents)):
                    self.fail(f"{name} has not one stride for each extent of {extents}", op)
        region = self.region(op, (ScalarType(o.accumulate), INDEX, INDEX, INDEX), ())
        self.loops.append(For("vector"))  # the epilogue runs with lanes
        self.block(region, scope, op)
        self.loops.pop()

    def region(self, op: Op, params: tuple[Type, ...], yields: tuple[Type, ...]) -> Block:
        if len(op.regions) != 1:
            self.fail(f"has one region, not {len(op.regions)}", op)
        (region,) = op.regions
        for name, values, wanted in (("parameters", region.params, params), ("yields", region.yields, yields)):
            if tuple(v.type for v in values) != wanted:
                found = ", ".join(str(v.type) for v in values)
                self.fail(f"the region's {name} are ({found}), not ({', '.join(map(str, wanted))})", op)
        return region


_RULES: dict[type, Callable[[_Verifier, Op, set[Value]], Any]] = {
    For: _Verifier.loop,
    If: _Verifier.branch,
    Load: _Verifier.access,
    Store: _Verifier.access,
    LoopContract: _Verifier.contract,
}
