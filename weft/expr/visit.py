"""Traversing and rebuilding expressions. Nothing here recurses, and shared parts are visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from weft.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    cast,
    logical_not,
    make,
)
from weft.ir.walk import post_order as post_order
from weft.support.dtypes import BOOL

E = TypeVar("E", bound=Expr)
T = TypeVar("T")


def collect(e: Expr | Iterable[Expr], kind: type[E]) -> list[E]:
    """The distinct nodes of type ``kind``, in evaluation order."""
    roots = (e,) if isinstance(e, Expr) else tuple(e)
    return [n for n in post_order(*roots) if isinstance(n, kind)]


def outside_of_loads(*roots: Expr) -> Iterator[Expr]:
    """The distinct nodes, without those that tell where loads read."""
    pending, seen = list(roots), set[Expr]()
    while pending:
        e = pending.pop()
        if e not in seen:
            seen.add(e)
            yield e
            if not isinstance(e, Load):
                pending.extend(e.children)


def free_vars(*roots: Expr) -> tuple[Var, ...]:
    """The distinct variables, in evaluation order."""
    return tuple(n for n in post_order(*roots) if type(n) is Var)


def occurs(var: Var, e: Expr) -> bool:
    """Whether ``var`` occurs in ``e``. Fast if the same expressions are asked about again and again, as by schedule
    rules and primitives. (``var in free_vars(e)`` would compare expressions with ``==``, which builds expressions.)"""
    return var in _variables(e)


@lru_cache(maxsize=4096)
def _variables(e: Expr) -> frozenset[Var]:
    return frozenset(free_vars(e))


def variables_of(e: Expr, known: dict[Expr, frozenset[Var]]) -> frozenset[Var]:
    """The variables in ``e``. Results are cached in ``known``, for callers that ask about many parts of one whole."""

    def inside(node: Expr) -> frozenset[Var]:
        if type(node) is Var:
            return frozenset((node,))
        return frozenset().union(*(known[c] for c in node.children))

    return bottom_up(e, known, inside)


def unknowns_of(e: Expr, known: dict[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    """The variables and the loads in ``e``, those in the indices of loads too. Results are cached in ``known``, for
    callers that ask about many parts of one whole."""

    def inside(node: Expr) -> frozenset[Expr]:
        if type(node) is Var:
            return frozenset((node,))
        parts = {known[c] for c in node.children}
        found = parts.pop() if len(parts) == 1 else frozenset[Expr]().union(*parts)
        return found | {node} if type(node) is Load else found

    return bottom_up(e, known, inside)


def outer_unknowns(e: Expr) -> frozenset[Expr]:
    """The variables and the loads in ``e``, without those in the indices of loads."""
    found: dict[Expr, None] = {}
    seen = {e}
    stack = [e]
    while stack:
        node = stack.pop()
        if type(node) in (Var, Load):
            found[node] = None
            continue
        new = [c for c in node.children if c not in seen]
        seen.update(new)
        stack += new
    return frozenset(found)


def conditions_of(e: Expr, known: dict[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    """The expressions of dtype BOOL in ``e``, without constants. Results are cached in ``known``."""

    def inside(node: Expr) -> frozenset[Expr]:
        parts = {known[c] for c in node.children}
        found = parts.pop() if len(parts) == 1 else frozenset[Expr]().union(*parts)
        return found | {node} if node.dtype is BOOL and type(node) is not Const else found

    return bottom_up(e, known, inside)


def bottom_up(e: Expr, known: dict[Expr, T], inside: Callable[[Expr], T]) -> T:
    """``inside(node)`` of ``e``, where ``known`` has that of every child of the node; nothing is asked twice."""
    stack = [e]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
            continue
        waiting = [c for c in node.children if c not in known]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        known[node] = inside(node)
    return known[e]


def loads(*roots: Expr) -> tuple[Load, ...]:
    """The distinct loads, in evaluation order."""
    return tuple(n for n in post_order(*roots) if type(n) is Load)


def uses_var(e: Expr, variables: Iterable[Expr]) -> bool:
    """Whether one of ``variables`` occurs in ``e``."""
    wanted = frozenset(variables)
    return any(n in wanted for n in post_order(e))


def rebuild(e: Expr, children: tuple[Expr, ...]) -> Expr:
    """``e`` with other children, with the simple folding of ``make``."""
    kind = type(e)
    if kind is Binary:
        return make(e.op, *children)  # type: ignore[attr-defined]  # operator
    if kind is Not:
        return logical_not(children[0])
    if kind is Cast:
        return cast(children[0], e.dtype)
    if kind is Select:
        if isinstance(children[0], Const):
            return children[1] if children[0].value else children[2]
        condition, *sides = children
        lanes = max(c.lanes for c in children)
        if lanes > 1:
            return e.rebuild((condition, *(_level(side, lanes) for side in sides)))
    elif kind is Broadcast and children[0].lanes > 1:
        return children[0]
    elif kind is Call:
        lanes = max((c.lanes for c in children), default=1)
        if lanes > 1:
            return e.rebuild([_level(c, lanes) for c in children])
    return e.rebuild(children)


def _level(e: Expr, lanes: int) -> Expr:
    return e if e.lanes == lanes else Broadcast(e, lanes)


def rewrite(
    e: Expr, change: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None, *, fold: bool = True
) -> Expr:
    """Rebuild ``e`` bottom-up, replacing each rebuilt node by ``change(node)`` unless that is None.

    ``memo`` may be kept between calls with the same ``change``. Without ``fold`` nodes are rebuilt as they are.
    """
    done: dict[Expr, Expr] = {} if memo is None else memo
    stack = [e]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        children = node.children
        waiting = [c for c in children if c not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        new = node
        if children:
            made = tuple(done[c] for c in children)
            if any(a is not b for a, b in zip(made, children, strict=True)):
                new = rebuild(node, made) if fold else node.rebuild(made)
        changed = change(new)
        done[node] = new if changed is None else changed
    return done[e]


def substitute(e: Expr, values: Mapping[Any, Expr], memo: dict[Expr, Expr] | None = None) -> Expr:
    """``e`` with sub-expressions (usually variables) replaced simultaneously: replacements are not replaced again.

    ``memo`` may be kept between calls with the same ``values``.
    """
    if not values:
        return e
    done: dict[Expr, Expr] = dict(values) if memo is None else memo
    if memo is not None and not memo:
        done.update(values)
    return rewrite(e, _keep, done)


def _keep(e: Expr) -> None:
    return None
