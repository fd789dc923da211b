"""Loops of tensor expressions whose steps run in order: updates of single elements, and sorting.

An order of a few of many numbers keeps the best so far in a heap, in the place of the result; one of all numbers merges
runs of doubling length between the result and a buffer of its size. Both run one row in parallel to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.expr.nodes import Const, Expr, IterVar, Load, Not, Var, all_of, make, minimum, product, select
from weft.ir.frozen import FrozenMap
from weft.support.dtypes import BOOL, INDEX
from weft.te.nodes import OrderOp, UpdateOp
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq
from weft.tir.visit import substitution

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_LONGEST = 48
"""Bits of the largest size that is thought possible where it is not known."""
_STEP_WORK = 20_000
"""Steps that one share of a parallel loop has at least."""
_MERGED = 8
"""All numbers are sorted where at least one in so many is wanted."""

Before = Callable[[Expr, Expr], Expr]


def update_loops(op: UpdateOp, out: Buffer, swap: Callable[[Expr], Expr]) -> Stmt:
    """The steps of an update of ``out``; ``swap`` rewrites expressions to buffers."""
    at, value, condition = tuple(swap(i) for i in op.at), swap(op.value), swap(op.condition)
    body: Stmt = Store(out, at, value)
    if not isinstance(condition, Const):
        body = If(condition, body)
    for d, axis in reversed(list(enumerate(op.axes))):
        parallel = d == 0 and axis.kind == IterVar.SPATIAL
        each = _steps(op.axes[1:])
        body = _loop(axis.var, axis.extent, body, each if parallel else None)
    return body


def order_loops(
    op: OrderOp, out: Buffer, swap: Callable[[Expr], Expr], new: Callable[[str, Sequence[Expr], str], Buffer]
) -> Stmt:
    """The loops that fill ``out`` with places in order; ``new(name, shape, scope)`` makes buffers."""
    row = tuple(a.var for a in op.axes)
    before_ab = swap(op.before)

    def before(a: Expr, b: Expr) -> Expr:
        return substitution({op.a: a, op.b: b})(before_ab)

    every = op.count is op.size or (
        isinstance(op.count, Const) and isinstance(op.size, Const) and int(op.count) * _MERGED >= int(op.size) > 1
    )
    sort = _Sorting(op.count, op.size, before, out, row, new)
    body = sort.merged() if every else sort.selected()
    return _rows(op.axes, body, op.size)


def _steps(axes: Sequence[IterVar]) -> int | None:
    """How many steps the axes make; None where that is not known."""
    total = product([a.extent for a in axes]) if axes else 1
    return int(total) if isinstance(total, (int, Const)) else None


def _loop(var: Var, extent: Expr, body: Stmt, work: int | None = None) -> For:
    """A loop; a parallel one if ``work``, the steps of one iteration, is given."""
    if work is None:
        return For(var, _ZERO, extent, body)
    if isinstance(extent, Const) and int(extent) * max(1, work) < 2 * _STEP_WORK:
        return For(var, _ZERO, extent, body)
    grain = max(1, _STEP_WORK // max(1, work))
    return For(var, _ZERO, extent, body, "parallel", annotations=FrozenMap({"grain": grain}))


def _rows(axes: Sequence[IterVar], body: Stmt, size: Expr) -> Stmt:
    """``body`` for each step of the axes, in parallel over all of them."""
    if not axes:
        return body
    work = 8 * int(size) if isinstance(size, Const) else 1000
    flat = Var("row", INDEX)
    rest: Expr = flat
    for axis in reversed(axes[1:]):
        body = Let(axis.var, rest % axis.extent, body)
        rest = rest // axis.extent
    total = axes[0].extent
    for axis in axes[1:]:
        total = total * axis.extent
    return _loop(flat, total, Let(axes[0].var, rest, body), work)


class _Sorting:
    """The loops of one row."""

    def __init__(
        self,
        count: Expr,
        size: Expr,
        before: Before,
        out: Buffer,
        row: tuple[Expr, ...],
        new: Callable[[str, Sequence[Expr], str], Buffer],
    ) -> None:
        self.count, self.size, self.before, self.out, self.row, self.new = count, size, before, out, row, new

    def at(self, i: Expr, buffer: Buffer | None = None) -> Expr:
        return Load(buffer or self.out, (*self.row, i))

    def put(self, i: Expr, value: Expr, buffer: Buffer | None = None) -> Stmt:
        return Store(buffer or self.out, (*self.row, i), value)

    def scalar(self, name: str) -> tuple[Expr, Callable[[Expr], Stmt]]:
        """A variable that statements may change: its value, and what stores another."""
        buffer = self.new(name, (_ONE,), "register")
        return Load(buffer, (_ZERO,)), lambda value: Store(buffer, (_ZERO,), value)

    # -- a few of many ---------------------------------------------------------------------------------------------

    def selected(self) -> Stmt:
        """The best so far as a heap, the worst of them at its root; then sorted in place."""
        j, s, e, t = (Var(n, INDEX) for n in ("j", "s", "e", "t"))
        count = self.count
        fill = For(j, _ZERO, count, self.put(j, j))
        heap = For(s, _ZERO, count // 2, self.sift(count // 2 - 1 - s, count, None))
        better = If(self.before(e, self.at(_ZERO)), self.sift(_ZERO, count, e))
        offer = For(e, count, self.size - count, better)
        last = count - 1 - t
        worst = Var("worst", INDEX)
        moved = Var("moved", INDEX)
        shrink = seq(self.put(last, worst), self.sift(_ZERO, last, moved))
        drain = For(t, _ZERO, count - 1, Let(moved, self.at(last), Let(worst, self.at(_ZERO), shrink)))
        whole = seq(fill, heap, offer, drain)
        return If(count > 0, whole) if not isinstance(count, Const) else whole if int(count) else seq()

    def sift(self, start: Expr, end: Expr, item: Expr | None) -> Stmt:
        """Put ``item`` (None: what is there) into the heap of ``end`` numbers at ``start``, below all worse ones."""
        hole, set_hole = self.scalar("hole")
        child, set_child = self.scalar("child")
        level, other, pick = Var("level", INDEX), Var("other", INDEX), Var("pick", INDEX)
        moving = Var("moving", INDEX)
        levels = int(self.count).bit_length() if isinstance(self.count, Const) else _LONGEST
        up = seq(self.put(hole, self.at(pick)), set_hole(pick), set_child(pick * 2 + 1))
        choose = If(self.tied_before(moving, self.at(pick)), up, set_child(end))
        worse = select(self.tied_before(self.at(child), self.at(other)), other, child)
        step = If(child < end, Let(other, minimum(child + 1, end - 1), Let(pick, worse, choose)))
        down = For(level, _ZERO, Const(levels, INDEX), step)
        body = seq(set_hole(start), set_child(start * 2 + 1), down, self.put(hole, moving))
        return Let(moving, self.at(start) if item is None else item, body)

    def tied_before(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a`` comes before ``b``; of equal numbers the smaller does."""
        return make("or", self.before(a, b), all_of(a < b, Not(self.before(b, a))))

    # -- all -------------------------------------------------------------------------------------------------------

    def merged(self) -> Stmt:
        """Runs of doubling width, merged from the result into a buffer and back until one run is left."""
        room = (*self.out.shape[:-1], self.size)
        spare = self.new("spare", room, "global")
        ordered = self.out if self.count is self.size else self.new("ordered", room, "global")
        width, set_width = self.scalar("width")
        turn, c = Var("turn", INDEX), Var("c", INDEX)
        known = isinstance(self.size, Const)
        turns = (max(1, int(self.size) - 1).bit_length() + 1) // 2 if known else _LONGEST // 2  # type: ignore[call-overload]
        both = seq(
            self.merge(ordered, spare, width),
            self.merge(spare, ordered, width * 2),
            set_width(width * 4),
        )
        fill = For(c, _ZERO, self.size, self.put(c, c, ordered))
        turning = For(turn, _ZERO, Const(turns, INDEX), If(width < self.size, both))
        first = Var("first", INDEX)
        copy = For(first, _ZERO, self.count, self.put(first, self.at(first, ordered)))
        return seq(set_width(_ONE), fill, turning, *([] if ordered is self.out else [copy]))

    def merge(self, source: Buffer, target: Buffer, width: Expr) -> Stmt:
        """All pairs of neighbouring runs of ``width`` in ``source`` merged into ``target``."""
        left, set_left = self.scalar("left")
        right, set_right = self.scalar("right")
        middle, set_middle = self.scalar("middle")
        end, set_end = self.scalar("end")
        k, takes, a, b = Var("k", INDEX), Var("takes", BOOL), Var("first", INDEX), Var("second", INDEX)
        size = self.size
        pair = seq(
            set_left(k),
            set_middle(minimum(k + width, size)),
            set_right(minimum(k + width, size)),
            set_end(minimum(k + width * 2, size)),
        )
        last = size - 1
        from_left = all_of(left < middle, make("or", right >= end, Not(self.before(b, a))))
        move = seq(
            self.put(k, select(takes, a, b), target),
            If(takes, set_left(left + 1), set_right(right + 1)),
        )
        step: Stmt = Let(takes, from_left, move)
        step = Let(b, self.at(minimum(right, last), source), step)
        step = Let(a, self.at(minimum(left, last), source), step)
        begin = seq(set_left(_ZERO), set_right(_ZERO), set_middle(_ZERO), set_end(_ZERO))
        return seq(begin, For(k, _ZERO, size, seq(If(k >= end, pair), step)))
