"""simplify: rewrite rules to a fixed point, common subexpressions by value numbering, dead code.

The engine is in simplify_engine.py, the rules are in simplify_rules*.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from treadle.ir.core import Block, Function, Level, Op, users
from treadle.passes import simplify_rules, simplify_rules_contract, simplify_rules_views
from treadle.passes.pipeline import Context, compiler_pass
from treadle.passes.simplify_engine import RewriteBudgetExceeded, Simplifier, most_fired

__all__ = ["remove_dead_code", "simplify"]

RULE_MODULES = (simplify_rules, simplify_rules_views, simplify_rules_contract)  # imported for what they register
MAX_ROUNDS = 20


@compiler_pass("simplify", before=Level.GRAPH, after=Level.GRAPH)
def simplify(fn: Function, context: Context | None = None, budget: str | int = 0) -> Function:
    """Apply local rewrites that keep every bit, merge equal ops, and drop what nothing reads."""
    fn = remove_dead_code(fn)
    allowed = int(budget) or 1000 + 30 * len(fn.ops)
    fired: Counter[str] = Counter()
    for _ in range(MAX_ROUNDS):
        s = Simplifier(allowed, fired, {v: len(ops) for v, ops in users(fn.body).items()}, set(fn.returns))
        before = fired.total()
        fn = remove_dead_code(s.function(fn))
        if fired.total() == before:
            return fn
    raise RewriteBudgetExceeded(f"no fixed point after {MAX_ROUNDS} rounds; {most_fired(fired)}")


def remove_dead_code(fn: Function) -> Function:
    """`fn` without pure ops whose results nothing reads."""
    live = set(fn.returns)
    kept: list[Op] = []
    for op in reversed(fn.ops):
        if not op.operation.pure or any(v in live for v in op.results):
            kept.append(op)
            live.update(op.operands)
    if len(kept) == len(fn.ops):
        return fn
    return replace(fn, body=Block(fn.params, tuple(reversed(kept)), fn.returns))
