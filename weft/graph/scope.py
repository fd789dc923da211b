"""Which block each node of a function belongs to: the innermost one that contains all its uses.

A function body, each branch of an ``if``, each clause of a ``match`` and the body of a ``let`` is a block. Text prints
a node in its block; passes move and fuse nodes only within one.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.graph.nodes import Function, GraphExpr, If, Let, Match
from weft.graph.visit import children, post_order


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block: ``owner`` is the node that has it (None for the outermost), ``slot`` which child of that node it is."""

    parent: Block | None
    depth: int
    owner: GraphExpr | None
    slot: int


def blocks(root: GraphExpr) -> dict[GraphExpr, Block]:
    """The block of every node under ``root`` (inner functions included); ``root`` itself is in the outermost."""
    order = list(post_order(root))
    found: dict[GraphExpr, Block] = {root: Block(None, 0, None, 0)}
    for expr in reversed(order):
        here = found[expr]
        for slot, child in enumerate(children(expr)):
            block = Block(here, here.depth + 1, expr, slot) if opens_block(expr, slot) else here
            known = found.get(child)
            found[child] = block if known is None else common(known, block)
    return found


def opens_block(expr: GraphExpr, slot: int) -> bool:
    """Whether child ``slot`` of ``expr`` is a block of its own."""
    if isinstance(expr, Function):
        return True
    return slot > 0 and isinstance(expr, (If, Let, Match))


def common(a: Block, b: Block) -> Block:
    """The innermost block that contains both. Blocks are the same if owner and slot are."""
    while not _same(a, b):
        if a.depth > b.depth or (a.depth == b.depth and a.parent is not None):
            assert a.parent is not None
            a, b = (a.parent, b) if a.depth > b.depth else (a.parent, b.parent or b)
        else:
            assert b.parent is not None
            b = b.parent
    return a


def _same(a: Block, b: Block) -> bool:
    return a is b or (a.owner is b.owner and a.slot == b.slot)


def same_block(a: Block, b: Block) -> bool:
    return _same(a, b)
