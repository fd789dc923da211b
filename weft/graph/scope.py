"""Finds the block of each node of a function: the innermost one that contains all its uses.

A function body, each branch of an ``if``, each clause of a ``match`` and the body of a ``let`` is a block. Text prints
a node in its block; passes move and fuse nodes only within one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Function, GraphExpr, If, Let, Loop, Match, Var
from weft.graph.operator import Operator
from weft.graph.visit import bound_vars, children, post_order


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A block: ``owner`` is the node that has it (None for the outermost), ``slot`` which child of that node it is."""

    parent: Scope | None
    depth: int
    owner: GraphExpr | None
    slot: int


def scopes(root: GraphExpr) -> dict[GraphExpr, Scope]:
    """The block of every node under ``root`` (inner functions included); ``root`` itself is in the outermost.

    Nodes that are invariant in a loop are in a block outside of it.
    """
    order = list(post_order(root))
    found = _placed(root, order, {})
    bodies = {e.body for e in order if isinstance(e, Loop)}
    return _placed(root, order, _levels(order, found, bodies), bodies) if bodies else found


def _levels(order: list[GraphExpr], found: dict[GraphExpr, Scope], bodies: set[Function]) -> dict[GraphExpr, int]:
    """The depth of the innermost block of a loop that a node depends on."""
    top = order[-1]
    binders: dict[object, int] = {}
    if isinstance(top, Function):
        binders.update((s, 0) for p in top.params for s in dims.symbols(p.type))
    for e in reversed(order):  # outer blocks first: a size is bound where it occurs first
        depth = found[e].depth + 1
        if isinstance(e, Loop):
            binders[e.index] = depth + 1
            outside = {s for value in e.state for s in dims.symbols(value.type)}
            inner = {s for p in e.body.params for s in dims.symbols(p.type)} - outside
            binders.update((s, depth + 1) for s in inner if s not in binders)
        for v in bound_vars(e):
            binders[v] = 0 if isinstance(e, Function) and e.is_primitive else depth
        if isinstance(e, Let):
            binders.update((s, depth) for s in _fresh(e) if s not in binders)
    levels: dict[GraphExpr, int] = {}
    for e in order:
        level = max((levels[c] for c in children(e)), default=0)
        if isinstance(e, Var):
            level = binders.get(e, 0)
        elif isinstance(e, Call) and isinstance(e.target, Operator):
            named = [s for part in (e.type, e.attrs) for s in dims.symbols(part)]
            level = max([level, *(binders.get(s, 0) for s in named)])
            stays = not e.target.pure or e.target.checks  # a failed check is no error if nothing reads the value
            level = max(level, found[e].depth) if stays else level
        elif (isinstance(e, Function) and not e.is_primitive) or isinstance(e, (If, Loop, Let, Match)):
            level = max(level, found[e].depth)
        levels[e] = level
    return levels


def _fresh(e: Let) -> Iterator[Symbol]:
    """Sizes that hold in the body of a let and not before."""
    value = e.value
    if isinstance(value, Call) and isinstance(value.target, Operator):
        yield from value.attrs.get("sizes", ()) if value.target.binds else ()
    elif isinstance(value, (If, Loop)):
        before = {s for c in children(value)[: None if isinstance(value, If) else -1] for s in dims.symbols(c.type)}
        yield from (s for s in dims.symbols(value.type) if s not in before)


def _placed(
    root: GraphExpr, order: list[GraphExpr], levels: dict[GraphExpr, int], bodies: Iterable[Function] = ()
) -> dict[GraphExpr, Scope]:
    loops = frozenset(bodies)
    found: dict[GraphExpr, Scope] = {root: Scope(None, 0, None, 0)}
    for expr in reversed(order):
        here = found[expr]
        if levels:
            here = found[expr] = _hoisted(here, levels[expr], loops)
        for slot, child in enumerate(children(expr)):
            block = Scope(here, here.depth + 1, expr, slot) if opens_scope(expr, slot) else here
            known = found.get(child)
            found[child] = block if known is None else common(known, block)
    return found


def _hoisted(block: Scope, level: int, loops: frozenset[Function]) -> Scope:
    """The block outside of all loops that nothing at ``level`` needs."""
    best, at = block, block
    while at.parent is not None and at.depth > level:
        if isinstance(at.owner, Function) and at.owner.is_primitive:
            return block  # a fused group moves as a whole
        if at.owner in loops:
            best = at.parent
        at = at.parent
    return best


def opens_scope(expr: GraphExpr, slot: int) -> bool:
    """Whether child ``slot`` of ``expr`` is a block of its own."""
    if isinstance(expr, Function):
        return True
    return slot > 0 and isinstance(expr, (If, Let, Match))


def common(a: Scope, b: Scope) -> Scope:
    """The innermost block that contains both. Blocks are the same if owner and slot are."""
    while not _same(a, b):
        if a.depth > b.depth or (a.depth == b.depth and a.parent is not None):
            assert a.parent is not None
            a, b = (a.parent, b) if a.depth > b.depth else (a.parent, b.parent or b)
        else:
            assert b.parent is not None
            b = b.parent
    return a


def _same(a: Scope, b: Scope) -> bool:
    return a is b or (a.owner is b.owner and a.slot == b.slot)


def same_scope(a: Scope, b: Scope) -> bool:
    return _same(a, b)
