"""The primitive that turns a loop nest into one block: blockize."""

from __future__ import annotations

import dataclasses

from weft.expr.iter_var import IterVar
from weft.expr.linear import ZERO, Linear, linear, mentions, relax, simplify_index
from weft.expr.nodes import Const, Expr, Var
from weft.schedule.ranges import index_var, moving
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import TRUE, reads_of_steps, swept_regions, uses
from weft.schedule.state import State
from weft.schedule.tree import nest, with_loop
from weft.tir.combine import IDENTITY
from weft.tir.nodes import Block, For, Region, Stmt
from weft.tir.visit import regions_read, substitute, substitution


@dataclasses.dataclass(frozen=True, slots=True)
class SplitIteration:
    """One iteration variable as ``outer * size + inner``, where the loops outside and inside give the two parts."""

    it: IterVar
    outer: Linear
    inner: Linear
    size: int


def blockize(state: State, loop: LoopRef) -> BlockRef:
    """Turn ``loop`` and the loops inside it into the body of one block, which is scheduled or replaced as a whole.

    ::

        for io: for ii in 4:                   for io:
          block C(i = io*4 + ii)         →       block C_o(o = io):
                                                   for ii in 4: block C(i = o*4 + ii)

    The loops must contain exactly one block, must not occur in its guards and must divide its variables evenly (S080).
    Returns the new outer block. The inner block keeps its name; the init of a reduction moves to the outer block.
    """
    root = state.loop(loop)
    block, loops = _single_block(state, root)
    inside = moving(loops)
    ranges = state.ranges(block)
    divisions = [
        _divide(state, block, it, linear(value), inside) for it, value in zip(block.iters, block.values, strict=True)
    ]
    outer_vars = {d.it.var: index_var(d.it.var.name) for d in divisions}
    to_outer: dict[Var, Expr] = {}
    inner_values: list[Expr] = []
    for d in divisions:
        inner_values.append(simplify_index(outer_vars[d.it.var] * d.size + d.inner.expr()))
    outer_iters = tuple(
        dataclasses.replace(
            d.it, var=outer_vars[d.it.var], start=ZERO, extent=simplify_index((d.it.extent + (d.size - 1)) // d.size)
        )
        for d in divisions
    )
    init = _init_nest(state, block, loops, inner_values)
    name = state.fresh_block(f"{block.name}_o")
    inner = dataclasses.replace(block, values=tuple(inner_values), init=None, reads=reads_of_steps(block), where=TRUE)
    to_outer.update(zip((d.it.var for d in divisions), inner_values, strict=True))
    outer_ranges = {it.var: (linear(ZERO), linear(it.extent).plus(-1)) for it in outer_iters}
    made = Block(
        name,
        outer_iters,
        tuple(_quotient(d, ranges) for d in divisions),
        swept_regions(block.reads, to_outer, moving(loops), outer_ranges),
        swept_regions(block.writes, to_outer, moving(loops), outer_ranges),
        nest(loops, inner),
        init,
        block.where,
        block.annotations.without(IDENTITY),
    )
    if block.name in state.conditional:
        state.conditional = state.conditional | {name}
    state.nested = True
    if block.name in state.partial:
        state.partial = state.partial | {name}
    state.commit(state.tree.replace({root: made}))
    return BlockRef(name)


def _single_block(state: State, root: For) -> tuple[Block, list[For]]:
    """The only block in ``root``, and the perfect nest of serial loops around it."""
    loops: list[For] = []
    stmt: Stmt = root
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        raise state.refuse("S080", f"loop '{root.var.name}' holds more than one block", at=root)
    names: dict[Var, object] = {x.var: None for x in state.tree.all_loops_around(stmt)}
    for x in loops:
        if mentions(x.start, names) or mentions(x.extent, names):
            raise state.refuse("S080", f"the range of '{x.var.name}' depends on other loops", at=x)
        if not isinstance(x.extent, Const):
            raise state.refuse("S080", f"the extent of '{x.var.name}' is not constant", at=x)
    if mentions(stmt.where, {x.var: None for x in loops}):
        raise state.refuse(
            "S080", f"block '{stmt.name}' is guarded, so its last tile is not whole", at=stmt, hint="use even factors"
        )
    return stmt, loops


def _divide(
    state: State, block: Block, it: IterVar, value: Linear, inside: dict[Var, tuple[Linear, Linear]]
) -> SplitIteration:
    """Split the binding into parts over the outer and the inner loops; the outer part is a multiple of the tile."""
    inner = Linear({t: f for t, f in value.terms.items() if mentions(t, inside)})
    outer = Linear({t: f for t, f in value.terms.items() if t not in inner.terms}, value.constant)
    swept = relax(inner.expr(), inside, inside)
    even = swept is not None and swept.low.is_constant and swept.low.constant == 0 and swept.width.is_constant
    size = swept.width.constant + 1 if swept is not None and even else 1
    even = even and it.start is ZERO and all(f % size == 0 for f in (*outer.terms.values(), outer.constant))
    if not even:
        raise state.refuse("S080", f"the binding of '{it.var.name}' does not divide into tiles", at=block)
    return SplitIteration(it, outer, inner, size)


def _quotient(d: SplitIteration, ranges: dict[Var, tuple[Linear, Linear]]) -> Expr:
    exact = Linear({t: f // d.size for t, f in d.outer.terms.items()}, d.outer.constant // d.size)
    return simplify_index(exact.expr(), ranges)


def _init_nest(state: State, block: Block, loops: list[For], values: list[Expr]) -> Stmt | None:
    """The init as a block over the spatial variables, in copies of their loops."""
    if block.init is None:
        return None
    reduces = {n for n, it in enumerate(block.iters) if it.kind == IterVar.REDUCE}
    copies: dict[Var, For] = {}
    for loop in loops:
        bound = set(uses(block, loop))
        if bound & reduces and bound - reduces:
            raise state.refuse("S080", f"'{loop.var.name}' drives spatial and reduce variables at once", at=loop)
        if bound - reduces:
            copies[loop.var] = with_loop(loop, var=index_var(f"{loop.var.name}_init"))
    swap = substitution({v: c.var for v, c in copies.items()})
    kept = [(it, v) for it, v in zip(block.iters, values, strict=True) if it.kind != IterVar.REDUCE]
    fresh: dict[Var, Var] = {it.var: index_var(it.var.name) for it, _ in kept}
    rename = substitution(dict(fresh))
    writes = tuple(Region(r.buffer, tuple((rename(a), rename(b)) for a, b in r.ranges)) for r in block.writes)
    start = substitute(block.init, dict(fresh))
    made = Block(
        state.fresh_block(f"{block.name}_init"),
        tuple(dataclasses.replace(it, var=fresh[it.var]) for it, _ in kept),
        tuple(swap(v) for _, v in kept),
        regions_read(start, set(fresh.values())),
        writes,
        start,
    )
    return nest(list(copies.values()), made)
