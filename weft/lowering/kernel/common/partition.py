"""Simplifies each statement with the facts known there, and splits loops so that most iterations need no checks.

A loop whose body checks ``i * 8 + j < n`` or ``0 <= h * 2 + k - 1 < height`` becomes up to three pieces: the iterations
before, inside and after the range in which the checks certainly hold. Inside the range the checks are removed. Outside
they stay, and inner loops are split in turn. If a single check certainly fails from some iteration on, the iterations
from there are a separate piece, which is often empty. A budget of statements limits the growth of the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from weft.expr.affine import is_arithmetic
from weft.expr.folds import all_of, conjuncts
from weft.expr.nodes import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Source,
    Var,
    logical_not,
    make,
    maximum,
    minimum,
)
from weft.expr.prove import Facts
from weft.expr.visit import collect, uses_var
from weft.lowering.kernel.common.context import below_zero, between, facts_of, forms_of, inside, is_total
from weft.support.dtypes import INDEX
from weft.tir.nodes import Allocate, Block, Buffer, Evaluate, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import children, expressions, loads, postorder, stores, walk

MAX_ADDED_STORES = 1500
"""Limit on the stores that copies made by splitting may add to a program. An unrolled store counts once per
repetition."""

MAX_EXTRA_VERSIONS = 3
"""Limit on the additional versions of a loop body: enough for two checks, each of which holds or fails."""

MIN_UNMASKED_LANES = 4
"""Fewest lanes of a vector that is not slower than a masked one."""

EMPTY = Seq(())


@dataclass(slots=True)
class _State:
    facts: Facts
    budget: int = MAX_ADDED_STORES
    inside_parallel: bool = False
    conditional: dict[Stmt, bool] = field(default_factory=dict)
    """For each statement already searched: whether it contains conditions."""


def partition(program: Program) -> Program:
    """The program simplified in context, with its loops split around the checks."""
    return replace(program, body=_visit(program.body, _State(facts_of(program))))


def simplify_program(program: Program, dimensions: Iterable[Expr] = ()) -> Program:
    """The program simplified in context, without splitting loops. No loop over a multiple of one of ``dimensions`` runs
    where that is not positive."""
    return replace(program, body=_visit(program.body, _State(facts_of(program, dimensions), budget=-1)))


def _visit(s: Stmt, state: _State) -> Stmt:
    simplify = state.facts.simplify
    if isinstance(s, Seq):
        return seq(*(m for c in s.stmts if (m := _visit(c, state)) is not EMPTY))  # ``seq`` drops empty statements
    if isinstance(s, Store):
        mask = None if s.mask is None else simplify(s.mask)
        return Store(s.buffer, tuple(simplify(i) for i in s.indices), simplify(s.value), mask)
    if isinstance(s, For):
        return _loop(s, state)
    if isinstance(s, If):
        return _if(s, state)
    if isinstance(s, Let):
        bound = Let(s.var, simplify(s.value), s.body)
        with inside(state.facts, bound):
            return replace(bound, body=_visit(s.body, state))
    if isinstance(s, Allocate):
        body = _visit(s.body, state)
        return EMPTY if body is EMPTY else Allocate(s.buffer, body)
    if isinstance(s, Evaluate):
        return Evaluate(simplify(s.value))
    assert not isinstance(s, Block)
    return s


def _if(s: If, state: _State) -> Stmt:
    condition = state.facts.simplify(s.condition)
    if isinstance(condition, Const):
        if condition.value:
            return _visit(s.then, state)
        return EMPTY if s.otherwise is None else _visit(s.otherwise, state)
    with state.facts.assuming(_lasting(condition, s.then)):
        then = _visit(s.then, state)
    otherwise = None
    if s.otherwise is not None:
        with state.facts.assuming(_lasting(logical_not(condition), s.otherwise)):
            otherwise = _visit(s.otherwise, state)
    if is_empty(then) and (otherwise is None or is_empty(otherwise)):
        return EMPTY
    return If(condition, then, None if otherwise is None or is_empty(otherwise) else otherwise)


def _lasting(condition: Expr, branch: Stmt) -> Expr:
    """Those parts of the condition of a branch that hold in all of it: none that reads what the branch changes."""
    read = {x.source for x in collect(condition, Load)}
    if not read:
        return condition
    named = {x.source for s in walk(branch) if isinstance(s, Evaluate) for x in collect(s.value, Load)}
    changed = named | {s.buffer for s in stores(branch)}
    if read.isdisjoint(changed):
        return condition
    return all_of(*(p for p in conjuncts(condition) if changed.isdisjoint(x.source for x in collect(p, Load))))


def is_empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts


def _loop(s: For, state: _State) -> Stmt:
    start, extent = state.facts.simplify(s.start), state.facts.simplify(s.extent)
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


def _plain(s: For, state: _State, *least: Expr) -> Stmt:
    """The loop with its body simplified, assuming that the forms ``least`` are at least 0."""
    outer, state.inside_parallel = state.inside_parallel, state.inside_parallel or s.kind == "parallel"
    with inside(state.facts, s, *least):
        body = _visit(s.body, state)
    state.inside_parallel = outer
    if is_empty(body):
        return EMPTY
    if _once(s):
        return body  # the variable has been replaced by its only value
    if s.kind == "vectorized" and (count := _first_lanes(s, body, state.facts)):
        return _plain(replace(s, extent=Const(count)), state, *least)
    return replace(s, body=body)


def _first_lanes(s: For, body: Stmt, facts: Facts) -> int | None:
    """If a guard admits only the first lanes of a vectorized loop, and these fill one or two whole vectors: the number
    of these lanes. The vectors then need no mask, and results passed between them need no memory. None for all other
    loops. Sums in registers are one vector: two would be twice as many as the schedule counted."""
    if not isinstance(body, If) or body.otherwise is not None or not isinstance(s.extent, Const):
        return None
    forms = list(forms_of(body.condition))
    parts = facts.linear(forms[0], s.var) if len(forms) == 1 else None
    if parts is None or parts[0] != {s.var: -1} or not isinstance(parts[1], Const) or s.start != Const(0):
        return None
    count, most = int(parts[1]) + 1, 1 if _uses_registers(body) else 2
    fills = count % MIN_UNMASKED_LANES == 0 and count.bit_count() <= most
    return count if 0 < count < int(s.extent) and fills else None


def _uses_registers(s: Stmt) -> bool:
    used = [*(x.buffer for x in walk(s) if isinstance(x, Store)), *(e.source for e in loads(s))]
    return any(isinstance(b, Buffer) and b.scope == "register" for b in used)


# -- splitting -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Interval:
    """The iterations ``low <= var < high`` (None: the loop's own bound), and the forms that are at least 0 there.

    ``low_fact`` is a form that is negative for every iteration below ``low``, if one is known; ``high_fact`` is the
    same for iterations from ``high`` on. With ``settled`` a bound is next to the loop's own, so it is inside the loop
    only if the loop runs at all.
    """

    low: Expr | None
    high: Expr | None
    least: list[Expr]
    low_fact: Expr | None = None
    high_fact: Expr | None = None
    settled: bool = False


def _pieces(s: For, state: _State) -> Stmt | None:
    checks = _checks(s, state)
    interval = _interior(s, checks, state.facts) if checks else None
    if interval is None:
        return _guarded(s, checks, state)
    weight = weigh(s.body)
    copies = (interval.low is not None) + (interval.high is not None)
    if weight * copies > state.budget:
        return None
    state.budget -= weight * copies
    if s.kind == "parallel":
        return _versions(s, interval, state)
    if not interval.settled or state.facts.nonnegative(s.extent - 1):
        return _in_order(s, checks, interval, weight, state)
    runs = state.facts.simplify(make("gt", s.extent, Const(0, INDEX)))
    with state.facts.assuming(runs):
        return If(runs, _in_order(s, checks, interval, weight, state))


def _in_order(s: For, checks: list[_Check], interval: _Interval, weight: int, state: _State) -> Stmt:
    """The pieces of a serial loop one after another."""
    end = state.facts.simplify(s.start + s.extent)
    low = s.start if interval.low is None else interval.low
    high = end if interval.high is None else interval.high
    parts: list[Stmt] = []
    if interval.low is not None:
        parts.append(_segment(s, s.start, low, state, _negated(interval.low_fact)))
    parts.append(_segment(s, low, high, state, interval.least))
    if interval.high is not None:
        behind = _nowhere(s, checks, high, end, state.facts)
        if behind is None:
            parts.append(_segment(s, high, end, state, _negated(interval.high_fact)))
        else:
            bound, fact = behind
            state.budget -= weight
            parts.append(_segment(s, high, bound, state, _negated(interval.high_fact)))
            parts.append(_segment(s, bound, end, state, [below_zero(fact)]))
    return seq(*parts)


def _nowhere(s: For, checks: list[_Check], low: Expr, end: Expr, facts: Facts) -> tuple[Expr, Expr] | None:
    """The first iteration from which on the loop's only check fails for all values of the inner loop variables, and the
    form that is negative from there on. None if it cannot be derived, or is not needed."""
    if len({c.form for c in checks}) != 1 or checks[0].high is None or checks[0].low is checks[0].high:
        return None
    parts = facts.linear(checks[0].high, s.var)
    if parts is None or parts[0].get(s.var, 0) >= 0:
        return None
    factor, rest = parts[0][s.var], parts[1]
    bound = facts.simplify(rest // -factor + 1)
    if isinstance(rest, Const) or facts.nonnegative(bound - end):
        return None
    return _clamp(bound, low, end, facts), s.var * factor + rest


def _negated(fact: Expr | None) -> list[Expr]:
    return [] if fact is None else [below_zero(fact)]


def _segment(s: For, low: Expr, high: Expr, state: _State, least: list[Expr]) -> Stmt:
    extent = state.facts.simplify(high - low)
    if isinstance(extent, Const) and int(extent) <= 0:
        return EMPTY
    if isinstance(extent, Const) and int(extent) < 4 and s.kind == "serial" and weigh(s.body) * int(extent) < 64:
        return _each(s, low, int(extent), state)
    return _plain(replace(s, start=low, extent=extent), state, *least)


def _each(s: For, low: Expr, count: int, state: _State) -> Stmt:
    """A few iterations, each as a separate copy, so that checks on the variable are decided by its constant value."""
    parts = []
    for i in range(count):
        at = state.facts.simplify(low + i)
        parts.append(_plain(replace(s, start=at, extent=Const(1)), state))
    return seq(*parts)


def _versions(s: For, interval: _Interval, state: _State) -> Stmt | None:
    """Keep a parallel loop as one loop, with both versions in its body."""
    facts, end = state.facts, s.start + s.extent
    conditions = []
    if interval.low is not None:
        conditions.append(make("le", interval.low, s.var))
    if interval.high is not None:
        conditions.append(make("lt", s.var, interval.high))
    with inside(facts, s):
        condition = facts.simplify(all_of(*conditions))
    low = s.start if interval.low is None else interval.low
    high = end if interval.high is None else interval.high
    state.inside_parallel = True
    common = outside = None
    if not (isinstance(condition, Const) and not condition.value):
        with between(facts, s.var, low, high, *interval.least):
            common = _visit(s.body, state)
    if not (isinstance(condition, Const) and condition.value):
        rest = (s.start, end)  # what remains is one interval only if it is at the start or at the end
        if interval.low is None:
            rest = (high, end)
        elif interval.high is None:
            rest = (s.start, low)
        with between(facts, s.var, *rest):
            outside = _visit(s.body, state)
    state.inside_parallel = False
    if common is None or outside is None:
        body = common or outside
        assert body is not None
        return replace(s, body=body)
    return replace(s, body=If(condition, common, outside))


def _guarded(s: For, checks: list[_Check], state: _State) -> Stmt | None:
    """Handle guards on quotients or remainders of the variable (of a fused loop): make a version of the body for each
    outcome, so that a partial tile at an edge is straight-line code like a whole tile. If that would be too much code,
    make two versions."""
    facts = state.facts
    forms: dict[Expr, None] = {}
    for check in checks:
        if check.guard and not check.equal and check.low is not None:
            forms[check.low] = None
    weight = weigh(s.body) if forms else 0
    if not forms or weight > state.budget:
        return None
    with inside(facts, s):
        undecided = [f for f in forms if not facts.nonnegative(f) and not facts.nonnegative(below_zero(f))]
    if not undecided:
        return None
    more = 2 ** len(undecided) - 1
    apart = more <= MAX_EXTRA_VERSIONS and weight * more <= state.budget
    state.budget -= weight * (more if apart else 1)
    state.inside_parallel, outer = state.inside_parallel or s.kind == "parallel", state.inside_parallel
    body = _outcomes(s, undecided, [], state) if apart else _all_or_not(s, undecided, state)
    state.inside_parallel = outer
    return replace(s, body=body)


def _outcomes(s: For, undecided: list[Expr], known: list[Expr], state: _State) -> Stmt:
    """The body, assuming that the forms ``known`` are at least 0, in one version for each outcome of ``undecided``."""
    with inside(state.facts, s, *known):
        if not undecided:
            return _visit(s.body, state)
        condition = state.facts.simplify(make("ge", undecided[0], 0))
    first, rest = undecided[0], undecided[1:]
    if isinstance(condition, Const):
        return _outcomes(s, rest, known, state)
    then = _outcomes(s, rest, [*known, first], state)
    otherwise = _outcomes(s, rest, [*known, below_zero(first)], state)
    return If(condition, then, None if is_empty(otherwise) else otherwise)


def _all_or_not(s: For, undecided: list[Expr], state: _State) -> Stmt:
    """The body in two versions: one where all of ``undecided`` are at least 0, and one where that is not known."""
    with inside(state.facts, s):
        condition = state.facts.simplify(all_of(*(make("ge", f, 0) for f in undecided)))
    with inside(state.facts, s, *undecided):
        common = _visit(s.body, state)
    with inside(state.facts, s):
        outside = _visit(s.body, state)
    return If(condition, common, None if is_empty(outside) else outside)


def weigh(s: Stmt) -> int:
    """Number of stores in ``s`` after unrolling."""
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
    """A form for which it is useful to know that it is >= 0 (with ``equal``: whether it is 0).

    ``low`` is a lower bound over all values of the inner loop variables, ``high`` an upper bound, if known. ``guard``
    says that the form guards a statement without an alternative.
    """

    form: Expr
    low: Expr | None
    equal: bool = False
    guard: bool = False
    high: Expr | None = None


def _checks(s: For, state: _State) -> list[_Check]:
    """The checks in a loop's body that depend on the loop's variable and that no inner loop can remove without extra
    code."""
    if not _is_conditional(s.body, state.conditional):
        return []
    written = frozenset(x.buffer for x in walk(s.body) if isinstance(x, Store))
    finder = _Finder(s.var, state.facts, written, state.conditional)
    with inside(state.facts, s):
        finder.visit(s.body)
        return [c for c in finder.found if is_total(c.form, state.facts)]


class _Finder:
    """Collects the checks on ``var``. ``moving`` are the loops around the current statement.

    Buffers that the loop itself writes (``written``) change between iterations, so checks on their contents are
    ignored.
    """

    def __init__(self, var: Var, facts: Facts, written: frozenset[Source], conditional: dict[Stmt, bool]) -> None:
        self.var, self.facts, self.written, self.conditional = var, facts, written, conditional
        self.moving: list[Var] = []
        self.serial: list[Var] = []
        self.found: list[_Check] = []

    def visit(self, s: Stmt) -> None:
        facts = self.facts
        if not _is_conditional(s, self.conditional):
            return
        if isinstance(s, Seq):
            for c in s.stmts:
                self.visit(c)
        elif isinstance(s, For):
            settles = s.kind == "serial" and isinstance(_only(s.body), If)
            self.moving.append(s.var)
            if settles:
                self.serial.append(s.var)
            with inside(facts, s):
                self.visit(s.body)
            self.moving.pop()
            if settles:
                self.serial.pop()
        else:
            self.conditions(s)
            if isinstance(s, If):
                with facts.assuming(_lasting(s.condition, s.then)):
                    self.visit(s.then)
                if s.otherwise is not None:
                    with facts.assuming(_lasting(logical_not(s.condition), s.otherwise)):
                        self.visit(s.otherwise)
            elif isinstance(s, (Let, Allocate)):
                with inside(facts, s):
                    self.visit(s.body)

    def conditions(self, s: Stmt) -> None:
        for condition, guard in _conditions(s):
            if not uses_var(condition, (self.var,)):
                continue
            for form, equal in _atoms(self.facts.simplify(condition)):
                if not uses_var(form, (self.var,)):
                    continue  # a check for another loop
                if any(isinstance(e, Load) and e.source in self.written for e in postorder(form)):
                    continue
                inner = self.facts.linear(form, *self.serial) if guard else None
                if inner is None or not inner[0]:
                    swept = self.facts.sweep(form, self.moving)
                    low, high = (None, None) if swept is None else (swept.low, swept.low + swept.width)
                    self.found.append(_Check(form, low, equal, guard, high))


def _is_conditional(s: Stmt, known: dict[Stmt, bool]) -> bool:
    """Whether ``s`` contains any condition."""
    found = known.get(s)
    if found is None:
        own = isinstance(s, If) or any(True for _ in _conditions(s))
        found = known[s] = own or any(_is_conditional(c, known) for c in children(s))
    return found


def _only(s: Stmt) -> Stmt:
    """``s``, or its only inner statement if ``s`` is an allocation."""
    while isinstance(s, Allocate):
        s = s.body
    return s


def _conditions(s: Stmt) -> Iterator[tuple[Expr, bool]]:
    """The conditions in a statement, each with whether it guards a statement without an alternative."""
    if isinstance(s, If):
        yield s.condition, s.otherwise is None
        return
    for e in postorder(*expressions(s)):
        if isinstance(e, Select):
            yield e.condition, False


def _atoms(condition: Expr) -> Iterator[tuple[Expr, bool]]:
    """The forms that a condition requires to be at least 0, or (True) compares with 0 for equality."""
    stack = [condition]
    while stack:
        e = stack.pop()
        if isinstance(e, Call) and e.name == "likely":
            stack.append(e.args[0])
        elif isinstance(e, Binary) and e.op in ("and", "or"):
            stack += [e.a, e.b]
        elif isinstance(e, Not):
            stack.append(e.a)
        elif isinstance(e, Binary) and e.op in ("eq", "ne") and e.a.dtype == INDEX and e.lanes == 1:
            yield e.a - e.b, True
        else:
            for form in forms_of(e):
                yield form, False


def _interior(s: For, checks: list[_Check], facts: Facts) -> _Interval | None:
    """The iterations in which every check that an interval can decide is decided."""
    found = _Interval(None, None, [])
    useful = False
    for check in checks:
        low = check.form if check.equal else check.low
        parts = None if low is None else facts.linear(low, s.var)
        if parts is None or s.var not in parts[0]:
            continue
        factor, rest = parts[0][s.var], parts[1]
        if not is_total(rest, facts):
            continue
        if check.equal:
            useful |= _settle_equal(s, factor, rest, found, facts)
        elif s.kind != "parallel" or _of_variables(rest):
            useful |= _narrow(s, factor, rest, found, facts)
    return _ordered(found, facts) if useful else None


def _of_variables(e: Expr) -> bool:
    """Whether ``e`` is a sum of products of variables."""
    return all(isinstance(x, (Var, Const)) or is_arithmetic(x) for x in postorder(e))


def _ordered(found: _Interval, facts: Facts) -> _Interval | None:
    """The interval with ``low <= high``, so that no iteration belongs to two pieces; None if it is certainly empty."""
    if found.low is None or found.high is None or facts.nonnegative(found.high - found.low):
        return found
    if facts.nonnegative(found.low - found.high):
        return None
    found.high, found.high_fact = facts.simplify(maximum(found.low, found.high)), None
    return found


def _narrow(s: For, factor: int, rest: Expr, found: _Interval, facts: Facts) -> bool:
    """Intersect with ``factor * var + rest >= 0``; returns whether that excludes any iteration."""
    end = s.start + s.extent
    fact = s.var * factor + rest
    if factor > 0:  # var >= ceil(-rest / factor)
        bound = facts.simplify((factor - 1 - rest) // factor)
        if facts.nonnegative(bound - end):
            return False  # it holds for no iteration
        if facts.nonnegative(s.start - bound):
            return False  # it holds for every iteration
        if found.low is None or facts.nonnegative(bound - found.low):
            found.low, found.low_fact = _clamp(bound, s.start, end, facts), fact
        elif not facts.nonnegative(found.low - bound):
            found.low, found.low_fact = _clamp(maximum(found.low, bound), s.start, end, facts), None
    else:  # var < floor(rest / |factor|) + 1
        bound = facts.simplify(rest // -factor + 1)
        if facts.nonnegative(s.start - bound) or facts.nonnegative(bound - end):
            return False
        if found.high is None or facts.nonnegative(found.high - bound):
            found.high, found.high_fact = _clamp(bound, s.start, end, facts), fact
        elif not facts.nonnegative(bound - found.high):
            found.high, found.high_fact = _clamp(minimum(found.high, bound), s.start, end, facts), None
    found.least.append(fact)
    return True


def _clamp(bound: Expr, start: Expr, end: Expr, facts: Facts) -> Expr:
    return facts.simplify(minimum(maximum(bound, start), end))


def _settle_equal(s: For, factor: int, rest: Expr, found: _Interval, facts: Facts) -> bool:
    """For a check that holds only at ``var == first`` or ``var == last``: split off that iteration."""
    if not isinstance(rest, Const) or int(rest) % factor:
        return False
    point = -int(rest) // factor
    if found.low is None and facts.equal(s.start, point):
        found.low, found.settled = Const(point + 1), True
        return True
    if found.high is None and facts.equal(s.start + s.extent, point + 1):
        found.high, found.settled = Const(point), True
        return True
    return False
