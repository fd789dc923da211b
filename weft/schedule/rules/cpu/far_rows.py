"""Row operands whose steps of the reduction are in different pages.

A tile of sums reads the scalars of its rows anew in each step. If they are adjacent within a step and the next step is
a page away (the pixels of one channel of an image, the columns of a transposed matrix), the hardware's prefetcher does
not follow, and each step waits for the address and the data. If the distance is a multiple of a page, all steps also
compete for one set of the first-level cache.

Where the rows are one dimension of a matrix, they are copied: a panel holds whole cache lines of rows, step after step.
Where they are not, as the pixels of blocked channels, what later steps read is prefetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.cost import caches
from weft.cost.assumed import EXTENT
from weft.cost.register_tiles import iterations_ahead, near, step_cycles
from weft.expr.iter_var import IterVar
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.cpu.packing import packable
from weft.schedule.rules.cpu.roles import Roles, footprint, operands_of, size
from weft.schedule.rules.cpu.tiles import MAX_COLUMNS, RegisterTile
from weft.target.cpu import Cpu

MIN_PANELS = 2
"""Fewest column panels that must read the rows for a copy of them to be faster."""
MIN_ITERATIONS = 4
"""Fewest times that the distance of a prefetch must fit into its loop."""


def rows_of_panel(view: View, x: Access, roles: Roles, tile: RegisterTile, lanes: int, cpu: Cpu) -> int:
    """The rows of a panel into which the row operand ``x`` is copied, a multiple of the tile's; 0 if a copy is not
    faster. A matrix in the first-level cache is read as it is."""
    steps = [a for a in view.reduce if x.uses(a.var)]
    if roles.rows is None or roles.columns is not roles.vector or len(steps) != 1 or not packable(x, roles.rows):
        return 0
    depth, rows, columns = (static_extent(a) for a in (steps[0], roles.rows, roles.vector))
    stride, nbytes = view.stride(x, steps[0]), x.buffer.dtype.nbytes
    if depth is None or rows is None or columns is None or stride is None or view.stride(x, roles.rows) != 1:
        return 0
    far = caches.is_scattered(depth, stride * nbytes) and rows * depth * nbytes > 2 * cpu.l1
    often = rows >= 2 * tile.rows and columns >= MIN_PANELS * tile.columns * lanes
    return -(-caches.CACHE_LINE_BYTES // (nbytes * tile.rows)) * tile.rows if far and often else 0


def fetched_axis(
    view: View, roles: Roles, tile: RegisterTile, reduce: Sequence[IterVar], cpu: Cpu
) -> tuple[IterVar, int] | None:
    """The axis of the reduction whose next iterations should be prefetched of the row operand, and how many iterations
    ahead. None if that is of no use: the operand stays in the second-level cache, or what is inside the axis moves by
    more than a cache line (windows use each line often). ``reduce`` are the axes in the order of their loops."""
    if not roles.broadcasts or not cpu.l2:
        return None
    x, _ = operands_of(view, roles)
    held = footprint(view, x, EXTENT)
    moving = [a for a in reduce if x.uses(a.var) and static_extent(a) != 1]
    if held is None or caches.stays_in_l2(held, cpu.l2) or not moving:
        return None
    nbytes = x.buffer.dtype.nbytes
    inside: list[IterVar] = []
    for axis in reversed(moving):
        stride = view.stride(x, axis)
        if stride is None or abs(stride) * nbytes * size(axis) > caches.CACHE_LINE_BYTES:
            if stride is not None and abs(stride) * nbytes < caches.PAGE_BYTES:
                return None
            break
        inside.append(axis)
    else:
        return None
    after = reduce[list(reduce).index(axis) + 1 :]
    if roles.rows is None or any(a not in inside and static_extent(a) != 1 for a in after):
        return None
    steps = prod(size(a) for a in inside)
    rates = cpu.rates
    one = step_cycles(rates, tile.rows * tile.lines, tile.columns, True, near(rates, MAX_COLUMNS))
    ahead = iterations_ahead(rates, steps * one)
    if stride is not None and stride * nbytes % caches.PAGE_BYTES == 0:
        ahead = min(ahead, caches.L1_WAYS // 2)  # all iterations use the same sets of the first-level cache
    extent = static_extent(axis)
    return None if extent is not None and extent < MIN_ITERATIONS * ahead else (axis, ahead)
