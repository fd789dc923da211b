"""Adjacent strided vector loads → contiguous loads and a transposition in registers.

Loads of ``n`` lanes with the same stride at adjacent addresses ``base + 0 … base + m - 1`` are the columns of a small
matrix whose rows are contiguous. The rows are loaded as vectors and transposed by shuffles: first units of 1, 2, 4 …
elements within the 128-bit parts of a register, then the parts. Machines can do each of these steps with one
instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.expr.affine import split_constant
from weft.expr.nodes import Call, Const, Expr, Load, Ramp, Shuffle
from weft.expr.visit import post_order, rewrite
from weft.support.dtypes import BOOL
from weft.tir.nodes import Program, Seq, Stmt, Store
from weft.tir.visit import expressions, map_expressions, transform

MAX_ROWS = 16
"""Limit on the rows that are transposed at a time; more would not fit in the registers."""
MIN_ROWS = 4
"""Fewest rows for which a transposition is faster."""


def transpose(program: Program) -> Program:
    """The program with groups of strided loads in straight-line code replaced by loads of rows."""
    return replace(program, body=transform(program.body, _sequence))


def _sequence(s: Stmt) -> Stmt | None:
    if not isinstance(s, Seq):
        return None
    made: list[Stmt] = []
    run: list[Store] = []
    for c in (*s.stmts, None):
        if isinstance(c, Store):
            run.append(c)
            continue
        made += _run(run)
        run = []
        if c is not None:
            made.append(c)
    same = len(made) == len(s.stmts) and all(a is b for a, b in zip(made, s.stmts, strict=True))
    return None if same else Seq(tuple(made))


def _run(run: list[Store]) -> list[Store]:
    """Consecutive stores, with their strided loads transposed."""
    if len(run) < MIN_ROWS:
        return run
    written = {s.buffer for s in run}
    values: dict[Expr, Expr] = {}
    found = list(post_order(*(s.value for s in run)))
    words = [e for e in found if isinstance(e, Call) and e.name in ("pack2", "pack4")]  # their operands are words
    packed = {a for e in words for a in e.args}
    for columns in _columns([e for e in found if isinstance(e, Load) and e not in packed]):
        if columns[0].source not in written:
            values.update(zip(columns, _transposed(columns), strict=True))
    if not values:
        return run
    memo: dict[Expr, Expr] = {}
    made = [map_expressions(s, lambda e: rewrite(e, values.get, memo, fold=False)) for s in run]
    return [s for s in made if isinstance(s, Store) and expressions(s)]


def _columns(loads: Sequence[Load]) -> Iterator[list[Load]]:
    """Groups of loads with the same stride from adjacent addresses, each as large as possible."""
    groups: dict[tuple[object, ...], dict[int, Load]] = {}
    for e in loads:
        at = e.indices[0] if len(e.indices) == 1 else None
        if e.mask is not None or e.dtype == BOOL or not isinstance(at, Ramp):
            continue
        contiguous = isinstance(at.stride, Const) and abs(int(at.stride)) <= 1
        if not contiguous and at.count >= MIN_ROWS and at.count & (at.count - 1) == 0:
            variable, constant = split_constant(at.base)
            groups.setdefault((e.source, variable, at.stride, at.count), {})[constant] = e
    for found in groups.values():
        while found:
            first = min(found)
            together = [found.pop(first)]
            while first + len(together) in found:
                together.append(found.pop(first + len(together)))
            lanes = min(MAX_ROWS, together[0].lanes)
            while lanes >= MIN_ROWS:
                while len(together) >= lanes:
                    yield together[:lanes]
                    del together[:lanes]
                lanes //= 2


def _transposed(columns: Sequence[Load]) -> list[Expr]:
    """The columns (at most as many as each has lanes), computed from contiguous rows."""
    first, m = columns[0], len(columns)
    at = first.indices[0]
    assert isinstance(at, Ramp)
    rows: list[Expr] = [Load(first.source, (Ramp(at.base + at.stride * i, Const(1), m),)) for i in range(at.count)]
    parts = [_square(rows[i : i + m], first.dtype.nbytes) for i in range(0, at.count, m)]
    if len(parts) == 1:
        return parts[0]
    return [Shuffle(pieces, tuple(range(at.count))) for pieces in zip(*parts, strict=True)]


def _square(rows: Sequence[Expr], nbytes: int) -> list[Expr]:
    """The columns of ``n`` rows of ``n`` lanes each, ``n`` a power of two."""
    n = len(rows)
    unit_limit = min(n, max(1, 16 // nbytes))
    at, columns = list(rows), [0] * n
    distance = unit = 1
    while unit < unit_limit:
        halves = _interleaved(n, unit, unit_limit)
        _step(at, columns, distance, halves, unit_limit // (2 * unit))
        distance, unit = 2 * distance, 2 * unit
    parts = column = unit_limit
    while distance < n:
        halves = _every_second(n, parts)
        _step(at, columns, distance, halves, column)
        distance, column = 2 * distance, 2 * column
    return [at[columns.index(c)] for c in range(n)]


def _step(at: list[Expr], columns: list[int], distance: int, halves: tuple[list[int], list[int]], column: int) -> None:
    """Combine the vectors ``distance`` apart into two others. The second holds the columns that are ``column`` further
    on."""
    for i in range(len(at)):
        if not i & distance:
            pair = (at[i], at[i + distance])
            at[i], at[i + distance] = (Shuffle(pair, tuple(picks)) for picks in halves)
            columns[i + distance] = columns[i] + column


def _interleaved(n: int, unit: int, part: int) -> tuple[list[int], list[int]]:
    """The indices that interleave units of two vectors, from the low and from the high halves of their parts."""

    def half(high: int) -> list[int]:
        out = []
        for start in range(0, n, part):
            for u in range(start + high * part // 2, start + (high + 1) * part // 2, unit):
                out += [*range(u, u + unit), *range(n + u, n + u + unit)]
        return out

    return half(0), half(1)


def _every_second(n: int, part: int) -> tuple[list[int], list[int]]:
    """The indices that select the even and the odd parts of two concatenated vectors."""
    starts = range(0, 2 * n, part)
    return [x for s in starts[::2] for x in range(s, s + part)], [x for s in starts[1::2] for x in range(s, s + part)]
