"""Recognizes loops that only fill a whole buffer with zeros."""

from __future__ import annotations

from math import copysign

from weft.expr.affine import linear_form
from weft.expr.nodes import Broadcast, Const, Expr, Ramp, Var
from weft.tir.nodes import Buffer, For, Stmt, Store


def zero_filled(s: Stmt) -> Buffer | None:
    """The buffer whose elements ``s``, a nest of loops around one store, all sets to zero; None if ``s`` is anything
    else."""
    extents: dict[Var, int] = {}
    while isinstance(s, For):
        if s.kind not in ("serial", "unrolled") or not isinstance(s.extent, Const) or not _zero(s.start):
            return None
        extents[s.var] = int(s.extent.value)
        s = s.body
    if not isinstance(s, Store) or s.mask is not None or len(s.indices) != 1 or not _zero(s.value):
        return None
    index, lanes = s.indices[0], 1
    if isinstance(index, Ramp):
        if not isinstance(index.stride, Const) or index.stride.value != 1:
            return None
        index, lanes = index.base, index.lanes
    form = linear_form(index, extents)
    if form is None or not _zero(form[1]) or len(s.buffer.shape) != 1 or not isinstance(s.buffer.shape[0], Const):
        return None
    # Strides of a mixed radix: each stride is the product of the extents of all faster loops.
    for step, extent in sorted((form[0].get(var, 0), extent) for var, extent in extents.items() if extent != 1):
        if step != lanes:
            return None
        lanes *= extent
    return s.buffer if lanes == int(s.buffer.shape[0].value) else None


def _zero(e: Expr) -> bool:
    e = e.value if isinstance(e, Broadcast) else e
    return isinstance(e, Const) and e.value == 0 and copysign(1.0, e.value) > 0
