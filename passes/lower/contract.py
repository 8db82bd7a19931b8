"""Contractions: operands as strides over index groups, and the epilogue on finished sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.ir.core import Block, Value
from treadle.ir.dims import Dim
from treadle.ir.loops import LoopContract
from treadle.ir.ops.logic import Cast
from treadle.ir.types import INDEX, ScalarType
from treadle.passes.lower.index import Ix, LoopVar, is_one
from treadle.passes.lower.nest import trace_nest
from treadle.passes.lower.nodes import Apply, Load, Nest, Node, Reduce
from treadle.passes.lower.trace import Refused
from treadle.passes.lower.write import Writer, merge_axes

__all__ = ["ContractForm", "contract_form", "write_contract"]


@dataclass(frozen=True)
class ContractForm:
    """A contraction as groups of variables. `a` and `b`: loads whose addresses are affine in them."""

    nest: Nest
    fold: Reduce
    batch: tuple[LoopVar, ...]
    m: tuple[LoopVar, ...]
    n: tuple[LoopVar, ...]
    a: Load
    b: Load


def contract_form(region: Block) -> ContractForm:
    """The groups of a region with one contraction. Raises Refused where an operand's address is not affine."""
    nest = trace_nest(region)
    if len(nest.reduces) != 1:
        raise Refused("a contraction stands beside another reduction")
    (fold,) = nest.reduces
    a, b = (_operand(t) for t in fold.terms)
    in_a, in_b = _strides(a.at), _strides(b.at)
    batch: list[LoopVar] = []
    m: list[LoopVar] = []
    n: list[LoopVar] = []
    for v in nest.outer:
        (batch if v in in_a and v in in_b else n if v in in_b else m).append(v)
    form = ContractForm(nest, fold, tuple(batch), tuple(m), tuple(n), a, b)
    unit = [v for v, c in _strides(nest.stores[0].at).items() if is_one(c)]
    if unit and unit[0] in m:  # lanes run along n: what the result has in order belongs there
        form = replace(form, m=form.n, n=form.m, a=b, b=a)
    return form


def _operand(t: Node) -> Load:
    """The load behind a term; a cast on the way is done while packing."""
    if isinstance(t, Apply) and isinstance(t.op.operation, Cast):
        t = t.operands[0]
    if not isinstance(t, Load) or t.mask is not None:
        raise Refused("an operand of a contraction is computed")
    if isinstance(t.at, Ix) and any(not isinstance(a, LoopVar) for a, _ in t.at.parts):
        raise Refused("an operand of a contraction is read at addresses that are not affine")
    return t


def _strides(at: Dim) -> dict[LoopVar, Dim]:
    return {a: c for a, c in at.parts if isinstance(a, LoopVar)} if isinstance(at, Ix) else {}


def write_contract(w: Writer, region: Block, results: list[Value]) -> None:
    """Append the `loop.contract` of a region."""
    form = contract_form(region)
    k = form.fold.inner
    a, b = _strides(form.a.at), _strides(form.b.at)

    def along(strides: dict[LoopVar, Dim], group: Sequence[LoopVar]) -> tuple[Dim, ...]:
        return tuple(strides.get(v, 0) for v in group)

    def extents(group: Sequence[LoopVar]) -> tuple[Dim, ...]:
        return tuple(v.extent for v in group)

    operation = LoopContract(
        batch=extents(form.batch), m=extents(form.m), n=extents(form.n), k=extents(k),
        a_batch=along(a, form.batch), a_m=along(a, form.m), a_k=along(a, k),
        b_batch=along(b, form.batch), b_k=along(b, k), b_n=along(b, form.n),
        accumulate=form.fold.accumulate, a_offset=_offset(form.a.at), b_offset=_offset(form.b.at),
    )  # fmt: skip
    for load in (form.a, form.b):
        w.note_read(load.param, None)
    params = (Value(ScalarType(form.fold.accumulate)), Value(INDEX), Value(INDEX), Value(INDEX))
    with w.scope({}) as inner:
        w.base = len(w.scopes) - 1
        inner.found[form.fold] = params[0]
        _epilogue(w, form, params[1:], results)
        w.base = 0
    w.s.emit(operation, w.buffers[form.a.param], w.buffers[form.b.param], regions=(inner.builder.block(params, ()),))


def _offset(at: Dim) -> Dim:
    return at.const if isinstance(at, Ix) else at


def _epilogue(w: Writer, form: ContractForm, indices: Sequence[Value], results: list[Value]) -> None:
    """Scalars and stores of one element."""
    forms = _forms(form)
    for group, at in zip((form.batch, form.m, form.n), indices, strict=True):
        axes = merge_axes(group, forms)
        w.add_axes(axes)
        w.unravel_axes(axes, at)
    values = [w.scalar(s.node) for s in form.nest.stores]
    for s, value in zip(form.nest.stores, values, strict=True):
        w.store_result(results[s.result], s.at, value)


def _forms(form: ContractForm) -> list[Dim]:
    """Index expressions of the epilogue: what the operands read is no concern of its loops."""
    operands = {form.a.at, form.b.at}
    return [f for f in form.nest.forms if f not in operands or any(f == s.at for s in form.nest.stores)]
