"""The factors of what a block sums."""

from __future__ import annotations

from weft.expr.nodes import Binary, Cast, Expr, Load
from weft.expr.visit import collect
from weft.tir.nodes import Block, Store


def factors_of_sum(block: Block) -> tuple[Expr, ...]:
    """The two factors of each product that a block adds to its result, its only other term where it is no product; none
    if it adds nothing."""
    store = block.body
    if not isinstance(store, Store):
        return ()
    return factors_of_store(store)


def factors_of_store(store: Store) -> tuple[Expr, ...]:
    """The same for a store that adds to an element of its buffer."""
    value = store.value
    if not (isinstance(value, Binary) and value.op == "add"):
        return ()
    terms = [t for t in (value.a, value.b) if not any(x.source is store.buffer for x in collect(t, Load))]
    if len(terms) != 1:
        return ()
    term = uncast(terms[0])
    return (term.a, term.b) if isinstance(term, Binary) and term.op == "mul" else (term,)


def uncast(e: Expr) -> Expr:
    """What is left of an expression without its outermost casts."""
    while isinstance(e, Cast):
        e = e.a
    return e
