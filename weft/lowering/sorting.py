"""The loops that sort numbers, for one row of an order.

If a few numbers are wanted and there are keys, the best so far are kept in a pool (``weft.lowering.sorted_pool``). If
more are wanted, but few of many, they are kept in a heap, in the memory of the result. If all are wanted, short rows
are sorted by counting. Long rows are sorted by the digits of their keys. Without keys, short runs are sorted by
counting and then merged into runs of doubling length, alternating between the result and a buffer of the same size. If
some numbers are excluded or hidden by others, the remaining ones form a heap, and the first is removed repeatedly until
enough numbers are found; with keys, vectors find it (``weft.lowering.tournament``). If there is nothing to sort by, the
numbers that are not excluded are listed (``weft.lowering.listing``).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Const, Expr, Load, Not, Var, cast, make, minimum, select
from weft.expr.visit import collect, occurs, substitute
from weft.ir.frozen import EMPTY, FrozenMap
from weft.lowering.digit_sort import DigitSort
from weft.lowering.listing import Listing
from weft.lowering.order_parts import LANES, NewBuffer, marks_in, over_lanes
from weft.lowering.sorted_pool import MOST_COUNTED, SortedPool
from weft.lowering.tournament import Hiding, Tournament
from weft.support.dtypes import BOOL, INDEX, DType
from weft.tensor_expr.nodes import OrderOp
from weft.tir.nodes import Buffer, For, If, Let, LoopKind, Stmt, Store, seq

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_ASSUMED_SIZE_BITS = 48
"""Assumed number of bits of the largest size of a dimension whose size is unknown."""
_FULL_SORT_RATIO = 8
"""If at least one in this many numbers is wanted, all numbers are sorted by comparisons."""
_DIGIT_SORT_RATIO = 16
"""If at least one in this many numbers is wanted, all numbers are sorted by the digits of their keys."""
_RUN_ELEMENTS = 64
"""Number of elements in a run that is sorted by counting. Runs are then merged."""
_AHEAD_BYTES, _NEAR_BYTES = 4096, 1 << 15
"""How far ahead of its use a long row is prefetched. A shorter one is in a cache, or has passed before its end would
arrive."""
_GROUP = 64
"""Numbers that are tested at once, and numbers per group. One branch skips a group in which no number passes the
test."""

Before = Callable[[Expr, Expr], Expr]


class Sorting:
    """The loops of one row of ``op`` into ``out``. ``swap`` rewrites its expressions to read buffers;
    ``new(name, shape, scope)`` creates buffers."""

    def __init__(self, op: OrderOp, out: Buffer, swap: Callable[[Expr], Expr], new: NewBuffer) -> None:
        self.op, self.count, self.size, self.out, self.new = op, op.count, op.size, out, new
        self.row: tuple[Expr, ...] = tuple(a.var for a in op.axes)
        self.conditions = {e: swap(e) for e in (op.before, op.among, op.hides)}
        self.key = None if op.key is None else swap(op.key)

    def body(self) -> Stmt:
        """All loops, by the algorithm that fits the order."""
        count, size = self.count, self.size
        if self.op.is_list:
            return Listing(lambda e: self.holds(self.op.among, e, e), self.out, self.row, size, self.new).loops()
        if self.op.is_filtered:
            return self.filtered()
        if self.key is not None and self.fits_pool():
            return self.pooled(self.key)
        if count is size:
            return self.sorted()
        ratio = _FULL_SORT_RATIO if self.key is None else _DIGIT_SORT_RATIO
        if isinstance(count, Const) and isinstance(size, Const):
            return self.sorted() if int(count) * ratio >= int(size) > 1 else self.selected()
        if self.key is None or (isinstance(count, Const) and int(count) < 2):  # more, up to MOST_COUNTED, are pooled
            return self.selected()
        return If(count * ratio >= size, self.sorted(), self.selected())

    def fits_pool(self) -> bool:
        """Whether a few numbers are wanted, and not of a short row."""
        short = isinstance(self.size, Const) and int(self.size) <= _RUN_ELEMENTS
        return not short and isinstance(self.count, Const) and 2 <= int(self.count) <= MOST_COUNTED

    def pooled(self, key: Expr) -> Stmt:
        """Keep the best numbers so far in a pool."""
        of = SortedPool(
            int(self.count),  # type: ignore[call-overload]  # Const
            self.size,
            lambda a: substitute(key, {self.op.a: a}),
            self.before,
            self.put,
            self.new,
            self.read_ahead(),
        )
        return of.loops()

    def sorted(self) -> Stmt:
        """All numbers in order, and the first ``count`` of them in the result."""
        if self.key is None:
            return self.merged()
        if isinstance(self.size, Const):
            return self.counted_once() if int(self.size) <= _RUN_ELEMENTS else self.by_digits(self.key)
        return If(self.size <= _RUN_ELEMENTS, self.counted_once(), self.by_digits(self.key))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def holds(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """A condition of the order, applied to two numbers."""
        return substitute(self.conditions[condition], {self.op.a: a, self.op.b: b})

    def before(self, a: Expr, b: Expr) -> Expr:
        return self.holds(self.op.before, a, b)

    def tied_before(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a`` comes before ``b``; if they compare equal, the smaller number comes first."""
        return make("or", self.before(a, b), all_of(a < b, Not(self.before(b, a))))

    def tied_after(self, a: Expr, b: Expr) -> Expr:
        return self.tied_before(b, a)

    def at(self, i: Expr, buffer: Buffer | None = None) -> Expr:
        return Load(buffer or self.out, (*self.row, i))

    def put(self, i: Expr, value: Expr, buffer: Buffer | None = None) -> Stmt:
        return Store(buffer or self.out, (*self.row, i), value)

    def room(self, name: str) -> Buffer:
        """A buffer for all numbers of each row."""
        return self.new(name, (*self.out.shape[:-1], self.size), "global")

    def scalar(self, name: str) -> tuple[Expr, Callable[[Expr], Stmt]]:
        """A mutable variable: its value, and a function that stores a new value."""
        buffer = self.new(name, (_ONE,), "register")
        return Load(buffer, (_ZERO,)), lambda value: Store(buffer, (_ZERO,), value)

    def each(self, start: Expr, count: Expr, matters: Callable[[Expr], Expr], then: Callable[[Expr], Stmt]) -> Stmt:
        """Run ``then`` for each number that ``matters``, among ``count`` numbers from ``start``. Few should matter: a
        group in which none does is skipped with one branch."""
        e, group, lane, rest = (Var(n, INDEX) for n in ("e", "group", "lane", "rest"))
        if isinstance(count, Const) and int(count) < 2 * _GROUP:
            return For(e, start, count, If(matters(e), then(e)))
        first = start + group * _GROUP
        marks = self.new("marks", (Const(LANES, INDEX),), "register", "int32")
        any_of_lane = any_of(*(matters(first + i + lane) for i in range(0, _GROUP, LANES)))
        mark = over_lanes(lane, Store(marks, (lane,), cast(any_of_lane, "int32")))

        def one_by_one(begin: Expr, number: Var, extent: Expr) -> Stmt:
            return For(number, _ZERO, extent, Let(e, begin + number, If(matters(e), then(e))))

        some = If(marks_in(marks) > 0, one_by_one(first, Var("each", INDEX), Const(_GROUP, INDEX)))
        tail = one_by_one(start + count // _GROUP * _GROUP, rest, count % _GROUP)
        groups = For(group, _ZERO, count // _GROUP, seq(mark, some), annotations=self.read_ahead())
        return seq(groups, tail)

    def read_ahead(self) -> FrozenMap:
        """What a loop over groups of numbers loads into the caches before it is compared: a group takes less time than
        memory takes to answer, and the hardware's prefetcher stops at the end of each page."""
        loads = [x for x in collect(self.conditions[self.op.before], Load) if x.indices]
        adjacent = dict.fromkeys(x.source for x in loads if occurs(self.op.a, x.indices[-1]))
        known = int(self.size) if isinstance(self.size, Const) else None
        far = [b for b in adjacent if known is None or known * b.dtype.nbytes > _NEAR_BYTES]
        asked = tuple((b.name, _AHEAD_BYTES // (_GROUP * b.dtype.nbytes)) for b in far)
        return FrozenMap({"prefetch": asked}) if asked else EMPTY

    def heapify(self, buffer: Buffer, count: Expr, worse: Before) -> Stmt:
        """Order ``count`` numbers as a heap: no number is ``worse`` than its parent."""
        s = Var("s", INDEX)
        return For(s, _ZERO, count // 2, self.sift(buffer, count // 2 - 1 - s, count, None, worse))

    def sift(self, buffer: Buffer, start: Expr, end: Expr, item: Expr | None, below: Before) -> Stmt:
        """Insert ``item`` (None: the item at ``start``) into the heap of ``end`` numbers at ``start``: it moves down
        while it is ``below`` a child."""
        hole, set_hole = self.scalar("hole")
        child, set_child = self.scalar("child")
        level, other, pick = Var("level", INDEX), Var("other", INDEX), Var("pick", INDEX)
        moving = Var("moving", INDEX)
        room = buffer.shape[-1]
        levels = int(room).bit_length() if isinstance(room, Const) else _ASSUMED_SIZE_BITS
        up = seq(self.put(hole, self.at(pick, buffer), buffer), set_hole(pick), set_child(pick * 2 + 1))
        choose = If(below(moving, self.at(pick, buffer)), up, set_child(end))
        higher = select(below(self.at(child, buffer), self.at(other, buffer)), other, child)
        step = If(child < end, Let(other, minimum(child + 1, end - 1), Let(pick, higher, choose)))
        down = For(level, _ZERO, Const(levels, INDEX), step)
        body = seq(set_hole(start), set_child(start * 2 + 1), down, self.put(hole, moving, buffer))
        return Let(moving, self.at(start, buffer) if item is None else item, body)

    # -- few numbers of many -------------------------------------------------------------------------------------------

    def selected(self) -> Stmt:
        """Keep the best numbers so far in a heap with the worst at its root, then sort the heap in place."""
        j, t = Var("j", INDEX), Var("t", INDEX)
        count, out = self.count, self.out
        fill = For(j, _ZERO, count, self.put(j, j))
        offer = self.each(
            count,
            self.size - count,
            lambda e: self.before(e, self.at(_ZERO)),
            lambda e: self.sift(out, _ZERO, count, e, self.tied_before),
        )
        last = count - 1 - t
        worst, moved = Var("worst", INDEX), Var("moved", INDEX)
        shrink = seq(self.put(last, worst), self.sift(out, _ZERO, last, moved, self.tied_before))
        drain = For(t, _ZERO, count - 1, Let(moved, self.at(last), Let(worst, self.at(_ZERO), shrink)))
        whole = seq(fill, self.heapify(out, count, self.tied_before), offer, drain)
        return If(count > 0, whole) if not isinstance(count, Const) else whole if int(count) else seq()

    # -- numbers that are neither excluded nor hidden ------------------------------------------------------------------

    def filtered(self) -> Stmt:
        """The numbers that are neither excluded nor hidden, in order."""
        return self.heaped() if self.key is None else self.by_tournament(self.key) or self.heaped()

    def by_tournament(self, key: Expr) -> Stmt | None:
        """Find them by ``key``; None if the condition is of another kind than vectors compare."""
        rows, op = self.out.shape[:-1], self.op
        room = (*rows, (self.count + LANES - 1) // LANES * LANES)

        def column(load: Load) -> Buffer:
            return self.new(f"kept_{load.source.name}", room, "global", load.dtype)

        hiding = Hiding.of(self.conditions[op.hides], op.a, op.b, self.row, column)
        if hiding is None:
            return None
        of = Tournament(
            lambda e: substitute(key, {op.a: e}),
            lambda e: self.holds(op.among, e, e),
            hiding,
            self.put,
            self.row,
            rows,
            self.count,
            self.size,
            self.new,
        )
        return of.loops()

    def heaped(self) -> Stmt:
        """Keep the numbers that are not excluded in a heap with the first at its root. Remove them in order and keep
        each one that is not hidden."""
        waiting = self.room("waiting")
        found, set_found = self.scalar("found")
        kept, set_kept = self.scalar("kept")
        hidden, set_hidden = self.scalar("hidden")
        e, t, c, rest, first, moved = (Var(n, INDEX) for n in ("e", "t", "c", "left", "first", "moved"))
        takes_part = select(self.holds(self.op.among, e, e), _ONE, _ZERO)
        filter_ = For(e, _ZERO, self.size, seq(self.put(found, e, waiting), set_found(found + takes_part)))
        end = found - 1 - t
        test = If(hidden < 1, If(self.holds(self.op.hides, self.at(c), first), set_hidden(_ONE)))
        group, lane = Var("group", INDEX), Var("lane", INDEX)
        some = For(lane, _ZERO, minimum(kept - group * LANES, Const(LANES, INDEX)), Let(c, group * LANES + lane, test))
        compare = For(group, _ZERO, (kept + LANES - 1) // LANES, If(hidden < 1, some))
        keep = If(hidden < 1, seq(self.put(kept, first), set_kept(kept + 1)))
        out_of_heap = self.sift(waiting, _ZERO, end, moved, self.tied_after)
        take = seq(set_hidden(_ZERO), compare, keep, If(end > 0, Let(moved, self.at(end, waiting), out_of_heap)))
        taking = For(t, _ZERO, found, If(kept < self.count, Let(first, self.at(_ZERO, waiting), take)))
        fill = For(rest, kept, self.count - kept, self.put(rest, Const(-1, INDEX)))
        heap = self.heapify(waiting, found, self.tied_after)
        return seq(set_found(_ZERO), set_kept(_ZERO), set_hidden(_ZERO), filter_, heap, taking, fill)

    # -- all numbers ---------------------------------------------------------------------------------------------------

    def by_digits(self, key: Expr) -> Stmt:
        """Sort by the digits of ``key``."""
        i = Var("i", INDEX)
        extents = self.out.shape[:-1]
        sort = DigitSort(lambda a: substitute(key, {self.op.a: a}), self.row, extents, self.size, self.new)
        return sort.loops(lambda number: For(i, _ZERO, self.count, self.put(i, number(i))))

    def counted_once(self) -> Stmt:
        """Sort at most as many numbers as a run has by counting."""
        ordered = self.out if self.count is self.size else self.room("ordered")
        return seq(self.short_runs(ordered), self.take_first(ordered))

    def take_first(self, ordered: Buffer) -> Stmt:
        """Copy the first ``count`` numbers from ``ordered`` to the result, if that is another buffer."""
        first = Var("first", INDEX)
        return seq() if ordered is self.out else For(first, _ZERO, self.count, self.put(first, self.at(first, ordered)))

    def merged(self) -> Stmt:
        """Sort short runs by counting, then merge runs of doubling width from the result into a buffer and back until
        one run is left."""
        ordered = self.out if self.count is self.size else self.room("ordered")
        turns = self.turns()
        stmts = [self.short_runs(ordered)]
        if turns:
            spare = self.room("spare")
            width, set_width = self.scalar("width")
            both = seq(
                self.merge(ordered, spare, width),
                self.merge(spare, ordered, width * 2),
                set_width(width * 4),
            )
            turning = For(Var("turn", INDEX), _ZERO, Const(turns, INDEX), If(width < self.size, both))
            stmts += [set_width(Const(_RUN_ELEMENTS, INDEX)), turning]
        return seq(*stmts, self.take_first(ordered))

    def turns(self) -> int:
        """Limit on the number of iterations, each of which merges runs twice."""
        if not isinstance(self.size, Const):
            return _ASSUMED_SIZE_BITS // 2
        runs = -(-int(self.size) // _RUN_ELEMENTS)
        return (max(0, runs - 1).bit_length() + 1) // 2

    def short_runs(self, target: Buffer) -> Stmt:
        """Short runs, each sorted by counting how many numbers of the run come before each one."""
        run, rest = Var("run", INDEX), self.size % _RUN_ELEMENTS
        whole = For(
            run,
            _ZERO,
            self.size // _RUN_ELEMENTS,
            self.counted(target, run * _RUN_ELEMENTS, Const(_RUN_ELEMENTS, INDEX), "vectorized"),
        )
        last = self.counted(target, self.size // _RUN_ELEMENTS * _RUN_ELEMENTS, rest, "serial")
        return seq(whole, last) if not isinstance(rest, Const) or int(rest) else whole

    def counted(self, target: Buffer, start: Expr, length: Expr, kind: LoopKind) -> Stmt:
        """One run, sorted by counting for each number how many numbers come before it."""
        i, j, k, clear = (Var(n, INDEX) for n in ("i", "j", "k", "clear"))
        ranks = self.new(
            "ranks", (Const(_RUN_ELEMENTS, INDEX),), "register" if kind == "vectorized" else "local", "int32"
        )
        a, b = start + j, start + i
        comes_first = select(cast(j, "int32") < cast(i, "int32"), Not(self.before(b, a)), self.before(a, b))
        count = Store(ranks, (i,), Load(ranks, (i,)) + cast(comes_first, "int32"))
        counting = For(j, _ZERO, length, For(i, _ZERO, length, count, kind))
        place = self.put(start + cast(Load(ranks, (k,)), INDEX), start + k, target)
        zero = For(clear, _ZERO, length, Store(ranks, (clear,), Const(0, DType("int32"))), kind)
        return seq(zero, counting, For(k, _ZERO, length, place))

    def merge(self, source: Buffer, target: Buffer, width: Expr) -> Stmt:
        """Merge all pairs of adjacent runs of ``width`` from ``source`` into ``target``."""
        pair = Var("pair", INDEX)
        pairs = self.size // (width * 2)
        return seq(
            For(pair, _ZERO, pairs, self.merge_equal(source, target, pair * width * 2, width)),
            self.merge_rest(source, target, pairs * width * 2, width),
        )

    def merge_equal(self, source: Buffer, target: Buffer, start: Expr, width: Expr) -> Stmt:
        """Merge two runs of ``width`` from both ends at once. Neither end can exhaust a run before the last step, and
        the two directions are independent of each other."""
        low, set_low = self.scalar("low")
        high, set_high = self.scalar("high")
        low_end, set_low_end = self.scalar("low_end")
        high_end, set_high_end = self.scalar("high_end")
        t, a, b, c, d = (Var(n, INDEX) for n in ("t", "first", "second", "third", "fourth"))
        swaps, keeps = Var("swaps", BOOL), Var("keeps", BOOL)
        one, other = select(swaps, _ONE, _ZERO), select(keeps, _ONE, _ZERO)
        front = seq(self.put(start + t, select(swaps, b, a), target), set_low(low + 1 - one), set_high(high + one))
        back = seq(
            self.put(start + width * 2 - 1 - t, select(keeps, c, d), target),
            set_low_end(low_end - other),
            set_high_end(high_end - 1 + other),
        )
        step: Stmt = Let(swaps, self.before(b, a), Let(keeps, self.before(d, c), seq(front, back)))
        for var, place in ((d, high_end), (c, low_end), (b, high), (a, low)):
            step = Let(var, self.at(place, source), step)
        middle = start + width
        begin = (set_low(start), set_high(middle), set_low_end(middle - 1), set_high_end(middle + width - 1))
        return seq(*begin, For(t, _ZERO, width, step))

    def merge_rest(self, source: Buffer, target: Buffer, start: Expr, width: Expr) -> Stmt:
        """Merge the remainder: at most one run of ``width`` and one shorter run."""
        left, set_left = self.scalar("left")
        right, set_right = self.scalar("right")
        k, takes, a, b = Var("k", INDEX), Var("takes", BOOL), Var("first", INDEX), Var("second", INDEX)
        size, middle = self.size, minimum(start + width, self.size)
        from_left = all_of(left < middle, make("or", right >= size, Not(self.before(b, a))))
        one = select(takes, _ONE, _ZERO)
        move = seq(self.put(k, select(takes, a, b), target), set_left(left + one), set_right(right + 1 - one))
        step: Stmt = Let(takes, from_left, move)
        step = Let(b, self.at(minimum(right, size - 1), source), step)
        step = Let(a, self.at(minimum(left, size - 1), source), step)
        return seq(set_left(start), set_right(middle), For(k, start, size - start, step))
