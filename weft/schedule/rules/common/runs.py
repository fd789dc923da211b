"""How far the elements of a block lie one after the other, in the result and in all operands."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO
from weft.expr.nodes import Binary, Const, Expr, Load, Select, Var
from weft.expr.visit import collect, free_vars, outside_of_loads
from weft.schedule.rules.common.access import Access, View, static_extent

MAX_REPEATS = 16
"""Limit on the repetitions of a row along an axis that become a loop of their own."""


def run_length(view: View) -> float:
    """The number of adjacent elements that one loop can compute in vectors: infinite if it is open, 0 if an operand
    does not move by one element along the innermost axis."""
    count = contiguous_suffix(view)
    extents = [static_extent(a) for a in view.spatial[len(view.spatial) - count :]]
    return math.prod(math.inf if n is None else n for n in extents) if count else 0


def contiguous_suffix(view: View) -> int:
    """The number of innermost axes that can be fused such that every access still moves by one element (or not at all).

    That holds for axes over which the result and all operands are compact in the same order, whether their sizes are
    known or not. An operand may also not move along any of the axes.
    """
    axes = view.spatial
    accesses = [view.output, *view.loads]
    by_position = _positions(view)
    chosen_by = _chosen_by(view) | by_position
    count = 0
    expected: Expr = ONE
    for position in range(len(axes) - 1, -1, -1):
        axis = axes[position]
        unit = static_extent(axis) == 1
        steps = [view.step(a, axis) for a in accesses]
        moving = [a for a, s in zip(accesses, steps, strict=True) if s is not ZERO]
        if not unit and (steps[0] is ZERO or not all(s is ZERO or _is(view, s, expected) for s in steps)):
            break
        nested = expected is not ONE and not unit  # axes of extent 1 inside make no difference
        if nested and (axis.var in chosen_by or any(a.var in by_position for a in axes[position + 1 :])):
            break  # the condition is evaluated once for all axes inside, and positions need no division
        if nested and len(moving) != len([a for a in accesses if _moves(view, a, axes[position + 1 :])]):
            break
        count += 1
        expected = expected * axis.extent
    return count


def repeats_of(view: View, lanes: int) -> int:
    """How often the innermost axis repeats rows of an open size, or of a known one that ends within a vector: its
    extent divided by the size of the remainders that index operands; 1 if there are none. Each repetition is
    contiguous, where remainders would gather."""
    axis = view.spatial[-1]
    for e in collect([i for a in view.loads for i in a.indices], Binary):
        size = int(e.b.value) if isinstance(e.b, Const) else None
        if e.op == "floormod" and e.a is axis.var and (size is None or (size > lanes and size % lanes)):
            for n in range(2, MAX_REPEATS + 1):
                if view.facts.equal(axis.extent, e.b * n):
                    return n
    return 1


def _is(view: View, step: Expr | None, expected: Expr) -> bool:
    return step is not None and view.facts.equal(step, expected)


def _chosen_by(view: View) -> set[Var]:
    """Axes on which the choice between operands depends, as in concatenation and padding."""
    return {
        v for s in view.stores for e in collect(s.value, Select) if collect(e, Load) for v in free_vars(e.condition)
    }


def _positions(view: View) -> set[Var]:
    """Axes the index of which is part of the value itself, as in a diagonal: of a fused axis, it would be a quotient or
    a remainder for each element."""
    return {e for e in outside_of_loads(*(s.value for s in view.stores)) if isinstance(e, Var)}


def _moves(view: View, access: Access, axes: Iterable[IterVar]) -> bool:
    return any(view.step(access, a) is not ZERO for a in axes if static_extent(a) != 1)
