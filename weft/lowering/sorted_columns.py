"""Few numbers in order for each of many columns that are next to each other in memory.

A column is a row of an order whose keys are one whole line of the memory apart. Read alone, each column would touch all
lines. So a vector runs across adjacent columns: it keeps the best keys so far in order, with their numbers. A line of
new keys is compared with the worst that are kept. Where some of them are better, each is put in its place by as many
exchanges as keys are kept: minimum and maximum, without a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.expr.intrinsics import call
from weft.expr.nodes import Const, Expr, Load, Var, cast, maximum, minimum
from weft.expr.visit import collect, occurs, substitute
from weft.lowering.order_parts import NewBuffer, marks_in, over_lanes
from weft.lowering.parallel_rows import rows
from weft.support.dtypes import INDEX, INT32, DType
from weft.tensor_expr.nodes import OrderOp
from weft.tir.nodes import Buffer, For, If, Stmt, Store, seq

_ZERO: Final = Const(0, INDEX)
_COLUMNS: Final = 64
"""Columns that one piece of work takes: several whole lines of memory, and keys that stay in the first-level cache."""
_VECTOR_BYTES: Final = 64
_LEAST_COLUMNS: Final = 16
"""Fewer columns are sorted one by one."""
_MOST_COUNTED: Final = 16
"""Most numbers that are kept for each column: an exchange for each of them puts a better one in its place."""


class SortedColumns:
    """The loops of all whole vectors of columns of ``op``."""

    def __init__(self, op: OrderOp, out: Buffer, key: Expr, new: NewBuffer) -> None:
        self.op, self.out, self.of_key = op, out, key
        self.count, self.size = op.count, op.size
        self.outer = tuple(Var(a.var.name, INDEX) for a in op.axes[:-1])
        short = isinstance(op.size, Const) and int(op.size) <= INT32.limits()[1]
        # Numbers are exchanged by masks of bits, 0 - 1 where all are wanted, which wraps around: what INDEX must not.
        word, number = key.dtype, INT32 if short else DType("uint64")
        self.number = number
        self.lanes = min(_VECTOR_BYTES // max(word.nbytes, number.nbytes), 16)
        kept, lanes = (op.count, Const(_COLUMNS, INDEX)), (Const(self.lanes, INDEX),)
        self.keys, self.numbers = new("best", kept, "local", word), new("best_numbers", kept, "local", number)
        self.key, self.key_number = new("key", lanes, "register", word), new("key_number", lanes, "register", number)
        self.old, self.old_number = new("old", lanes, "register", word), new("old_number", lanes, "register", number)
        self.given = new("given", lanes, "register", word)
        self.turned = new("turned", lanes, "register", number)
        self.marks = new("better", lanes, "register", "int32")

    @classmethod
    def of(cls, op: OrderOp, out: Buffer, swap: Callable[[Expr], Expr], new: NewBuffer) -> SortedColumns | None:
        """None if the rows of ``op`` are no adjacent columns, too few of them, or too many numbers are wanted."""
        if op.key is None or op.is_filtered or not op.axes or not isinstance(op.count, Const):
            return None
        key, last = swap(op.key), op.axes[-1]
        few = isinstance(last.extent, Const) and int(last.extent) < _LEAST_COLUMNS
        if few or not 1 <= int(op.count) <= _MOST_COUNTED or not _moves_along(key, last.var, op.a):
            return None
        return cls(op, out, key, new)

    def loops(self) -> Stmt:
        """All pieces of work, in parallel."""
        piece, most = Var("piece", INDEX), _COLUMNS // self.lanes
        vectors = self.op.axes[-1].extent // self.lanes
        outer = [(v, a.extent) for v, a in zip(self.outer, self.op.axes[:-1], strict=True)]
        work = 2 * _COLUMNS * (int(self.size) if isinstance(self.size, Const) else 256)
        here = minimum(vectors - piece * most, Const(most, INDEX))
        return rows([*outer, (piece, (vectors + most - 1) // most)], self.piece(piece * _COLUMNS, here), work)

    def piece(self, first: Expr, vectors: Expr) -> Stmt:
        """The columns of ``vectors`` vectors from column ``first`` on."""
        e, later, one, other, c, j = (Var(n, INDEX) for n in ("e", "later", "vector", "vector", "column", "j"))
        count, lanes = self.count, self.lanes
        number = cast(Load(self.numbers, (j, c)), INDEX)
        put = Store(self.out, (*self.outer, first + c, j), number)
        begin = For(one, _ZERO, vectors, self.begin(e, first, one * lanes))
        offer = For(other, _ZERO, vectors, self.offer(later, first, other * lanes))
        return seq(
            For(e, _ZERO, count, begin),
            For(later, count, self.size - count, offer),
            For(c, _ZERO, vectors * lanes, For(j, _ZERO, count, put)),
        )

    def begin(self, e: Expr, first: Expr, start: Expr) -> Stmt:
        """One of the first lines of keys, of which all are kept."""
        lane, j = Var("lane", INDEX), Var("j", INDEX)
        at = start + lane
        body = seq(
            self.take(e, first, at, lane),
            For(j, _ZERO, e, self.exchange(j, at, lane)),
            Store(self.keys, (e, at), Load(self.key, (lane,))),
            Store(self.numbers, (e, at), Load(self.key_number, (lane,))),
        )
        return self.across(lane, body)

    def offer(self, e: Expr, first: Expr, start: Expr) -> Stmt:
        """A line of keys, of which those are kept that are better than the worst that is kept."""
        lane, other, j = Var("lane", INDEX), Var("lane", INDEX), Var("j", INDEX)
        worst = Load(self.keys, (self.count - 1, start + other))
        better = self.key_of(e, first + start + other) < worst
        mark = self.across(other, Store(self.marks, (other,), cast(better, "int32")))
        at = start + lane
        exchanges = For(j, _ZERO, self.count, self.exchange(j, at, lane), "unrolled")
        return seq(mark, If(marks_in(self.marks) > 0, self.across(lane, seq(self.take(e, first, at, lane), exchanges))))

    def across(self, lane: Var, body: Stmt) -> Stmt:
        return over_lanes(lane, body, self.lanes)

    def key_of(self, e: Expr, column: Expr) -> Expr:
        axes = dict(zip((a.var for a in self.op.axes), (*self.outer, column), strict=True))
        return substitute(self.of_key, {**axes, self.op.a: e})

    def take(self, e: Expr, first: Expr, at: Expr, lane: Expr) -> Stmt:
        """A new key in hand."""
        return seq(
            Store(self.given, (lane,), self.key_of(e, first + at)),
            Store(self.key, (lane,), Load(self.given, (lane,))),
            Store(self.key_number, (lane,), cast(e, self.number)),
        )

    def exchange(self, j: Expr, at: Expr, lane: Expr) -> Stmt:
        """The better of the key in hand and the one at place ``j`` is kept there, the other is in hand. Where keys are
        equal to the new one, they stay: their numbers are smaller. Those behind it move on, also past equal ones.
        Numbers are exchanged by their bits, as a choice between numbers would read them under a mask."""
        key, number = Load(self.key, (lane,)), Load(self.key_number, (lane,))
        old, old_number = Load(self.old, (lane,)), Load(self.old_number, (lane,))
        turned = Load(self.turned, (lane,))
        all_bits = Const(0, self.number) - cast(Load(self.given, (lane,)) < old, self.number)
        return seq(
            Store(self.old, (lane,), Load(self.keys, (j, at))),
            Store(self.old_number, (lane,), Load(self.numbers, (j, at))),
            Store(self.turned, (lane,), call("bitand", call("bitxor", number, old_number), all_bits)),
            Store(self.keys, (j, at), minimum(key, old)),
            Store(self.numbers, (j, at), call("bitxor", old_number, turned)),
            Store(self.key, (lane,), maximum(key, old)),
            Store(self.key_number, (lane,), call("bitxor", number, turned)),
        )


def _moves_along(key: Expr, column: Var, number: Var) -> bool:
    """Whether adjacent columns read adjacent elements, and what is read moves along ``column`` in no other way."""
    loads = collect(key, Load)
    for load in loads:
        *outer, last = load.indices or (_ZERO,)
        if last is not column or any(occurs(column, i) for i in outer):
            return False
    return any(occurs(number, load) for load in loads)
