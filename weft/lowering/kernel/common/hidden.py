"""Skips tiles whose values are never used.

Suppose that every read of a tile is inside ``select(condition, tile…, other)``, and that the condition holds for no
element of the tile. Then the statements that fill the tile are skipped and only ``other`` is stored; nothing is stored
if the reader is a statement under the condition. Every stored element keeps its exact value for all operands. The
condition must be one on indices (a causal mask)::

    allocate tile:                              if 0 <= i * 16 + 15 - j * 32:
      for k: tile[…] += a[…] * b[…]      →        allocate tile: as before
      out[…] = select(y >= x, tile[…], -inf)    else:
                                                  out[…] = -inf
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from weft.expr.folds import all_of
from weft.expr.nodes import Const, Expr, Load, Select, logical_not, make
from weft.expr.prove import Facts
from weft.expr.visit import rewrite
from weft.lowering.kernel.common.context import facts_of, forms_of, inside
from weft.tir.nodes import Allocate, Buffer, Evaluate, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import children, expressions, postorder, transform, transform_expressions, walk, with_children


def skip_hidden(program: Program, limited: frozenset[str] = frozenset()) -> Program:
    """The program in which a tile that is read under conditions is computed only if such a condition can hold.
    ``limited`` names the buffers whose stores under a condition count as such reads; other stores have conditions for
    their bounds."""
    return replace(program, body=_visit(program.body, facts_of(program), limited))


def _visit(s: Stmt, facts: Facts, limited: frozenset[str]) -> Stmt:
    if isinstance(s, Allocate):
        made = _guarded(s, facts, limited)
        if made is not None:
            return made
    parts = children(s)
    if not parts:
        return s
    with ExitStack() as stack:
        if isinstance(s, (For, Let)):
            stack.enter_context(inside(facts, s))
        made_parts = tuple(_visit(c, facts, limited) for c in parts)
    return s if all(a is b for a, b in zip(made_parts, parts, strict=True)) else with_children(s, made_parts)


def _guarded(s: Allocate, facts: Facts, limited: frozenset[str]) -> Stmt | None:
    """The two versions of a tile and its readers; None if the tile is read unconditionally, or nothing can be
    derived."""
    parts = s.body.stmts if isinstance(s.body, Seq) else (s.body,)
    fillers = [p for p in parts if _only_fills(p, s.buffer)]
    readers = [p for p in parts if not _only_fills(p, s.buffer)]
    if not any(isinstance(x, For) and x.kind == "serial" for p in fillers for x in walk(p)):
        return None  # a tile computed without a loop is cheaper than the test
    choices = [(p, e) for p in readers for e in dict.fromkeys(_choices(p, s.buffer, limited))]
    if not choices or any(isinstance(x, Evaluate) for x in walk(s.body)):
        return None
    hidden = _without(readers, s.buffer, limited)
    conditions = [_somewhere(e, s.buffer, p, facts) for p, e in choices]
    if _mentions(hidden, s.buffer) or None in conditions:
        return None
    seen = facts.simplify(logical_not(all_of(*(logical_not(c) for c in conditions if c is not None))))
    if isinstance(seen, Const):
        return None if seen.value else hidden
    return If(seen, s, None if _is_empty(hidden) else hidden)


def _only_fills(s: Stmt, tile: Buffer) -> bool:
    stores = [x for x in walk(s) if isinstance(x, Store)]
    return bool(stores) and all(x.buffer is tile for x in stores)


def _is_limited(s: Stmt, limited: frozenset[str]) -> bool:
    """Whether ``s`` is a store under a condition to one of the buffers ``limited``."""
    return isinstance(s, If) and isinstance(s.then, Store) and s.otherwise is None and s.then.buffer.name in limited


def _choices(s: Stmt, tile: Buffer, limited: frozenset[str]) -> Iterator[Select | If]:
    """The choices in ``s`` for which exactly one side reads the tile."""
    for stmt in walk(s):
        if _is_limited(stmt, limited) and _mentions(stmt, tile):
            yield stmt  # type: ignore[misc]  # an If
        for e in postorder(*expressions(stmt)):
            if isinstance(e, Select) and _reads(e.then, tile) != _reads(e.otherwise, tile):
                yield e


def _reads(e: Expr, tile: Buffer) -> bool:
    return any(isinstance(x, Load) and x.source is tile for x in postorder(e))


def _mentions(s: Stmt, tile: Buffer) -> bool:
    return any(
        (isinstance(x, Store) and x.buffer is tile) or any(_reads(e, tile) for e in expressions(x)) for x in walk(s)
    )


def _without(readers: Iterable[Stmt], tile: Buffer, limited: frozenset[str]) -> Stmt:
    """The readers with each choice replaced by the side that does not read the tile."""

    def other(e: Expr) -> Expr | None:
        if not isinstance(e, Select) or _reads(e.then, tile) == _reads(e.otherwise, tile):
            return None
        return e.otherwise if _reads(e.then, tile) else e.then

    def unguarded(s: Stmt) -> Stmt | None:
        return seq() if _is_limited(s, limited) and _mentions(s, tile) else None

    memo: dict[Expr, Expr] = {}
    made = (transform(p, unguarded) for p in readers)
    return seq(*(transform_expressions(p, lambda e: rewrite(e, other, memo)) for p in made if not _is_empty(p)))


def _is_empty(s: Stmt) -> bool:
    """Whether ``s`` does nothing."""
    return not any(isinstance(x, (Store, Evaluate)) for x in walk(s))


def _somewhere(choice: Select | If, tile: Buffer, part: Stmt, facts: Facts) -> Expr | None:
    """A condition, without variables bound in ``part``, that is true whenever the side with the tile is chosen for any
    element."""
    forms = forms_of(choice.condition, holds=isinstance(choice, If) or _reads(choice.then, tile))
    bound = [x for x in walk(part) if isinstance(x, (For, Let))]
    moving = [x.var for x in bound]
    highs: list[Expr] = []
    with ExitStack() as stack:
        for loop in bound:
            stack.enter_context(inside(facts, loop))
        for form in forms:
            found = facts.sweep(form, moving)
            if found is not None and not any(isinstance(x, Load) for x in postorder(form)):
                highs.append(make("ge", found.low + found.width, 0))
    return all_of(*highs) if highs else None
