"""The factors of what a block sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Cast, Const, Expr, Load
from weft.expr.visit import collect, occurs
from weft.tir.nodes import Block, Store

MIN_REGROUPED_BITS: Final = 32
"""Fewest bits of a float whose factors are regrouped: between them, shorter ones leave their range too easily."""


def added_term(store: Store) -> Expr | None:
    """What a store adds to an element of its buffer; None if it does not add one term."""
    value = store.value
    if not (isinstance(value, Binary) and value.op == "add"):
        return None
    terms = [t for t in (value.a, value.b) if not any(x.source is store.buffer for x in collect(t, Load))]
    return terms[0] if len(terms) == 1 else None


def factors_of_store(store: Store) -> tuple[Expr, ...]:
    """The two factors of the product that a store adds to an element of its buffer, the only one of a term that is no
    product; none if it adds nothing."""
    term = added_term(store)
    if term is None:
        return ()
    term = uncast(term)
    return (term.a, term.b) if isinstance(term, Binary) and term.op == "mul" else (term,)


def factors_of_sum(block: Block, regroup: bool = False) -> tuple[Expr, ...]:
    """The same for a block. With ``regroup``, a product or quotient of several floats has two factors that depend on
    different variables, where there are such: ``x[i] * w[k] / z[i]`` has ``x[i] / z[i]`` and ``w[k]``."""
    if not isinstance(block.body, Store):
        return ()
    if regroup:
        term = added_term(block.body)
        return () if term is None else _regrouped(term, block.iters)
    return factors_of_store(block.body)


def _regrouped(term: Expr, iters: Sequence[IterVar]) -> tuple[Expr, ...]:
    parts = _flat(term)
    if len(parts) < 3 or not term.dtype.is_float or term.dtype.bits < MIN_REGROUPED_BITS:
        return ()
    used = [frozenset(it for it in iters if occurs(it.var, e)) for e, _ in parts]
    above = [n for n, (_, below) in enumerate(parts) if not below]
    first = max(above, key=lambda n: _elements(used[n]))
    second = max(above, key=lambda n: _elements(used[n] - used[first]))
    if used[second] <= used[first]:
        return ()
    made, axes = [parts[first][0], parts[second][0]], [used[first], used[second]]
    for n, (e, below) in enumerate(parts):
        if n not in (first, second):
            to = min((0, 1), key=lambda g: (_elements(axes[g] | used[n]) / _elements(axes[g]), _elements(axes[g])))
            made[to] = made[to] / e if below else made[to] * e
            axes[to] |= used[n]
    return tuple(made)


def _flat(term: Expr) -> list[tuple[Expr, bool]]:
    """The factors of a product or quotient in order; whether each is below the line."""
    found: list[tuple[Expr, bool]] = []
    pending = [(term, False)]
    while pending:
        e, below = pending.pop()
        if isinstance(e, Binary) and not below and e.op in ("mul", "div"):
            pending += [(e.b, e.op == "div"), (e.a, False)]
        else:
            found.append((e, below))
    return found


def _elements(axes: frozenset[IterVar]) -> int:
    """The elements along all axes. Open sizes count as 2: an axis more is never free."""
    return math.prod(int(a.extent.value) if isinstance(a.extent, Const) else 2 for a in axes)


def uncast(e: Expr) -> Expr:
    """What is left of an expression without its outermost casts."""
    while isinstance(e, Cast):
        e = e.a
    return e
