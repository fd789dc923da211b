"""Operands of products that are computed where they are multiplied.

In ``sum(exp(s[i, k]) / z[i] * v[k, j])`` the quotient is the same for all j, and in a convolution that asks for each
element whether it exists, so is the answer. Such an operand becomes a stage of its own, and the sum a product of two
loads. From then on it is as if it had been written so: where the stage is computed, or whether the block asks itself
after all, is decided as for any other producer.

There are three kinds: operands that are no elements of tensors; products of more than two factors, which are regrouped
into two; and elements at positions that no vector follows, as those of a pixel shuffle or of a repeated image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.expr.nodes import Binary, Expr, Load
from weft.expr.visit import collect, occurs
from weft.schedule.primitives.cache_operand import coordinates_of
from weft.schedule.products import factors_of_sum
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import View, loaded, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.cpu.roles import MIN_PACKED_USES, analyze


def store_operands(context: Context) -> None:
    """Compute such operands before the blocks that sum their products."""
    for block in context.schedule.get_blocks():
        view = context.view(block)
        if not (view.is_simple and context.is_reduction(block)) or _is_tiled(context, block):
            continue
        if any(wanted(view) for _, wanted in KINDS) and context.decide(f"compute operands of {block.name} first", True):
            any(_store(context, block, wanted(view), regroup) for regroup, wanted in KINDS)


def _store(context: Context, block: BlockRef, operands: Sequence[int], regroup: bool) -> bool:
    """Compute ``operands``; False, and nothing is changed, if the sum is then no product that has tiles."""
    if not operands:
        return False
    before = context.saved()
    for n, operand in enumerate(operands):
        context.schedule.cache_operand(block, operand, reassociate=regroup and n == 0)
    if _is_tiled(context, block):
        return True
    context.restore(before)
    return False


def _is_tiled(context: Context, block: BlockRef) -> bool:
    view = context.view(block)
    lanes = context.lanes(view)
    return lanes > 1 and analyze(view, lanes) is not None


def _computed(view: View) -> tuple[int, ...]:
    """The positions of the operands that are no elements of tensors."""
    return _often_used(view, factors_of_sum(view.block), lambda f: loaded(f) is None)


def _regrouped(view: View) -> tuple[int, ...]:
    """The same for a product of more than two factors."""
    return _often_used(view, factors_of_sum(view.block, regroup=True), lambda f: loaded(f) is None)


def _scattered(view: View) -> tuple[int, ...]:
    """The positions of the operands that are elements at quotients or remainders, which are not read from data."""
    return _often_used(view, factors_of_sum(view.block), lambda f: loaded(f) is None or _is_scattered(f))


def _is_scattered(operand: Expr) -> bool:
    places = [i for load in collect(operand, Load) for i in load.indices]
    return any(e.op in ("floordiv", "floormod") for e in collect(places, Binary)) and not collect(places, Load)


KINDS: tuple[tuple[bool, Callable[[View], tuple[int, ...]]], ...] = (
    (False, _computed),
    (True, _regrouped),
    (False, _scattered),
)
"""In order of preference: whether the product is regrouped first, and which of its operands are computed."""


def _often_used(view: View, factors: Sequence[Expr], wanted: Callable[[Expr], bool]) -> tuple[int, ...]:
    """The positions of the ``wanted`` ones of two factors; none, unless all of these are used several times."""
    found = tuple(n for n, f in enumerate(factors) if wanted(f)) if len(factors) == 2 else ()
    return found if all(_uses(view, factors[n]) >= MIN_PACKED_USES for n in found) else ()


def _uses(view: View, operand: Expr) -> float:
    """How many products use each element of an operand. Open sizes count as 1."""
    if not any(occurs(i.var, operand) for i in view.block.iters):
        return 0  # a factor of the whole sum
    products = math.prod(static_extent(a) or 1 for a in view.block.iters)
    elements = math.prod(int(getattr(c.extent, "value", 1)) for c in coordinates_of(operand, view.block.iters))
    return products / max(1, elements)
