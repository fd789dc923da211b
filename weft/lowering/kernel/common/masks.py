"""Vector conditions whose value is known in every lane: the code under them loses its mask, or is removed."""

from __future__ import annotations

import numpy as np

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Select, const
from weft.support.dtypes import BOOL

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def folded(e: Expr) -> Expr:
    """``e`` without vector conditions that have the same known value in all lanes. Its operands are already folded."""
    if isinstance(e, Load):
        return Load(e.source, e.indices) if e.mask is not None and uniform(e.mask) is True else e
    if isinstance(e, Select):
        known = uniform(e.condition)
        return e if known is None or e.condition.lanes == 1 else e.then if known else e.otherwise
    if not isinstance(e, Binary) or e.dtype != BOOL or e.lanes == 1:
        return e
    if e.op in _COMPARISONS:
        if not (_is_known(e.a) and _is_known(e.b)):
            return e
        lanes = np.asarray(evaluate(e))
        return Broadcast(const(bool(lanes.flat[0])), e.lanes) if lanes.all() or not lanes.any() else e
    if e.op in ("and", "or"):
        for one, other in ((e.a, e.b), (e.b, e.a)):
            known = uniform(one)
            if known is not None:
                return other if known == (e.op == "and") else one
    return e


def uniform(mask: Expr) -> bool | None:
    """The value of a condition that is the same constant in all lanes; None for any other condition."""
    value = mask.value if isinstance(mask, Broadcast) else mask
    return bool(value.value) if isinstance(value, Const) else None


def _is_known(e: Expr) -> bool:
    if isinstance(e, Ramp):
        return isinstance(e.base, Const) and isinstance(e.stride, Const)
    return isinstance(e, Broadcast) and isinstance(e.value, Const)
