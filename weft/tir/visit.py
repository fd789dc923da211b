"""Traversal of programs: iteration, rewriting with path copying, substitution, look-ups.

No function recurses over statements or expressions. Rewriting keeps every unchanged statement as the same object, so
references to unchanged statements stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from weft.expr.nodes import Const, Expr, Load, Var
from weft.expr.visit import post_order, rewrite
from weft.support.dtypes import INDEX
from weft.tir.nodes import (
    Allocate,
    Block,
    Buffer,
    Evaluate,
    For,
    If,
    Let,
    Region,
    Seq,
    Stmt,
    Store,
)

ExprMap: TypeAlias = Callable[[Expr], Expr]
map_expr = rewrite
"""Rewriting of one expression; the name matches :func:`map_expressions`."""


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """Direct sub-statements, in order of execution."""
    kind = type(stmt)  # compared by identity: this is the hot path of every walk
    if kind is Store:
        return ()
    if kind is For or kind is Allocate or kind is Let:
        return (stmt.body,)  # type: ignore[attr-defined]  # one of the three
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, Block):
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def with_children(stmt: Stmt, made: tuple[Stmt, ...]) -> Stmt:
    """``stmt`` with other sub-statements, given in the order of :func:`children`."""
    if isinstance(stmt, Seq):
        return Seq(made)
    if isinstance(stmt, For):  # spelled out: this is the hot path of every rewrite
        return For(stmt.var, stmt.start, stmt.extent, made[0], stmt.kind, stmt.thread, stmt.annotations)
    if isinstance(stmt, (Allocate, Let)):
        return replace(stmt, body=made[0])
    if isinstance(stmt, Block):
        return replace(stmt, body=made[0]) if stmt.init is None else replace(stmt, init=made[0], body=made[1])
    if isinstance(stmt, If):
        return replace(stmt, then=made[0], otherwise=made[1] if len(made) > 1 else None)
    return stmt


def walk(root: Stmt) -> Iterator[Stmt]:
    """``root`` and every statement in it, outer before inner, in order of execution."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack.extend(reversed(children(stmt)))


def region_expressions(regions: Iterable[Region]) -> Iterator[Expr]:
    """Starts and extents of ``regions``."""
    for region in regions:
        for start, extent in region.ranges:
            yield start
            yield extent


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of ``stmt`` itself, without those of its sub-statements."""
    if isinstance(stmt, Store):
        return (*stmt.indices, stmt.value) if stmt.mask is None else (*stmt.indices, stmt.value, stmt.mask)
    if isinstance(stmt, For):
        return (stmt.start, stmt.extent)
    if isinstance(stmt, Block):
        return (
            *(e for it in stmt.iters for e in (it.start, it.extent)),
            *stmt.values,
            stmt.where,
            *region_expressions(stmt.reads),
            *region_expressions(stmt.writes),
        )
    if isinstance(stmt, If):
        return (stmt.condition,)
    if isinstance(stmt, (Let, Evaluate)):
        return (stmt.value,)
    if isinstance(stmt, Allocate):
        return (*stmt.buffer.shape, *(stmt.buffer.strides or ()))
    return ()


def transform(root: Stmt, fn: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Rewrite from the leaves up: ``fn`` gets each statement with rewritten sub-statements. It returns a new
    statement, or None to keep it. Statements that contain no change stay the same objects."""
    done: list[Stmt] = []
    stack: list[tuple[Stmt, bool]] = [(root, False)]
    while stack:
        stmt, expanded = stack.pop()
        parts = children(stmt)
        if parts and not expanded:
            stack.append((stmt, True))
            stack.extend((part, False) for part in reversed(parts))
            continue
        if parts:
            made = tuple(done[-len(parts) :])
            del done[-len(parts) :]
            if any(a is not b for a, b in zip(made, parts, strict=True)):
                stmt = with_children(stmt, made)
        done.append(fn(stmt) or stmt)
    return done[0]


def _map_regions(regions: tuple[Region, ...], fn: ExprMap, buffers: Mapping[Buffer, Buffer]) -> tuple[Region, ...]:
    out = []
    for r in regions:
        ranges = tuple((fn(a), fn(b)) for a, b in r.ranges)
        buffer = buffers.get(r.buffer, r.buffer)
        same = buffer is r.buffer and all(a is c and b is d for (a, b), (c, d) in zip(ranges, r.ranges, strict=True))
        out.append(r if same else Region(buffer, ranges))
    return regions if all(a is b for a, b in zip(out, regions, strict=True)) else tuple(out)


def _map_block(stmt: Block, fn: ExprMap, buffers: Mapping[Buffer, Buffer]) -> Block:
    iters = tuple(
        it
        if (start := fn(it.start)) is it.start and fn(it.extent) is it.extent
        else replace(it, start=start, extent=fn(it.extent))
        for it in stmt.iters
    )
    values = tuple(fn(v) for v in stmt.values)
    reads, writes = _map_regions(stmt.reads, fn, buffers), _map_regions(stmt.writes, fn, buffers)
    where = fn(stmt.where)
    if (
        where is stmt.where
        and reads is stmt.reads
        and writes is stmt.writes
        and all(a is b for a, b in zip((*iters, *values), (*stmt.iters, *stmt.values), strict=True))
    ):
        return stmt
    return replace(stmt, iters=iters, values=values, where=where, reads=reads, writes=writes)


def map_expressions(stmt: Stmt, fn: ExprMap, buffers: Mapping[Buffer, Buffer] | None = None) -> Stmt:
    """``stmt`` with ``fn`` applied to its own expressions (not to those of sub-statements), and with its own buffers
    (of stores, regions and allocations) replaced. Returns the same object if nothing changes."""
    buffers = buffers or {}
    if isinstance(stmt, Store):
        indices, value = tuple(fn(i) for i in stmt.indices), fn(stmt.value)
        mask, buffer = None if stmt.mask is None else fn(stmt.mask), buffers.get(stmt.buffer, stmt.buffer)
        same = buffer is stmt.buffer and value is stmt.value and mask is stmt.mask
        if same and all(a is b for a, b in zip(indices, stmt.indices, strict=True)):
            return stmt
        return Store(buffer, indices, value, mask)
    if isinstance(stmt, For):
        start, extent = fn(stmt.start), fn(stmt.extent)
        return stmt if start is stmt.start and extent is stmt.extent else replace(stmt, start=start, extent=extent)
    if isinstance(stmt, Block):
        return _map_block(stmt, fn, buffers)
    if isinstance(stmt, If):
        condition = fn(stmt.condition)
        return stmt if condition is stmt.condition else replace(stmt, condition=condition)
    if isinstance(stmt, (Let, Evaluate)):
        value = fn(stmt.value)
        return stmt if value is stmt.value else replace(stmt, value=value)
    if isinstance(stmt, Allocate) and stmt.buffer in buffers:
        return replace(stmt, buffer=buffers[stmt.buffer])
    return stmt


def transform_expressions(root: Stmt, fn: ExprMap, buffers: Mapping[Buffer, Buffer] | None = None) -> Stmt:
    """``root`` with ``fn`` applied to every top-level expression; see :func:`map_expressions`."""
    return transform(root, lambda s: map_expressions(s, fn, buffers))


def substitution(values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> ExprMap:
    """A function that replaces variables and the buffers of loads in expressions; it caches its results."""
    swaps = buffers or {}
    memo: dict[Expr, Expr] = {}

    def swap(e: Expr) -> Expr | None:
        if isinstance(e, Var):
            return values.get(e)
        if swaps and isinstance(e, Load) and e.source in swaps:
            return Load(swaps[e.source], e.indices, e.mask)  # type: ignore[index]  # buffer
        return None

    def apply(e: Expr) -> Expr:
        return map_expr(e, swap, memo)

    return apply


def substitute(root: Stmt, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> Stmt:
    """``root`` with variables replaced by ``values`` and buffers by ``buffers``, everywhere. Variables are unique
    objects, so no variable can be captured by mistake."""
    return transform_expressions(root, substitution(values, buffers), buffers)


# -- look-ups --------------------------------------------------------------------------------------------------------


def parents(root: Stmt) -> dict[Stmt, Stmt]:
    """The statement around each statement; ``root`` has none."""
    out: dict[Stmt, Stmt] = {}
    for stmt in walk(root):
        for part in children(stmt):
            out[part] = stmt
    return out


def loops(root: Stmt) -> list[For]:
    """All loops, outer before inner."""
    return [s for s in walk(root) if isinstance(s, For)]


def blocks(root: Stmt) -> list[Block]:
    """All blocks, outer before inner, in order of execution."""
    return [s for s in walk(root) if isinstance(s, Block)]


def path_to(root: Stmt, target: Stmt) -> list[Stmt]:
    """The statements from ``root`` to ``target``, both included; empty if it is not there."""
    trail = parents(root)
    if target is not root and target not in trail:
        return []
    path = [target]
    while path[-1] is not root:
        path.append(trail[path[-1]])
    return path[::-1]


def loops_around(root: Stmt, target: Stmt) -> list[For]:
    """The loops around ``target``, outermost first."""
    return [s for s in path_to(root, target)[:-1] if isinstance(s, For)]


def postorder(*roots: Expr) -> list[Expr]:
    """Every distinct node of the expressions, children before parents."""
    return list(post_order(*roots))


def all_expressions(root: Stmt) -> Iterator[Expr]:
    """Every top-level expression in ``root``, in order of execution."""
    for stmt in walk(root):
        yield from expressions(stmt)


def loads(root: Stmt) -> list[Load]:
    """Every distinct load that runs in ``root`` (regions of blocks are not loads)."""
    return [e for e in postorder(*all_expressions(root)) if isinstance(e, Load)]


def regions_read(root: Stmt, visible: Collection[Var]) -> tuple[Region, ...]:
    """The regions that ``root`` reads, in terms of the variables ``visible``: elements, or whole dimensions where an
    index depends on data or on other variables."""
    found: dict[tuple[Any, ...], Region] = {}
    for load in loads(root):
        if isinstance(load.source, Buffer):
            ranges = tuple(
                (i, Const(1, INDEX)) if _is_known(i, visible) else (Const(0, INDEX), extent)
                for i, extent in zip(load.indices, load.source.shape, strict=True)
            )
            found[load.source, ranges] = Region(load.source, ranges)
    return tuple(found.values())


def _is_known(index: Expr, visible: Collection[Var]) -> bool:
    return not any(isinstance(e, Load) or (isinstance(e, Var) and e not in visible) for e in postorder(index))


def stores(root: Stmt) -> list[Store]:
    """Every store in ``root``, in order."""
    return [s for s in walk(root) if isinstance(s, Store)]


def buffers(root: Stmt) -> list[Buffer]:
    """Every buffer that ``root`` loads, stores, names in a region or allocates, each once."""
    found: dict[Buffer, None] = {}
    for stmt in walk(root):
        if isinstance(stmt, (Store, Allocate)):
            found[stmt.buffer] = None
        elif isinstance(stmt, Block):
            found.update((r.buffer, None) for r in (*stmt.reads, *stmt.writes))
    for load in loads(root):
        if isinstance(load.source, Buffer):
            found[load.source] = None
    return list(found)


def bound_vars(root: Stmt) -> list[Var]:
    """Variables that loops, blocks and lets in ``root`` define."""
    out: list[Var] = []
    for stmt in walk(root):
        if isinstance(stmt, (For, Let)):
            out.append(stmt.var)
        elif isinstance(stmt, Block):
            out.extend(it.var for it in stmt.iters)
    return out


def free_vars(root: Stmt) -> list[Var]:
    """Variables that ``root`` uses and does not define, in order of first use."""
    bound = set(bound_vars(root))
    used = (e for e in postorder(*all_expressions(root)) if isinstance(e, Var))
    return [v for v in dict.fromkeys(used) if v not in bound]


def buffer_vars(made: Iterable[Buffer]) -> list[Var]:
    """Variables in the shapes and strides of buffers, in order."""
    roots = [e for b in made for e in (*b.shape, *(b.strides or ()))]
    return [e for e in postorder(*roots) if isinstance(e, Var)]
