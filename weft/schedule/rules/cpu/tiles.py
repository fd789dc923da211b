"""Register tiles and cache blocks, derived from a target's record.

A contraction keeps a tile of ``rows`` scalars by ``columns`` vectors of results in registers. In each step of the
reduction it loads ``columns`` vectors of one operand and ``rows`` scalars of the other and does ``rows * columns``
multiply-adds. The best tile keeps the multiply-add units busy (enough independent accumulators to hide their latency,
more arithmetic than loads) and wastes little at the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

FMA_LATENCY: Final = 4
FMA_PORTS: Final = 2
LOAD_PORTS: Final = 2
MAX_ROWS: Final = 32
MAX_COLUMNS: Final = 6
MAX_UNROLLED: Final = 160
TYPICAL_ROWS: Final = 128
TYPICAL_COLUMNS: Final = 8
"""What extents that are not known count as, in rows and vectors."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``rows`` scalars by ``columns`` vectors of accumulators, for each of ``lines`` positions along a further axis."""

    rows: int
    columns: int
    lines: int = 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """Cycles that a step of the reduction takes for each scalar and each vector beside the arithmetic: a little even
    where loading overlaps with it. Scalars usually come from the first-level cache, vectors from the second."""

    scalar: float = 0.05
    vector: float = 0.2
    far_vector: float = 0.4
    """Of tiles whose panel of vectors does not stay in the second-level cache."""
    widest: int = MAX_COLUMNS
    """Vectors of the widest panel that does."""


NEAR: Final = Traffic()
FAR: Final = Traffic(scalar=0.3)
"""All rows together do not stay in the second-level cache, and come from behind it for each panel of vectors."""


def steps(rows: int, columns: int, broadcasts: bool = True, traffic: Traffic = NEAR) -> float:
    """Cycles of one reduction step of a tile: bound by arithmetic, by loads or by the latency of the multiply-add."""
    arithmetic = rows * columns / FMA_PORTS
    loads = (rows + columns if broadcasts else rows * columns + columns) / LOAD_PORTS
    vector = traffic.vector if columns <= traffic.widest else traffic.far_vector
    return max(arithmetic, loads, FMA_LATENCY) + vector * columns + traffic.scalar * rows


def _cover(extent: int, tile: int) -> tuple[int, int]:
    """How many full tiles, and the size of the tail (0 if none)."""
    return extent // tile, extent % tile


@cache
def register_tile(
    rows: int | None,
    columns: int | None,
    registers: int,
    depth: int,
    broadcasts: bool = True,
    lines: int = 1,
    traffic: Traffic = NEAR,
) -> RegisterTile:
    """The tile with the fewest cycles over ``rows`` scalars by ``columns`` vectors, ``lines`` times.

    None means not known: the tile then divides a power of two, which leaves tails least often. Rows that are all in one
    tile leave room for those of several lines: each vector then serves more of them. ``traffic`` says where operands
    come from.

    ``registers`` are the vector registers of the machine, ``depth`` the length of the reduction (short reductions pay
    more for filling and emptying the tile). Without ``broadcasts`` both operands are vectors (depth-wise work).
    """
    best, best_cost = RegisterTile(1, 1), float("inf")
    known_rows = rows if rows is not None else TYPICAL_ROWS
    known_columns = columns if columns is not None else TYPICAL_COLUMNS
    for m in range(1, min(MAX_ROWS, known_rows) + 1):
        for n in range(1, min(MAX_COLUMNS, known_columns) + 1):
            if (rows is None and known_rows % m) or (columns is None and known_columns % n):
                continue
            for high in range(1, (min(MAX_ROWS // m, lines) if m == rows else 1) + 1):
                operands = n + 1 if broadcasts else 2
                if m * high * n + operands > registers or (not broadcasts and m * depth > MAX_UNROLLED and m > 4):
                    break
                cost = 0.0
                for m_count, m_size in _row_pieces(known_rows, m, lines, high):
                    for n_count, n_size in _pieces(known_columns, n):
                        fill = (m_size * n_size * 2 + 8) / max(1, depth)
                        cost += m_count * n_count * (steps(m_size, n_size, broadcasts, traffic) + fill)
                # Of equal tiles prefer the one without tails: less code, no guards.
                cost *= 1 + 0.01 * ((known_rows % m != 0) + (known_columns % n != 0) + (lines % high != 0))
                if cost < best_cost - 1e-9:
                    best, best_cost = RegisterTile(m, n, high), cost
    return best


def _row_pieces(rows: int, tile: int, lines: int, high: int) -> list[tuple[int, int]]:
    """Tiles of ``tile`` rows, ``high`` lines each: how many there are of each size."""
    return [(a * b, m * h) for a, m in _pieces(rows, tile) for b, h in _pieces(lines, high)]


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    full, tail = _cover(extent, tile)
    return [(full, tile)] * bool(full) + [(1, tail)] * bool(tail)
