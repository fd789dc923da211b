"""Iteration variables: the axes of blocks and of tensor expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from weft.expr.nodes import Const, Expr, Operand, Var, make
from weft.support.dtypes import INDEX


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(Operand):
    """A variable that runs over ``start <= var < start + extent``.

    ``kind`` is ``spatial`` (instances are independent), ``reduce`` (instances combine, order free),
    ``ordered`` (instances depend on earlier ones) or ``thread`` (bound to ``thread``, e.g. ``threadIdx.x``).
    """

    SPATIAL: ClassVar[str] = "spatial"
    REDUCE: ClassVar[str] = "reduce"
    ORDERED: ClassVar[str] = "ordered"
    THREAD: ClassVar[str] = "thread"

    var: Var
    extent: Expr
    kind: str = "spatial"
    start: Expr = field(default_factory=lambda: Const(0, INDEX))
    thread: str = ""

    def as_expr(self) -> Expr:
        """The variable: what an axis means in an expression."""
        return self.var

    def __eq__(self, other: object) -> Any:
        """Identity between axes; a comparison expression against anything else, as in ``k != 2``."""
        if isinstance(other, (Expr, int, float, np.generic)):
            return make("eq", self, other)  # type: ignore[arg-type]  # Expr
        return self is other

    def __ne__(self, other: object) -> Any:
        if isinstance(other, (Expr, int, float, np.generic)):
            return make("ne", self, other)  # type: ignore[arg-type]  # Expr
        return self is not other

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class BoundedAxis(IterVar):
    """A reduce axis whose range positions or data decide: ``low <= axis < low + count``, of which the first ``extent``
    values count.

    Expressions may use it like any axis. A reduction over it runs over ``plain``, which has the same variable and
    counts from 0.
    """

    low: Expr = field(default_factory=lambda: Const(0, INDEX))
    count: Expr = field(default_factory=lambda: Const(0, INDEX))
    plain: IterVar = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", IterVar(self.var, self.extent, self.kind))
