"""Primitives that change the iteration variables of a block: reorder_block_iter_var, transform_block_layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.expr.iter_var import IterVar
from weft.expr.linear import ZERO, linear, pieces_of, relax, simplify_index
from weft.expr.nodes import Const, Expr, Var
from weft.schedule.index_map import IndexMap
from weft.schedule.movement import emptied_loops, removed_root
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import is_true, substitute_regions
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block
from weft.tir.nodes import Block, For
from weft.tir.visit import substitute


def reorder_block_iter_var(state: State, block: BlockRef, order: Sequence[int]) -> None:
    """Put the variables of a block into another order; the loops stay.

    ::

        block C(i = a, j = b, k = c)   →   block C(k = c, i = a, j = b)        (order 2, 0, 1)

    ``order`` names every position once (S004).
    """
    found = state.block(block)
    if sorted(order) != list(range(len(found.iters))):
        raise state.refuse(
            "S004", f"'{found.name}' has {len(found.iters)} variables; name each position once", at=found
        )
    made = with_block(found, iters=tuple(found.iters[n] for n in order), values=tuple(found.values[n] for n in order))
    state.commit(state.tree.replace({found: made}))


def transform_block_layout(state: State, block: BlockRef, index_map: IndexMap) -> None:
    """Run a block over other variables: ``index_map`` maps its old variables to new ones, in new loops.

    ::

        for i in 8: for k in 12: B(i, k)   →   for i_o in 2: for k in 12: for i_i in 4: B(i_o * 4 + i_i, k)
                                                                (lambda i, k: (i // 4, k, i % 4))

    The map must carry every instance exactly once, without remainders (S070): pieces of variables, or mixed-radix
    numbers of variables of one kind. The block must be alone in a nest of serial loops, one for each variable (S011).
    """
    found = state.block(block)
    loops = _own_loops(state, found)
    if len(index_map.inputs) != len(found.iters):
        raise state.refuse("S004", f"the index map takes {len(index_map.inputs)} variables, not {len(found.iters)}")
    old = dict(zip(index_map.inputs, found.iters, strict=True))
    iters, values = _mapped(state, found, index_map, old)
    made_loops = [For(index_var(it.var.name), ZERO, it.extent, found) for it in iters]
    swap = {old[v].var: e for v, e in values.items()}
    body = substitute(found.body, swap)
    init = None if found.init is None else substitute(found.init, swap)
    made = dataclasses.replace(
        found,
        iters=tuple(iters),
        values=tuple(x.var for x in made_loops),
        reads=substitute_regions(found.reads, swap),
        writes=substitute_regions(found.writes, swap),
        body=body,
        init=init,
    )
    root = removed_root(state, found)
    state.commit(state.tree.replace({root: nest(made_loops, made)}))
    state.consume([LoopRef(x.var) for x in loops], [LoopRef(x.var) for x in made_loops])


def _own_loops(state: State, block: Block) -> list[For]:
    """The loops around the block, one for each of its variables, which contain nothing else."""
    around = state.tree.loops_around(block)
    alone = len(emptied_loops(state, block)) == len(around) and is_true(block.where)
    direct = len(around) == len(block.iters) and {x.var for x in around} == set(block.values)
    whole = all(
        linear(x.extent).key == linear(it.extent).key and x.start is ZERO and it.start is ZERO
        for it, v in zip(block.iters, block.values, strict=True)
        for x in around
        if x.var is v
    )
    if not (alone and direct and whole and all(x.kind == "serial" and not x.annotations for x in around)):
        raise state.refuse(
            "S011",
            f"block '{block.name}' is not alone in serial loops, one for each variable",
            at=block,
            hint="use transform_block_layout before other primitives on its loops",
        )
    return around


def _mapped(
    state: State, block: Block, index_map: IndexMap, old: dict[Var, IterVar]
) -> tuple[list[IterVar], dict[Var, Expr]]:
    """The new variables, and each input of the map as an expression of them."""
    iters = [_output(state, block, output, old) for output in index_map.outputs]
    values: dict[Var, Expr] = {}
    if index_map.is_invertible:
        for variable, carried in zip(index_map.inputs, index_map.inverse(), strict=True):
            parts = [iters[position].var * piece.divisor for position, piece in reversed(carried)]
            values[variable] = simplify_index(sum(parts[1:], parts[0]))
            _check_even(state, block, old[variable], [iters[position].extent for position, _ in carried])
        return iters, values
    for output, it in zip(index_map.outputs, iters, strict=True):
        rest: Expr = it.var
        reach = linear(it.extent)
        for term, factor in sorted(linear(output).terms.items(), key=lambda t: -t[1]):
            if not isinstance(term, Var) or term not in old or term in values or not reach.is_constant:
                raise _refusal(state, block)
            extent = linear(old[term].extent)
            if not extent.is_constant or extent.constant * factor != reach.constant:
                raise _refusal(state, block)
            values[term] = simplify_index(rest // factor, {it.var: (linear(ZERO), linear(it.extent).plus(-1))})
            rest, reach = rest % factor, linear(Const(factor))
        if reach.constant != 1:
            raise _refusal(state, block)
    if values.keys() != old.keys():
        raise _refusal(state, block)
    return iters, values


def _output(state: State, block: Block, output: Expr, old: dict[Var, IterVar]) -> IterVar:
    """The new variable that runs over the values of ``output``."""
    used = [old[v] for v in old if v in _variables(output)]
    kinds = {it.kind for it in used}
    ranges = {v: (linear(ZERO), linear(it.extent).plus(-1)) for v, it in old.items()}
    swept = relax(output, ranges, ranges)
    if len(kinds) != 1 or swept is None or not swept.low.is_constant or swept.low.constant:
        raise _refusal(state, block)
    name = "_".join(it.var.name for it in used)
    piece = pieces_of(output)
    if piece is not None and piece.modulus is not None:
        return IterVar(index_var(name), Const(piece.modulus), used[0].kind)
    return IterVar(index_var(name), swept.width.plus(1).expr(), used[0].kind)


def _variables(e: Expr) -> set[Var]:
    stack, found = [e], set()
    while stack:
        top = stack.pop()
        if isinstance(top, Var):
            found.add(top)
        stack.extend(top.children)
    return found


def _check_even(state: State, block: Block, it: IterVar, extents: Sequence[Expr]) -> None:
    """Refuse unless the digits of a variable have as many values together as the variable."""
    if len(extents) == 1:
        return
    total = 1
    for extent in (*extents, it.extent):
        if not isinstance(extent, Const):
            raise _refusal(state, block)
    for extent in extents:
        total *= int(extent)  # type: ignore[call-overload]  # constant
    if total != int(it.extent):  # type: ignore[call-overload]  # constant
        raise _refusal(state, block)


def _refusal(state: State, block: Block) -> Exception:
    return state.refuse(
        "S070",
        f"the index map does not carry every instance of '{block.name}' exactly once",
        at=block,
        hint="each variable must appear whole, as v // a together with v % a, or in one number such as i * 8 + j",
    )
