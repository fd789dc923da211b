"""Allocation of intermediates: each one is allocated at the innermost place that contains all its uses, and shrinks to
the part that is accessed there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from weft.expr.nodes import Const, Expr, Load, Var
from weft.expr.prove import Facts
from weft.expr.sweep import Sweep
from weft.expr.visit import loads
from weft.lowering.kernel.common.context import facts_of, inside
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Stmt, Store
from weft.tir.visit import (
    children,
    expressions,
    map_expr,
    map_expressions,
    postorder,
    substitute,
    transform,
    walk,
    with_children,
)

MAX_STACK_BYTES = 16 << 10
"""Largest buffer of constant size, local to one thread, that is on the stack; code generators follow this limit."""


def place_allocations(program: Program, carried: dict[Buffer, set[Var]]) -> Program:
    """Turn ``Program.allocs`` into :class:`Allocate` statements.

    A buffer is allocated outside vectorized loops, and outside loops across whose iterations it keeps its contents
    (``carried``).
    """
    counts: Counter[Buffer] = Counter()
    wanted = set(program.allocs)
    own: dict[Stmt, Counter[Buffer]] = {}
    apart = _apart(program.body, set())
    _count(apart, wanted, carried, own)
    for c in own.values():
        counts.update(c)
    body, _, left = _place(apart, own, counts, inside_parallel=False)
    for b in sorted(left, key=lambda b: b.name):
        body = Allocate(b, body)
    return replace(program, body=body, allocs=())


def _apart(s: Stmt, seen: set[Stmt]) -> Stmt:
    """``s`` with a copy of each statement that occurs again: uses are counted by statement."""
    parts = children(s)
    made = tuple(_apart(c, seen) for c in parts)
    if any(a is not b for a, b in zip(made, parts, strict=True)):
        s = with_children(s, made)
    elif s in seen:
        s = replace(s)  # type: ignore[type-var]  # statements are dataclasses
    seen.add(s)
    return s


def _count(root: Stmt, wanted: set[Buffer], carried: dict[Buffer, set[Var]], own: dict[Stmt, Counter[Buffer]]) -> None:
    """Count how often each statement itself uses each buffer. A loop that must be inside the allocation counts as a
    use."""
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(root, ())]
    while stack:
        s, loops = stack.pop()
        used = _accessed(s) & wanted
        if used:
            own.setdefault(s, Counter()).update(used)
            for b in used:
                for loop in loops:
                    if loop.kind == "vectorized" or loop.var in carried.get(b, ()):
                        own.setdefault(loop, Counter())[b] += 1
        inner = (*loops, s) if isinstance(s, For) else loops
        stack.extend((c, inner) for c in children(s))


def _accessed(s: Stmt) -> set[Buffer]:
    found = {e.source for e in postorder(*expressions(s)) if isinstance(e, Load)}
    if isinstance(s, Store):
        found.add(s.buffer)
    return found  # type: ignore[return-value]  # buffers


def _place(
    s: Stmt, own: dict[Stmt, Counter[Buffer]], totals: Counter[Buffer], inside_parallel: bool
) -> tuple[Stmt, Counter[Buffer], set[Buffer]]:
    """The statement with allocations inserted, the remaining uses in it, and the buffers to allocate around it."""
    within = inside_parallel or (isinstance(s, For) and s.kind == "parallel")
    seen = Counter(own.get(s, {}))
    parts = children(s)
    made = []
    waiting: set[Buffer] = set()
    for c in parts:
        child, below, left = _place(c, own, totals, within)
        seen.update(below)
        if isinstance(s, (For, If, Let)):
            for b in sorted(left, key=lambda b: b.name):
                child = Allocate(b, child)
        else:
            waiting |= left
        made.append(child)
    if any(a is not b for a, b in zip(made, parts, strict=True)):
        s = with_children(s, tuple(made))
    complete = {b for b, n in seen.items() if n == totals[b]}
    for b in complete:
        waiting.add(b)
        del seen[b]
        totals[b] = -1
    return s, seen, waiting


def compact(program: Program) -> Program:
    """Shrink every allocated buffer to the box that is accessed inside its :class:`Allocate`, and choose its scope."""
    return replace(program, body=_compact(program.body, facts_of(program), False))


def _compact(s: Stmt, facts: Facts, inside_parallel: bool) -> Stmt:
    if isinstance(s, Allocate):
        s = _shrink(s, facts, inside_parallel)
    parts = children(s)
    if not parts:
        return s
    within = inside_parallel or (isinstance(s, For) and s.kind == "parallel")
    if isinstance(s, (For, Let)):
        with inside(facts, s):
            made = tuple(_compact(c, facts, within) for c in parts)
    else:
        made = tuple(_compact(c, facts, within) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _shrink(s: Allocate, facts: Facts, inside_parallel: bool) -> Allocate:
    buffer = s.buffer
    lows: list[Expr | None] = [None] * len(buffer.shape)
    shape = list(buffer.shape)
    for d, box in enumerate(_boxes(s, facts)):
        if box is not None and not _at_least(box[1], buffer.shape[d]):
            lows[d], shape[d] = box
    shared = not inside_parallel and any(isinstance(x, For) and x.kind == "parallel" for x in walk(s.body))
    scope = _scope(buffer, shape, inside_parallel, shared)
    if scope == buffer.scope and all(low is None for low in lows):
        return s
    small = buffer.replace(shape=tuple(shape), scope=scope, strides=None)
    return Allocate(small, _redirect(s.body, buffer, small, lows))


def off_the_stack(program: Program) -> Program:
    """The flat program, with buffers moved from the stack to main memory if they no longer fit there: strides and
    copies for threads or stages make buffers grow. Buffers of parallel iterations have memory of their own."""
    return replace(program, body=_off_the_stack(program.body))


def _off_the_stack(s: Stmt) -> Stmt:
    if isinstance(s, For) and s.kind == "parallel":
        return s
    if isinstance(s, Allocate) and s.buffer.scope == "local":
        scope = _scope(s.buffer, s.buffer.shape, inside_parallel=False, shared=False)
        if scope != "local":
            moved = s.buffer.replace(scope=scope)
            s = Allocate(moved, substitute(s.body, {}, {s.buffer: moved}))
    parts = children(s)
    made = tuple(map(_off_the_stack, parts))
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _at_least(extent: Expr, original: Expr) -> bool:
    return isinstance(extent, Const) and isinstance(original, Const) and int(extent) >= int(original)


def _scope(buffer: Buffer, shape: Iterable[Expr], inside_parallel: bool, shared: bool) -> str:
    """``local`` inside a parallel loop, and for small buffers that one thread uses; else ``global``."""
    if buffer.scope not in ("global", "local"):
        return buffer.scope
    if inside_parallel:
        return "local"
    size = buffer.dtype.nbytes
    for extent in shape:
        if not isinstance(extent, Const):
            return "global"
        size *= int(extent)
    return "local" if size <= MAX_STACK_BYTES and not shared else "global"


def _boxes(s: Allocate, facts: Facts) -> list[tuple[Expr, Expr] | None]:
    """For each dimension the start and extent of the accessed part; None if it cannot be derived."""
    sweeps: list[list[Sweep] | None] = [[] for _ in s.buffer.shape]
    _collect(s.body, s.buffer, facts, [], sweeps)
    return [_hull(found, facts) if found else None for found in sweeps]


def _collect(s: Stmt, buffer: Buffer, facts: Facts, moving: list[Var], sweeps: list[list[Sweep] | None]) -> None:
    accesses = [e.indices for e in postorder(*expressions(s)) if isinstance(e, Load) and e.source is buffer]
    if isinstance(s, Store) and s.buffer is buffer:
        accesses.append(s.indices)
    for indices in accesses:
        for d, e in enumerate(indices):
            found = sweeps[d]
            swept = facts.sweep(e, moving) if found is not None else None
            if found is not None and swept is not None and not loads(swept.low):
                found.append(swept)
            else:
                sweeps[d] = None
    if isinstance(s, (For, Let)):
        with inside(facts, s):
            moving.append(s.var)
            _collect(s.body, buffer, facts, moving, sweeps)
            moving.pop()
        return
    for c in children(s):
        _collect(c, buffer, facts, moving, sweeps)


def _hull(sweeps: list[Sweep], facts: Facts) -> tuple[Expr, Expr] | None:
    """The smallest interval that contains all sweeps; its extent must be a constant."""
    low = sweeps[0].low
    for other, _ in sweeps[1:]:
        if facts.nonnegative(other - low):
            continue
        if not facts.nonnegative(low - other):
            return None
        low = other
    extent = 0
    for start, width in sweeps:
        reach = facts.maximum(start - low + width)
        if reach is None:
            return None
        extent = max(extent, reach + 1)
    return low, Const(extent)


def _redirect(body: Stmt, old: Buffer, new: Buffer, lows: list[Expr | None]) -> Stmt:
    def shift(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i if low is None else i - low for i, low in zip(indices, lows, strict=True))

    def load(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.source is old:
            return Load(new, shift(e.indices), e.mask)
        return None

    memo: dict[Expr, Expr] = {}

    def fix(e: Expr) -> Expr:
        return map_expr(e, load, memo)

    def each(s: Stmt) -> Stmt:
        s = map_expressions(s, fix)
        if isinstance(s, Store) and s.buffer is old:
            return Store(new, shift(s.indices), s.value, s.mask)
        return s

    return transform(body, each)
