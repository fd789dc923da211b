"""Lambda lifting: which nodes each function computes itself, and which values inner functions capture."""

from __future__ import annotations

from collections.abc import Iterator

from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.demand import Key, on_demand
from weft.graph.nodes import Call, Constant, Constructor, Function, GlobalVar, GraphExpr, Loop, Var
from weft.graph.scope import Scope, scopes
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import bound_vars, children, post_order


class Scopes:
    """The scopes of one function of the module.

    ``members`` lists the nodes of each block in post-order; ``used`` are the variables that are read. A node that only
    some paths through its block need is a member of the inner blocks that need it (``wanted_in``). ``pending`` lists
    such a node for its own block. An inner function is a *closure* unless it is a fused group or the body of a loop;
    those run in place.
    """

    def __init__(self, root: Function) -> None:
        self.root = root
        self.order = list(post_order(root))
        placed = scopes(root)
        self.wanted_in = on_demand(root, placed)
        self.members: dict[Key, list[GraphExpr]] = {}
        self.pending: dict[Key, list[GraphExpr]] = {}
        for e in self.order:
            home = placed[e].owner, placed[e].slot
            for key in self.wanted_in.get(e, (home,)):
                self.members.setdefault(key, []).append(e)
            if e in self.wanted_in:
                self.pending.setdefault(home, []).append(e)
        bodies = {e.body for e in self.order if isinstance(e, Loop)}
        self.used = {e for e in self.order if isinstance(e, Var)}
        self._closures = {
            e
            for e in self.order
            if isinstance(e, Function) and not e.is_primitive and e not in bodies and e is not root
        }
        self._unit = self._units(placed)
        self._users: dict[GraphExpr, list[GraphExpr]] | None = None
        self._nodes: dict[GraphExpr, list[GraphExpr]] = {}
        for e in self.order:
            self._nodes.setdefault(self._unit[e], []).append(e)

    def _units(self, placed: dict[GraphExpr, Scope]) -> dict[GraphExpr, GraphExpr]:
        """The innermost closure (or the root) that computes each node."""
        known: dict[Key, GraphExpr] = {}
        found: dict[GraphExpr, GraphExpr] = {}
        for e in self.order:
            way: list[Key] = []
            at: Scope | None = placed[e]
            unit: GraphExpr = self.root
            while at is not None:
                key = (at.owner, at.slot)
                if key in known:
                    unit = known[key]
                    break
                way.append(key)
                if at.owner in self._closures:
                    assert at.owner is not None
                    unit = at.owner
                    break
                at = at.parent
            known.update(dict.fromkeys(way, unit))
            found[e] = unit
        return found

    def users(self, value: GraphExpr) -> list[GraphExpr]:
        """The nodes that have ``value`` as an operand."""
        if self._users is None:
            self._users = {}
            for e in self.order:
                for c in dict.fromkeys(children(e)):
                    self._users.setdefault(c, []).append(e)
        return self._users.get(value, [])

    def is_closure(self, e: GraphExpr) -> bool:
        """Whether ``e`` is an inner function that becomes a function of the program."""
        return e in self._closures

    def nodes(self, function: GraphExpr) -> list[GraphExpr]:
        """The nodes that ``function`` computes itself, operands first."""
        return self._nodes.get(function, [])

    def _inside(self, function: GraphExpr) -> Iterator[GraphExpr]:
        """The nodes of a closure and of all closures inside it."""
        waiting = [function]
        while waiting:
            own = self.nodes(waiting.pop())
            yield from own
            waiting.extend(e for e in own if e in self._closures)

    def captures(self, function: GraphExpr) -> list[GraphExpr]:
        """The outside values that a closure reads, in the order of their first use."""
        nodes = [*self._inside(function), function]
        bound = {v for e in nodes for v in bound_vars(e)}
        inside = {e for e in nodes if not isinstance(e, Var)} | bound  # a variable is inside if it is bound there
        found: dict[GraphExpr, None] = {}
        for e in nodes:
            for c in children(e):
                if c not in inside and not isinstance(c, (Constant, Constructor, GlobalVar)):
                    found[c] = None
        return list(found)

    def sizes(self, function: Function) -> list[Symbol]:
        """The sizes that a closure uses and that the shapes of its parameters do not determine."""
        told: set[Symbol] = set()
        for p in function.params:
            for t in p.type.fields if isinstance(p.type, TupleType) else (p.type,):
                if isinstance(t, TensorType):
                    told.update(d for d in t.shape if isinstance(d, Symbol))
        found: dict[Symbol, None] = {}
        for e in self._inside(function):
            found.update(dict.fromkeys(dims.symbols(e.type)))
            if isinstance(e, Call):
                found.update(dict.fromkeys(dims.symbols(e.attrs)))
            if isinstance(e, Loop):
                found.update(dict.fromkeys(dims.symbols((e.trips, e.count))))
        return [s for s in found if s not in told]
