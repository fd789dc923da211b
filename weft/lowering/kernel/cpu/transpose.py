"""Adjacent strided vector loads → contiguous loads and a transposition in registers.

Loads of ``n`` lanes with the same stride at adjacent addresses ``base + 0 … base + m - 1`` are the columns of a small
matrix whose rows are contiguous. The rows are loaded as vectors and transposed by shuffles: first units of 1, 2, 4 …
elements within the 128-bit parts of a register, then the parts. Machines can do each of these steps with one
instruction.

The last tile of a matrix is smaller. If it has fewer rows, the columns have a mask; if it has fewer columns, each is
under a condition of its own. Both are read by rows too: a row that is not there is the first row again (nothing of it
is stored) or zeros, and of the columns that are not there a mask of the rows reads nothing::

    A[ramp(i, 1, 4); m] = B[ramp(j, s, 4); m]              if lane 0 of m:
    A[ramp(i + k, 1, 4); m] = B[ramp(j + 1, s, 4); m]  →       rows = B[ramp(j, 1, 4)], B[ramp(m1 ? j + s : j, 1, 4)], …
    …                                                          A[ramp(i, 1, 4); m] = shuffle(rows), …

    if x < n: A[i] = B[j]                                  if x < n:
    if x + 1 < n: A[i + k] = B[j + 1]                  →       A[i] = shuffle(rows, each with the mask x + lane < n)
    …                                                          if x + 1 < n: A[i + k] = …, if x + 2 < n: …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from weft.expr.affine import split_constant
from weft.expr.folds import conjuncts
from weft.expr.nodes import Binary, Broadcast, Call, Const, Expr, Load, Ramp, Select, Shuffle, make
from weft.expr.visit import collect, post_order, rewrite
from weft.lowering.kernel.common.implied import Bounds
from weft.support.dtypes import BOOL
from weft.tir.nodes import If, Program, Seq, Stmt, Store, seq
from weft.tir.visit import expressions, map_expressions, transform

MAX_ROWS = 16
"""Limit on the rows that are transposed at a time; more would not fit in the registers."""
MIN_ROWS = 4
"""Fewest rows for which a transposition is faster."""
FEW_ROWS = 4
"""A tile of :data:`MAX_ROWS` that may have so few rows gets a version for them: half of the shuffles."""

_Step = tuple[Expr | None, tuple[Store, ...]]
"""Stores and the condition under which they are done."""


def transpose(program: Program) -> Program:
    """The program with groups of strided loads in straight-line code replaced by loads of rows."""
    tiles = _Tiles()
    return replace(program, body=transform(program.body, tiles.sequence))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Adjacent loads with the same stride and mask, and the mask of those that are there (None: all)."""

    loads: tuple[Load, ...]
    there: Expr | None


@dataclass(slots=True)
class _Tiles:
    bounds: Bounds = field(default_factory=Bounds)

    def sequence(self, s: Stmt) -> Stmt | None:
        if not isinstance(s, Seq):
            return None
        made: list[Stmt] = []
        run: list[Stmt] = []
        steps: list[_Step] = []
        for c in (*s.stmts, None):
            step = None if c is None else _guarded(c)
            if steps and (step is None or (step[0] is None) != (steps[-1][0] is None)):
                made += self._run(steps) or run
                run, steps = [], []
            if step is not None and c is not None:
                run.append(c)
                steps.append(step)
            elif c is not None:
                made.append(c)
        same = len(made) == len(s.stmts) and all(a is b for a, b in zip(made, s.stmts, strict=True))
        return None if same else Seq(tuple(made))

    def _run(self, steps: Sequence[_Step]) -> list[Stmt] | None:
        """Consecutive stores, all without conditions or each under one that the next implies, with their strided loads
        transposed; None if there are none."""
        if len(steps) < MIN_ROWS or not self._in_order([c for c, _ in steps if c is not None]):
            return None
        run = [s for _, stores in steps for s in stores]
        written = {s.buffer for s in run}
        words = [e for s in run for e in collect(s.value, Call) if e.name in ("pack2", "pack4")]
        packed = {a for e in words for a in e.args}  # the operands of these are words
        under: dict[Load, Expr | None] = {}
        for condition, stores in steps:
            for e in post_order(*(s.value for s in stores)):
                if isinstance(e, Load) and e not in packed and e.source not in written:
                    under.setdefault(e, condition)
        found = list(self._columns(under))
        if not found:
            return None
        masks = {s.mask for s in run}
        mask = next(iter(masks)) if len(masks) == 1 else None
        first = None if mask is None else lane(mask, 0)
        if mask is None or first is None or isinstance(first, Const) or not self._starts_with_lanes(mask):
            return _stored(steps, _transposed(found, None, MAX_ROWS))
        inner = seq(*_stored(steps, _transposed(found, mask, MAX_ROWS)))
        more = lane(mask, FEW_ROWS)
        if mask.lanes == MAX_ROWS and more is not None and any(c.loads[0].mask is mask for c in found):
            inner = If(more, inner, seq(*_stored(steps, _transposed(found, mask, FEW_ROWS))))
        return [If(first, inner)]

    def _in_order(self, conditions: Sequence[Expr]) -> bool:
        """Whether each of the conditions compares indices and implies the one before."""
        if any(self.bounds.of(c) is None or collect(c, Load) for c in conditions):
            return False
        return all(self.bounds.implies((b,), a) for a, b in pairwise(conditions))

    def _starts_with_lanes(self, mask: Expr) -> bool:
        """Whether a lane of ``mask`` is only true if all lanes before it are."""
        forms = [self.bounds.of(part) for part in conjuncts(mask)]
        return all(form is not None and form[0][0] <= 0 for form in forms)

    def _columns(self, under: Mapping[Load, Expr | None]) -> Iterator[_Columns]:
        """Groups of loads with the same stride from adjacent addresses, each as large as possible."""
        groups: dict[tuple[object, ...], dict[int, Load]] = {}
        for e in under:
            at = e.indices[0] if len(e.indices) == 1 else None
            if e.dtype == BOOL or not isinstance(at, Ramp) or (e.mask is not None and lane(e.mask, 0) is None):
                continue
            contiguous = isinstance(at.stride, Const) and abs(int(at.stride)) <= 1
            if not contiguous and at.count >= MIN_ROWS and at.count & (at.count - 1) == 0:
                variable, constant = split_constant(at.base)
                groups.setdefault((e.source, variable, at.stride, at.count, e.mask), {})[constant] = e
        for found in groups.values():
            while found:
                first = min(found)
                together = [found.pop(first)]
                while first + len(together) in found:
                    together.append(found.pop(first + len(together)))
                lanes = min(MAX_ROWS, together[0].lanes)
                while lanes >= MIN_ROWS:
                    while len(together) >= lanes:
                        columns, together = tuple(together[:lanes]), together[lanes:]
                        made = self._there([under[e] for e in columns])
                        if made is not None:
                            yield _Columns(columns, made if isinstance(made, Expr) else None)
                    lanes //= 2

    def _there(self, conditions: Sequence[Expr | None]) -> Expr | bool | None:
        """The conditions of adjacent columns as one mask; True without conditions, None if that is not possible."""
        first, m = conditions[0], len(conditions)
        if first is None:
            return True
        if not isinstance(first, Binary) or first.op not in ("lt", "le"):
            return None
        forms = [None if c is None else self.bounds.of(c) for c in conditions]
        start = forms[0]
        if start is None or any(f is None or f != (start[0], start[1] - i) for i, f in enumerate(forms)):
            return None
        return Binary(first.op, Ramp(first.a, Const(1), m), Broadcast(first.b, m))


def _guarded(s: Stmt) -> _Step | None:
    """Stores, alone or under one condition; None for anything else."""
    if isinstance(s, Store):
        return None, (s,)
    if not isinstance(s, If) or s.otherwise is not None:
        return None
    inside = s.then.stmts if isinstance(s.then, Seq) else (s.then,)
    stores = tuple(x for x in inside if isinstance(x, Store))
    return (s.condition, stores) if stores and len(stores) == len(inside) else None


def _stored(steps: Sequence[_Step], values: Mapping[Expr, Expr]) -> list[Stmt]:
    """The stores with ``values`` in place of others. Conditions contain those that follow: what the first needs is
    computed once."""
    memo: dict[Expr, Expr] = {}
    made: list[Stmt] = []
    for condition, stores in reversed(steps):
        changed = [map_expressions(s, lambda e: rewrite(e, values.get, memo, fold=False)) for s in stores]
        made = [*(s for s in changed if isinstance(s, Store) and expressions(s)), *made]
        if condition is not None:
            made = [If(condition, seq(*made))]
    return made


def lane(e: Expr, i: int) -> Expr | None:
    """Lane ``i`` of a comparison of indices, or of a conjunction of them; None for anything else."""
    if isinstance(e, Broadcast) and e.value.lanes == 1:
        return e.value
    if isinstance(e, Ramp) and e.base.lanes == 1:
        return e.base + e.stride * i
    if not isinstance(e, Binary) or e.lanes == 1:
        return None
    a, b = lane(e.a, i), lane(e.b, i)
    return None if a is None or b is None else make(e.op, a, b)


def _transposed(found: Sequence[_Columns], stored: Expr | None, most: int) -> dict[Expr, Expr]:
    """The columns, computed from contiguous rows. If ``stored`` is given, only its lanes are stored. The first of them
    is true, and those from ``most`` on are not."""
    values: dict[Expr, Expr] = {}
    for columns in found:
        loads, m = columns.loads, len(columns.loads)
        rows = [_row(columns, i, stored, most) for i in range(loads[0].lanes)]
        parts = [_square(rows[i : i + m], loads[0].dtype.nbytes) for i in range(0, len(rows), m)]
        whole = parts[0] if len(parts) == 1 else [Shuffle(p, tuple(range(len(rows)))) for p in zip(*parts, strict=True)]
        values.update(zip(loads, whole, strict=True))
    return values


def _row(columns: _Columns, i: int, stored: Expr | None, most: int) -> Expr:
    first, m = columns.loads[0], len(columns.loads)
    at = first.indices[0]
    assert isinstance(at, Ramp)
    offset, mask = at.stride * i, columns.there
    here = None if first.mask is None else lane(first.mask, i)
    if first.mask is not None and here is not None:
        known = bool(here.value) if isinstance(here, Const) else None
        if known is False or (first.mask is stored and i >= most):
            return Broadcast(Const(0, first.dtype), m)
        if first.mask is stored:
            offset = Select(here, offset, Const(0)) if i and known is None else offset
        elif known is None:
            mask = Broadcast(here, m) if mask is None else make("and", mask, Broadcast(here, m))
    return Load(first.source, (Ramp(at.base + offset, Const(1), m),), mask)


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
