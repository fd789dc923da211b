"""Rows in private memory are written in whole vectors, also where they end within a vector::

    allocate row: f32[18]                          allocate row: f32[33]
    row[ramp(16, 1, 16); lanes < 2] = value   →    row[ramp(16, 1, 16)] = value

Processors pass what was just stored to a load before it is in the cache, but not what was stored under a mask: each
short row that is stored and read again would wait. The lanes that the mask leaves out are beyond the end of the row,
where nothing is read; the memory is made so much longer.
"""

from __future__ import annotations

from dataclasses import replace

from weft.expr.linear import ZERO
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Ramp
from weft.expr.operators import DIVISIONS
from weft.expr.simplify import simplify
from weft.expr.visit import post_order
from weft.tir.nodes import Allocate, Buffer, Program, Stmt, Store
from weft.tir.visit import stores, substitute, transform


def write_whole_vectors(program: Program) -> Program:
    """The program without masks that only end rows of private memory."""

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, Allocate) or s.buffer.scope != "local" or len(s.buffer.shape) != 1:
            return None
        ends = {x for x in stores(s.body) if x.buffer is s.buffer and _ends_row(x)}
        if not ends:
            return None
        more = max(x.indices[0].lanes for x in ends) - 1
        old = s.buffer
        longer = Buffer(old.name, (simplify(old.shape[0] + more),), old.dtype, old.scope, old.strides, old.align)
        body = transform(s.body, lambda x: replace(x, mask=None) if isinstance(x, Store) and x in ends else None)
        return Allocate(longer, substitute(body, {}, {old: longer}))

    return replace(program, body=transform(program.body, visit))


def _ends_row(s: Store) -> bool:
    """Whether the lanes that the mask of a store leaves out are those beyond the end of its buffer."""
    at, mask = s.indices[0], s.mask
    if not (isinstance(at, Ramp) and isinstance(mask, Binary) and _is_one(at.stride)):
        return False
    if mask.op != "lt" or not isinstance(mask.a, Ramp) or not _is_one(mask.a.stride):
        return False
    # Divisions of integers fail for some values, such as those in lanes that the mask leaves out.
    if not isinstance(mask.b, Broadcast) or any(
        isinstance(e, Binary) and e.op in DIVISIONS and not e.dtype.is_float for e in post_order(s.value)
    ):
        return False
    end = simplify(mask.b.value + (at.base - mask.a.base))
    return simplify(end - s.buffer.shape[0]) is ZERO


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1
