"""Operations that depend on an order: updates of single elements step by step, and sorting by a comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, ExprLike, Var, index, wrap
from weft.support.arguments import FUNCTION, TEXT, Form, check_takes, checked, optional
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import UserError
from weft.tensor_expr.api import TENSOR
from weft.tensor_expr.nodes import OrderOp, PlaceholderOp, Tensor, UpdateOp
from weft.tensor_expr.ranges import check_sizes
from weft.tensor_expr.tags import current_tag

ROW = Form("a row of extents", lambda v: isinstance(v, (tuple, list)))
STEPS = Form("positions of extents", lambda v: isinstance(v, Collection) and not isinstance(v, (str, bytes)))


@checked("E110", base=TENSOR, extents=ROW, fn=FUNCTION, name=TEXT, independent=STEPS)
def update(
    base: Tensor,
    extents: Sequence[ExprLike],
    fn: Callable[..., Any],
    name: str = "update",
    independent: Collection[int] = (),
) -> Tensor:
    """A copy of ``base`` with elements changed by steps that run in row-major order.

    ``fn(state, i, j, …)`` returns ``(at, value)`` or ``(at, value, condition)``: the indices of the element that the
    step changes, its new value (which may read the current value ``state[at]``), and whether the step changes it.
    ``independent`` are positions in ``extents``: no two steps along these axes access the same element, so they may
    run in parallel. A step whose element lies outside of ``base`` because data decides so changes nothing. Raises
    UserError E125 if the parts do not fit ``base``, E206 if data decides the number of steps.
    """
    steps = [index(e) for e in extents]
    check_sizes(f"the steps of update '{name}'", steps)
    axes = tuple(
        IterVar(Var(f"u{d}", INDEX), e, IterVar.SPATIAL if d in independent else IterVar.ORDERED)
        for d, e in enumerate(steps)
    )
    state = PlaceholderOp(f"{name}_state", base.shape, base.dtype).output(0)
    given = (state, *(a.var for a in axes))
    check_takes(fn, *given, what=f"the function of update '{name}'", code="E125")
    at, value, *rest = fn(*given)
    at, value = tuple(index(i) for i in at), wrap(value)
    condition = wrap(rest[0]) if rest else Const(True, BOOL)
    if len(at) != len(base.shape) or value.dtype != base.dtype or condition.dtype != BOOL:
        raise UserError(
            f"update '{name}' changes {base!r} at {len(at)} indices to values of {value.dtype}",
            code="E125",
            hint="give an index for each dimension, a value of the tensor's dtype and a bool condition",
        )
    return UpdateOp(name, base, axes, state, at, value, condition, tag=current_tag()).output()


@checked(
    "E110",
    extents=ROW,
    before=FUNCTION,
    name=TEXT,
    among=optional(FUNCTION),
    hides=optional(FUNCTION),
    key=optional(FUNCTION),
)
def order(
    extents: Sequence[ExprLike],
    count: ExprLike,
    size: ExprLike,
    before: Callable[..., Expr],
    name: str = "order",
    *,
    among: Callable[..., Expr] | None = None,
    hides: Callable[..., Expr] | None = None,
    key: Callable[..., Expr] | None = None,
) -> Tensor:
    """The first ``count`` of the numbers below ``size`` in sorted order, int64, for each step of ``extents``.

    ``before(a, b, i, j, …)`` says whether number ``a`` comes strictly before ``b`` at the step ``i, j, …``; it must be
    a strict weak order. Of equivalent numbers the smaller is first. ``count`` is at most ``size``. O(size · log count).

    ``key(a, i, j, …)`` is an unsigned whole number such that ``before(a, b)`` holds exactly where ``key(a) < key(b)``.
    With it, many numbers are sorted by the digits of their keys, in O(size · bytes of a key) without comparisons.

    ``among(a, i, j, …)`` selects the numbers to sort. ``hides(a, b, i, j, …)`` says whether ``a``, which comes before
    ``b`` and is not removed itself, removes ``b``. Remaining places are -1. With m selected numbers the cost is O(size
    + m · (log m + count)); the search ends when ``count`` numbers are found. With a key, vectors take the place of the
    heap that costs log m, and of the comparisons with single numbers, if what ``hides`` reads depends on ``a`` or on
    ``b`` and it uses ``a`` only to read. Raises UserError E125 if a condition is not bool or a key is not unsigned;
    E206 if data decides a length.
    """
    axes = tuple(IterVar(Var(f"i{d}", INDEX), index(e)) for d, e in enumerate(extents))
    count, size = index(count), index(size)
    check_sizes(f"the length of order '{name}'", (count, size, *(x.extent for x in axes)))
    a, b = Var("a", INDEX), Var("b", INDEX)
    step = tuple(x.var for x in axes)
    for fn, given in ((before, (a, b, *step)), (among, (a, *step)), (hides, (a, b, *step)), (key, (a, *step))):
        if fn is not None:
            check_takes(fn, *given, what=f"a function of order '{name}'", code="E125")
    conditions = (
        wrap(before(a, b, *step)),
        Const(True, BOOL) if among is None else wrap(among(a, *step)),
        Const(False, BOOL) if hides is None else wrap(hides(a, b, *step)),
    )
    for condition in conditions:
        if condition.dtype != BOOL:
            raise UserError(f"order '{name}' compares by a value of {condition.dtype}, not bool", code="E125")
    keyed = _key(name, key, a, *step)
    return OrderOp(name, axes, count, size, a, b, *conditions, keyed, tag=current_tag()).output()


def _key(name: str, key: Callable[..., Expr] | None, *step: Var) -> Expr | None:
    if key is None:
        return None
    made = wrap(key(*step))
    if made.dtype.kind != "uint":
        raise UserError(
            f"order '{name}' has keys of {made.dtype}, not of unsigned whole numbers",
            code="E125",
            hint="te.reinterpret gives the bits of signed numbers and floats",
        )
    return made
