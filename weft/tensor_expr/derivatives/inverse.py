"""Which steps of an operation read an element: index maps solved for the axes of the operation.

``A[f(i, k)]`` reads the element ``j`` in those steps ``(i, k)`` for which ``f(i, k) == j``. Each of these equations
removes an axis where it is linear in the axes, after quotients and remainders were replaced by digits. What remains is
a sum over the other axes under conditions, most of which are proved away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr, Load, Var
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, post_order, substitute, uses_var
from weft.support.dtypes import INDEX

_MAX_DIGITS: Final = 16
"""Largest number of quotients and remainders that are replaced by digits for one access."""

_ZERO = Const(0, INDEX)


@dataclass(frozen=True, slots=True)
class ReadingSteps:
    """The steps that read an element: the old axes as expressions of the element's place and of ``axes``, which run
    through all their values for which ``conditions`` hold."""

    values: Mapping[Var, Expr]
    axes: tuple[IterVar, ...]
    conditions: tuple[Expr, ...]


@dataclass(slots=True)
class _Problem:
    """Equations ``left == right`` between the axes that are not yet known and what is known."""

    equations: list[tuple[Expr, Expr]]
    axes: dict[Var, IterVar]
    known: Facts
    places: frozenset[Var]
    """The axes of the result, on which no range may depend."""
    values: dict[Var, Expr] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)
    later: list[tuple[Expr, Expr]] = field(default_factory=list)
    """Equations that say what digits are made of; they are solved when the digits are known."""

    def facts(self) -> Facts:
        """What is known where all remaining axes have a value."""
        made = self.known.copy()
        for a in self.axes.values():
            made.bind(a)
        return made

    def put(self, var: Var, value: Expr) -> None:
        """Replace an axis everywhere."""
        new = {var: value}
        self.equations = [(substitute(a, new), substitute(b, new)) for a, b in self.equations]
        self.later = [(substitute(a, new), substitute(b, new)) for a, b in self.later]
        self.conditions = [substitute(c, new) for c in self.conditions]
        self.values = {v: substitute(e, new) for v, e in self.values.items()}
        self.values[var] = value

    def remove(self, axis: IterVar, value: Expr) -> None:
        """Replace an axis by the only value that it may have, if that is in its range."""
        del self.axes[axis.var]
        self.put(axis.var, value)
        self.conditions += [value >= axis.start, value < axis.start + axis.extent]


def readers(
    equations: Sequence[tuple[Expr, Expr]], axes: Sequence[IterVar], known: Iterable[IterVar], sizes: Iterable[Var]
) -> ReadingSteps | None:
    """The steps of ``axes`` for which all ``equations`` hold, given the axes ``known``; None if they are not found.

    The left sides mention ``axes``, the right sides only ``known`` and ``sizes``.
    """
    facts = Facts()
    known = tuple(known)
    for size in sizes:
        facts.bind_size(size, 0)
    for a in known:
        facts.bind(a)
    places = frozenset(a.var for a in known)
    problem = _Problem(list(equations), {a.var: a for a in axes}, facts, places)
    for a in axes:
        if isinstance(a.extent, Const) and int(a.extent) == 1:
            del problem.axes[a.var]
            problem.put(a.var, a.start)
    for _ in range(_MAX_DIGITS):
        if not _linear_steps(problem):
            return None
        if not problem.equations and not problem.later:
            return _result(problem)
        if not problem.equations:
            problem.equations, problem.later = problem.later, []
        elif not _take_digits(problem):
            return None
    return None


def _result(problem: _Problem) -> ReadingSteps:
    facts = problem.facts()
    conditions: list[Expr] = []
    for c in problem.conditions:
        made = facts.simplify(c)
        if not (isinstance(made, Const) and made.value is True) and made not in conditions:
            conditions.append(made)
            facts.assume(made)
    values = {v: facts.simplify(e) for v, e in problem.values.items()}
    return ReadingSteps(values, tuple(problem.axes.values()), tuple(conditions))


def _linear_steps(problem: _Problem) -> bool:
    """Solve the equations that are linear in the axes, or have no axis; False if an equation reads data."""
    moved = True
    while moved:
        moved = False
        facts = problem.facts()
        for n, (left, right) in enumerate(problem.equations):
            left = facts.simplify(left)
            problem.equations[n] = (left, right)
            if any(isinstance(node, Load) for node in post_order(left)):
                return False
            unknown = [v for v in free_vars(left) if v in problem.axes]
            if not unknown:
                del problem.equations[n]
                problem.conditions.append(left == right)
                moved = True
                break
            form = facts.linear(left, *unknown)
            if form is not None:
                del problem.equations[n]
                _solve_linear(problem, form[0], facts.simplify(right - form[1]))
                moved = True
                break
            if _solve_row_and_column(problem, facts, left, right, unknown):
                del problem.equations[n]
                moved = True
                break
    return True


def _solve_linear(problem: _Problem, factors: Mapping[Var, int], total: Expr) -> None:
    """Solve ``sum(factor * axis) == total`` for one axis, or for all if they are the digits of a number."""
    terms = sorted(factors.items(), key=lambda entry: -abs(entry[1]))
    steps: list[tuple[IterVar, int, Expr]] = []  # axis, positive factor, offset: the axis counts from 0, or down to it
    for var, factor in terms:
        a = problem.axes[var]
        first = a.start if factor > 0 else a.start + a.extent - 1
        steps.append((a, abs(factor), first))
        total = total - first * factor
    signs = dict(factors)
    if _are_digits(steps):
        for a, factor, first in steps:
            digit = total // factor
            total = total - digit * factor if factor > 1 else _ZERO
            _set(problem, a, digit, first, signs[a.var])
        problem.conditions.append(total == 0)
        return
    a, factor, first = max(steps, key=lambda step: (_size(step[0]), -step[1], step[0].kind == IterVar.SPATIAL))
    for other, f, offset in steps:
        if other is not a:
            counted = other.var - offset if signs[other.var] > 0 else offset - other.var
            total = total - counted * f
    problem.conditions.append(total % factor == 0)
    _set(problem, a, total // factor, first, signs[a.var])


def _solve_row_and_column(problem: _Problem, facts: Facts, left: Expr, right: Expr, unknown: Sequence[Var]) -> bool:
    """Solve ``row * width + column == right``, where a size gives the width and all columns are below it."""
    if len(unknown) != 2:
        return False
    for row, column in (unknown, reversed(unknown)):
        rest, of_row, of_column = (
            facts.simplify(substitute(left, {row: Const(r, INDEX), column: Const(c, INDEX)}))
            for r, c in ((0, 0), (1, 0), (0, 1))
        )
        width = facts.simplify(of_row - rest)
        columns = problem.axes[column]
        fits = facts.equal(left, row * width + column + rest) and facts.equal(of_column - rest, 1)
        fits = fits and facts.equal(columns.start, 0) and facts.nonnegative(width - columns.extent)
        if fits and problem.known.nonnegative(width - 1):
            total = right - rest
            for axis, value in ((problem.axes[row], total // width), (columns, total % width)):
                problem.remove(axis, facts.simplify(value))
            return True
    return False


def _set(problem: _Problem, a: IterVar, counted: Expr, first: Expr, sign: int) -> None:
    facts = problem.facts()
    problem.remove(a, facts.simplify(first + counted if sign > 0 else first - counted))


def _size(a: IterVar) -> float:
    return int(a.extent) if isinstance(a.extent, Const) else inf


def _are_digits(steps: Sequence[tuple[IterVar, int, Expr]]) -> bool:
    """Whether each factor is larger than all that the smaller ones add up to, so that a number has one solution."""
    below: float = 0
    for a, factor, _ in reversed(steps):
        if factor <= below or below == inf:
            return False
        below = below + factor * (_size(a) - 1) if _size(a) > 1 else below
    return True


def _take_digits(problem: _Problem) -> bool:
    """Write the operand of a quotient or remainder as ``factor * high + low``; False if there is none."""
    for left, _ in problem.equations:
        for e in post_order(left):
            if not (isinstance(e, Binary) and e.op in ("floordiv", "floormod") and uses_var(e.a, problem.axes)):
                continue
            if uses_var(e.b, problem.axes) or not problem.known.nonnegative(e.b - 1):
                continue  # where elements exist but no steps, the divisor may be 0
            if any(isinstance(n, Binary) and n.op in ("floordiv", "floormod") for n in post_order(e.a)):
                continue  # the inner one first
            if _split(problem, e.a, e.b):
                return True
    return False


def _split(problem: _Problem, number: Expr, factor: Expr) -> bool:
    facts = problem.facts()
    swept = facts.sweep(number, list(problem.axes))
    if swept is None:
        return False
    first = facts.simplify(swept.low // factor)
    count = facts.simplify((swept.low + swept.width) // factor - first + 1)
    moving = problem.axes.keys() | problem.places
    if any(uses_var(e, moving) for e in (first, count, factor)):
        return False
    high = IterVar(Var("high", INDEX), count, IterVar.REDUCE, first)
    low = IterVar(Var("low", INDEX), factor, IterVar.REDUCE)
    problem.axes.update({high.var: high, low.var: low})
    digits = high.var * factor + low.var
    if isinstance(number, Var):
        problem.remove(problem.axes[number], digits)
        return True
    fresh = Var("number", INDEX)
    problem.equations = [(substitute(a, {number: fresh}), b) for a, b in problem.equations]
    problem.equations = [(substitute(a, {fresh: digits}), b) for a, b in problem.equations]
    problem.later.append((number - digits, _ZERO))
    return True
