"""Vectorized loops whose elements are not side by side in memory, so that vectors are gathered or made one by one."""

from __future__ import annotations

from collections.abc import Iterator

from weft.expr.nodes import Const, Expr, const
from weft.expr.simplify import simplify
from weft.expr.visit import substitute
from weft.schedule.rewrite import bound_region
from weft.schedule.state import State
from weft.tir.nodes import Block, For, Region
from weft.tir.placement import strides_of

MAX_LOADED_STEP = 4
"""Largest step, in elements, at which whole vectors are loaded and their elements picked."""


def vector_notes(state: State) -> Iterator[str]:
    """A remark for each access that a vectorized loop moves at a larger step; several of one buffer say the same."""
    for name, block in state.tree.blocks.items():
        for loop in state.tree.loops_around(block):
            if loop.kind == "vectorized":
                yield from _of_loop(name, block, loop)


def _of_loop(name: str, block: Block, loop: For) -> Iterator[str]:
    for verb, regions in (("reads", block.reads), ("writes", block.writes)):
        for region in regions:
            step = None if region.buffer.scope == "register" else _step(block, region, loop)
            if step is not None:
                yield (
                    f"{name}: the vectorized loop '{loop.var.name}' {verb} '{region.buffer.name}' at a step of {step} "
                    "elements: vectorize the loop that moves along its last dimension, or change its layout"
                )


def _step(block: Block, region: Region, loop: For) -> Expr | None:
    """How far apart, in elements, ``loop`` accesses the buffer, if that is known, and too far to load whole vectors."""
    total: Expr = const(0, "int64")
    for (start, _), stride in zip(bound_region(block, region), strides_of(region.buffer), strict=True):
        moved = simplify(substitute(start, {loop.var: loop.var + 1}) - start)
        if not isinstance(moved, Const):
            return None
        total = simplify(total + moved * stride)
    return None if isinstance(total, Const) and abs(total.value) <= MAX_LOADED_STEP else total
