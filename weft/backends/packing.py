"""Calls that pack elements which are already adjacent in memory: such a call is one load of words."""

from __future__ import annotations

from weft.expr.affine import split_constant
from weft.expr.nodes import Call, Const, Expr, Load, Ramp


def is_packed_load(e: Call) -> bool:
    """Whether the call packs elements that are adjacent in memory."""
    loads = [a for a in e.args if isinstance(a, Load) and a.mask is None]
    if e.name not in ("pack4", "pack2") or len(loads) < len(e.args):
        return False
    starts = [_start(a.indices[0], len(loads)) for a in loads]
    first = starts[0]
    return first is not None and all(
        a.source is loads[0].source and s is not None and s[0] is first[0] and s[1] == first[1] + i
        for i, (a, s) in enumerate(zip(loads, starts, strict=True))
    )


def _start(index: Expr, step: int) -> tuple[Expr | None, int] | None:
    """Where the first lane is, if lanes are ``step`` elements apart."""
    if isinstance(index, Ramp) and isinstance(index.stride, Const) and index.stride.value == step:
        return split_constant(index.base)
    return split_constant(index) if index.lanes == 1 else None
