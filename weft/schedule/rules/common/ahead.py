"""Rows in memory are prefetched while earlier ones are computed."""

from __future__ import annotations

from typing import Final

from weft.schedule.refs import LoopRef
from weft.schedule.rules.common.context import Context
from weft.tir.nodes import Buffer

FETCHED_BYTES: Final = 4096
"""How far ahead rows in memory are prefetched: less comes too late, more is evicted before it is used."""
ROWS_IN_L2: Final = 8
"""Fewest rows that the second-level cache must hold: the next one must not replace what the present one needs."""


def rows_fit(context: Context, row: int | None, width: int) -> bool:
    """Whether rows of ``row`` elements (None: open) of ``width`` bytes leave room for those that are prefetched."""
    return row is None or ROWS_IN_L2 * row * width <= context.target.cpu.l2


def prefetch_rows(
    context: Context, buffer: Buffer, row: int | None, at: LoopRef, within: LoopRef, nbytes: int = FETCHED_BYTES
) -> None:
    """Prefetch ``buffer``, of which each iteration of ``at`` accesses ``row`` elements (None: open), ``nbytes`` ahead
    but at least an iteration, in the iterations of ``within``."""
    if row is None:
        context.schedule.prefetch(at, buffer.name, nbytes, within=within, unit="bytes")
    else:
        ahead = max(1, nbytes // max(1, row * buffer.dtype.nbytes))
        context.schedule.prefetch(at, buffer.name, ahead, within=within)
