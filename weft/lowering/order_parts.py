"""What the algorithms of orders share: new buffers, and vectors of marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft.expr.nodes import Const, Expr, Load, Var
from weft.support.dtypes import INDEX
from weft.tir.nodes import Buffer, For, Stmt

LANES: Final = 16
"""Numbers that are marked at once."""


class NewBuffer(Protocol):
    """Makes a buffer of a program."""

    def __call__(self, name: str, shape: Sequence[Expr], scope: str, dtype: str = INDEX) -> Buffer: ...


def over_lanes(lane: Var, body: Stmt, lanes: int = LANES) -> Stmt:
    """``body`` for each lane of a vector."""
    return For(lane, Const(0, INDEX), Const(lanes, INDEX), body, "vectorized")


def marks_in(marks: Buffer) -> Expr:
    """How many of the marks in a vector are 1."""
    (lanes,) = marks.shape
    assert isinstance(lanes, Const)
    first, *rest = (Load(marks, (Const(i, INDEX),)) for i in range(int(lanes)))
    return sum(rest, start=first)
