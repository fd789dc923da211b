"""The primitive that pads the domain of a block: pad_einsum."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, linear, simplify_index
from weft.expr.nodes import Binary, Cast, Const, Expr, Load, Var, const, select
from weft.expr.operators import DIVISIONS
from weft.expr.prove import Facts
from weft.expr.visit import uses_var
from weft.schedule.movement import emptied_loops, removed_root
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import is_true, swap_buffer
from weft.schedule.state import State
from weft.schedule.tree import with_block, with_loop
from weft.tir.nodes import Block, Buffer, For, Region, Stmt, Store, seq
from weft.tir.visit import postorder


def pad_einsum(state: State, block: BlockRef, padding: tuple[int, ...]) -> tuple[BlockRef, ...]:
    """Round up the extents of a block's variables to multiples of ``padding``, one number for each variable.

    ::

        for i in 13, j in 9, k in 5: C[i, j] += A[i, k] * B[k, j]          (padding 8, 8, 1)

        for i in 16, k in 5: A_pad[i, k] = A[i, k] if i < 13 else 0
        for k in 5, j in 16: B_pad[k, j] = B[k, j] if j < 9 else 0
        for i in 16, j in 16, k in 5: C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
        for i in 13, j in 9: C[i, j] = C_pad[i, j]

    The operands are copied and padded with zeros; the result is copied without its padding. Returns the copying blocks,
    operands first. An operand that has elements for the whole padded domain, such as packed panels, is not copied. The
    block must be alone in its loop nest, and an index of the other accesses in which a padded variable occurs must be
    this variable alone. A padded reduction must be a sum of products, which zeros do not change (S073).
    """
    found = state.block(block)
    if len(padding) != len(found.iters) or any(p < 1 for p in padding):
        raise state.refuse(
            "S004", f"'{found.name}' has {len(found.iters)} variables; give a positive number for each", at=found
        )
    loops = _own_loops(state, found)
    rounded = {
        it.var: simplify_index((it.extent + (p - 1)) // p * p) for it, p in zip(found.iters, padding, strict=True)
    }
    grown = {it.var: rounded[it.var] for it in found.iters if not _equal(rounded[it.var], it.extent)}
    if not grown:
        return ()
    _check_body(state, found, grown)
    extents = {it.var: it.extent for it in found.iters}
    copies: dict[Buffer, Buffer] = {}
    before: list[Stmt] = []
    after: list[Stmt] = []
    pads: list[str] = []
    crops: list[str] = []
    for buffer, variables in _accesses(state, found, extents, grown, rounded).items():
        shape = tuple(n if v is None else rounded[v] for v, n in zip(variables, buffer.shape, strict=True))
        copies[buffer] = Buffer(state.fresh_buffer(f"{buffer.name}_pad"), shape, buffer.dtype)
        is_result = buffer is found.writes[0].buffer
        _check_written(state, found, buffer)
        name = state.fresh_block(f"{buffer.name}_{'crop' if is_result else 'pad'}")
        (crops if is_result else pads).append(name)
        if is_result:
            after.append(_copy(name, copies[buffer], buffer, buffer.shape, None))
        else:
            before.append(_copy(name, buffer, copies[buffer], shape, buffer.shape))
    iters = tuple(dataclasses.replace(it, extent=rounded[it.var]) for it in found.iters)
    made: Stmt = with_block(found, iters=iters)
    for old, new in copies.items():
        made = swap_buffer(made, old, new)
    for loop, it in reversed(loops):
        made = with_loop(loop, extent=rounded[it.var], body=made)
    root = removed_root(state, found)
    state.commit(state.tree.replace({root: seq(*before, made, *after)}), new=copies.values())
    return tuple(BlockRef(n) for n in (*pads, *crops))


def _check_written(state: State, block: Block, buffer: Buffer) -> None:
    """Refuse to copy a buffer that a later block goes on writing, such as the state of a recurrence."""
    late = [b for b in state.tree.writers(buffer) if state.tree.position[b] > state.tree.position[block]]
    if late:
        raise state.refuse("S023", f"'{buffer.name}' is written by '{late[0].name}' too, later", at=late[0])


def _equal(a: Expr, b: Expr) -> bool:
    apart = linear(a) - linear(b)
    return apart.is_constant and apart.constant == 0


def _own_loops(state: State, block: Block) -> list[tuple[For, IterVar]]:
    """The loops of the block, each with its iteration variable."""
    around = state.tree.loops_around(block)
    driven = dict(zip(block.values, block.iters, strict=True))
    plain = all(
        x.kind == "serial" and not x.annotations and x.var in driven and _equal(x.extent, driven[x.var].extent)
        for x in around
    )
    alone = len(emptied_loops(state, block)) == len(around) == len(block.iters)
    starts = all(x.start is ZERO for x in around) and all(it.start is ZERO for it in block.iters)
    if not (plain and alone and starts and is_true(block.where)) or block.name in state.partial:
        raise state.refuse(
            "S073", f"block '{block.name}' is not alone in a plain nest over its domain", at=block, hint="pad first"
        )
    return [(x, driven[x.var]) for x in around]


def _accesses(
    state: State,
    block: Block,
    extents: Mapping[Var, Expr],
    grown: Mapping[Var, Expr],
    rounded: Mapping[Var, Expr],
) -> dict[Buffer, tuple[Var | None, ...]]:
    """The padded variable that indexes each dimension of a buffer, over its whole extent (None: no padded variable),
    for each buffer of the block that must be copied because any of them indexes it."""
    facts, summed = Facts(), {it.var for it in block.iters if it.kind != IterVar.SPATIAL}
    for v, n in rounded.items():
        facts.bind(v, ZERO, n)
    found: dict[Buffer, tuple[Var | None, ...]] = {}
    stores = [s for s in (block.init, block.body) if isinstance(s, Store)]
    places = [(s.buffer, s.indices) for s in stores]
    for e in postorder(*(s.value for s in stores)):
        if isinstance(e, Load):
            assert isinstance(e.source, Buffer)
            places.append((e.source, e.indices))
    for buffer, indices in places:
        inside = all(facts.prove(i < n) for i, n in zip(indices, buffer.shape, strict=True))
        if inside and not any(uses_var(i, [v for v in grown if v in summed]) for i in indices):
            continue
        variables = tuple(i if isinstance(i, Var) and i in grown else None for i in indices)
        alone = [v for v in variables if v is not None]
        rest = (i for i, v in zip(indices, variables, strict=True) if v is None)
        whole = (
            len(set(alone)) == len(alone)
            and not any(uses_var(i, grown) for i in rest)
            and all(v is None or _equal(extents[v], n) for v, n in zip(variables, buffer.shape, strict=True))
        )
        if not whole or found.setdefault(buffer, variables) != variables:
            raise state.refuse(
                "S073", f"'{block.name}' does not access '{buffer.name}' at one variable for each index", at=block
            )
    return {buffer: variables for buffer, variables in found.items() if any(v is not None for v in variables)}


def _check_body(state: State, block: Block, grown: Mapping[Var, Expr]) -> None:
    """Refuse a body in which zeros could cause an error, and sums that zeros could change."""
    body, init = block.body, block.init
    simple = isinstance(body, Store) and body.mask is None and (init is None or isinstance(init, Store))
    if not simple or len(block.writes) != 1:
        raise state.refuse("S073", f"the body of block '{block.name}' is not one store", at=block)
    assert isinstance(body, Store)
    written = body.buffer
    started = init is not None or not any(isinstance(e, Load) and e.source is written for e in postorder(body.value))
    if not started and any(v in grown for v in body.indices):
        raise state.refuse(
            "S073",
            f"block '{block.name}' adds to what '{written.name}' holds, and a padded copy of that would start empty",
            at=block,
            hint="pad before decompose_reduction",
        )
    for e in postorder(body.value):
        if isinstance(e, Binary) and e.op in DIVISIONS and not isinstance(e.b, Const):
            raise state.refuse("S073", f"block '{block.name}' would divide by zeros of the padding", at=block)
    summed = [it.var for it in block.iters if it.kind != IterVar.SPATIAL and it.var in grown]
    if not summed:
        return
    factors = _summed_product(body)
    starts_at_zero = init is None or (
        isinstance(init, Store) and isinstance(init.value, Const) and not init.value.value
    )
    for v in summed:
        over = [f for f in factors or () if isinstance(f, Load) and v in f.indices]
        others = [f for f in factors or () if f not in over and not (isinstance(f, Const) and math.isfinite(f.value))]
        if not starts_at_zero or not over or (others and body.value.dtype.is_float):
            raise state.refuse(
                "S073",
                f"zeros for '{v.name}' would change what block '{block.name}' computes",
                at=block,
                hint="only sums of products whose factors all have the padded index can be padded there",
            )


def _summed_product(body: Store) -> list[Expr] | None:
    """The factors of ``x`` in ``C[…] = C[…] + x``."""
    value = body.value
    if not isinstance(value, Binary) or value.op != "add":
        return None
    for own, added in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, Load) and own.source is body.buffer and own.indices == body.indices:
            factors: list[Expr] = []
            stack = [added]
            while stack:
                e = stack.pop()
                if isinstance(e, Binary) and e.op == "mul":
                    stack += [e.a, e.b]
                elif isinstance(e, Cast):
                    stack.append(e.a)
                else:
                    factors.append(e)
            return factors
    return None


def _copy(name: str, source: Buffer, target: Buffer, shape: Sequence[Expr], within: Sequence[Expr] | None) -> Stmt:
    """``target = source`` over ``shape``; zero outside of ``within``, if that is given."""
    iters = tuple(IterVar(index_var(f"i{d}"), n) for d, n in enumerate(shape))
    at = tuple(it.var for it in iters)
    value: Expr = Load(source, at)
    if within is not None:
        inside = [v < n for v, n, full in zip(at, within, shape, strict=True) if not _equal(n, full)]
        value = select(all_of(*inside), value, const(0, source.dtype))
    loops = [index_var(f"i{d}") for d in range(len(shape))]
    read, written = (Region(b, tuple((v, ONE) for v in at)) for b in (source, target))
    made: Stmt = Block(name, iters, tuple(loops), (read,), (written,), Store(target, at, value))
    for var, n in reversed(list(zip(loops, shape, strict=True))):
        made = For(var, ZERO, n, made)
    return made
