"""Ranges of loop and iteration variables."""

from __future__ import annotations

from collections.abc import Iterable

from weft.expr.linear import Linear, Ranges, linear
from weft.expr.nodes import Var
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, For


def loop_range(loop: For) -> tuple[Linear, Linear]:
    """Least and greatest value of the loop's variable."""
    start = linear(loop.start)
    return start, start + linear(loop.extent).plus(-1)


def iter_ranges(block: Block) -> dict[Var, tuple[Linear, Linear]]:
    """Least and greatest value of a block's iteration variables."""
    found: dict[Var, tuple[Linear, Linear]] = {}
    for it in block.iters:
        start = linear(it.start)
        found[it.var] = (start, start + linear(it.extent).plus(-1))
    return found


def index_var(name: str) -> Var:
    """A new loop or iteration variable."""
    return Var(name, INDEX)


def moving(loops: Iterable[For]) -> Ranges:
    """Ranges of the variables of ``loops``, outer first."""
    return {loop.var: loop_range(loop) for loop in loops}
