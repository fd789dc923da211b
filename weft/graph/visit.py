"""Traversing and rebuilding graph expressions, iteratively: graphs of many thousand nodes are normal.

A graph is a DAG and every node is visited once. Variables are bound once (by identity), so scopes need no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Pattern,
    Project,
    Tuple,
    Var,
    apply,
    call,
)
from weft.graph.operator import Operator
from weft.graph.types import Type

Rewriter = Callable[[GraphExpr], GraphExpr | None]

_LEAVES: Final = frozenset({Constant, Var, GlobalVar, Constructor})


def children(expr: GraphExpr) -> tuple[GraphExpr, ...]:
    """Direct sub-expressions. Those of a call are the arguments, then the called value; that of a function is its body.
    Bound variables are not children."""
    kind = type(expr)
    if kind in _LEAVES:
        return ()
    if isinstance(expr, Call):
        return expr.args if isinstance(expr.target, Operator) else (*expr.args, expr.target)
    if isinstance(expr, Tuple):
        return expr.fields
    if isinstance(expr, Project):
        return (expr.value,)
    if isinstance(expr, Function):
        return (expr.body,)
    if isinstance(expr, Let):
        return (expr.value, expr.body)
    if isinstance(expr, If):
        return (expr.condition, expr.then, expr.otherwise)
    if isinstance(expr, Loop):
        return (*(() if expr.going is None else (expr.going,)), *expr.state, expr.body)
    if isinstance(expr, Match):
        return (expr.value, *(body for _, body in expr.clauses))
    return ()


def rebuild(expr: GraphExpr, parts: Sequence[GraphExpr]) -> GraphExpr:
    """``expr`` with other children (in the order of :func:`children`), with its type inferred again.

    Returns ``expr`` itself if nothing changed. Raises TypeRelationError if the new operands do not fit.
    """
    old = children(expr)
    if len(old) == len(parts) and all(a is b for a, b in zip(old, parts, strict=True)):
        return expr
    if isinstance(expr, Call):
        return _rebuild_call(expr, tuple(parts))
    if isinstance(expr, Tuple):
        return Tuple(tuple(parts), expr.origin)
    if isinstance(expr, Project):
        return Project(parts[0], expr.index, expr.origin)
    if isinstance(expr, Function):
        return Function(expr.params, parts[0], expr.attrs, expr.origin)
    if isinstance(expr, Let):
        return Let(expr.var, parts[0], parts[1], expr.origin)
    if isinstance(expr, If):
        return If(parts[0], parts[1], parts[2], parts[1].type if expr.type == old[1].type else expr.type, expr.origin)
    if isinstance(expr, Loop):
        return rebuild_loop(expr, parts, expr.type)
    assert isinstance(expr, Match)
    clauses = tuple((pattern, body) for (pattern, _), body in zip(expr.clauses, parts[1:], strict=True))
    return Match(parts[0], clauses, parts[1].type if expr.type == old[1].type else expr.type, expr.origin)


def rebuilt(expr: GraphExpr, parts: Sequence[GraphExpr], made: Mapping[GraphExpr, GraphExpr]) -> GraphExpr:
    """``expr`` with each of its children ``parts`` replaced by what ``made`` has for it; itself if nothing changed."""
    for p in parts:
        if made[p] is not p:
            return rebuild(expr, [made[p] for p in parts])
    return expr


def rebuild_loop(expr: Loop, parts: Sequence[GraphExpr], type_: Type) -> Loop:
    """The loop with other children (in the order of :func:`children`)."""
    body, first = parts[-1], expr.first_state
    assert isinstance(body, Function)
    going = parts[0] if first else None
    return replace(expr, going=going, state=tuple(parts[first:-1]), body=body, type=type_)


def _rebuild_call(expr: Call, parts: tuple[GraphExpr, ...]) -> GraphExpr:
    if not isinstance(expr.target, Operator):
        same = parts[-1].type == expr.target.type and all(
            a.type == b.type for a, b in zip(expr.args, parts, strict=False)
        )
        return apply(parts[-1], parts[:-1], origin=expr.origin, type=expr.type if same else None)
    if all(a.type == b.type for a, b in zip(expr.args, parts, strict=True)):
        return Call(expr.target, parts, expr.attrs, expr.type, expr.origin)  # equal types infer an equal type
    return call(expr.target, parts, expr.attrs, origin=expr.origin)


def post_order(*roots: GraphExpr, into_functions: bool = True) -> Iterator[GraphExpr]:
    """Every distinct node reachable from ``roots``, operands before users, in a deterministic order.

    Without ``into_functions`` the bodies of inner functions are left out (a root that is a function is entered).
    """
    seen: set[GraphExpr] = set()
    entered = set(roots)
    for root in roots:
        stack: list[GraphExpr | None] = [root]  # None: the operands of the node below it are done
        while stack:
            expr = stack.pop()
            if expr is None:
                done = stack.pop()
                assert done is not None
                yield done
                continue
            if expr in seen:
                continue
            seen.add(expr)
            enter = into_functions or not isinstance(expr, Function) or expr in entered
            parts = children(expr) if enter else ()
            if not parts:
                yield expr
                continue
            stack += (expr, None)
            for c in reversed(parts):
                if c not in seen:
                    stack.append(c)


def rewrite(
    root: GraphExpr,
    fn: Rewriter,
    *,
    into_functions: bool = True,
    memo: dict[GraphExpr, GraphExpr] | None = None,
) -> GraphExpr:
    """Rebuild ``root`` bottom-up; ``fn`` sees every node with its operands already rewritten.

    ``fn`` returns the replacement, or None to keep the node. Replacements are not visited again. ``memo`` maps old
    nodes to new ones: pass one in to start with some nodes replaced or to share work between roots.
    """
    made = {} if memo is None else memo
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in made:
            stack.pop()
            continue
        enter = into_functions or not isinstance(expr, Function) or expr is root
        parts = children(expr) if enter else ()
        waiting = [p for p in parts if p not in made]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        new = rebuilt(expr, parts, made)
        changed = fn(new)
        made[expr] = new if changed is None else changed
    return made[root]


def substitute(root: GraphExpr, values: Mapping[GraphExpr, GraphExpr]) -> GraphExpr:
    """``root`` with nodes (mostly variables) replaced."""
    return rewrite(root, lambda e: None, memo=dict(values))


def bound_vars(expr: GraphExpr) -> tuple[Var, ...]:
    """Variables that this node itself binds: parameters, a let's variable, those of patterns."""
    if isinstance(expr, Function):
        return expr.params
    if isinstance(expr, Let):
        return (expr.var,)
    if isinstance(expr, Match):
        return tuple(v for pattern, _ in expr.clauses for v in pattern_vars(pattern))
    return ()


def pattern_vars(pattern: Pattern) -> tuple[Var, ...]:
    """Variables a match pattern binds, from left to right."""
    own = () if pattern.var is None else (pattern.var,)
    return own + tuple(v for f in pattern.fields for v in pattern_vars(f))


def free_vars(*roots: GraphExpr) -> list[Var]:
    """Variables used but not bound in ``roots``, in order of first use."""
    used: list[Var] = []
    bound: set[Var] = set()
    for expr in post_order(*roots):
        if isinstance(expr, Var):
            used.append(expr)
        bound.update(bound_vars(expr))
    return [v for v in used if v not in bound]


def count_uses(*roots: GraphExpr, into_functions: bool = True) -> dict[GraphExpr, int]:
    """How often each node is used as an operand (each root counts as used once more)."""
    counts: dict[GraphExpr, int] = {}
    entered = set(roots)
    for expr in post_order(*roots, into_functions=into_functions):
        counts.setdefault(expr, 0)
        if into_functions or not isinstance(expr, Function) or expr in entered:
            for c in children(expr):
                counts[c] = counts.get(c, 0) + 1
    for root in roots:
        counts[root] += 1
    return counts


def users(*roots: GraphExpr, into_functions: bool = True) -> dict[GraphExpr, list[GraphExpr]]:
    """The nodes that use each node as an operand, once for each operand position, in post-order."""
    found: dict[GraphExpr, list[GraphExpr]] = {}
    entered = set(roots)
    for expr in post_order(*roots, into_functions=into_functions):
        found.setdefault(expr, [])
        if into_functions or not isinstance(expr, Function) or expr in entered:
            for c in children(expr):
                found[c].append(expr)
    return found


def group_of(e: GraphExpr) -> Function | None:
    """The fused group that ``e`` calls, which becomes one kernel; None for anything else."""
    return e.target if isinstance(e, Call) and isinstance(e.target, Function) and e.target.is_primitive else None


def map_functions(module: Module, fn: Callable[[Function], Function]) -> Module:
    """The module with every function replaced by ``fn(function)``; the module itself if nothing changed."""
    made = {name: fn(f) for name, f in module.functions.items()}
    if all(made[name] is f for name, f in module.functions.items()):
        return module
    return Module(made, module.types, module.attrs)
