"""The facts known at a place of a program, from the loops, conditions and lets around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from weft.expr.nodes import Binary, Call, Const, Expr, Load, Not, Var
from weft.expr.operators import DIVISIONS
from weft.expr.prove import Facts
from weft.support.dtypes import INDEX
from weft.tir.nodes import For, Let, Program, Stmt
from weft.tir.visit import postorder

OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def dimensions_of(program: Program) -> tuple[Expr, ...]:
    """The dimensions of parameters that are computed from sizes, such as ``n - 2``. None of them is negative. Flat
    buffers tell no more of them than the product."""
    found = dict.fromkeys(d for b in program.params for d in b.shape)
    return tuple(d for d in found if not isinstance(d, (Const, Var)))


def facts_of(program: Program, dimensions: Iterable[Expr] = ()) -> Facts:
    """Facts that hold everywhere in ``program``: sizes are not negative, nor are ``dimensions``."""
    facts = Facts()
    for size in program.sizes:
        facts.bind_size(size, 0)
    for dimension in dimensions:
        facts.bind_dimension(dimension)
    return facts


@contextmanager
def inside(facts: Facts, s: Stmt, *least: Expr) -> Iterator[Facts]:
    """Facts inside the body of a loop or let. ``least`` are forms known to be at least 0 there.

    An index bound by a let equals its value. This is not used if the value is loaded, because it must not be loaded
    again.
    """
    with facts.scope():
        if isinstance(s, For):
            facts.bind(s.var, s.start, s.extent)
        elif isinstance(s, Let) and s.var.dtype == INDEX and not any(isinstance(e, Load) for e in postorder(s.value)):
            facts.bind(s.var, s.value, 1)
        for form in least:
            facts.assume(form >= 0)
        yield facts


@contextmanager
def between(facts: Facts, var: Var, low: Expr, high: Expr, *least: Expr) -> Iterator[Facts]:
    """Facts where ``low <= var < high``, and ``least`` are at least 0."""
    with facts.scope():
        facts.bind(var, low, high - low)
        for form in least:
            facts.assume(form >= 0)
        yield facts


def below_zero(form: Expr) -> Expr:
    """The form that is at least 0 exactly where ``form`` is negative."""
    return -1 - form


def forms_of(condition: Expr, holds: bool = True) -> list[Expr]:
    """Forms that are at least 0 where ``condition`` is true (or, if ``holds`` is False, where it is false)."""
    out: list[Expr] = []
    stack = [(condition, holds)]
    while stack:
        e, truth = stack.pop()
        if isinstance(e, Not):
            stack.append((e.a, not truth))
        elif isinstance(e, Call) and e.name == "likely":
            stack.append((e.args[0], truth))
        elif isinstance(e, Binary) and e.op == ("and" if truth else "or"):
            stack += [(e.a, truth), (e.b, truth)]
        elif isinstance(e, Binary) and e.op in OPPOSITE and e.a.dtype == INDEX and e.lanes == 1:
            out += _comparison(e.op if truth else OPPOSITE[e.op], e.a, e.b)
    return out


def _comparison(op: str, a: Expr, b: Expr) -> list[Expr]:
    if op == "lt":
        return [b - a - 1]
    if op == "le":
        return [b - a]
    if op == "gt":
        return [a - b - 1]
    if op == "ge":
        return [a - b]
    return [a - b, b - a] if op == "eq" else []


def is_total(e: Expr, facts: Facts) -> bool:
    """Whether ``e`` can be evaluated wherever ``facts`` hold: it divides no integer by 0 and loads only what exists.

    Within a loop more may be known than before it, where the loop may have no iterations.
    """
    for x in postorder(e):
        if isinstance(x, Binary) and x.op in DIVISIONS and x.dtype.is_integer:
            if not (x.b.value if isinstance(x.b, Const) else _is_not_zero(x.b, facts)):
                return False
        elif isinstance(x, Load):
            for i, extent in zip(x.indices, x.source.shape, strict=True):
                if not (facts.nonnegative(i) and facts.nonnegative(extent - 1 - i)):
                    return False
    return True


def _is_not_zero(divisor: Expr, facts: Facts) -> bool:
    return facts.nonnegative(divisor - 1) or facts.nonnegative(-1 - divisor)
