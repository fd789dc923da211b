"""Finds the block of each node of a function: the innermost one that contains all its uses.

A function body, each branch of an ``if``, each clause of a ``match`` and the body of a ``let`` is a block. A loop has
two: its body, and the *entry*, which runs once before the first iteration if there is one (child ``body`` of the loop;
the body lies in it). Text prints a node in its block, that of an entry before the loop; passes move and fuse nodes only
within one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Constructor, Function, GraphExpr, If, Let, Loop, Match, Var
from weft.graph.operator import Operator
from weft.graph.visit import bound_vars, children, post_order


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A block: ``owner`` is the node that contains it (None for the outermost), ``slot`` the number of the owner's
    child."""

    parent: Scope | None
    depth: int
    owner: GraphExpr | None
    slot: int


def scopes(root: GraphExpr) -> dict[GraphExpr, Scope]:
    """The block of every node under ``root`` (inner functions included); ``root`` itself is in the outermost.

    Nodes that are invariant in a loop are in a block outside of its body: outside of the loop if computing them cannot
    fail and always ends (see :func:`is_steady`), else in the entry of the loop, with everything that needs them.
    """
    order = list(post_order(root))
    found = _placed(root, order, {})
    bodies = {e.body for e in order if isinstance(e, Loop)}
    return _placed(root, order, _levels(order, found, bodies), bodies) if bodies else found


def _levels(order: list[GraphExpr], found: dict[GraphExpr, Scope], bodies: set[Function]) -> dict[GraphExpr, int]:
    """The depth of the innermost block that a node cannot leave.

    All blocks that a node depends on lie around its own, so their depths name them. ``needs`` has a bit for each.
    """
    binders = _binders(order, found)
    needs: dict[GraphExpr, int] = {}
    for e in order:
        own = 0
        for c in children(e):
            own |= needs[c]
        depth = found[e].depth
        if isinstance(e, Var):
            own = 1 << binders.get(e, 0)
        elif isinstance(e, (Function, If, Let, Loop, Match)):
            own = (own | _bits(_named(e), binders)) & _up_to(depth)  # what is bound inside does not count
        elif isinstance(e, Call) and isinstance(e.target, Operator):
            own |= _bits((e.type, e.attrs), binders)
        if isinstance(e, Let) or (isinstance(e, Call) and isinstance(e.target, Operator) and _stays(e.target)):
            own |= _up_to(depth)
        elif e in bodies:
            own |= 1 << depth
        elif not is_steady(e):
            own |= 1 << _entry(found[e], own.bit_length() - 1, bodies)
        needs[e] = own
    return {e: max(0, own.bit_length() - 1) for e, own in needs.items()}


def _up_to(depth: int) -> int:
    """Bits for all blocks from the outermost to ``depth``: the node, and the nodes around it, stay in all of them."""
    return (2 << depth) - 1


def _stays(target: Operator) -> bool:
    return not target.pure and not target.checks


def _bits(parts: object, binders: dict[object, int]) -> int:
    found = 0
    for s in dims.symbols(parts):
        found |= 1 << binders.get(s, 0)
    return found


def _named(e: GraphExpr) -> object:
    """The parts of a node with blocks that mention sizes."""
    return (e.type, e.trips, e.count) if isinstance(e, Loop) else e.type


def _entry(block: Scope, level: int, bodies: set[Function]) -> int:
    """The depth of the entry of the outermost loop around ``block`` in which a node that needs ``level`` is invariant;
    0 if there is none."""
    found, at = 0, block
    while at.parent is not None and at.depth > level:
        if at.owner in bodies:
            found = at.depth - 1
        at = at.parent
    return found


def _binders(order: list[GraphExpr], found: dict[GraphExpr, Scope]) -> dict[object, int]:
    """The depth of the block that binds each variable and size."""
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
            binders.update((s, depth) for s in fresh_sizes(e) if s not in binders)
    return binders


def is_steady(e: GraphExpr) -> bool:
    """Whether ``e`` itself may be computed although it is not needed: it terminates, and it does not fail."""
    if isinstance(e, Call):
        if isinstance(e.target, Operator):
            return e.target.pure and not e.target.checks
        return isinstance(e.target, (Function, Constructor)) and (
            isinstance(e.target, Constructor) or e.target.is_primitive
        )
    return not isinstance(e, (If, Match, Loop, Let)) and not (isinstance(e, Function) and not e.is_primitive)


def fresh_sizes(e: Let) -> Iterator[Symbol]:
    """Sizes that are bound in the body of a let and not before."""
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
        if at.owner in loops or isinstance(at.owner, Loop):
            best = at.parent
        at = at.parent
    return best


def opens_scope(expr: GraphExpr, slot: int) -> bool:
    """Whether child ``slot`` of ``expr`` is a block of its own."""
    if isinstance(expr, Function):
        return True
    if isinstance(expr, Loop):
        return slot == entry_of(expr)
    return slot > 0 and isinstance(expr, (If, Let, Match))


def entry_of(loop: Loop) -> int:
    """The number of the child of a loop that is its entry."""
    return loop.first_state + len(loop.state)


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
