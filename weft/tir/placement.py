"""Where elements lie in memory, for instructions that need to know it.

``offset_of(A[i, j])`` is the number of elements before an element in its buffer, ``apart(A[i, j], A[i + 1, j])`` the
number of elements from one to another; neither loads anything. ``require(condition)`` is a statement that must be
proved when memory has been laid out: before that, a schedule may still shrink, pad and move buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.expr import intrinsics
from weft.expr.intrinsic_table import PLACES
from weft.expr.nodes import Call, Const, Expr, Load
from weft.expr.simplify import simplify
from weft.support.dtypes import INDEX
from weft.support.errors import ScheduleError
from weft.tir.nodes import Buffer, Evaluate, Stmt

REQUIRE: Final = "require"


def require(condition: Expr) -> Stmt:
    """A statement that does nothing; programs in which ``condition`` cannot be proved are refused."""
    return Evaluate(intrinsics.require(condition))


def is_place(e: Expr) -> bool:
    """Whether ``e`` is a call of ``offset_of`` or ``apart``."""
    return isinstance(e, Call) and e.name in PLACES


def is_requirement(s: Stmt) -> bool:
    """Whether ``s`` is a statement that :func:`require` made."""
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name == REQUIRE


def compact_strides(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a row-major buffer without gaps."""
    found: list[Expr] = []
    step: Expr = Const(1, INDEX)
    for extent in reversed(shape):
        found.append(step)
        step = extent * step
    return tuple(reversed(found))


def strides_of(b: Buffer) -> tuple[Expr, ...]:
    """The strides of ``b``, in elements."""
    return b.strides if b.strides is not None else compact_strides(b.shape)


def offset(indices: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    """The element offset of ``indices``."""
    total: Expr = Const(0, INDEX)
    for i, stride in zip(indices, strides, strict=True):
        total = total + i * stride
    return total


def placed(e: Expr, strides: Callable[[Buffer], Sequence[Expr]] = strides_of) -> Expr:
    """The value of a call of ``offset_of`` or ``apart``. Raises ScheduleError S083 if what it names is no longer in
    memory, because it was computed in place of a load."""
    at: list[Expr] = []
    for element in e.children:
        if not isinstance(element, Load) or not isinstance(element.source, Buffer):
            raise ScheduleError(
                f"an instruction takes '{element}' from memory, but it was inlined",
                code="S083",
                hint="keep the operands of instructions in buffers",
            )
        at.append(offset(element.indices, strides(element.source)))
    return simplify(at[0] if len(at) == 1 else at[1] - at[0])


def check_required(condition: Expr, found: Expr) -> None:
    """Raise ScheduleError S083 unless ``found``, the ``condition`` of a requirement after placing, always holds."""
    proved = simplify(found)
    if not (isinstance(proved, Const) and proved.value):
        raise ScheduleError(
            f"an instruction requires {condition}, and {proved} is not proved",
            code="S083",
            hint="copy the operand into a buffer of the tile's shape (cache_read, cache_write), or choose even factors",
        )
