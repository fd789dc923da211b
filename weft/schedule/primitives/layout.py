"""The primitive that changes the layout of a buffer: transform_layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, Piece, linear, pieces_of, relax, simplify_index
from weft.expr.nodes import Const, Expr, Load, Var, select
from weft.schedule.index_map import IndexMap
from weft.schedule.movement import emptied_loops, removed_root
from weft.schedule.ranges import index_var, iter_ranges
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import TRUE, certain, is_true, map_loads, simplify_where, unique_regions, widened
from weft.schedule.state import State
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Region, Stmt, Store
from weft.tir.visit import substitution, transform


def transform_layout(
    state: State,
    block: BlockRef,
    buffer: str,
    index_map: IndexMap,
    pad: float | None = None,
    change_parameter: bool = False,
) -> None:
    """Store an intermediate buffer in another layout and change all its accesses.

    ::

        P[k, n] = f(k, n);  … P[k, n] …   →   P[n // 8, k, n % 8] = f(k, n);  … P[n // 8, k, n % 8] …

    If the sizes do not divide, the new layout has additional elements. The producer stores ``pad`` in them; with None
    they stay undefined and are never read. A producer that is a simple loop nest with one store is rewritten to iterate
    over the new dimensions in their order; ``pad`` requires such a producer (S072).

    The layout of a parameter is the caller's. It changes only with ``change_parameter``: the caller then passes the
    buffer in the new layout. Its extents must be known (S071).
    """
    found = state.block(block)
    old = next((r.buffer for r in (*found.writes, *found.reads) if r.buffer.name == buffer), None)
    if old is None:
        raise state.refuse("S040", f"block '{found.name}' does not touch a buffer '{buffer}'", at=found)
    _check_parameter(state, found, old, change_parameter)
    if len(index_map.inputs) != len(old.shape):
        raise state.refuse("S004", f"the index map takes {len(index_map.inputs)} indices, not {len(old.shape)}")
    new = old.replace(shape=_new_shape(state, old, index_map), strides=None)
    if not index_map.is_invertible and not _is_mixed_radix(index_map, old.shape):
        raise state.refuse(
            "S070",
            f"the index map does not carry every index of '{buffer}' exactly once",
            at=found,
            hint="each index must appear whole, or as v // a together with v % a",
        )
    padded = _is_padded(old, new)
    if padded and pad is None and old in state.program.params[len(state.program.params) - state.program.outputs :]:
        raise state.refuse(
            "S072", f"the output '{buffer}' would have elements that nothing writes", at=found, hint="give pad"
        )
    writers = [b for b in state.tree.accessors(old) if any(w.buffer is old for w in b.writes)]
    producer = writers[0] if len(writers) == 1 and _can_run_over(state, writers[0], old, index_map) else None
    if pad is not None and padded and producer is None:
        raise state.refuse(
            "S072",
            f"the producer of '{buffer}' cannot store the padding",
            at=writers[0] if writers else found,
            hint="transform the layout of a copy (cache_read) before moving it",
        )
    changes: dict[Stmt, Stmt | None] = {}
    touching = state.tree.accessors(old)
    for b in touching:
        if b is not producer and not any(o is not b and state.tree.is_under(b, o) for o in touching):
            changes[b] = _over_new(b, old, new, index_map)
    if producer is not None:
        changes[removed_root(state, producer)] = _rerun(producer, old, new, index_map, pad if padded else None, padded)
    gone = emptied_loops(state, producer) if producer is not None else []
    state.commit(state.tree.replace(changes), swapped=[(old, new)])
    if padded and pad is None:
        state.holes = state.holes | {new.name}
        if producer is not None:
            state.conditional = state.conditional | {producer.name}
    if producer is not None:
        made = state.tree.loops_around(state.block(producer.name))
        state.consume(gone, [LoopRef(x.var) for x in made])


def _check_parameter(state: State, block: Block, buffer: Buffer, change: bool) -> None:
    """Refuse parameters, unless the caller agrees and their extents are known."""
    if buffer not in state.program.params:
        return
    if not change:
        raise state.refuse(
            "S071",
            f"'{buffer.name}' is a parameter",
            at=block,
            hint="make a copy with cache_read or cache_write; change_parameter=True changes what callers pass",
        )
    if not all(isinstance(e, Const) for e in buffer.shape) or buffer.strides is not None:
        raise state.refuse("S071", f"the parameter '{buffer.name}' has no known compact shape", at=block)


def _new_shape(state: State, old: Buffer, index_map: IndexMap) -> tuple[Expr, ...]:
    extents = dict(zip(index_map.inputs, old.shape, strict=True))
    running = {v: (linear(ZERO), linear(e).plus(-1)) for v, e in extents.items()}
    shape: list[Expr] = []
    for output in index_map.outputs:
        piece = pieces_of(output)
        if piece is not None and piece.var in extents:
            by, size = piece.divisor, extents[piece.var]
            whole = size if by == 1 else simplify_index((size + (by - 1)) // by)
            shape.append(whole if piece.modulus is None else Const(piece.modulus, INDEX))
            continue
        swept = relax(output, running, running)
        if swept is None or not swept.low.is_constant or swept.low.constant != 0:
            raise state.refuse("S070", f"the range of the index map output '{output}' is not known to start at 0")
        shape.append(swept.width.plus(1).expr())
    return tuple(shape)


def _is_mixed_radix(index_map: IndexMap, shape: Sequence[Expr]) -> bool:
    """Whether each output is a mixed-radix number of inputs that no other output uses, such as ``i * 8 + j`` with ``j <
    8``."""
    extents = dict(zip(index_map.inputs, shape, strict=True))
    used: set[Var] = set()
    for output in index_map.outputs:
        reach = 0
        for term, factor in sorted(linear(output).terms.items(), key=lambda t: t[1]):
            extent = extents.get(term) if isinstance(term, Var) else None
            if not isinstance(term, Var) or term in used or factor <= reach or not isinstance(extent, Const):
                return False
            used.add(term)
            reach += factor * (int(extent) - 1)
    return used == set(extents)


def _is_padded(old: Buffer, new: Buffer) -> bool:
    sizes = []
    for b in (old, new):
        total: Expr = Const(1, INDEX)
        for d in b.shape:
            total = total * d
        sizes.append(linear(total))
    apart = sizes[1] - sizes[0]
    return not (apart.is_constant and apart.constant == 0)


def _over_new(block: Block, old: Buffer, new: Buffer, index_map: IndexMap) -> Block:
    """``block`` with its accesses of ``old`` mapped to ``new``."""
    ranges = iter_ranges(block)

    def at(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        swap = substitution(dict(zip(index_map.inputs, indices, strict=True)))
        made = (swap(o) for o in index_map.outputs)
        return tuple(simplify_index(o, certain([o], ranges)) for o in made)

    def on_load(load: Load) -> Expr | None:
        return Load(new, at(load.indices), load.mask) if load.source is old else None

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer is old:
            return Store(new, at(stmt.indices), stmt.value, stmt.mask)
        if isinstance(stmt, Block):
            return dataclasses.replace(stmt, reads=regions(stmt.reads), writes=regions(stmt.writes))
        return None

    def regions(given: Sequence[Region]) -> tuple[Region, ...]:
        template = Region(new, tuple((o, ONE) for o in index_map.outputs))
        made = []
        for r in given:
            if r.buffer is not old:
                made.append(r)
            elif all(e is ONE for _, e in r.ranges):
                made.append(Region(new, tuple((i, ONE) for i in at([s for s, _ in r.ranges]))))
            else:
                starts = dict(zip(index_map.inputs, (s for s, _ in r.ranges), strict=True))
                extents = dict(zip(index_map.inputs, (e for _, e in r.ranges), strict=True))
                made.append(widened(template, starts, extents))
        return unique_regions(made)

    made = transform(map_loads(block, on_load), on_stmt)
    assert isinstance(made, Block)
    return made


def _can_run_over(state: State, producer: Block, old: Buffer, index_map: IndexMap) -> bool:
    """Whether the producer is a simple loop nest with one store, indexed by its own variables, that can iterate over
    the new dimensions."""
    around = state.tree.loops_around(producer)
    plain = all(x.kind == "serial" and not x.annotations for x in around)
    own = tuple(it.var for it in producer.iters)
    return (
        plain
        and producer.name not in state.partial
        and len(emptied_loops(state, producer)) == len(around)
        and is_true(producer.where)
        and producer.init is None
        and isinstance(producer.body, Store)
        and producer.body.buffer is old
        and producer.body.indices == own
        and all(it.kind == IterVar.SPATIAL and it.start is ZERO for it in producer.iters)
        and all(pieces_of(o) is not None for o in index_map.outputs)
        and index_map.is_invertible
    )


def _rerun(producer: Block, old: Buffer, new: Buffer, index_map: IndexMap, pad: float | None, padded: bool) -> Stmt:
    """The producer as a loop nest over the dimensions of the new layout."""
    iters = tuple(
        IterVar(index_var(_piece_name(_piece(o))), e) for o, e in zip(index_map.outputs, new.shape, strict=True)
    )
    loops = [For(index_var(it.var.name), ZERO, it.extent, producer) for it in iters]
    position: dict[Var, Expr] = {}
    for variable, carried in zip(producer.iters, index_map.inverse(), strict=True):
        total: Expr = ZERO
        for output, piece in reversed(carried):
            total = total + iters[output].var * piece.divisor
        position[variable.var] = total
    swap = substitution(position)
    assert isinstance(producer.body, Store)
    inside = _inside_domain(producer, position, {it.var: it for it in iters}) if padded else TRUE
    value = swap(producer.body.value)
    if pad is not None:
        value = select(inside, value, Const(pad, value.dtype))
    where: Expr = TRUE
    if padded and pad is None:
        to_loops = substitution({it.var: x.var for it, x in zip(iters, loops, strict=True)})
        where = to_loops(inside)
    at = tuple(it.var for it in iters)
    made: Stmt = dataclasses.replace(
        producer,
        iters=iters,
        values=tuple(x.var for x in loops),
        reads=tuple(_mapped(r, swap) for r in producer.reads),
        writes=(Region(new, tuple((v, ONE) for v in at)),),
        body=Store(new, at, value),
        where=where,
    )
    for loop in reversed(loops):
        made = dataclasses.replace(loop, body=made)
    return made


def _piece_name(piece: Piece) -> str:
    """``n`` for the whole index n, ``n_o`` for its outer digits and ``n_i`` for its inner digits."""
    suffix = "" if piece.divisor == 1 and piece.modulus is None else "_o" if piece.modulus is None else "_i"
    return piece.var.name + suffix


def _piece(e: Expr) -> Piece:
    found = pieces_of(e)
    assert found is not None
    return found


def _mapped(region: Region, swap: object) -> Region:
    assert callable(swap)
    return Region(region.buffer, tuple((swap(a), swap(b)) for a, b in region.ranges))


def _inside_domain(producer: Block, position: Mapping[Var, Expr], iters: Mapping[Var, IterVar]) -> Expr:
    ranges = {v: (linear(ZERO), linear(it.extent).plus(-1)) for v, it in iters.items()}
    conditions = [position[it.var] < it.extent for it in producer.iters]
    return simplify_where(all_of(*conditions), ranges)
