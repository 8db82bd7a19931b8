"""Rules of simplify for contractions: transposes and broadcasts become letters."""

from __future__ import annotations

from treadle.ir.core import Op
from treadle.ir.ops.contraction import Contract
from treadle.ir.ops.views import Permute
from treadle.passes.simplify_engine import Result, Simplifier, rule
from treadle.passes.simplify_rules_views import unexpanded


@rule(Contract)
def permuted_operand(s: Simplifier, op: Op) -> Result:
    """A permuted operand is the operand with its letters permuted."""
    contract = op.operation
    assert isinstance(contract, Contract)
    letters, operands, changed = [contract.lhs, contract.rhs], list(op.operands), False
    for i, v in enumerate(op.operands):
        inner = s.producer(v, Permute)
        if inner is not None:
            at = {d: letter for d, letter in zip(inner.operation.dims, letters[i], strict=True)}  # type: ignore[attr-defined]
            letters[i] = "".join(at[d] for d in range(len(at)))
            operands[i], changed = inner.operands[0], True
    return s.emit(Contract(letters[0], letters[1], contract.out), *operands) if changed else None


@rule(Contract)
def repeated_batch(s: Simplifier, op: Op) -> Result:
    """A batch dim along which an operand only repeats need not be one of its dims."""
    contract = op.operation
    assert isinstance(contract, Contract)
    letters = [contract.lhs, contract.rhs]
    for i, v in enumerate(op.operands):
        drop = [d for d, letter in enumerate(letters[i]) if letter in letters[1 - i] and letter in contract.out]
        drop = [d for d in drop if unexpanded(s, v, [d]) is not None]
        narrow = unexpanded(s, v, drop) if drop else None
        if narrow is not None:
            operands = list(op.operands)
            operands[i] = narrow
            letters[i] = "".join(letter for d, letter in enumerate(letters[i]) if d not in drop)
            return s.emit(Contract(letters[0], letters[1], contract.out), *operands)
    return None


@rule(Permute)
def permuted_result(s: Simplifier, op: Op) -> Result:
    """A permuted contraction writes its result in the other order, if nothing else reads it."""
    inner = s.producer(op.operands[0], Contract)
    if inner is None or not s.used_once(op.operands[0]):
        return None
    contract = inner.operation
    assert isinstance(contract, Contract)
    out = "".join(contract.out[d] for d in op.operation.dims)  # type: ignore[attr-defined]
    return s.emit(Contract(contract.lhs, contract.rhs, out), *inner.operands)
