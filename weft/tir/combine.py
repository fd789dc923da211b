"""The body of a reduction: a value, or a tuple of values, is combined into accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.expr.nodes import Binary, Expr, Load, Var
from weft.expr.visit import free_vars, loads
from weft.tir.nodes import Block, Buffer, Let, Stmt, Store, seq
from weft.tir.visit import substitution

IDENTITY: Final = "reduction_identity"
"""The annotation of a reduction that starts at given values: the identity of its combination, one constant expression
for each value. Parts of it that are computed apart start there (rfactor)."""

Accumulator = tuple[Buffer, tuple[Expr, ...]]
"""A buffer, and the indices of the element in which values are combined."""


def combining(
    accumulators: Sequence[Accumulator],
    lhs: Sequence[Var],
    rhs: Sequence[Var],
    results: Sequence[Expr],
    sources: Sequence[Expr],
) -> Stmt:
    """The statement that combines ``sources`` (for ``rhs``) with ``accumulators`` (for ``lhs``) and stores ``results``.

    One operator on one value is one store, ``C[i] = C[i] + A[i, k]``. Any other combination binds its sources to
    names, so that the combination and its operands can be told apart. It then computes all results before it stores
    the first::

        let a.new = …; let b.new = …; let a.next = f(a[i], b[i], a.new, b.new); let b.next = …; a[i] = a.next; …
    """
    old: dict[Var, Expr] = {v: Load(b, at) for v, (b, at) in zip(lhs, accumulators, strict=True)}
    if is_operator(lhs, rhs, results):
        ((buffer, at),) = accumulators
        return Store(buffer, at, substitution({**old, rhs[0]: sources[0]})(results[0]))
    named = [Var(f"{b.name}.new", v.dtype) for v, (b, _) in zip(rhs, accumulators, strict=True)]
    made = [Var(f"{b.name}.next", b.dtype) for b, _ in accumulators]
    combine = substitution({**old, **dict(zip(rhs, named, strict=True))})
    body = seq(*(Store(b, at, v) for (b, at), v in zip(accumulators, made, strict=True)))
    for var, value in reversed([*zip(named, sources, strict=True), *zip(made, map(combine, results), strict=True)]):
        body = Let(var, value, body)
    return body


def identity_of(block: Block) -> tuple[Expr, ...] | None:
    """The identity of the combination as :data:`IDENTITY` states it, in the order of the buffers that the block writes;
    None if there is no such note.

    Raises ValueError, which says what is wrong, for a note that does not fit to the block.
    """
    noted = block.annotations.get(IDENTITY)
    if noted is None or block.init is None:
        return None
    wanted = [b.dtype for b in dict.fromkeys(r.buffer for r in block.writes)]
    if not isinstance(noted, tuple) or not all(isinstance(e, Expr) for e in noted):
        raise ValueError("is not a list of expressions")
    if [e.dtype for e in noted] != wanted:
        raise ValueError(f"has the dtypes {', '.join(e.dtype for e in noted)}, not {', '.join(wanted)}")
    if not all(is_constant(e) for e in noted):
        raise ValueError("is not constant")
    return noted


def is_constant(e: Expr) -> bool:
    """Whether nothing that changes decides the value of ``e``."""
    return not free_vars(e) and not loads(e)


def is_operator(lhs: Sequence[Var], rhs: Sequence[Var], results: Sequence[Expr]) -> bool:
    """Whether the combination is one operator on one old and one new value."""
    first = results[0]
    return len(results) == 1 and isinstance(first, Binary) and first.a is lhs[0] and first.b is rhs[0]
