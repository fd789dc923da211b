"""Small rewrites that several primitives share: rebinding loop variables, guards, swapping buffers, regions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from weft.expr.folds import all_of, conjuncts
from weft.expr.iter_var import IterVar
from weft.expr.linear import (
    NO_RANGES,
    ONE,
    ZERO,
    Linear,
    Ranges,
    is_nonnegative,
    linear,
    mentions,
    relax,
    simplify_index,
)
from weft.expr.nodes import Binary, Const, Expr, Load, Var
from weft.expr.visit import free_vars, occurs
from weft.schedule.ranges import loop_range
from weft.support.dtypes import BOOL
from weft.tir.nodes import Block, Buffer, For, If, Let, Region, Seq, Stmt
from weft.tir.visit import (
    children,
    loads,
    map_expr,
    map_expressions,
    substitute,
    substitution,
    transform,
    walk,
    with_children,
)

TRUE = Const(True, BOOL)


def is_true(e: Expr) -> bool:
    return e is TRUE


# -- conditions -----------------------------------------------------------------------------------------------


def certain(expressions: Iterable[Expr], ranges: Ranges) -> Ranges:
    """The ``ranges`` that are certainly not empty wherever all ``expressions`` are evaluated: those of their own
    variables, those on which these depend, and those of constant length.

    A binding of a block is also used where some loop around the block has no iterations: the init of a reduction over
    nothing runs for all values of the other variables, and so does what is computed beside the block.
    """
    unsure = {v for v, (low, high) in ranges.items() if low.terms or high.terms}
    if not unsure:
        return ranges
    needed: set[Expr] = set()
    stack = list(expressions)
    while stack:
        for v in free_vars(stack.pop()):
            if v in unsure and v not in needed:
                needed.add(v)
                stack += [t for part in ranges[v] for t in part.terms]
    return ranges if len(needed) == len(unsure) else {v: r for v, r in ranges.items() if v not in unsure or v in needed}


def holds(condition: Expr, ranges: Ranges) -> bool:
    """Whether a comparison of index expressions certainly holds."""
    if is_true(condition):
        return True
    if not isinstance(condition, Binary) or not condition.a.dtype.is_integer:
        return False
    ranges = certain([condition], ranges)
    a, b = linear(condition.a, ranges), linear(condition.b, ranges)
    if condition.op in ("le", "lt"):
        return is_nonnegative((b - a).plus(-(condition.op == "lt")), ranges)
    if condition.op in ("ge", "gt"):
        return is_nonnegative((a - b).plus(-(condition.op == "gt")), ranges)
    if condition.op == "eq":
        return is_nonnegative(b - a, ranges) and is_nonnegative(a - b, ranges)
    return False


def simplify_where(condition: Expr, ranges: Ranges) -> Expr:
    """``condition`` without parts that certainly hold and without duplicate parts."""
    parts = dict.fromkeys(c for c in conjuncts(condition) if not holds(c, ranges))
    return all_of(*parts)


def within(value: Expr, start: Expr, extent: Expr, ranges: Ranges) -> list[Expr]:
    """The conditions for ``start <= value < start + extent``, without those that certainly hold."""
    end = simplify_index(start + extent, ranges)
    return [c for c in (start <= value, value < end) if not holds(c, ranges)]


# -- loops and bindings ---------------------------------------------------------------------------------------


def rebind(stmt: Stmt, values: Mapping[Var, Expr], ranges: Ranges = NO_RANGES, guard: Sequence[Expr] = ()) -> Stmt:
    """``stmt`` with loop variables replaced in loop bounds and block bindings. Block bodies do not mention loop
    variables.

    ``guard`` is added to the condition of every outermost block (and put around bare statements).
    """
    swap = substitution(values)
    return _rebind(stmt, values, swap, ranges, guard)


def _rebind(
    stmt: Stmt, values: Mapping[Var, Expr], swap: Callable[[Expr], Expr], ranges: Ranges, guard: Sequence[Expr]
) -> Stmt:
    if isinstance(stmt, For):
        start, extent = swap(stmt.start), swap(stmt.extent)
        if start is not stmt.start or extent is not stmt.extent:
            stmt = dataclasses.replace(stmt, start=simplify_index(start, ranges), extent=simplify_index(extent, ranges))
        inner = {**ranges, stmt.var: loop_range(stmt)}
        return dataclasses.replace(stmt, body=_rebind(stmt.body, values, swap, inner, guard))
    if isinstance(stmt, Block):
        bound = tuple(v if (new := swap(v)) is v else simplify_index(new, certain([new], ranges)) for v in stmt.values)
        where = simplify_where(all_of(swap(stmt.where), *guard), ranges)
        return dataclasses.replace(stmt, values=bound, where=where)
    if isinstance(stmt, (Seq, If, Let)):
        if isinstance(stmt, If):
            stmt = dataclasses.replace(stmt, condition=swap(stmt.condition))
        elif isinstance(stmt, Let):
            stmt = dataclasses.replace(stmt, value=swap(stmt.value))
        below = stmt.stmts if isinstance(stmt, Seq) else _branches(stmt)
        return with_children(stmt, tuple(_rebind(s, values, swap, ranges, guard) for s in below))
    made = substitute(stmt, values)
    return If(all_of(*guard), made) if guard else made


def _branches(stmt: If | Let) -> tuple[Stmt, ...]:
    if isinstance(stmt, Let):
        return (stmt.body,)
    return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)


def starts_reduction(block: Block, loops: Iterable[For]) -> bool:
    """Whether the reduce variables have their first values when all of ``loops`` do. This is false for a later part of
    a partitioned reduction."""
    first = substitution({loop.var: loop.start for loop in loops})
    return all(
        simplify_index(first(value)) is simplify_index(it.start)
        for it, value in zip(block.iters, block.values, strict=True)
        if it.kind == IterVar.REDUCE
    )


def uses(block: Block, loop: For) -> list[int]:
    """Positions of the block's iteration variables whose binding mentions the loop."""
    return [n for n, v in enumerate(block.values) if occurs(loop.var, v)]


# -- buffers and regions --------------------------------------------------------------------------------------


def swap_buffer(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """``stmt`` with ``old`` replaced by ``new``, a buffer of the same shape."""
    return substitute(stmt, {}, {old: new})


def map_loads(stmt: Stmt, change: Callable[[Load], Expr | None]) -> Stmt:
    """``stmt`` with all its loads rewritten by ``change``, at any depth; regions stay unchanged."""
    memo: dict[Expr, Expr] = {}

    def on_expr(e: Expr) -> Expr | None:
        return change(e) if isinstance(e, Load) else None

    def on_stmt(s: Stmt) -> Stmt:
        return map_expressions(s, lambda e: map_expr(e, on_expr, memo))

    return transform(stmt, on_stmt)


def substitute_regions(regions: Iterable[Region], values: Mapping[Var, Expr]) -> tuple[Region, ...]:
    """Regions with variables replaced by single values, simplified."""
    swap = substitution(values)
    return unique_regions(
        Region(r.buffer, tuple((simplify_index(swap(a)), simplify_index(swap(b))) for a, b in r.ranges))
        for r in regions
    )


def unique_regions(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The regions in order, without duplicates."""
    return tuple({(r.buffer, r.ranges): r for r in regions}.values())


def reads_of_steps(block: Block) -> tuple[Region, ...]:
    """The regions that a reduction reads after its init."""
    first = {load.source for load in loads(block.init)} if block.init is not None else set()
    first.difference_update(load.source for load in loads(block.body))
    return tuple(r for r in block.reads if r.buffer not in first)


def bound_region(block: Block, region: Region) -> list[tuple[Expr, Expr]]:
    """The ranges of a block's region, expressed over the variables of the loops around the block."""
    swap = substitution(dict(zip((it.var for it in block.iters), block.values, strict=True)))
    return [(swap(start), swap(extent)) for start, extent in region.ranges]


def widened(region: Region, starts: Mapping[Var, Expr], extents: Mapping[Var, Expr]) -> Region:
    """What ``region`` covers while each variable takes the values ``starts[v] <= v < starts[v] + extents[v]``."""
    running = {v: (linear(s), linear(s) + linear(extents.get(v, ONE)).plus(-1)) for v, s in starts.items()}
    found: list[tuple[Expr, Expr]] = []
    for (start, extent), size in zip(region.ranges, region.buffer.shape, strict=True):
        swept = relax(start, running, running)
        found.append((ZERO, size) if swept is None else (swept.low.expr(), (swept.width + linear(extent)).expr()))
    return Region(region.buffer, tuple(found))


def swept_regions(
    regions: Iterable[Region], values: Mapping[Var, Expr], moving: Ranges, ranges: Ranges
) -> tuple[Region, ...]:
    """What ``regions`` cover, with ``values`` substituted, while the variables of ``moving`` iterate; a whole dimension
    where the interval is not known."""
    swap = substitution(values)
    known = {**ranges, **moving}
    found: list[Region] = []
    for r in regions:
        box: list[tuple[Expr, Expr]] = []
        for (start, extent), size in zip(r.ranges, r.buffer.shape, strict=True):
            swept = relax(swap(start), moving, known)
            if swept is None or mentions(swap(extent), moving):
                box.append((ZERO, size))
            else:
                box.append((swept.low.expr(), (swept.width + linear(swap(extent))).expr()))
        found.append(Region(r.buffer, tuple(box)))
    return unique_regions(found)


def summarized(outer: Block) -> Block:
    """``outer``, a block that contains other blocks, with its regions computed from theirs."""
    reads: list[Region] = []
    writes: list[Region] = []
    stack: list[tuple[Stmt, Ranges]] = [(s, {}) for s in reversed(children(outer))]
    domain = {it.var: (linear(it.start), linear(it.start) + linear(it.extent).plus(-1)) for it in outer.iters}
    while stack:
        stmt, running = stack.pop()
        if isinstance(stmt, Block):
            values = dict(zip((it.var for it in stmt.iters), stmt.values, strict=True))
            reads += swept_regions(stmt.reads, values, running, domain)
            writes += swept_regions(stmt.writes, values, running, domain)
            continue
        inner = {**running, stmt.var: loop_range(stmt)} if isinstance(stmt, For) else running
        stack += [(s, inner) for s in reversed(children(stmt))]
    return dataclasses.replace(outer, reads=unique_regions(reads), writes=unique_regions(writes))


def with_summaries(body: Stmt, unchanged: Container[Stmt]) -> Stmt:
    """``body`` with the regions of blocks that contain other blocks recomputed where a statement inside changed."""

    def refresh(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Block) or stmt in unchanged:
            return None
        return summarized(stmt) if any(isinstance(s, Block) for s in walk(stmt.body)) else None

    return transform(body, refresh)


def box_of(block: Block, region: Region, moving: Ranges, ranges: Ranges) -> list[tuple[Linear, Linear] | None]:
    """What ``region`` covers while the loops in ``moving`` iterate: per dimension the first index and the width.

    None stands for a dimension that cannot be expressed over the other loops.
    """
    found: list[tuple[Linear, Linear] | None] = []
    for start, extent in bound_region(block, region):
        known = certain([start, extent], ranges)
        running = certain([start, extent], moving)
        swept = relax(start, running, known)
        size = relax(extent, running, known)
        if swept is None or size is None:
            found.append(None)
        else:
            found.append((swept.low, swept.width + size.low + size.width.plus(-1)))
    return found


def hull(
    a: tuple[Linear, Linear] | None, b: tuple[Linear, Linear] | None, ranges: Ranges
) -> tuple[Linear, Linear] | None:
    """The smallest known interval that holds both; None if it is not known."""
    if a is None or b is None:
        return None
    ranges = certain([t for part in (*a, *b) for t in part.terms], ranges)
    apart = b[0] - a[0]
    if apart.is_constant:
        low = a[0] if apart.constant >= 0 else b[0]
    else:
        first, second = is_nonnegative(apart, ranges), is_nonnegative(apart.scaled(-1), ranges)
        if not first and not second:
            return None
        low = a[0] if first else b[0]
    ends = [x[0] + x[1] for x in (a, b)]
    if is_nonnegative(ends[1] - ends[0], ranges):
        return low, ends[1] - low
    if is_nonnegative(ends[0] - ends[1], ranges):
        return low, ends[0] - low
    return None
