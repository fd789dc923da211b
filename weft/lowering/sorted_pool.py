"""A small number of the best of a row, in order: better numbers are collected in a pool, and the pool is sorted by
counting whenever it is full.

A vector of new keys is compared with the worst key that is kept. Those that are better are added at the end of the
pool, without a condition for each. Sorting the pool counts, for each of its keys, the keys that come before it; so many
comparisons by vectors cost less than the jumps that a heap takes, which a processor guesses wrongly. The pool is always
in the order of the row where keys are equal: what is kept is sorted, and what is added comes later in the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Const, Expr, Load, Var, cast, maximum, minimum
from weft.ir.frozen import EMPTY, FrozenMap
from weft.lowering.order_parts import LANES, NewBuffer, marks_in, over_lanes
from weft.support.dtypes import INDEX, INT32
from weft.tir.nodes import For, If, Let, Stmt, Store, seq

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_VECTORS: Final = 4
"""Vectors of a group of keys. One branch skips a group in which no key is better than those that are kept."""
MOST_COUNTED: Final = 64
"""Most numbers that are kept in a pool: sorting takes time in proportion to its square."""


class SortedPool:
    """The loops that put the first ``count`` numbers of a row of ``size`` in order.

    ``key(number)`` is smaller for numbers that come first, and ``before(a, b)`` says so of two numbers; ``put(place,
    number)`` stores a result. ``new`` makes buffers. ``annotations`` are those of the loop over groups of 64 keys.
    """

    def __init__(
        self,
        count: int,
        size: Expr,
        key: Callable[[Expr], Expr],
        before: Callable[[Expr, Expr], Expr],
        put: Callable[[Expr, Expr], Stmt],
        new: NewBuffer,
        annotations: FrozenMap = EMPTY,
    ) -> None:
        self.count, self.size, self.key, self.before, self.put = count, size, key, before, put
        self.annotations = annotations
        spare = 32 if count <= 32 else 64
        self.room = -(-(count + spare) // LANES) * LANES
        word, room, few = key(_ZERO).dtype, (Const(self.room, INDEX),), (Const(count + 1, INDEX),)
        lanes = (Const(LANES, INDEX),)
        self.keys, self.numbers = new("pool", room, "local", word), new("pool_numbers", room, "local")
        self.best, self.best_numbers = new("best", few, "local", word), new("best_numbers", few, "local")
        self.width = min(LANES, 64 // word.nbytes)
        width = (Const(self.width, INDEX),)
        self.ranks, self.ahead = new("ranks", room, "local", "int32"), new("ahead", width, "register", "int32")
        self.fresh, self.better = new("fresh", lanes, "local", word), new("better", lanes, "register", "int32")
        self.counters = {name: new(name, (_ONE,), "register") for name in ("held", "some")}

    def counter(self, name: str) -> Expr:
        return Load(self.counters[name], (_ZERO,))

    def count_to(self, name: str, value: Expr) -> Stmt:
        return Store(self.counters[name], (_ZERO,), value)

    def loops(self) -> Stmt:
        """As many numbers go into the pool at first as leave whole vectors."""
        first, j = Var("first", INDEX), Var("j", INDEX)
        start = minimum(self.size, self.size % LANES + (self.room - LANES))
        vectors = (self.size - first) // LANES
        group, here = Var("group", INDEX), Var("here", INDEX)
        body = self.group(first + group * (_VECTORS * LANES), here)
        number = minimum(vectors - group * _VECTORS, Const(_VECTORS, INDEX))
        groups = (vectors + _VECTORS - 1) // _VECTORS
        each = For(group, _ZERO, groups, Let(here, number, body), annotations=self.annotations)
        result = For(j, _ZERO, Const(self.count, INDEX), self.put(j, Load(self.numbers, (j,))))
        last = If(self.counter("held") > self.count, self.sort())
        return Let(first, start, seq(self.fill(first), self.sort(), each, last, result))

    def fill(self, first: Expr) -> Stmt:
        """The first numbers of the row. What is behind them is compared, but only used where a row has fewer numbers
        than are wanted."""
        vector, lane, other, blank, clear = (Var(n, INDEX) for n in ("vector", "lane", "other", "blank", "clear"))

        def own(at: Expr) -> Stmt:
            return seq(Store(self.keys, (at,), self.key(at)), Store(self.numbers, (at,), at))

        whole = For(vector, _ZERO, first // LANES, over_lanes(lane, own(vector * LANES + lane)))
        rest = For(other, _ZERO, first % LANES, own(first // LANES * LANES + other))
        at = blank * LANES + clear
        nothing = seq(Store(self.keys, (at,), Const(0, self.keys.dtype)), Store(self.numbers, (at,), _ZERO))
        used = first // LANES
        behind = For(blank, used, Const(self.room // LANES, INDEX) - used, over_lanes(clear, nothing))
        return seq(whole, behind, rest, self.count_to("held", maximum(first, Const(self.count, INDEX))))

    def group(self, begin: Expr, vectors: Expr) -> Stmt:
        """The keys of ``vectors`` vectors from number ``begin`` on. A whole group is skipped if none is better."""
        lane, worst, vector = Var("lane", INDEX), Var("worst", INDEX), Var("vector", INDEX)
        better = any_of(*(self.before(begin + i * LANES + lane, worst) for i in range(_VECTORS)))
        mark = over_lanes(lane, Store(self.better, (lane,), cast(better, INT32)))
        test = Let(worst, Load(self.numbers, (Const(self.count - 1, INDEX),)), mark)
        look = If(vectors >= _VECTORS, seq(test, self.count_to("some", cast(marks_in(self.better), INDEX))))
        offers = For(vector, _ZERO, vectors, self.offer(begin + vector * LANES))
        return seq(self.count_to("some", _ONE), look, If(self.counter("some") > 0, offers))

    def offer(self, begin: Expr) -> Stmt:
        """A vector of keys, of which the better ones are added to the pool."""
        lane, one, worst = Var("lane", INDEX), Var("one", INDEX), Var("worst", self.keys.dtype)
        look = seq(
            Store(self.fresh, (lane,), self.key(begin + lane)),
            Store(self.better, (lane,), cast(Load(self.fresh, (lane,)) < worst, INT32)),
        )
        held = self.counter("held")
        add = seq(
            Store(self.keys, (held,), Load(self.fresh, (one,))),
            Store(self.numbers, (held,), begin + one),
            self.count_to("held", held + cast(Load(self.fresh, (one,)) < worst, INDEX)),
        )
        full = If(held > self.room - LANES, self.sort())
        some = If(marks_in(self.better) > 0, seq(For(one, _ZERO, Const(LANES, INDEX), add), full))
        return Let(worst, Load(self.keys, (Const(self.count - 1, INDEX),)), seq(over_lanes(lane, look), some))

    def sort(self) -> Stmt:
        """Put the pool in order and keep the first ones. A number that is not kept goes behind the last place."""
        vector, i, back, place, held = (Var(n, INDEX) for n in ("vector", "i", "back", "place", "all"))
        ranks = For(vector, _ZERO, (held + self.width - 1) // self.width, self.rank(vector * self.width, held))
        rank = minimum(cast(Load(self.ranks, (i,)), INDEX), Const(self.count, INDEX))
        move = seq(
            Store(self.best, (place,), Load(self.keys, (i,))),
            Store(self.best_numbers, (place,), Load(self.numbers, (i,))),
        )
        keep = seq(
            Store(self.keys, (back,), Load(self.best, (back,))),
            Store(self.numbers, (back,), Load(self.best_numbers, (back,))),
        )
        body = seq(
            ranks,
            For(i, _ZERO, held, Let(place, rank, move)),
            For(back, _ZERO, Const(self.count, INDEX), keep),
            self.count_to("held", Const(self.count, INDEX)),
        )
        return Let(held, self.counter("held"), body)

    def rank(self, start: Expr, held: Expr) -> Stmt:
        """How many of all ``held`` keys come before each of a vector of them. Keys in front of the vector do so where
        they are equal, too."""
        clear, kept, front, own, behind = (Var(n, INDEX) for n in ("clear", "kept", "front", "own", "behind"))
        width, end = self.width, start + self.width

        def counted(j: Expr, comes: Callable[[Expr, Expr, Expr], Expr]) -> Stmt:
            across = Var("lane", INDEX)
            ahead = comes(Load(self.keys, (j,)), Load(self.keys, (start + across,)), across)
            more = Load(self.ahead, (across,)) + cast(ahead, INT32)
            return over_lanes(across, Store(self.ahead, (across,), more), width)

        def mixed(a: Expr, b: Expr, across: Expr) -> Expr:
            return any_of(a < b, all_of(cast(own, INT32) < cast(across, INT32), a <= b))

        own_count = minimum(held - start, Const(width, INDEX))
        return seq(
            over_lanes(clear, Store(self.ahead, (clear,), Const(0, INT32)), width),
            For(front, _ZERO, start, counted(front, lambda a, b, across: a <= b)),
            For(own, _ZERO, own_count, counted(start + own, mixed)),
            For(behind, end, maximum(held - end, _ZERO), counted(behind, lambda a, b, across: a < b)),
            over_lanes(kept, Store(self.ranks, (start + kept,), Load(self.ahead, (kept,))), width),
        )
