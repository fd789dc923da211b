"""The loops that list the numbers for which a condition holds, in order.

The marked numbers of each part are counted, so that every part knows where its own begin and parts are independent.
Within a part no jump depends on a single mark, which a processor would guess wrongly: a number is written where the
next one belongs, and only a mark makes that place its own. Vectors of which no number is marked, or all are, are
common: they are skipped, or written at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.expr.folds import all_of
from weft.expr.nodes import Const, Expr, Load, Var, cast, minimum
from weft.lowering.order_parts import LANES, NewBuffer, marks_in, over_lanes
from weft.lowering.parallel_rows import loop
from weft.support.dtypes import INDEX, INT32
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_PART: Final = 4096
"""Numbers that are visited in order; parts of so many are independent."""


class Listing:
    """Writes the first numbers below ``size`` that are ``marked`` to ``out[(*row, …)]``, and -1 to the rest of it."""

    def __init__(
        self, marked: Callable[[Expr], Expr], out: Buffer, row: Sequence[Expr], size: Expr, new: NewBuffer
    ) -> None:
        self.marked, self.out, self.row, self.size, self.new = marked, out, tuple(row), size, new
        self.count = out.shape[-1]
        self.parts = (size + _PART - 1) // _PART
        self.ends = new("ends", (*out.shape[:-1], self.parts + 1), "global")
        lanes = (Const(LANES, INDEX),)
        self.marks, self.total = new("marks", lanes, "register", "int32"), new("total", lanes, "register", "int32")
        self.single, self.next = new("single", (_ONE,), "register"), new("next", (_ONE,), "register")

    def loops(self) -> Stmt:
        counting, part, before, rest = (Var(n, INDEX) for n in ("part", "part", "before", "rest"))
        found = minimum(self.end(self.parts), self.count)
        work = None if self.row else _PART  # rows are in parallel already
        return seq(
            Store(self.ends, (*self.row, _ZERO), _ZERO),
            loop(counting, self.parts, self.counted(counting), work),
            For(before, _ZERO, self.parts, self.set_end(before + 1, self.end(before) + self.end(before + 1))),
            loop(part, self.parts, self.written(part), work),
            For(rest, found, self.count - found, self.put(rest, Const(-1, INDEX))),
        )

    def put(self, at: Expr, number: Expr) -> Stmt:
        return Store(self.out, (*self.row, at), number)

    def end(self, part: Expr) -> Expr:
        """Where the numbers of the parts before ``part`` end."""
        return Load(self.ends, (*self.row, part))

    def set_end(self, part: Expr, at: Expr) -> Stmt:
        return Store(self.ends, (*self.row, part), at)

    def extent(self, part: Expr) -> Expr:
        """How many numbers there are in a part."""
        return minimum(self.size - part * _PART, Const(_PART, INDEX))

    def mark(self, into: Buffer, first: Expr, add: bool) -> Stmt:
        """The marks of a vector of numbers, which are added to those in ``into`` if ``add``."""
        lane = Var("lane", INDEX)
        mark = cast(self.marked(first + lane), INT32)
        value = Load(into, (lane,)) + mark if add else mark
        return over_lanes(lane, Store(into, (lane,), value))

    def counted(self, part: Expr) -> Stmt:
        """Count the marked numbers of a part."""
        clear, vector, one = Var("clear", INDEX), Var("vector", INDEX), Var("one", INDEX)
        extent, single = self.extent(part), Load(self.single, (_ZERO,))
        first, rest = part * _PART, part * _PART + extent // LANES * LANES
        zero = Store(self.total, (clear,), Const(0, INT32))
        more = Store(self.single, (_ZERO,), single + cast(self.marked(rest + one), INDEX))
        return seq(
            over_lanes(clear, zero),
            Store(self.single, (_ZERO,), _ZERO),
            For(vector, _ZERO, extent // LANES, self.mark(self.total, first + vector * LANES, add=True)),
            For(one, _ZERO, extent % LANES, more),
            self.set_end(part + 1, single + cast(marks_in(self.total), INDEX)),
        )

    def written(self, part: Expr) -> Stmt:
        """Write the marked numbers of a part."""
        vector, one, lane, single, at = (Var(n, INDEX) for n in ("vector", "one", "lane", "single", "at"))
        extent, first, end = self.extent(part), Var("first", INDEX), Var("end", INDEX)
        here, rest = Load(self.next, (_ZERO,)), part * _PART + extent // LANES * LANES

        def step(number: Expr) -> Stmt:
            forward = Store(self.next, (_ZERO,), here + cast(self.marked(number), INDEX))
            return If(here < end, seq(self.put(here, number), forward))

        whole = over_lanes(lane, self.put(at + lane, first + lane))
        at_once = Let(at, here, seq(whole, Store(self.next, (_ZERO,), at + LANES)))
        singly = For(single, _ZERO, Const(LANES, INDEX), step(first + single))
        found = marks_in(self.marks)
        some = If(all_of(found >= LANES, here + LANES <= end), at_once, singly)
        each = seq(self.mark(self.marks, first, add=False), If(found > 0, some))
        body = seq(
            Store(self.next, (_ZERO,), self.end(part)),
            For(vector, _ZERO, extent // LANES, Let(first, part * _PART + vector * LANES, each)),
            For(one, _ZERO, extent % LANES, step(rest + one)),
        )
        return Let(end, minimum(self.end(part + 1), self.count), body)
