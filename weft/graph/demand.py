"""Finds the parts of a block that need a value, if not every path through the block needs it.

A value is computed where it is needed, at most once in an activation: before the branches that share it if all of
them need it, else in the branches that need it. This matters if computing it fails, does not terminate, or is
expensive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from weft.graph.nodes import Constant, Constructor, GlobalVar, GraphExpr, If, Loop, Match, Var
from weft.graph.scope import Scope, is_steady, opens_scope
from weft.graph.visit import children, post_order

Key: TypeAlias = "tuple[GraphExpr | None, int]"
"""A block: the node that contains it (None: the outermost block), and the number of the child of that node."""

MAX_BLOCKS_SEARCHED = 256
"""Largest number of blocks that are searched for one value. A value with more is computed in the block around all of
them, even if it is not needed: searching thousands of blocks for each of thousands of values would take too long."""


def on_demand(root: GraphExpr, placed: Mapping[GraphExpr, Scope]) -> dict[GraphExpr, tuple[Key, ...]]:
    """The values that some paths through their block (``placed``: see :func:`weft.graph.scope.scopes`) do not need, and
    for each the inner blocks that need it. One run may enter several of these, one after the other.

    A closure needs its captured values when it is created. A loop needs the values that its iterations need if it is
    certain to have an iteration, or if computing the value and all that it depends on cannot fail and always ends: one
    computation costs less than tests. The entry of a loop is entered only if there is an iteration.
    """
    order = list(post_order(root))
    if not any(isinstance(e, (If, Match, Loop)) for e in order):
        return {}
    paths = _BlockPaths(order, placed)
    demands: dict[GraphExpr, dict[Key, None]] = {root: {(None, 0): None}}
    found: dict[GraphExpr, tuple[Key, ...]] = {}
    for e in reversed(order):
        block = _key(placed[e])
        if isinstance(e, (Var, Constant, Constructor, GlobalVar)) or e is root or block in demands[e]:
            blocks: Iterable[Key] = (block,)
        else:
            blocks = paths.blocks(e, block, demands[e])
            if block not in blocks:
                found[e] = tuple(blocks)
        paths.blocks_of[e] = blocks
        for slot, child in enumerate(children(e)):
            into = demands.setdefault(child, {})
            into.update({(e, slot): None} if opens_scope(e, slot) else dict.fromkeys(blocks))
    return found


class _BlockPaths:
    """The paths between blocks. ``blocks_of`` maps each node seen so far to the blocks where it is computed."""

    def __init__(self, order: Iterable[GraphExpr], placed: Mapping[GraphExpr, Scope]) -> None:
        self.placed = placed
        self.blocks_of: dict[GraphExpr, Iterable[Key]] = {}
        self.steady: set[GraphExpr] = set()
        """Values that may be computed although they are not needed, with all that they depend on."""
        for e in order:
            if is_steady(e) and all(c in self.steady for c in children(e)):
                self.steady.add(e)

    def blocks(self, e: GraphExpr, block: Key, demands: Iterable[Key]) -> tuple[Key, ...]:
        """``block`` alone if every path through it needs ``e``, else the outermost blocks that need it."""
        steady = e in self.steady
        needing = dict.fromkeys(demands)
        waiting = list(needing)
        while waiting and len(needing) <= MAX_BLOCKS_SEARCHED:
            owner, _ = key = waiting.pop()
            if key == block or owner is None or not self._always(key, needing, steady):
                continue
            for outer in self.blocks_of[owner]:
                if outer not in needing:
                    needing[outer] = None
                    waiting.append(outer)
        if block in needing or len(needing) > MAX_BLOCKS_SEARCHED:
            return (block,)
        known: dict[Key, bool] = {}
        kept = tuple(k for k in needing if not self._outer_needs(k, block, needing, known))
        return kept if len(known) <= MAX_BLOCKS_SEARCHED else (block,)

    def _always(self, key: Key, needing: Mapping[Key, None], steady: bool) -> bool:
        """Whether the block of the owner needs a value, given the blocks of the owner that need it."""
        owner, _ = key
        if isinstance(owner, (If, Match)):
            return all((owner, i) in needing for i in range(1, len(children(owner))))
        return not isinstance(owner, Loop) or steady or surely_runs(owner)

    def _outer_needs(self, key: Key, block: Key, needing: Mapping[Key, None], known: dict[Key, bool]) -> bool:
        """Whether every path to a block passes a block that already needs the value."""
        stack = [key]
        while stack and len(known) <= MAX_BLOCKS_SEARCHED and len(stack) <= MAX_BLOCKS_SEARCHED:
            at = stack[-1]
            owner, _ = at
            if at in known:
                stack.pop()
                continue
            if at == block or owner is None:
                known[at] = False
                continue
            outer = list(self.blocks_of[owner])
            missing = [o for o in outer if o not in needing and o not in known]
            if missing:
                stack.extend(missing)
                continue
            known[at] = bool(outer) and all(o in needing or known[o] for o in outer)
        return known.get(key, False)


def surely_runs(loop: Loop) -> bool:
    """Whether a loop is known to have an iteration."""
    return loop.going is None and isinstance(loop.trips, int) and loop.trips > 0


def _key(block: Scope) -> Key:
    return block.owner, block.slot
