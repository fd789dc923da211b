"""Where tensors keep a fixed place in memory: everywhere in the main function, between two calls in other functions.

All functions but the main one share one area of memory. A tensor that a function still needs after it called another
function is therefore allocated by itself at run time, and nothing can be placed inside of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from weft.graph.nodes import Call, Constructor, Function, GraphExpr, If, Let, Loop, Match, Project, Tuple
from weft.graph.operator import Operator
from weft.graph.passes.aliases import is_alias
from weft.graph.scope import Scope, same_scope
from weft.graph.visit import group_of, post_order, users


class Reach:
    """The calls of other functions in ``function`` and the functions inside of it.

    ``placed`` gives the block of each node; ``pending`` the nodes that not every path through their block needs;
    ``main`` says that ``function`` is the main function of its module.
    """

    def __init__(
        self,
        function: Function,
        placed: dict[GraphExpr, Scope],
        pending: Collection[GraphExpr],
        main: bool,
    ) -> None:
        self.function, self.placed, self.pending, self.main = function, placed, pending, main
        order = list(post_order(function.body))
        self.position = {e: i for i, e in enumerate(order)}
        self.bodies = {e.body for e in order if isinstance(e, Loop)}
        self.users = users(function)
        self.calls: dict[GraphExpr, dict[GraphExpr, None]] = {}
        """For each function, its calls of other functions."""
        self._positions: dict[tuple[GraphExpr, GraphExpr | None, int], list[int]] = {}
        """For a function and a block, the positions of the nodes of the block in which the function calls others."""
        for e in order:
            if isinstance(e, Call) and not isinstance(e.target, (Operator, Constructor)) and group_of(e) is None:
                self.calls.setdefault(self.unit(e), {})[e] = None

    def unit(self, e: GraphExpr) -> GraphExpr:
        """The innermost function that computes ``e``: the body of a loop is part of the function around it."""
        block: Scope | None = self.placed[e]
        while block is not None:
            if isinstance(block.owner, Function) and block.owner not in self.bodies:
                return block.owner
            block = block.parent
        return self.function

    def in_main(self, e: GraphExpr) -> bool:
        """Whether the main function computes ``e``."""
        return self.main and self.unit(e) is self.function

    def stays(
        self, makers: Sequence[GraphExpr], values: Sequence[GraphExpr], extra: Collection[GraphExpr] = ()
    ) -> bool:
        """Whether the tensors ``values``, which share memory, keep a fixed place from ``makers`` on, which are in one
        block, to their last reader. ``extra`` are nodes that are aliases of their operands besides the known ones."""
        unit = self.unit(makers[0])
        calls = self.calls.get(unit, {})
        if (unit is self.function and self.main) or not calls:
            return True
        block = self.placed[makers[0]]
        first, last = min(self.position[m] for m in makers), 0
        for reader in self._readers(values, extra):
            if reader in self.pending or not isinstance(reader, Call) or reader in calls:
                return False
            if not same_scope(self.placed[reader], block):
                return False
            last = max(last, self.position[reader])
        key = unit, block.owner, block.slot
        if key not in self._positions:
            self._positions[key] = sorted(self.position[e] for e in self._callers(calls, block))
        positions = self._positions[key]
        at = bisect_left(positions, first)
        return not (at < len(positions) and positions[at] <= last)

    def _readers(self, values: Sequence[GraphExpr], extra: Collection[GraphExpr]) -> Iterator[GraphExpr]:
        """The nodes that read ``values`` or aliases of them."""
        waiting, seen = list(values), set(values)
        while waiting:
            for e in self.users.get(waiting.pop(), ()):
                if e in seen:
                    continue
                seen.add(e)
                if isinstance(e, (Project, Tuple)) or is_alias(e) or e in extra:
                    waiting.append(e)
                else:
                    yield e

    def _callers(self, calls: Collection[GraphExpr], block: Scope) -> Iterator[GraphExpr]:
        """The nodes of a block that call other functions, or in whose inner blocks such calls are."""
        for e in calls:
            at: Scope | None = self.placed[e]
            node: GraphExpr = e
            while at is not None and not same_scope(at, block):
                if at.owner is None:
                    break
                node, at = at.owner, at.parent
            if at is not None and same_scope(at, block):
                yield node


def results_of_blocks(function: Function) -> Iterator[GraphExpr]:
    """The values that leave the blocks of a function: results of functions, of the bodies of loops and of branches, and
    what is passed to other functions."""
    ends: list[GraphExpr] = [function.body]
    for e in post_order(function.body):
        if isinstance(e, Function):
            ends += [] if e.is_primitive else [e.body]
        elif isinstance(e, If):
            ends += [e.then, e.otherwise]
        elif isinstance(e, Let):
            ends.append(e.body)
        elif isinstance(e, Match):
            ends += [body for _, body in e.clauses]
        elif isinstance(e, Call) and group_of(e) is None and not (isinstance(e.target, Operator) and not e.target.host):
            ends += e.args
    for e in ends:
        yield from e.fields if isinstance(e, Tuple) else (e,)
