"""The numbers of a row in the order of their keys, without those that are excluded and those that an earlier one hides.

Groups of adjacent numbers compete: the least key of each group is known, and the next number is in the group with the
least of these. It leaves its group, whose least key is found again. All of this is done by vectors, without the jumps
that a heap takes and a processor guesses wrongly. What the condition reads of the numbers that are kept stands in
columns, so that a vector of them is compared with the next number at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from weft.expr.folds import all_of
from weft.expr.intrinsics import call
from weft.expr.nodes import Const, Expr, Load, Var, cast, logical_not, make, minimum, select
from weft.expr.visit import collect, occurs, substitute
from weft.lowering.order_parts import LANES, NewBuffer, marks_in, over_lanes
from weft.support.dtypes import INDEX, INT32
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_VECTORS: Final = 4
_GROUP: Final = _VECTORS * LANES
"""Numbers of a group."""
_STARTS: Final = tuple(range(0, _GROUP, LANES))
_TURNS: Final = 32
"""Numbers that are taken, at most, before it is asked whether there are enough."""
_NOWHERE: Final = Const(INT32.limits()[1], INT32)


@dataclass(frozen=True)
class Hiding:
    """On which condition a number that is kept hides the next one.

    ``condition`` reads columns of what it needs of the kept number, at ``place``, and variables for what it needs of
    the number ``next``. ``read`` are the loads of ``next`` that these stand for, each with its column (None if only
    the next number needs it) and its variable.
    """

    condition: Expr
    place: Var
    next: Var
    read: tuple[tuple[Load, Buffer | None, Var], ...]

    @classmethod
    def of(
        cls, condition: Expr, a: Var, b: Var, row: Sequence[Expr], column: Callable[[Load], Buffer]
    ) -> Hiding | None:
        """From ``condition`` of a kept number ``a`` and a next number ``b``; ``column`` makes a column. None if what
        the condition reads depends on both numbers, or if it uses ``a`` in another way than to read."""
        loads = collect(condition, Load)
        inside = {x for load in loads for i in load.indices for x in collect(i, Load)}
        loads = [x for x in loads if x not in inside and (occurs(a, x) or occurs(b, x))]
        plain = substitute(condition, {x: Const(0, x.dtype) for x in loads})
        if occurs(a, plain) or any(occurs(a, x) and occurs(b, x) for x in loads):
            return None
        place, following = Var("place", INDEX), Var("next", INDEX)
        values: dict[Expr, Expr] = {b: following}
        columns: dict[Load, Buffer | None] = {}
        names: dict[Load, Var] = {}
        for load in loads:
            kept = occurs(a, load)
            read = substitute(load, {a if kept else b: following})
            assert isinstance(read, Load)
            name = names.setdefault(read, Var(f"own_{read.source.name}", read.dtype))
            made = column(read) if kept else None
            columns[read] = made or columns.get(read)
            values[load] = name if made is None else Load(made, (*row, place))
        return cls(substitute(condition, values), place, following, tuple((x, columns[x], names[x]) for x in names))


class Tournament:
    """The loops that put the first ``count`` of the numbers below ``size`` for which ``among`` holds in the order of
    ``key``; of equal ones the smaller is first. Those that ``hiding`` hides are left out.

    ``put(place, number)`` stores a result. ``row`` are the indices of the row, and ``rows`` their extents; ``new``
    makes buffers.
    """

    def __init__(
        self,
        key: Callable[[Expr], Expr],
        among: Callable[[Expr], Expr],
        hiding: Hiding,
        put: Callable[[Expr, Expr], Stmt],
        row: Sequence[Expr],
        rows: Sequence[Expr],
        count: Expr,
        size: Expr,
        new: NewBuffer,
    ) -> None:
        self.key, self.among, self.hiding, self.put, self.row = key, among, hiding, put, tuple(row)
        self.count, self.size = count, size
        self.groups = (size + _GROUP - 1) // _GROUP
        self.vectors = (self.groups + LANES - 1) // LANES
        self.word = key(_ZERO).dtype
        self.gone = Const((1 << self.word.bits) - 1, self.word)
        lanes = (Const(LANES, INDEX),)
        self.keys = new("keys", (*rows, self.groups * _GROUP), "global", self.word)
        self.heads = new("heads", (*rows, self.vectors * LANES), "global", self.word)
        self.best, self.places = new("best", lanes, "register", self.word), new("places", lanes, "register", INT32)
        self.marks, self.total = new("marks", lanes, "register", INT32), new("total", lanes, "register", INT32)
        self.counters = {name: new(name, (_ONE,), "register") for name in ("some", "taken", "kept", "hidden")}

    def counter(self, name: str) -> Expr:
        return Load(self.counters[name], (_ZERO,))

    def count_to(self, name: str, value: Expr) -> Stmt:
        return Store(self.counters[name], (_ZERO,), value)

    def key_at(self, at: Expr) -> Expr:
        return Load(self.keys, (*self.row, at))

    def set_key(self, at: Expr, key: Expr) -> Stmt:
        return Store(self.keys, (*self.row, at), key)

    def head_at(self, group: Expr) -> Expr:
        return Load(self.heads, (*self.row, group))

    def set_head(self, group: Expr, key: Expr) -> Stmt:
        return Store(self.heads, (*self.row, group), key)

    def loops(self) -> Stmt:
        part, turn, rest, found, late = (Var(n, INDEX) for n in ("part", "turn", "rest", "found", "late"))
        kept = self.counter("kept")
        # Keys as large as what stands for none come after all others, in the order of their numbers.
        is_last = all_of(kept < self.count, self.among(late), make("eq", self.key(late), self.gone))
        others = For(late, _ZERO, minimum(self.size, (self.count - kept) * self.size), If(is_last, self.offer(late)))
        # Once enough numbers are kept, the turns that are left are skipped, many at once.
        here = minimum(minimum(found - part * _TURNS, Const(_TURNS, INDEX)), (self.count - kept) * _TURNS)
        turns = For(turn, _ZERO, here, If(kept < self.count, self.next()))
        chosen = seq(
            For(part, _ZERO, (found + _TURNS - 1) // _TURNS, turns),
            If(self.counter("taken") < found, others),
        )
        return seq(
            self.fill(),
            self.begin(),
            self.count_to("taken", _ZERO),
            self.count_to("kept", _ZERO),
            Let(found, self.counter("some") + cast(marks_in(self.total), INDEX), chosen),
            For(rest, kept, self.count - kept, self.put(rest, Const(-1, INDEX))),
        )

    # -- keys ----------------------------------------------------------------------------------------------------------

    def fill(self) -> Stmt:
        """The keys of all numbers, and how many of these take part. The others, and what is behind the last number,
        have the largest key."""
        clear, vector, lane, other, blank = (Var(n, INDEX) for n in ("clear", "vector", "lane", "other", "blank"))

        def own(at: Expr) -> Stmt:
            left_out = Const(0, self.word) - cast(logical_not(self.among(at)), self.word)
            return self.set_key(at, call("bitor", self.key(at), left_out))

        at, end = vector * LANES + lane, self.size // LANES * LANES + other
        more = Store(self.total, (lane,), Load(self.total, (lane,)) + cast(self.among(at), INT32))
        one = self.count_to("some", self.counter("some") + cast(self.among(end), INDEX))
        return seq(
            over_lanes(clear, Store(self.total, (clear,), Const(0, INT32))),
            self.count_to("some", _ZERO),
            _loop(vector, _ZERO, self.size // LANES, over_lanes(lane, seq(own(at), more))),
            _loop(other, _ZERO, self.size % LANES, seq(own(end), one)),
            _loop(blank, self.size, self.groups * _GROUP - self.size, self.set_key(blank, self.gone)),
        )

    def begin(self) -> Stmt:
        """The least key of each group."""
        group, lane, blank = (Var(n, INDEX) for n in ("group", "lane", "blank"))
        least = _least([self.key_at(group * _GROUP + i + lane) for i in _STARTS])
        head = seq(over_lanes(lane, Store(self.best, (lane,), least)), self.set_head(group, _least_lane(self.best)))
        more = self.vectors * LANES - self.groups
        return seq(
            _loop(group, _ZERO, self.groups, head),
            _loop(blank, self.groups, more, self.set_head(blank, self.gone)),
        )

    # -- the next number -----------------------------------------------------------------------------------------------

    def next(self) -> Stmt:
        """Take the number with the least key from its group, and offer it."""
        clear, vector, lane, group, number = (Var(n, INDEX) for n in ("clear", "vector", "lane", "group", "number"))
        least, offset = Var("least", self.word), Var("offset", INT32)
        better = minimum(Load(self.best, (lane,)), self.head_at(vector * LANES + lane))
        leave = seq(
            self.set_key(number, self.gone),
            self.set_head(group, _least_lane(self.best)),
            self.count_to("taken", self.counter("taken") + 1),
            self.offer(number),
        )
        taken = Let(number, group * _GROUP + cast(offset, INDEX), leave)
        of_group = Let(offset, _least_lane(self.places), seq(self.without(group, offset), taken))
        found = Let(group, cast(_least_lane(self.places), INDEX), seq(self.find(group, least), of_group))
        return seq(
            over_lanes(clear, Store(self.best, (clear,), self.gone)),
            _loop(vector, _ZERO, self.vectors, over_lanes(lane, Store(self.best, (lane,), better))),
            Let(least, _least_lane(self.best), If(least < self.gone, seq(self.find_group(least), found))),
        )

    def find_group(self, least: Expr) -> Stmt:
        """The first group whose least key is ``least``, lane by lane."""
        clear, vector, lane = (Var(n, INDEX) for n in ("clear", "vector", "lane"))
        place = cast(vector * LANES, INT32) + cast(lane, INT32)
        here = select(make("eq", self.head_at(vector * LANES + lane), least), place, _NOWHERE)
        first = minimum(Load(self.places, (lane,)), here)
        return seq(
            over_lanes(clear, Store(self.places, (clear,), _NOWHERE)),
            _loop(vector, _ZERO, self.vectors, over_lanes(lane, Store(self.places, (lane,), first))),
        )

    def find(self, group: Expr, least: Expr) -> Stmt:
        """The first place of ``least`` in a group, lane by lane."""
        lane = Var("lane", INDEX)

        def place(i: int) -> Expr:
            key = self.key_at(group * _GROUP + i + lane)
            return select(make("eq", key, least), cast(lane, INT32) + i, _NOWHERE)

        return over_lanes(lane, Store(self.places, (lane,), _least([place(i) for i in _STARTS])))

    def without(self, group: Expr, offset: Expr) -> Stmt:
        """The least keys of a group, lane by lane, without the one at ``offset``. That is still there: a vector that is
        loaded waits for what was just stored in a part of it."""
        lane = Var("lane", INDEX)

        def key(i: int) -> Expr:
            here = cast(make("eq", cast(lane, INT32) + i, offset), self.word)
            return call("bitor", self.key_at(group * _GROUP + i + lane), Const(0, self.word) - here)

        return over_lanes(lane, Store(self.best, (lane,), _least([key(i) for i in _STARTS])))

    # -- numbers that are kept -----------------------------------------------------------------------------------------

    def offer(self, number: Expr) -> Stmt:
        """Keep ``number`` unless one that is kept hides it."""
        of, now = self.hiding, Var("now", INDEX)
        own = [(Var(name.name, name.dtype), name) for *_, name in of.read]
        columns = [(column, v) for (_, column, _), (v, _) in zip(of.read, own, strict=True) if column is not None]
        keep = seq(
            *(Store(column, (*self.row, now), v) for column, v in columns),
            self.put(now, number),
            self.count_to("kept", now + 1),
        )
        if columns:  # a vector of them is compared as a whole
            clear = Var("clear", INDEX)
            blank = seq(*(Store(c, (*self.row, now + clear), Const(0, c.dtype)) for c, _ in columns))
            keep = seq(If(make("eq", now % LANES, 0), over_lanes(clear, blank)), keep)
        values: dict[Expr, Expr] = {of.next: number}
        values.update({name: v for v, name in own})
        step = self.unless_hidden(values, now, keep)
        for (load, _, _), (v, _) in zip(of.read, own, strict=True):
            step = Let(v, substitute(load, {of.next: number}), step)
        return Let(now, self.counter("kept"), step)

    def unless_hidden(self, values: dict[Expr, Expr], now: Expr, keep: Stmt) -> Stmt:
        """``keep``, if none of the ``now`` numbers that are kept hides the next one, of which ``values`` are known."""
        condition = self.hiding.condition
        if isinstance(condition, Const) and not condition.value:
            return keep
        vector, lane, hidden = Var("vector", INDEX), Var("lane", INDEX), self.counter("hidden")
        at = vector * LANES + lane
        hides = all_of(at < now, substitute(condition, {**values, self.hiding.place: at}))
        compare = seq(
            over_lanes(lane, Store(self.marks, (lane,), cast(hides, INT32))),
            self.count_to("hidden", cast(marks_in(self.marks), INDEX)),
        )
        return seq(
            self.count_to("hidden", _ZERO),
            For(vector, _ZERO, (now + LANES - 1) // LANES, If(hidden < 1, compare)),
            If(hidden < 1, keep),
        )


def _loop(var: Var, start: Expr, extent: Expr, body: Stmt) -> Stmt:
    """A loop, or nothing if it is known to have no iteration."""
    return seq() if isinstance(extent, Const) and not extent.value else For(var, start, extent, body)


def _least(parts: Sequence[Expr]) -> Expr:
    """The least of several numbers, by pairs, which do not wait for each other."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return minimum(_least(parts[:middle]), _least(parts[middle:]))


def _least_lane(vector: Buffer) -> Expr:
    """The least number in a vector."""
    return _least([Load(vector, (Const(i, INDEX),)) for i in range(LANES)])
