"""The primitive that stores a buffer in another type: unsafe_set_dtype."""

from __future__ import annotations

import dataclasses

from weft.expr.nodes import Cast, Expr, Load
from weft.schedule.primitives.cache import written_buffer
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import map_loads
from weft.schedule.state import State
from weft.support.dtypes import DType
from weft.support.errors import UserError
from weft.tir.combine import IDENTITY
from weft.tir.nodes import Block, Region, Stmt, Store
from weft.tir.visit import transform


def unsafe_set_dtype(state: State, block: BlockRef, write_index: int, dtype: str) -> None:
    """Store an intermediate buffer in another type: values are cast where they are stored and where they are loaded.

    ::

        alloc P: f32[8];  P[i] = f(i);  C[i] = g(P[i])   →   alloc P: f16[8];  P[i] = f16(f(i));  C[i] = g(f32(P[i]))

    Unsafe, because values that the type does not have are rounded or wrapped: this primitive may change results. An
    accumulator is rounded at every step. Refuses parameters (S041).
    """
    found = state.block(block)
    old = written_buffer(state, found, write_index)
    if old in state.program.params:
        raise state.refuse(
            "S041", f"'{old.name}' is a parameter", at=found, hint="use cache_write to compute it elsewhere first"
        )
    try:
        wanted = DType(dtype)
    except UserError as error:
        raise state.refuse("S004", f"unknown type '{dtype}'", at=found, hint="such as float16 or int32") from error
    if wanted == old.dtype:
        return
    new = old.replace(dtype=wanted)

    def on_load(load: Load) -> Expr | None:
        return Cast(Load(new, load.indices, load.mask), old.dtype) if load.source is old else None

    def regions(given: tuple[Region, ...]) -> tuple[Region, ...]:
        return tuple(Region(new, r.ranges) if r.buffer is old else r for r in given)

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer is old:
            return Store(new, stmt.indices, Cast(stmt.value, wanted), stmt.mask)
        if isinstance(stmt, Block):
            stores = any(r.buffer is old for r in stmt.writes)
            notes = stmt.annotations.without(IDENTITY) if stores else stmt.annotations
            return dataclasses.replace(stmt, reads=regions(stmt.reads), writes=regions(stmt.writes), annotations=notes)
        return None

    touching = state.tree.accessors(old)
    outermost = [b for b in touching if not any(b is not o and state.tree.is_under(b, o) for o in touching)]
    changes: dict[Stmt, Stmt | None] = {b: transform(map_loads(b, on_load), on_stmt) for b in outermost}
    state.commit(state.tree.replace(changes), swapped=[(old, new)])
