"""Small arrays as variables. Compilers keep variables in registers; they keep arrays there only if they can analyse all
accesses."""

from __future__ import annotations

from weft.expr.nodes import Const, Expr, Load, Ramp
from weft.expr.visit import collect
from weft.tir.nodes import Buffer, Evaluate, Stmt, Store
from weft.tir.visit import expressions, walk


def parts_of(buffer: Buffer, body: Stmt) -> dict[int, int] | None:
    """Offset and number of elements of the parts of ``buffer``, if every access in ``body`` covers exactly
    one part; None if an index is not known or accesses overlap."""
    found: dict[int, int] = {}
    for s in walk(body):
        if isinstance(s, Store) and s.buffer is buffer and not _note(s.indices, s.mask, found):
            return None
        for e in collect(expressions(s), Load):
            if e.source is buffer and (isinstance(s, Evaluate) or not _note(e.indices, e.mask, found)):
                return None
    ends = 0
    for start, lanes in sorted(found.items()):
        if start < ends:
            return None
        ends = start + lanes
    return found


def _note(indices: tuple[Expr, ...], mask: Expr | None, found: dict[int, int]) -> bool:
    at = indices[0]
    lanes = at.lanes
    if isinstance(at, Ramp):
        if not isinstance(at.stride, Const) or at.stride.value != 1:
            return False
        at = at.base
    if mask is not None or not isinstance(at, Const):
        return False
    return found.setdefault(int(at.value), lanes) == lanes
