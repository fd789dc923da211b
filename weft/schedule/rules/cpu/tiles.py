"""Register tiles: of all tiles that fit into the registers, the one with the fewest cycles.

A contraction keeps a tile of ``rows`` scalars by ``columns`` vectors of results in registers. In each step of the
reduction it loads ``columns`` vectors of one operand and ``rows`` scalars of the other and does ``rows * columns``
multiply-adds. The best tile keeps the multiply-add units busy (enough independent accumulators to hide their latency,
more arithmetic than loads) and wastes little at the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from weft.cost import REFERENCE, Rates, assumed
from weft.cost.register_tiles import Traffic, fill_cycles, near, step_cycles

MAX_ROWS: Final = 32
"""Limit on the rows of a tile, summed over all its lines."""
MAX_COLUMNS: Final = 6
"""Limit on the adjacent vectors in a tile."""
MAX_UNROLLED: Final = 160
"""Limit on the multiply-adds of a one-column tile in all steps that are unrolled, if both operands are vectors."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``rows`` scalars by ``columns`` vectors of accumulators, for each of ``lines`` positions along a further axis."""

    rows: int
    columns: int
    lines: int = 1


def _cover(extent: int, tile: int) -> tuple[int, int]:
    """The number of full tiles, and the size of the tail (0 if none)."""
    return extent // tile, extent % tile


@cache
def register_tile(
    rows: int | None,
    columns: int | None,
    registers: int,
    depth: int,
    broadcasts: bool = True,
    lines: int = 1,
    traffic: Traffic | None = None,
    rates: Rates = REFERENCE,
    unrolled: int | None = None,
) -> RegisterTile:
    """The tile with the fewest cycles over ``rows`` scalars by ``columns`` vectors, ``lines`` times.

    None means that the extent is not known: the tile then divides a power of two, which least often leaves a tail. If
    all rows fit into one tile, the tile may hold the rows of several lines, and each vector is used for more rows.
    ``traffic`` says which caches hold the operands (None: the nearest).

    ``registers`` is the number of vector registers of the machine, ``depth`` the length of the reduction (short
    reductions spend relatively more time on initializing and storing the tile). Without ``broadcasts``, both operands
    are vectors (depth-wise work). ``rates`` are the rates of the machine. ``unrolled`` is the number of steps that are
    unrolled (None: all); if it is not the whole depth, the vectors that neighbouring steps share stay in registers too.
    """
    best, best_cost = RegisterTile(1, 1), float("inf")
    steps = depth if unrolled is None else unrolled
    held = MAX_ROWS if steps == depth else registers // 2 - 1
    traffic = traffic or near(rates, MAX_COLUMNS)
    known_rows = rows if rows is not None else assumed.TILE_ROWS
    known_columns = columns if columns is not None else assumed.TILE_COLUMNS
    for m in range(1, min(MAX_ROWS, known_rows) + 1):
        for n in range(1, min(MAX_COLUMNS, known_columns) + 1):
            if (rows is None and known_rows % m) or (columns is None and known_columns % n):
                continue
            for high in range(1, (min(MAX_ROWS // m, lines) if m == rows else 1) + 1):
                operands = n + 1 if broadcasts else 2
                if m * high * n + operands > registers or (not broadcasts and m > 4 and not _fits(m, steps, held)):
                    break
                cost = 0.0
                for m_count, m_size in _row_pieces(known_rows, m, lines, high):
                    for n_count, n_size in _pieces(known_columns, n):
                        step = step_cycles(rates, m_size, n_size, broadcasts, traffic)
                        cost += m_count * n_count * (step + fill_cycles(m_size, n_size, depth))
                # Of equally fast tiles, prefer the one without tails: it has less code and no guards.
                cost *= 1 + 0.01 * ((known_rows % m != 0) + (known_columns % n != 0) + (lines % high != 0))
                if cost < best_cost - 1e-9:
                    best, best_cost = RegisterTile(m, n, high), cost
    return best


def _fits(rows: int, steps: int, most: int) -> bool:
    """Whether a tile has at most ``most`` rows, and few enough multiply-adds in its unrolled steps."""
    return rows * steps <= MAX_UNROLLED and rows <= most


def _row_pieces(rows: int, tile: int, lines: int, high: int) -> list[tuple[int, int]]:
    """For tiles of ``tile`` rows and ``high`` lines: the number of tiles of each size."""
    return [(a * b, m * h) for a, m in _pieces(rows, tile) for b, h in _pieces(lines, high)]


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    full, tail = _cover(extent, tile)
    return [(full, tile)] * bool(full) + [(1, tail)] * bool(tail)
