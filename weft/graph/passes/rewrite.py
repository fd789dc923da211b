"""Applies rules (see :mod:`weft.graph.pattern`) until none fits any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.graph.nodes import NOWHERE, Call, Function, GraphExpr, Module, Origin
from weft.graph.pattern import GraphRule, Head, head, may_begin
from weft.graph.types import TensorType, TupleType, Type
from weft.graph.visit import children, count_uses, map_functions, rebuilt, rewrite
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Apply ``rules`` to a fixpoint, operands before users; what a rule builds is rewritten again.

    The pass sweeps the graph until nothing changes. Within a sweep, replaced nodes go back to the worklist, so usually
    there are two sweeps. ``max_sweeps`` and ``max_firings`` (for each node) stop rules that undo one another with an
    InternalError that names the rule.
    """

    rules: tuple[GraphRule, ...]
    max_sweeps: int = 20
    max_firings: int = 50
    name: str = "rewrite"

    def run(self, module: Module) -> Module:
        index = _Index(self.rules)
        return map_functions(module, lambda f: self._function(f, index))

    def _function(self, function: Function, index: _Index) -> Function:
        for _ in range(self.max_sweeps):
            sweep = _Sweep(index, function, self.max_firings)
            made = sweep.run()
            if made is function:
                return function
            function = made
            if not sweep.fired:
                return function
        raise InternalError(f"the rules of '{self.name}' did not come to rest; last applied: '{sweep.last}'")


class _Index:
    """Rules by the heads of an expression and its operands, and the expressions that none of them fits."""

    def __init__(self, rules: Sequence[GraphRule]) -> None:
        self._rules = tuple(rules)
        self._by_heads: dict[tuple[Head, tuple[Head, ...] | None], tuple[GraphRule, ...]] = {}
        self.at_rest: set[GraphExpr] = set()
        """Expressions that no rule fits, however often their parts are used."""

    def rules_for(self, expr: GraphExpr) -> tuple[GraphRule, ...]:
        top = head(expr)
        few = isinstance(expr, Call) and len(expr.args) <= _MAX_INDEXED_OPERANDS
        key = top, tuple(map(head, expr.args)) if isinstance(expr, Call) and few else None
        found = self._by_heads.get(key)
        if found is None:
            found = self._by_heads[key] = tuple(rule for rule in self._rules if may_begin(rule.pattern, *key))
        return found


_MAX_INDEXED_OPERANDS = 4
"""Operands by which rules are looked up. Calls with more are looked up by their operator alone."""


@dataclass(slots=True)
class _Sweep:
    """One bottom-up pass over a function."""

    index: _Index
    function: Function
    max_firings: int
    fired: int = 0
    last: str = ""
    shared: bool = False
    """Whether a rule asked for the uses of something that has several."""
    uses: dict[GraphExpr, int] = field(default_factory=dict)
    made: dict[GraphExpr, GraphExpr] = field(default_factory=dict)

    def run(self) -> Function:
        self.uses = count_uses(self.function)
        self.index.at_rest &= self.uses.keys()  # what is gone may be large
        limit = self.max_firings * len(self.uses) + 1000
        stack: list[tuple[GraphExpr, GraphExpr | None]] = [(self.function, None)]
        while stack:
            expr, replacement = stack.pop()
            if expr in self.made:
                continue
            if replacement is not None:  # what a rule built for expr has come to rest
                self.made[expr] = self.made[replacement]
                continue
            parts = children(expr)
            waiting = [c for c in parts if c not in self.made]
            if waiting:
                stack.append((expr, None))
                stack.extend((c, None) for c in reversed(waiting))
                continue
            new = rebuilt(expr, parts, self.made)
            if new is not expr:
                self.uses[new] = self.uses.get(new, 0) + self.uses.get(expr, 1)
            changed = self._apply(new)
            if changed is None:
                self.made[expr] = self.made[new] = new
            else:
                stack.extend([(expr, changed), (changed, None)])
                self._check_limit(limit)
        made = self.made[self.function]
        assert isinstance(made, Function)
        return made

    def _apply(self, expr: GraphExpr) -> GraphExpr | None:
        if expr in self.index.at_rest:
            return None
        self.shared = False
        for rule in self.index.rules_for(expr):
            result = rule.apply(expr, self._uses)
            if result is None:
                continue
            made, match = result
            if not _same_type(made.type, expr.type):
                raise InternalError(f"the rule '{rule.name}' turned a {expr.type} into a {made.type}")
            self.fired += 1
            self.last = rule.name
            return self._adopt(made, expr, match.origin)
        if not self.shared:
            self.index.at_rest.add(expr)
        return None

    def _uses(self, expr: GraphExpr) -> int:
        count = self.uses.get(expr, 1)
        self.shared |= count != 1
        return count

    def _adopt(self, made: GraphExpr, replaced: GraphExpr, origin: Origin) -> GraphExpr:
        """Give new calls their origin, and count the uses that they add. The count may be too high, never too low."""
        boundary: dict[GraphExpr, GraphExpr] = {}
        self._fresh(made, boundary)
        stamped = rewrite(made, lambda e: _stamp(e, origin), memo=boundary)
        for e in self._fresh(stamped, {}):
            for c in children(e):
                self.uses[c] = self.uses.get(c, 0) + 1
        self.uses[stamped] = self.uses.get(stamped, 0) + self.uses.get(replaced, 1)
        return stamped

    def _fresh(self, root: GraphExpr, boundary: dict[GraphExpr, GraphExpr]) -> list[GraphExpr]:
        """Nodes under ``root`` that are new to the sweep; the known ones right below them go to ``boundary``."""
        found: list[GraphExpr] = []
        stack, seen = [root], {root}
        while stack:
            e = stack.pop()
            if e in self.uses:
                boundary[e] = e
                continue
            found.append(e)
            stack.extend(c for c in children(e) if c not in seen)
            seen.update(children(e))
        return found

    def _check_limit(self, limit: int) -> None:
        if self.fired > limit:
            raise InternalError(f"rules undo one another without end; last applied: '{self.last}'")


def _stamp(expr: GraphExpr, origin: Origin) -> GraphExpr | None:
    if isinstance(expr, Call) and expr.origin is NOWHERE and origin is not NOWHERE:
        return Call(expr.target, expr.args, expr.attrs, expr.type, origin)
    return None


def _same_type(a: Type, b: Type) -> bool:
    """Whether two types are not known to differ: symbolic sizes may be written differently."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (
            a.dtype == b.dtype
            and a.rank == b.rank
            and all(
                not (isinstance(x, int) and isinstance(y, int)) or x == y for x, y in zip(a.shape, b.shape, strict=True)
            )
        )
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(_same_type, a.fields, b.fields))
    return a == b
