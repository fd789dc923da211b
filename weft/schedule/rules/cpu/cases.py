"""Blocks whose formula depends on an index: small transforms written as a choice between expressions.

With ``select(i == 0, f0, select(i == 1, f1, …))`` and a short axis ``i`` (or ``i % 4`` with a long one), every element
would test ``i``. The rule unrolls the loop over the cases as the innermost loop. Each case is then straight-line code,
and loads that the cases share are done once.
"""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Load, Select, Var
from weft.expr.visit import collect, free_vars
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.work import work_of

MAX_CASES = 8
"""Limit on the cases of an axis whose loop is unrolled."""
MIN_CHOICES = 3
"""Fewest choices in a formula for which unrolling is faster."""


def schedule_cases(context: Context, block: BlockRef) -> bool:
    """Schedule an injective block that chooses by index; False for any other block."""
    if not context.is_injective(block):
        return False
    s, view = context.schedule, context.view(block)
    periods = case_axes(view)
    vector = view.spatial[-1] if view.spatial else None
    lanes = context.lanes(view)
    if not periods or vector is None or vector in periods or lanes < 2 or view.stride(view.output, vector) != 1:
        return False
    loops = context.own_loops(block)
    if vector not in loops:
        return False
    outer: list[LoopRef] = []
    inner: list[LoopRef] = []
    for axis, loop in loops.items():
        if axis is vector:
            continue
        period = periods.get(axis)
        if period is None:
            outer.append(loop)
        elif period == static_extent(axis):
            inner.append(loop)
        else:
            high, low = s.split(loop, factors=(None, period))
            outer.append(high)
            inner.append(low)
    s.reorder(*outer, *inner, loops[vector])
    if outer:
        context.parallelize(context.fuse(outer), work_of(view))
    for loop in inner:
        s.unroll(loop)
    context.vectorize(loops[vector], lanes)
    context.done.add(block.name)
    return True


def case_axes(view: View) -> dict[IterVar, int]:
    """Axes on which a choice depends, with the number of cases: the extent, or the modulus."""
    value = view.stores[0].value
    conditions = [c.condition for c in collect(value, Select)]
    found: dict[Var, int] = {}
    for c in conditions:
        if not (isinstance(c, Binary) and c.op == "eq" and isinstance(c.b, Const)):
            continue
        if isinstance(c.a, Var):
            found.setdefault(c.a, 0)
        elif isinstance(c.a, Binary) and c.a.op == "floormod" and isinstance(c.a.a, Var) and isinstance(c.a.b, Const):
            found[c.a.a] = int(c.a.b.value)
    if len(conditions) < MIN_CHOICES:
        return {}
    used = {v for load in collect(value, Load) for i in load.indices for v in free_vars(i)}
    periods: dict[IterVar, int] = {}
    for axis in view.spatial:
        if axis.var not in found:
            continue
        period = found[axis.var] or static_extent(axis) or 0
        if (found[axis.var] == 0 and axis.var in used) or not 1 < period <= MAX_CASES:
            return {}
        periods[axis] = period
    return periods
