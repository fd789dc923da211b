"""Moves definitions of sizes that a loop does not change out of the loop.

A size that the data give (the number of non-zero elements, the trip count of an inner loop) holds in the body of the
``let`` that binds it, so nothing that mentions it can be computed outside of that block. In

    loop { let m = sizes of v; … }

where ``v`` is computed before the loop, the pass binds the size there too:

    let m = sizes of max(v, 0); loop { let m' = sizes of v; … }

What mentions ``m`` and nothing of the loop can then be computed before it (:mod:`weft.graph.scope` says where). The
definition in the loop stays with a size that nothing mentions, so that the same runs fail as before: those in which
``v`` is negative and an iteration reaches it. If ``v`` is such a maximum itself, there is no need for this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Let, Loop, Match, Module, Var, call
from weft.graph.operator import Operator
from weft.graph.scope import Scope, fresh_sizes, same_scope, scopes
from weft.graph.visit import map_functions, post_order, rewrite


@dataclass(frozen=True, slots=True)
class HoistSizes:
    """Bind sizes before all loops that do not change them; ``maximum`` is the operator of that name.

    Only where the value may be computed although no iteration needs it: it terminates and cannot fail. A size stays
    where it is if the type of the loop, or of a branch around it, mentions it: without an iteration it is 0.
    """

    maximum: Operator
    name: str = "hoist_sizes"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        while not function.is_primitive and (found := _invariants(function, self.maximum)):
            function = _Moves(self.maximum, found).applied(function)
        return function


@dataclass(slots=True)
class _Invariants:
    """What can move in a function."""

    sizes: dict[Symbol, list[tuple[Symbol, ...]]] = field(default_factory=dict)
    """Sizes that can be bound before a loop (the outermost that does not change them), by the loop's index."""
    names: dict[Var, GraphExpr] = field(default_factory=dict)
    """Variables of lets in loops that need not stay, with their values, which these loops do not change: a variable of
    the body would keep there what mentions it."""

    def __bool__(self) -> bool:
        return bool(self.sizes or self.names)


def _invariants(function: Function, maximum: Operator) -> _Invariants:
    found = _Invariants()
    order = list(post_order(function))
    lets = [e for e in order if isinstance(e, Let)]
    if not lets or not any(isinstance(e, Loop) for e in order):
        return found
    blocks = scopes(function)
    mentioned = {s for e in order for s in _mentions(e)}
    for let in lets:
        value = let.value
        if _binds(value):
            assert isinstance(value, Call)
            sizes = value.attrs.sizes
            left = _left_loops(blocks[let], blocks[value.args[0]], set(sizes))
            if left and not mentioned.isdisjoint(sizes):
                found.sizes.setdefault(left[-1].index, []).append(sizes)
                if _is_clamped(value.args[0], maximum):
                    found.names[let.var] = value.args[0]
        elif isinstance(value, (If, Loop)) and not _binds_sizes(let):
            around = _between(blocks[let], blocks[value])
            if any(isinstance(b.owner, Function) for b in around):
                found.names[let.var] = value
    return found


def _binds(value: GraphExpr) -> bool:
    """Whether ``value`` gives sizes the values of an operand."""
    return isinstance(value, Call) and isinstance(value.target, Operator) and value.target.binds and bool(value.args)


def _binds_sizes(let: Let) -> bool:
    """Whether the type of a branch or loop has sizes that only its run gives."""
    known = set(dims.symbols(let.value.trips)) if isinstance(let.value, Loop) else set()
    return not known.issuperset(fresh_sizes(let))


def _is_clamped(value: GraphExpr, maximum: Operator) -> bool:
    """Whether ``value`` is seen to be nowhere negative."""
    return (
        isinstance(value, Call)
        and value.target is maximum
        and any(isinstance(a, Constant) and bool(np.all(a.data >= 0)) for a in value.args)
    )


def _mentions(e: GraphExpr) -> Iterator[Symbol]:
    """The sizes that a node mentions; what binds them does not count."""
    yield from dims.symbols(e.type)
    if isinstance(e, Call) and not _binds(e):
        yield from dims.symbols(e.attrs)
    elif isinstance(e, Loop):
        yield from dims.symbols((e.trips, e.count))


def _between(inner: Scope, outer: Scope) -> Iterator[Scope]:
    """The blocks that a node leaves that moves from ``inner`` to ``outer``, which is around it."""
    while not same_scope(inner, outer):
        yield inner
        assert inner.parent is not None
        inner = inner.parent


def _left_loops(inner: Scope, outer: Scope, sizes: set[Symbol]) -> list[Loop]:
    """The loops that a definition of ``sizes`` can leave, from the inside, if their values are known in ``outer``."""
    found: list[Loop] = []
    for block in _between(inner, outer):
        owner, around = block.owner, block.parent
        if isinstance(owner, Loop):
            found.append(owner)
            visible: object = (owner.type, tuple(p.type for p in owner.body.params))
        elif isinstance(owner, Function):
            if around is None or not isinstance(around.owner, Loop):
                break  # a function that is called: it has no sizes of its callers
            continue
        else:
            visible = owner.type if isinstance(owner, (If, Match)) else ()
        if not sizes.isdisjoint(dims.symbols(visible)):
            return found[:-1] if isinstance(owner, Loop) else found
    return found


@dataclass(slots=True)
class _Moves:
    """A function with its invariants moved."""

    maximum: Operator
    found: _Invariants
    moved: set[tuple[Symbol, ...]] = field(default_factory=set)
    values: dict[tuple[Symbol, ...], Call] = field(default_factory=dict)
    """The definitions, of new nodes."""
    outside: set[GraphExpr] = field(default_factory=set)
    """Loops with the definitions before them."""
    memo: dict[GraphExpr, GraphExpr] = field(default_factory=dict)

    def applied(self, function: Function) -> Function:
        self.moved.update(sizes for found in self.found.sizes.values() for sizes in found)
        made = rewrite(function, self._visit, memo=self.memo)
        assert isinstance(made, Function)
        return made

    def _visit(self, e: GraphExpr) -> GraphExpr | None:
        if isinstance(e, Var) and e in self.found.names:
            return self.memo[self.found.names[e]]
        if isinstance(e, Let):
            return self._let(e)
        if isinstance(e, Loop) and e.index in self.found.sizes:
            return self._before(e, self.found.sizes[e.index])
        return None

    def _let(self, e: Let) -> GraphExpr | None:
        value = e.value
        moves = _binds(value) and isinstance(value, Call) and value.attrs.sizes in self.moved
        if moves:
            assert isinstance(value, Call)
            self.values[value.attrs.sizes] = value
        if e.var in self.found.names:
            return e.body
        if value in self.outside:  # one definition after the other, none inside of another one's value
            assert isinstance(value, Let)
            inner = Let(e.var, value.body, e.body, e.origin)
            return Let(value.var, value.value, self._let(inner) or inner, value.origin)
        if moves:
            assert isinstance(value, Call)
            kept = tuple(Symbol(s.name) for s in value.attrs.sizes)
            return Let(e.var, replace(value, attrs=value.attrs.replace(sizes=kept)), e.body, e.origin)
        return None

    def _before(self, loop: Loop, found: list[tuple[Symbol, ...]]) -> GraphExpr:
        made: GraphExpr = loop
        for sizes in reversed(found):
            old = self.values[sizes]
            binding = old
            if not _is_clamped(old.args[0], self.maximum):
                zero = Constant(np.zeros((), old.tensor.dtype.numpy), old.origin)
                binding = replace(old, args=(call(self.maximum, (old.args[0], zero), origin=old.origin),))
            made = Let(Var("sizes", binding.type), binding, made, old.origin)
            self.outside.add(made)
        return made
