"""Which tile of sums is kept in registers."""

from __future__ import annotations

from dataclasses import replace

from weft.cost import caches
from weft.cost.register_tiles import Traffic, far, near, step_cycles
from weft.expr.affine import divisor
from weft.expr.iter_var import IterVar
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import ROWS_OF_A_TILE, divisors
from weft.schedule.rules.common.work import unrolled_steps
from weft.schedule.rules.cpu.roles import MAX_GROUP_ROWS, Roles, footprint, operands_of, rows_outside, size
from weft.schedule.rules.cpu.tiles import MAX_COLUMNS, MAX_ROWS, RegisterTile, register_tile
from weft.target import Target

MIN_PART_ROWS = 16
"""Smallest known divisor of a symbolic number of rows for which a register tile is chosen."""


def choose_tile(view: View, roles: Roles, lanes: int, target: Target, most_rows: int | None = None) -> RegisterTile:
    """The register tile for these axes. At most ``most_rows`` rows are computed at a time (None: no limit)."""
    depth = 1
    for a in view.reduce:
        depth *= size(a)
    registers, rates = target.cpu.vector_registers, target.cpu.rates
    rows = 1 if roles.rows is None else _tiled_rows(roles.rows)
    if most_rows is not None:
        rows = most_rows if rows is None else min(rows, most_rows)
    columns: int | None = 1
    if roles.columns is not None:
        extent = static_extent(roles.columns)
        columns = extent if extent is None or roles.columns is not roles.vector else -(-extent // lanes)
    if roles.row_group:
        return _grouped_tile(roles.row_group, columns or MAX_COLUMNS, target)
    traffic = _traffic(view, roles, lanes, depth, target) if most_rows is None else near(rates, MAX_COLUMNS)
    anywhere = replace(traffic, widest=MAX_COLUMNS)
    unrolled = None if roles.broadcasts else unrolled_steps(view)
    tile = register_tile(rows, columns, registers, depth, roles.broadcasts, 1, anywhere, rates, unrolled)
    if tile.columns <= traffic.widest:
        return tile
    lines = static_extent(roles.lines) if roles.lines is not None and most_rows is None else None
    return register_tile(rows, columns, registers, depth, roles.broadcasts, lines or 1, traffic, rates, unrolled)


def _tiled_rows(axis: IterVar) -> int | None:
    """The number of rows to tile. For a symbolic number of equal parts (the rows of each image of a batch) it is the
    number of one part; None if no part is known."""
    extent = static_extent(axis)
    if extent is not None:
        return extent
    part = divisor(axis.extent)
    return part if part >= MIN_PART_ROWS else None


def draw_tile(context: Context, view: View, roles: Roles, lanes: int, most_rows: int | None = None) -> RegisterTile:
    """The tile of :func:`choose_tile`, its numbers recorded as draws. Axes that are not tiled need no draw."""
    tile = choose_tile(view, roles, lanes, context.target, None if most_rows is None else int(most_rows))
    rows, columns, lines = tile.rows, tile.columns, tile.lines
    if rows > 1 and roles.rows is not None:
        extent = static_extent(roles.rows) or MAX_ROWS
        menu = divisors(roles.row_group, MAX_GROUP_ROWS) if roles.row_group else ROWS_OF_A_TILE
        rows = context.choose((n for n in menu if n <= extent), rows)
    if roles.columns is not None and (columns > 1 or roles.columns is roles.vector):
        extent = static_extent(roles.columns) or MAX_COLUMNS * lanes
        most = -(-extent // lanes) if roles.columns is roles.vector else extent
        columns = context.choose(range(1, min(most, MAX_COLUMNS) + 1), columns)
    if lines > 1 and roles.lines is not None:
        lines = context.choose(range(1, min(size(roles.lines), MAX_COLUMNS) + 1), lines)
    return RegisterTile(rows, columns, lines)


def _traffic(view: View, roles: Roles, lanes: int, depth: int, target: Target) -> Traffic:
    """Which caches hold the operands of a tile. Each panel reads all rows again, from far away if they do not stay in
    the second-level cache. Wide tiles read the rows less often, but must leave panels for all cores."""
    l2, rates = target.cpu.l2, target.cpu.rates
    if not l2 or not roles.broadcasts or view.product is None:
        return near(rates, MAX_COLUMNS)
    scalar, vectors = operands_of(view, roles)
    once = footprint(view, scalar, 1) or 0
    beyond = not caches.stays_in_l2(once, l2) and not rows_outside(view, roles, target)
    enough = roles.columns is not roles.vector or size(roles.vector) >= 2 * target.cpu.cores * MAX_COLUMNS * lanes
    widest = caches.widest_panel(lanes * depth * vectors.buffer.dtype.nbytes, l2)
    return far(rates, widest) if beyond and enough else near(rates, widest)


def _grouped_tile(group: int, columns: int, target: Target) -> RegisterTile:
    """The best tile whose rows divide ``group``."""
    registers, rates = target.cpu.vector_registers, target.cpu.rates
    traffic = near(rates, MAX_COLUMNS)
    tiles = [
        RegisterTile(r, c)
        for r in range(1, group + 1)
        for c in range(1, min(columns, MAX_COLUMNS) + 1)
        if group % r == 0 and r * c + c + 1 <= registers
    ]
    return max(tiles, key=lambda t: t.rows * t.columns / step_cycles(rates, t.rows, t.columns, True, traffic))
