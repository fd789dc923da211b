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
"""A block: who has it (None: the outermost), and which child of that node it is."""

MAX_BLOCKS_SEARCHED = 256
"""Largest number of blocks that are searched for one value. A value with more is computed in the block around them all,
needed or not: searching thousands of blocks for each of thousands of values would take too long."""


def on_demand(root: GraphExpr, placed: Mapping[GraphExpr, Scope]) -> dict[GraphExpr, tuple[Key, ...]]:
    """The values that some paths through their block (``placed``: see :func:`weft.graph.scope.scopes`) do not need, and
    for each the inner blocks that need it. One run may enter several of these, one after the other.

    A closure needs its captured values when it is created. A loop needs what its iterations need if it has one for
    certain, and if computing the value and all that it depends on cannot fail and always ends: one computation costs
    less than tests. The entry of a loop is entered only if there is an iteration.
    """
    order = list(post_order(root))
    if not any(isinstance(e, (If, Match, Loop)) for e in order):
        return {}
    ways = _Ways(order, placed)
    demands: dict[GraphExpr, dict[Key, None]] = {root: {(None, 0): None}}
    found: dict[GraphExpr, tuple[Key, ...]] = {}
    for e in reversed(order):
        home = _key(placed[e])
        if isinstance(e, (Var, Constant, Constructor, GlobalVar)) or e is root or home in demands[e]:
            homes: Iterable[Key] = (home,)
        else:
            homes = ways.homes(e, home, demands[e])
            if home not in homes:
                found[e] = tuple(homes)
        ways.homes_of[e] = homes
        for slot, child in enumerate(children(e)):
            into = demands.setdefault(child, {})
            into.update({(e, slot): None} if opens_scope(e, slot) else dict.fromkeys(homes))
    return found


class _Ways:
    """The paths between blocks. ``homes_of`` maps each node seen so far to the blocks where it is computed."""

    def __init__(self, order: Iterable[GraphExpr], placed: Mapping[GraphExpr, Scope]) -> None:
        self.placed = placed
        self.homes_of: dict[GraphExpr, Iterable[Key]] = {}
        self.steady: set[GraphExpr] = set()
        """What may be computed where nothing needs it, with all that it depends on."""
        for e in order:
            if is_steady(e) and all(c in self.steady for c in children(e)):
                self.steady.add(e)

    def homes(self, e: GraphExpr, home: Key, demands: Iterable[Key]) -> tuple[Key, ...]:
        """``home`` if every path through it needs ``e``, else the outermost blocks that need it."""
        steady = e in self.steady
        needing = dict.fromkeys(demands)
        waiting = list(needing)
        while waiting and len(needing) <= MAX_BLOCKS_SEARCHED:
            owner, _ = key = waiting.pop()
            if key == home or owner is None or not self._always(key, needing, steady):
                continue
            for outer in self.homes_of[owner]:
                if outer not in needing:
                    needing[outer] = None
                    waiting.append(outer)
        if home in needing or len(needing) > MAX_BLOCKS_SEARCHED:
            return (home,)
        known: dict[Key, bool] = {}
        kept = tuple(k for k in needing if not self._outer_needs(k, home, needing, known))
        return kept if len(known) <= MAX_BLOCKS_SEARCHED else (home,)

    def _always(self, key: Key, needing: Mapping[Key, None], steady: bool) -> bool:
        """Whether a value that a block and the other blocks of its owner need is needed wherever the owner is."""
        owner, _ = key
        if isinstance(owner, (If, Match)):
            return all((owner, i) in needing for i in range(1, len(children(owner))))
        return not isinstance(owner, Loop) or steady or surely_runs(owner)

    def _outer_needs(self, key: Key, home: Key, needing: Mapping[Key, None], known: dict[Key, bool]) -> bool:
        """Whether every path to a block passes a block that already needs the value."""
        stack = [key]
        while stack and len(known) <= MAX_BLOCKS_SEARCHED and len(stack) <= MAX_BLOCKS_SEARCHED:
            at = stack[-1]
            owner, _ = at
            if at in known:
                stack.pop()
                continue
            if at == home or owner is None:
                known[at] = False
                continue
            outer = list(self.homes_of[owner])
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
