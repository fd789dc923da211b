"""Operands of products that are computed where they are multiplied.

In ``sum(exp(s[i, k]) / z[i] * v[k, j])`` the quotient is the same for all j, and in a convolution that asks for each
element whether it exists, so is the answer. Such an operand becomes a stage of its own, and the sum a product of two
loads. From then on it is as if it had been written so: where the stage is computed, or whether the block asks itself
after all, is decided as for any other producer.
"""

from __future__ import annotations

import math

from weft.expr.nodes import Expr, Var
from weft.expr.visit import occurs
from weft.schedule.primitives.cache_operand import coordinates_of
from weft.schedule.products import factors_of_store
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import View, loaded, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.cpu.roles import MIN_PACKED_USES, analyze


def store_operands(context: Context) -> None:
    """Compute such operands before the blocks that sum their products."""
    for block in context.schedule.get_blocks():
        view = context.view(block)
        wanted = computed_operands(view) if view.is_simple and context.is_reduction(block) else ()
        if wanted and context.decide(f"compute the operands of {block.name} before it", True):
            _store(context, block, wanted)


def _store(context: Context, block: BlockRef, operands: tuple[int, ...]) -> None:
    before = context.saved()
    for n in operands:
        context.schedule.cache_operand(block, n)
    view = context.view(block)
    lanes = context.lanes(view)
    if lanes < 2 or analyze(view, lanes) is None:
        context.restore(before)  # no tile of sums: nothing is gained


def computed_operands(view: View) -> tuple[int, ...]:
    """The positions of the operands to compute beforehand: the ones that are no elements of tensors. None, unless the
    sum is then one of products, each of whose elements is used several times."""
    factors = factors_of_store(view.stores[0])
    if len(factors) != 2:
        return ()
    wanted = tuple(n for n, f in enumerate(factors) if loaded(f) is None)
    return wanted if all(_uses(view, factors[n]) >= MIN_PACKED_USES for n in wanted) else ()


def _uses(view: View, operand: Expr) -> float:
    """How many products use each element of an operand. Open sizes count as 1."""
    used: set[Var] = {i.var for i in view.block.iters if occurs(i.var, operand)}
    products = math.prod(static_extent(a) or 1 for a in view.block.iters)
    if not used:
        return 0  # a factor of the whole sum
    elements = math.prod(_known(c.extent) for c in coordinates_of(operand, view.block.iters))
    return products / max(1, elements)


def _known(extent: Expr) -> int:
    return int(getattr(extent, "value", 1))
