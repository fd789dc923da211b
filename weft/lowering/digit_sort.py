"""The loops that sort one row of numbers by the digits of their keys, without comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.expr.intrinsics import call
from weft.expr.nodes import Const, Expr, Load, Var, cast, maximum, minimum
from weft.lowering.order_parts import NewBuffer
from weft.support.dtypes import INDEX, INT32
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq

_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)
_DIGIT_BITS = 8
"""Bits of one digit. With 8, one counter for each value of a digit fits in the L1 cache, and so do the cache lines that
one pass over the data writes to."""


@dataclass(frozen=True)
class DigitSort:
    """Sorts the numbers 0 … ``size - 1`` by ``key(number)``; ``row`` are the indices of the row. ``new`` makes
    buffers."""

    key: Callable[[Expr], Expr]
    row: tuple[Expr, ...]
    rows: tuple[Expr, ...]
    """The extents of ``row``."""
    size: Expr
    new: NewBuffer

    def loops(self, result: Callable[[Callable[[Expr], Expr]], Stmt]) -> Stmt:
        """Sort pairs of a key and a number by one digit after another, the lowest first. Each turn keeps the order of
        pairs with equal digits. The digits are those of the difference between a key and the smallest key. Turns
        above the highest digit of the largest difference are skipped, so small keys of either sign need few.
        ``result(number)`` gives the statements that use the sorted numbers: ``number(i)`` is the one at place i."""
        e, t = Var("e", INDEX), Var("turn", INDEX)
        word = self.key(_ZERO).dtype
        short = isinstance(self.size, Const) and int(self.size) <= INT32.limits()[1]
        number = INT32 if short else INDEX
        room = (*self.rows, Const(2, INDEX), self.size)
        keys, numbers = self.new("keys", room, "global", word), self.new("numbers", room, "global", number)
        which, ends = self.new("which", (_ONE,), "register"), self.new("ends", (Const(2, INDEX),), "register", word)
        full, least, most = Load(which, (_ZERO,)), Load(ends, (_ZERO,)), Load(ends, (_ONE,))
        fill = seq(
            Store(keys, (*self.row, _ZERO, e), self.key(e)),
            Store(numbers, (*self.row, _ZERO, e), cast(e, number)),
            Store(ends, (_ZERO,), minimum(least, self.key(e))),
            Store(ends, (_ONE,), maximum(most, self.key(e))),
        )
        shift = Var("shift", word)
        turn = seq(self.spread(keys, numbers, full, least, shift), Store(which, (_ZERO,), _ONE - full))
        some = If(call("shr", most - least, shift) > Const(0, word), turn)
        return seq(
            Store(which, (_ZERO,), _ZERO),
            Store(ends, (_ZERO,), self.key(_ZERO)),
            Store(ends, (_ONE,), self.key(_ZERO)),
            For(e, _ZERO, self.size, fill),
            For(t, _ZERO, Const(word.nbytes, INDEX), Let(shift, cast(t * _DIGIT_BITS, word), some)),
            result(lambda place: cast(Load(numbers, (*self.row, full, place)), INDEX)),
        )

    def spread(self, keys: Buffer, numbers: Buffer, full: Expr, least: Expr, shift: Expr) -> Stmt:
        """Copy all pairs from the half ``full`` of the buffers to the other half, in the order of the digit at
        ``shift``."""
        digits = Const(1 << _DIGIT_BITS, INDEX)
        starts, total = self.new("starts", (digits,), "local"), self.new("total", (_ONE,), "register")
        clear, counted, d, own, e = (Var(n, INDEX) for n in ("clear", "counted", "digit", "own", "e"))
        amount, target, at = (Var(n, INDEX) for n in ("amount", "target", "at"))
        before, pair, free = Load(total, (_ZERO,)), (*self.row, full, e), (*self.row, _ONE - full, at)

        def place(d: Expr) -> Expr:
            return Load(starts, (d,))

        add = Let(d, _digit(Load(keys, (*self.row, full, counted)) - least, shift), Store(starts, (d,), place(d) + 1))
        begin = seq(Store(starts, (own,), before), Store(total, (_ZERO,), before + amount))
        move = seq(
            Store(keys, free, Load(keys, pair)),
            Store(numbers, free, Load(numbers, pair)),
            Store(starts, (target,), at + 1),
        )
        return seq(
            For(clear, _ZERO, digits, Store(starts, (clear,), _ZERO), "vectorized"),
            For(counted, _ZERO, self.size, add),
            Store(total, (_ZERO,), _ZERO),
            For(own, _ZERO, digits, Let(amount, place(own), begin)),
            For(
                e, _ZERO, self.size, Let(target, _digit(Load(keys, pair) - least, shift), Let(at, place(target), move))
            ),
        )


def _digit(key: Expr, shift: Expr) -> Expr:
    return cast(call("bitand", call("shr", key, shift), Const((1 << _DIGIT_BITS) - 1, key.dtype)), INDEX)
