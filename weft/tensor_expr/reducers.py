"""Reducers: commutative, associative ways to combine the values along an axis.

The form is ``sum(expr, axis=k)``. Without an axis they combine their operands: ``max(a, b)``, ``sum(a, b, c)``.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from weft.expr.folds import all_of, any_of
from weft.expr.iter_var import BoundedAxis, IterVar
from weft.expr.nodes import Const, Expr, ExprLike, Var, cast, make, wrap
from weft.expr.visit import substitute
from weft.support.arguments import FUNCTION, TEXT, check_takes, checked, instance
from weft.support.dtypes import BOOL, DType
from weft.support.errors import UserError
from weft.tensor_expr.nodes import Reduce, Reducer

Axes = IterVar | Sequence[IterVar]


@checked("E110", dtype=TEXT, sign=instance("1 or -1", int))
def infinity(dtype: str, sign: int = 1) -> Const:
    """Infinity of the given sign if ``dtype`` has it, else the largest or smallest finite value."""
    kind = DType(dtype)
    if kind.is_float and np.isinf(np.asarray(np.inf, np.float32).astype(kind.numpy).astype(np.float32)):
        return Const(sign * float("inf"), kind)
    low, high = kind.limits()
    return Const(high if sign > 0 else low, kind)


@dataclass(frozen=True, slots=True)
class _Simple:
    """A reducer of single values: the operator that combines them and the identity by dtype."""

    name: str
    op: str
    identity: Callable[[DType], Const]


@cache
def _reducer(kind: _Simple, dtype: DType) -> Reducer:
    x, y = Var("x", dtype), Var("y", dtype)
    return Reducer(kind.name, (x,), (y,), (make(kind.op, x, y),), (kind.identity(dtype),))


_SUM = _Simple("sum", "add", lambda t: Const(0, t))
_PROD = _Simple("prod", "mul", lambda t: Const(1, t))
_MAX = _Simple("max", "max", lambda t: infinity(t, -1))
_MIN = _Simple("min", "min", lambda t: infinity(t, 1))
_ALL = _Simple("all", "and", lambda t: Const(True, t))
_ANY = _Simple("any", "or", lambda t: Const(False, t))
SIMPLE = {kind.name: kind for kind in (_SUM, _PROD, _MAX, _MIN, _ALL, _ANY)}


@checked("E110", name=TEXT, dtype=TEXT)
def named_reducer(name: str, dtype: str) -> Reducer:
    """The built-in reducer ``name`` (sum, prod, max, min, all, any) for values of ``dtype``."""
    if name not in SIMPLE:
        raise UserError(f"no reducer is named '{name}'", code="E130", hint="one of " + ", ".join(SIMPLE))
    return _reducer(SIMPLE[name], DType(dtype))


def _axes(axis: Axes) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if not isinstance(a, IterVar) or a.kind != IterVar.REDUCE:
            raise UserError(
                f"cannot reduce over '{getattr(a, 'var', a)}'",
                code="E131",
                hint="reduce over axes made by te.reduce_axis",
            )
    return axes


def _over(axes: tuple[IterVar, ...], values: Sequence[Expr], where: Expr) -> tuple[tuple[IterVar, ...], list[Expr]]:
    """The axes without bounds, and ``values`` and the condition with the positions of bounded axes in their ranges."""
    bounded = [a for a in axes if isinstance(a, BoundedAxis)]
    if not bounded:
        return axes, [*values, where]
    moved: dict[Var, Expr] = {}
    inside: list[Expr] = []
    for a in axes:  # a range may depend on earlier axes
        if isinstance(a, BoundedAxis):
            low, count = (substitute(e, moved) for e in (a.low, a.count))
            moved[a.var] = low + a.var
            inside.append(a.var < count)
    changed = [substitute(e, moved) for e in (*values, where)]
    plain = tuple(a.plain if isinstance(a, BoundedAxis) else a for a in axes)
    return plain, [*changed[:-1], all_of(*inside, changed[-1])]


def _reduce(kind: _Simple, expr: ExprLike, axis: Axes, where: ExprLike | None, init: ExprLike | None = None) -> Expr:
    value = wrap(expr)
    if kind.op in ("and", "or") and value.dtype != BOOL:
        raise UserError(f"{kind.name} reduces bool values, not {value.dtype}", code="E132", hint="compare with 0 first")
    if kind.op in ("add", "mul") and value.dtype == BOOL:
        raise UserError(f"{kind.name} of bool values is not defined", code="E132", hint="cast to an integer first")
    over, (value, condition) = _over(_axes(axis), (value,), wrap(True if where is None else where))
    start = None if init is None else (_first(f"te.{kind.name}", value.dtype, init),)
    return Reduce(_reducer(kind, value.dtype), (value,), over, condition, 0, start)


def _first(what: str, dtype: DType, init: ExprLike) -> Expr:
    """The value at which a reduction starts, in its dtype."""
    made = wrap(init)
    if isinstance(made, Const) and not (made.dtype.is_float and dtype.is_integer):
        made = cast(made, dtype)
    if made.dtype != dtype:
        hint = f"convert it: te.cast(init, '{dtype}')"
        raise UserError(f"{what} of {dtype} cannot start at a value of {made.dtype}", code="E135", hint=hint)
    return made


def _is_axes(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return builtins.all(isinstance(a, IterVar) for a in value)
    return isinstance(value, IterVar) and value.kind == IterVar.REDUCE


def _along(
    what: str, operands: Sequence[Any], axis: Axes | None, where: ExprLike | None, init: Any
) -> tuple[Any, Axes, ExprLike | None] | None:
    """The value, the axes and the condition of a reduction, whose axes and condition may stand behind the value; None
    where operands are combined. Raises UserError E133 for a mixture of both."""
    if axis is None and 2 <= len(operands) <= 3 and _is_axes(operands[1]):
        value, axis, *rest = operands
        operands, where = (value,), where if where is not None or not rest else rest.pop()
        if rest:
            raise UserError(f"{what} has two conditions", code="E133", hint="give one, as where=")
    if axis is not None:
        if len(operands) != 1:
            message = f"{what} reduces one value along an axis, not {len(operands)}"
            raise UserError(message, code="E133", hint="combine the operands first, or leave the axis out")
        return operands[0], axis, where
    if where is not None or init is not None:
        word = "where=" if where is not None else "init="
        raise UserError(f"{what} combines its operands; {word} belongs to a reduction", code="E133", hint="give axis=")
    return None


def _simple(
    kind: _Simple, operands: Sequence[Any], axis: Axes | None, where: ExprLike | None, init: ExprLike | None
) -> Expr:
    """A reduction, or its operator between operands."""
    found = _along(f"te.{kind.name}", operands, axis, where, init)
    if found is not None:
        return _reduce(kind, *found, init)
    if len(operands) < 2:
        hint = f"te.{kind.name}(expr, axis=k)"
        raise UserError(f"te.{kind.name} needs an axis, or two operands", code="E133", hint=hint)
    out = operands[0]  # a number of Python takes the dtype of the expression beside it
    for value in operands[1:]:
        out = make(kind.op, out, value)
    return wrap(out)


@checked("E110")
def sum(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """``sum(expr, axis=k)``: the sum along the axis of the values for which ``where`` holds, in the dtype of ``expr``;
    ``sum(a, b, …)``: that of the operands.

    A sum along an axis starts at ``init``, an expression of output axes and data in the same dtype (E135); default: 0.
    """
    return _simple(_SUM, operands, axis, where, init)


@checked("E110")
def prod(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """``prod(expr, axis=k)``: the product along the axis, which starts at ``init`` (default: 1); ``prod(a, b, …)``:
    that of the operands."""
    return _simple(_PROD, operands, axis, where, init)


@checked("E110")
def max(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """``max(a, b, …)``: the largest operand; ``max(expr, axis=k)``: the largest value along the axis."""
    return _simple(_MAX, operands, axis, where, init)


@checked("E110")
def min(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """``min(a, b, …)``: the smallest operand; ``min(expr, axis=k)``: the smallest value along the axis."""
    return _simple(_MIN, operands, axis, where, init)


@checked("E110")
def all(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None) -> Expr:
    """``all(a, b, …)``: whether every condition holds; ``all(expr, axis=k)``: whether it holds along the axis."""
    found = _along("te.all", operands, axis, where, None)
    return all_of(*operands) if found is None else _reduce(_ALL, *found)


@checked("E110")
def any(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None) -> Expr:
    """``any(a, b, …)``: whether a condition holds; ``any(expr, axis=k)``: whether it holds along the axis."""
    found = _along("te.any", operands, axis, where, None)
    return any_of(*operands) if found is None else _reduce(_ANY, *found)


@checked("E110", fcombine=FUNCTION, fidentity=FUNCTION, name=TEXT)
def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A user-defined reducer; ``fcombine`` must be commutative and associative with the identity ``fidentity``.

    ``fcombine(x, y)`` combines two values, or two tuples of values; ``fidentity(dtype, …)`` gives the identity.
    The result is a function ``(expr or tuple, axis, where=None, *, init=None)``; for a tuple it returns a tuple. With
    ``init``, one value for each value reduced, the reduction starts there instead of at the identity: expressions of
    output axes and data in the same dtypes (E135). Called without an axis, ``(a, b, …)``, it combines its operands.

    >>> arg_max = comm_reducer(
    ...     lambda x, y: (select(x[1] >= y[1], x[0], y[0]), maximum(x[1], y[1])),
    ...     lambda i, v: (const(-1, i), min_value(v)), name="arg_max")
    """

    @cache
    def reducer(dtypes: tuple[DType, ...], several: bool) -> Reducer:
        lhs = tuple(Var(f"x{i}" if several else "x", t) for i, t in enumerate(dtypes))
        rhs = tuple(Var(f"y{i}" if several else "y", t) for i, t in enumerate(dtypes))
        check_takes(fcombine, lhs, rhs, what=f"the combination of reducer '{name}'", code="E134")
        check_takes(fidentity, *dtypes, what=f"the identity of reducer '{name}'", code="E134")
        result = fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0])
        identity = fidentity(*dtypes) if several else fidentity(dtypes[0])
        made = Reducer(name, lhs, rhs, _parts(name, result, several), _parts(name, identity, several))
        _check(made, dtypes)
        return made

    def reduce(*operands: Any, axis: Axes | None = None, where: ExprLike | None = None, init: Any = None) -> Any:
        along = _along(f"reducer '{name}'", operands, axis, where, init)
        if along is None:
            return _combined(name, fcombine, operands)
        expr, axes, holds = along
        several = isinstance(expr, (tuple, list))
        values = tuple(wrap(e) for e in (expr if several else (expr,)))
        kind = reducer(tuple(v.dtype for v in values), several)
        over, (*terms, condition) = _over(_axes(axes), values, wrap(True if holds is None else holds))
        start = None if init is None else _starts(name, values, init, several)
        made = tuple(Reduce(kind, tuple(terms), over, condition, i, start) for i in range(len(values)))
        return made if several else made[0]

    return reduce


def _parts(name: str, made: Any, several: bool) -> tuple[Expr, ...]:
    """What a user's reducer combines, or what its functions return: a value, or a tuple of values."""
    if several != isinstance(made, (tuple, list)):
        wanted, got = ("a tuple", "one value") if several else ("one value", "a tuple")
        raise UserError(f"reducer '{name}' works on {wanted}, not on {got}", code="E134")
    return tuple(map(wrap, made if several else (made,)))


def _combined(name: str, fcombine: Callable[[Any, Any], Any], operands: Sequence[Any]) -> Any:
    """The operands of a user's reducer, combined: expressions, or tuples of expressions."""
    if len(operands) < 2:
        hint = f"{name}(expr, axis=k)"
        raise UserError(f"reducer '{name}' needs an axis, or two operands", code="E133", hint=hint)
    made = operands[0]
    several = isinstance(made, (tuple, list))
    count = len(_parts(name, made, several))
    for operand in operands[1:]:
        given = len(_parts(name, operand, several))
        check_takes(fcombine, made, operand, what=f"the combination of reducer '{name}'", code="E134")
        if given == count:
            made = fcombine(made, operand)  # numbers of Python take the dtype of the expression beside them
            given = len(_parts(name, made, several))
        if given != count:
            raise UserError(f"reducer '{name}' combines {count} values with {given}", code="E134")
    parts = _parts(name, made, several)
    return parts if several else parts[0]


def _starts(name: str, values: Sequence[Expr], init: Any, several: bool) -> tuple[Expr, ...]:
    """The values at which a reduction by a user's reducer starts: one for each value that it reduces."""
    given = tuple(init) if isinstance(init, (tuple, list)) else (init,)
    if several != isinstance(init, (tuple, list)) or len(given) != len(values):
        takes = f"a tuple of {len(values)} values" if several else "one value"
        got = f"a tuple of {len(given)}" if isinstance(init, (tuple, list)) else "one value"
        raise UserError(f"reducer '{name}' starts at {takes}; init is {got}", code="E135")
    return tuple(_first(f"reducer '{name}'", v.dtype, i) for v, i in zip(values, given, strict=True))


def _check(reducer: Reducer, dtypes: tuple[DType, ...]) -> None:
    for what, values in (("combination", reducer.result), ("identity", reducer.identity)):
        got = tuple(v.dtype for v in values)
        if got != dtypes:
            raise UserError(
                f"the {what} of reducer '{reducer.name}' has the dtypes {', '.join(got)}, not {', '.join(dtypes)}",
                code="E134",
                hint="cast the values, or give the constants a dtype",
            )
