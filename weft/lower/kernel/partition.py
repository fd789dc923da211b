"""Simplify with what is known at each place, and split loops so that checks leave the common case.

A loop whose body checks ``i * 8 + j < n`` or ``0 <= h * 2 + k - 1 < height`` runs in up to three pieces: iterations
before, within and after the range where the checks surely succeed. Within, they vanish; outside, they stay, and inner
loops are split in turn. Growth of the code is limited by a budget of statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from weft.expr.nodes import Binary, Call, Const, Expr, Not, Select, Var, all_of, make
from weft.lower.kernel.context import FALSE, TRUE, Context, forms_of
from weft.schedule.affine import Linear, linear, mentions, relax
from weft.tir.nodes import Allocate, Block, Evaluate, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import expressions, map_expr, postorder, transform_expressions

BUDGET = 1500
"""How many stores (unrolled ones counted as often as they repeat) the copies made by splitting may add."""

EMPTY = Seq(())


@dataclass(slots=True)
class _State:
    context: Context
    budget: int = BUDGET
    inside_parallel: bool = False


def partition(program: Program) -> Program:
    """The program simplified in context, its loops split around the checks."""
    return replace(program, body=_visit(program.body, _State(Context())))


def simplify_program(program: Program) -> Program:
    """The program simplified in context, no loop split."""
    return replace(program, body=_visit(program.body, _State(Context(), budget=-1)))


def _visit(s: Stmt, state: _State) -> Stmt:
    simplify = state.context.simplify
    if isinstance(s, Seq):
        return seq(*(m for c in s.stmts if (m := _visit(c, state)) is not EMPTY))  # an empty one vanishes in ``seq``
    if isinstance(s, Store):
        mask = None if s.mask is None else simplify(s.mask)
        return Store(s.buffer, tuple(simplify(i) for i in s.indices), simplify(s.value), mask)
    if isinstance(s, For):
        return _loop(s, state)
    if isinstance(s, If):
        return _if(s, state)
    if isinstance(s, Let):
        bound = Let(s.var, simplify(s.value), s.body)
        with state.context.let(bound):
            return replace(bound, body=_visit(s.body, state))
    if isinstance(s, Allocate):
        body = _visit(s.body, state)
        return EMPTY if body is EMPTY else Allocate(s.buffer, body)
    if isinstance(s, Evaluate):
        return Evaluate(simplify(s.value))
    assert not isinstance(s, Block)
    return s


def _if(s: If, state: _State) -> Stmt:
    condition = state.context.simplify(s.condition)
    if isinstance(condition, Const):
        if condition.value:
            return _visit(s.then, state)
        return EMPTY if s.otherwise is None else _visit(s.otherwise, state)
    with state.context.where(condition):
        then = _visit(s.then, state)
    otherwise = None
    if s.otherwise is not None:
        with state.context.where(condition, holds=False):
            otherwise = _visit(s.otherwise, state)
    if is_empty(then) and (otherwise is None or is_empty(otherwise)):
        return EMPTY
    return If(condition, then, None if otherwise is None or is_empty(otherwise) else otherwise)


def is_empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts


def _loop(s: For, state: _State) -> Stmt:
    context = state.context
    start, extent = context.simplify(s.start), context.simplify(s.extent)
    s = replace(s, start=start, extent=extent)
    if isinstance(extent, Const) and int(extent) <= 0:
        return EMPTY
    if s.kind in ("serial", "parallel") and not _once(s) and state.budget > 0:
        pieces = _pieces(s, state)
        if pieces is not None:
            return pieces
    return _plain(s, state)


def _once(s: For) -> bool:
    return isinstance(s.extent, Const) and int(s.extent) == 1


def _plain(s: For, state: _State, *facts: Linear) -> Stmt:
    """The loop with its body simplified."""
    outer, state.inside_parallel = state.inside_parallel, state.inside_parallel or s.kind == "parallel"
    with state.context.loop(s, *facts):
        body = _visit(s.body, state)
    state.inside_parallel = outer
    if is_empty(body):
        return EMPTY
    if _once(s) and isinstance(s.start, Const):
        return body  # the variable has been replaced by its only value
    return replace(s, body=body)


# -- splitting -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Interval:
    """``low <= var < high`` (None: the loop's own end) and the forms that are >= 0 there.

    ``low_fact`` is a form that is negative everywhere below ``low``, if one is known; ``high_fact`` likewise above.
    """

    low: Expr | None
    high: Expr | None
    facts: list[Linear]
    low_fact: Linear | None = None
    high_fact: Linear | None = None


def _pieces(s: For, state: _State) -> Stmt | None:
    checks = _checks(s, state.context)
    interval = _interior(s, checks, state) if checks else None
    if interval is None:
        return _guarded(s, checks, state)
    weight = weigh(s.body)
    copies = (interval.low is not None) + (interval.high is not None)
    if weight * copies > state.budget:
        return None
    state.budget -= weight * copies
    if s.kind == "parallel":
        return _versions(s, interval, state)
    end = state.context.simplify(s.start + s.extent)
    low = s.start if interval.low is None else interval.low
    high = end if interval.high is None else interval.high
    parts: list[Stmt] = []
    if interval.low is not None:
        parts.append(_segment(s, s.start, low, state, _negated(interval.low_fact)))
    parts.append(_segment(s, low, high, state, interval.facts))
    if interval.high is not None:
        parts.append(_segment(s, high, end, state, _negated(interval.high_fact)))
    return seq(*parts)


def _negated(fact: Linear | None) -> list[Linear]:
    return [] if fact is None else [fact.scaled(-1).plus(-1)]


def _segment(s: For, low: Expr, high: Expr, state: _State, facts: list[Linear]) -> Stmt:
    extent = state.context.simplify(high - low)
    if isinstance(extent, Const) and int(extent) <= 0:
        return EMPTY
    if isinstance(extent, Const) and int(extent) < 4 and s.kind == "serial" and weigh(s.body) * int(extent) < 64:
        return _each(s, low, int(extent), state)
    piece = replace(s, start=low, extent=extent)
    return _plain(piece, state, *facts)


def _each(s: For, low: Expr, count: int, state: _State) -> Stmt:
    """A few iterations, each by itself, so that checks on the variable are decided where it is constant."""
    parts = []
    for i in range(count):
        at = state.context.simplify(low + i)
        parts.append(_plain(replace(s, start=at, extent=Const(1)), state))
    return seq(*parts)


def _versions(s: For, interval: _Interval, state: _State) -> Stmt | None:
    """A parallel loop stays one loop: the two versions stand in its body."""
    condition: Expr = TRUE
    if interval.low is not None:
        condition = make("and", condition, make("le", interval.low, s.var))
    if interval.high is not None:
        condition = make("and", condition, make("lt", s.var, interval.high))
    state.inside_parallel = True
    with state.context.loop(s):
        condition = state.context.simplify(condition)
        span = least, greatest = state.context.ranges[s.var]
    if interval.low is not None:
        least = linear(interval.low, state.context.ranges)
    if interval.high is not None:
        greatest = linear(interval.high, state.context.ranges).plus(-1)
    with state.context.range(s.var, (least, greatest), *interval.facts):
        inside = _visit(s.body, state)
    if interval.low is None:  # what remains is one piece at the end, or at the start
        span = (greatest.plus(1), span[1])
    elif interval.high is None:
        span = (span[0], least.plus(-1))
    with state.context.range(s.var, span):
        outside = inside if condition is TRUE else _visit(s.body, state)
    state.inside_parallel = False
    if condition is TRUE or condition is FALSE:
        return replace(s, body=inside if condition is TRUE else outside)
    return replace(s, body=If(condition, inside, outside))


def _guarded(s: For, checks: list[_Check], state: _State) -> Stmt | None:
    """Guards on a quotient or remainder of the variable (a fused loop): two versions of the body."""
    context = state.context
    facts: dict[Expr, Linear] = {}
    with context.loop(s):
        for check in checks:
            if not check.guard or check.equal:
                continue
            swept = relax(check.form.expr(), check.moving, {**context.ranges, **check.moving})
            if swept is None or any(mentions(t, check.moving) for t in swept.low.terms):
                continue
            if not context.holds(swept.low) and not context.holds(swept.low.scaled(-1).plus(-1)):
                facts[swept.low.expr()] = swept.low
        if not facts or weigh(s.body) > state.budget:
            return None
        state.budget -= weigh(s.body)
        condition = context.simplify(all_of(*(make("ge", e, 0) for e in facts)))
    state.inside_parallel, outer = state.inside_parallel or s.kind == "parallel", state.inside_parallel
    with context.loop(s, *facts.values()):
        inside = _visit(s.body, state)
    rest = [f.scaled(-1).plus(-1) for f in facts.values()] if len(facts) == 1 else []
    with context.loop(s, *rest):
        outside = _visit(_settled(s.body, rest, context), state)
    state.inside_parallel = outer
    return replace(s, body=If(condition, inside, None if is_empty(outside) else outside))


def _settled(body: Stmt, facts: list[Linear], context: Context) -> Stmt:
    """``body`` with a quotient replaced by the only value that a fact leaves to it."""
    for fact in facts:
        (term, factor), *others = fact.terms.items()
        most = context.maximum(term)
        if not others and factor > 0 and most is not None and -(fact.constant // factor) == most:
            memo: dict[Expr, Expr] = {}
            swap = partial(_swapped, term, Const(most))
            body = transform_expressions(body, lambda e, m=memo, f=swap: map_expr(e, f, m))  # type: ignore[misc]
    return body


def _swapped(old: Expr, new: Expr, e: Expr) -> Expr | None:
    return new if e is old else None


def weigh(s: Stmt) -> int:
    """Stores in ``s`` after unrolling."""
    if isinstance(s, Seq):
        return sum(weigh(c) for c in s.stmts)
    if isinstance(s, For):
        times = int(s.extent) if s.kind == "unrolled" and isinstance(s.extent, Const) else 1
        return times * weigh(s.body)
    if isinstance(s, If):
        return weigh(s.then) + (0 if s.otherwise is None else weigh(s.otherwise))
    if isinstance(s, (Let, Allocate)):
        return weigh(s.body)
    return 1


@dataclass(slots=True)
class _Check:
    """A form that would better be >= 0 (``equal``: whether it is 0 would better be known), and the loops inside."""

    form: Linear
    moving: dict[Var, tuple[Linear, Linear]]
    equal: bool = False
    guard: bool = False


def _checks(s: For, context: Context) -> list[_Check]:
    """The checks in a loop's body that depend on its variable, and that no inner loop can settle for nothing."""
    out: list[_Check] = []
    with context.loop(s):
        _find(s.body, s.var, context, {}, set(), out)
    return out


def _find(
    s: Stmt,
    var: Var,
    context: Context,
    moving: dict[Var, tuple[Linear, Linear]],
    serial: set[Var],
    out: list[_Check],
) -> None:
    if isinstance(s, Seq):
        for c in s.stmts:
            _find(c, var, context, moving, serial, out)
        return
    if isinstance(s, For):
        with context.loop(s):
            moving[s.var] = context.ranges[s.var]
            tight = serial | {s.var} if s.kind == "serial" and isinstance(_only(s.body), If) else serial
            _find(s.body, var, context, moving, tight, out)
            del moving[s.var]
        return
    for condition, guard in _conditions(s):
        if mentions(condition, {var: None}):
            condition = context.simplify(condition)
            for check in _atoms(condition, context, moving):
                check.guard = guard
                if not (guard and any(t in serial for t in check.form.terms)):
                    out.append(check)
    if isinstance(s, If):
        with context.where(s.condition):
            _find(s.then, var, context, moving, serial, out)
        if s.otherwise is not None:
            with context.where(s.condition, holds=False):
                _find(s.otherwise, var, context, moving, serial, out)
    elif isinstance(s, Let):
        with context.let(s):
            _find(s.body, var, context, moving, serial, out)
    elif isinstance(s, Allocate):
        _find(s.body, var, context, moving, serial, out)


def _only(s: Stmt) -> Stmt:
    """``s``, or what is alone inside allocations."""
    while isinstance(s, Allocate):
        s = s.body
    return s


def _conditions(s: Stmt) -> Iterator[tuple[Expr, bool]]:
    """The conditions in a statement; whether it is a guard without an alternative."""
    if isinstance(s, If):
        yield s.condition, s.otherwise is None
        return
    for e in postorder(*expressions(s)):
        if isinstance(e, Select):
            yield e.condition, False


def _atoms(condition: Expr, context: Context, moving: dict[Var, tuple[Linear, Linear]]) -> Iterator[_Check]:
    stack = [condition]
    while stack:
        e = stack.pop()
        if isinstance(e, Call) and e.name == "likely":
            stack.append(e.args[0])
        elif isinstance(e, Binary) and e.op in ("and", "or"):
            stack += [e.a, e.b]
        elif isinstance(e, Not):
            stack.append(e.a)
        elif isinstance(e, Binary) and e.op in ("eq", "ne") and not e.a.dtype.is_float and e.lanes == 1:
            yield _Check(linear(e.a, context.ranges) - linear(e.b, context.ranges), dict(moving), equal=True)
        else:
            for form in forms_of(e, True, context):
                yield _Check(form, dict(moving))


def _interior(s: For, checks: list[_Check], state: _State) -> _Interval | None:
    """The iterations for which every check that can be settled is settled."""
    context = state.context
    found = _Interval(None, None, [])
    useful = False
    for check in checks:
        factor = check.form.terms.get(s.var)
        if factor is None or any(t is not s.var and mentions(t, {s.var: None}) for t in check.form.terms):
            continue
        if check.equal:
            useful |= _settle_equal(s, check, factor, found, context)
            continue
        rest = relax((check.form + Linear({s.var: -factor})).expr(), check.moving, {**context.ranges, **check.moving})
        if rest is None or any(mentions(t, check.moving) for t in rest.low.terms):
            continue
        if not all(isinstance(t, Var) for t in rest.low.terms) and s.kind == "parallel":
            continue
        useful |= _narrow(s, factor, rest.low, found, context)
    return _ordered(found, context) if useful else None


def _ordered(found: _Interval, context: Context) -> _Interval | None:
    """The interval with ``low <= high``, so that no iteration belongs to two pieces; None where it is surely empty."""
    if found.low is None or found.high is None:
        return found
    low, high = linear(found.low, context.ranges), linear(found.high, context.ranges)
    if context.holds(high - low):
        return found
    if context.holds(low - high):
        return None
    found.high, found.high_fact = context.simplify(make("max", found.low, found.high)), None
    return found


def _narrow(s: For, factor: int, rest: Linear, found: _Interval, context: Context) -> bool:
    """Intersect with ``factor * var + rest >= 0``; whether that leaves something out."""
    start = linear(s.start, context.ranges)
    end = start + linear(s.extent, context.ranges)
    fact = rest + Linear({s.var: factor})
    if factor > 0:  # var >= ceil(-rest / factor)
        bound = linear((rest.scaled(-1).plus(factor - 1)).expr() // factor, context.ranges)
        if context.holds(bound - end):
            return False  # it holds nowhere
        if context.holds(start - bound):
            return False  # it holds everywhere
        now = None if found.low is None else linear(found.low, context.ranges)
        if now is None or context.holds(bound - now):
            found.low, found.low_fact = _clamp(bound, start, end, context), fact
        elif not context.holds(now - bound):
            found.low = _clamp(linear(make("max", now.expr(), bound.expr())), start, end, context)
            found.low_fact = None
    else:  # var < floor(rest / |factor|) + 1
        bound = linear(rest.expr() // -factor, context.ranges).plus(1)
        if context.holds(start - bound) or context.holds(bound - end):
            return False
        now = None if found.high is None else linear(found.high, context.ranges)
        if now is None or context.holds(now - bound):
            found.high, found.high_fact = _clamp(bound, start, end, context), fact
        elif not context.holds(bound - now):
            found.high = _clamp(linear(make("min", now.expr(), bound.expr())), start, end, context)
            found.high_fact = None
    found.facts.append(fact)
    return True


def _clamp(bound: Linear, start: Linear, end: Linear, context: Context) -> Expr:
    made = bound.expr()
    if not context.holds(bound - start):
        made = make("max", made, start.expr())
    if not context.holds(end - bound):
        made = make("min", made, end.expr())
    return context.simplify(made)


def _settle_equal(s: For, check: _Check, factor: int, found: _Interval, context: Context) -> bool:
    """``var == first`` or ``var == last``: split off that one iteration."""
    rest = check.form + Linear({s.var: -factor})
    if not rest.is_constant or rest.constant % factor:
        return False
    point = Linear({}, -rest.constant // factor)
    start = linear(s.start, context.ranges)
    last = start + linear(s.extent, context.ranges).plus(-1)
    if (point - start).is_constant and (point - start).constant == 0 and found.low is None:
        found.low = point.plus(1).expr()
        return True
    if (point - last).is_constant and (point - last).constant == 0 and found.high is None:
        found.high = point.expr()
        return True
    return False
