"""Sizes decide how large tensors are and how far axes run; data and positions do not."""

from __future__ import annotations

from collections.abc import Container, Iterable

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var
from weft.expr.visit import post_order
from weft.support.dtypes import INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.nodes import Reduce

_OF_AXES = (
    "give the largest length, te.reduce_axis(…, bound=…), or let the axis cover the largest range and keep the terms "
    "that count: te.sum(…, axis=k, where=k < i + 1)"
)
_OF_SHAPES = "te.var('m') without a dtype is a size that a call may pass; or use the largest size, and a condition"


def check_ranges(name: str, axes: Iterable[IterVar], positions: Container[Var], place: Location | None = None) -> None:
    """Refuse (E206) ranges of the axes of an operation that read data or depend on ``positions``."""
    for a in axes:
        _check(f"the range of axis '{a.var.name}' of '{name}'", (a.start, a.extent), positions, _OF_AXES, place)


def check_sizes(
    what: str, sizes: Iterable[Expr], positions: Container[Var] = (), place: Location | None = None
) -> None:
    """Refuse (E206) what is not made of sizes alone. ``what`` names the sizes: "the shape of 'A'"."""
    _check(what, sizes, positions, _OF_SHAPES, place)


def _check(what: str, sizes: Iterable[Expr], positions: Container[Var], hint: str, place: Location | None) -> None:
    for e in sizes:
        why = None if isinstance(e, Const) else _undecided(e, positions)
        if why is not None:
            raise UserError(f"{what} {why}; only sizes may decide it", code="E206", place=place, hint=hint)


def _undecided(e: Expr, positions: Container[Var]) -> str | None:
    """Why sizes alone do not decide ``e``."""
    for x in post_order(e):
        if isinstance(x, Load):
            return f"reads '{x.source.name}'"
        if isinstance(x, Reduce):
            return "contains a reduction"
        if isinstance(x, Var) and (x in positions or x.dtype != INDEX):
            return f"depends on '{x.name}'"
    return None
