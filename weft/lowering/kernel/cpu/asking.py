"""Loops that may take long ask now and then whether the run must stop.

The annotation ``ask = n`` of a loop says: after every ``n`` iterations, ask the runtime, and leave the kernel if the
run must stop. ``n`` is a number, or computed from what is known before the loop. ``n`` iterations take at most
:data:`INTERVAL` as estimated, unless one alone takes longer: so no run waits long for a kernel, and a question, which
takes nanoseconds, is not noticed. Loops that end earlier do not ask; what they take counts for the loops around them.
Parallel loops ask between their chunks anyway, and need the annotation only if chunks may be long.

Iterations inside a loop whose number comes from data, or changes with a variable in a way that has no bound here,
cannot be counted before the loops around it. Such a loop asks :data:`_SHARE` times as often, so it never runs long
without asking, and counts as long as that.

Short rows of open length must not pay for long ones: an inner loop with few operations and an open number of iterations
has a version that does not ask, for fewer iterations than ``n``. Inside a parallel loop, loops of open extent do not
ask at all: there are many rows, and even the choice of a version takes up to a quarter of the time of a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from weft.expr.nodes import Binary, Call, Const, Expr, Load, Ramp, Var, const, make, maximum, minimum
from weft.expr.operators import DIVISIONS
from weft.expr.prove import Facts
from weft.expr.visit import bottom_up, post_order, substitute, uses_var
from weft.lowering.kernel.common.context import facts_of, forms_of, inside
from weft.support.dtypes import INDEX
from weft.tir.foreign import foreign_call
from weft.tir.nodes import Allocate, For, If, Let, Program, Seq, Stmt, Store
from weft.tir.visit import children, expressions, walk, with_children

ASK: Final = "ask"
INTERVAL: Final = 1 << 22
"""Between two questions, in quarters of a nanosecond: a millisecond. Numbers that memory delays, or
denormal ones, take many times as long as estimated; a run still stops within 10 ms."""
_SHARE: Final = 64
_BOUNDS: Final = (4096, 256, 16)
"""Numbers of iterations that a loop is tried to be proved not to exceed."""
_OPERATION, _DIVISION, _FUNCTION, _SCATTERED, _FOREIGN = 1, 20, 40, 20, 4000
"""Quarters of a nanosecond: an operation on one vector or access of one, or a turn of a loop; divisions, functions
without expansion, accesses at places that come from data, functions of other languages. Arithmetic on scalar indices
runs beside the others."""
_VECTOR_BYTES: Final = 64
_SCALAR_INDICES: Final = frozenset({"int64", "uint64", "bool"})
_PLAIN_CALLS: Final = frozenset({"let", "likely", "fma"})
_MAX_WEIGHT: Final = 1000
"""The longest time of one expression."""
_MAX_COPIED: Final = 512
"""The longest iteration of which there are two versions; a loop over strips of longer ones costs nothing."""


def ask_in_long_loops(program: Program) -> Program:
    """The program with annotations ``ask``; the same program if no loop takes long."""
    is_open = any(isinstance(s, For) and not isinstance(s.extent, Const) for s in walk(program.body))
    made, _ = _Asker(facts_of(program) if is_open else None).visit(program.body)
    return program if made is program.body else replace(program, body=made)


@dataclass(frozen=True, slots=True)
class _Time:
    """The longest time without a question: ``known``, and for each number of iterations what one of them takes."""

    known: int
    terms: dict[Expr, int] = field(default_factory=dict)

    def __add__(self, other: _Time) -> _Time:
        terms = dict(self.terms)
        for e, n in other.terms.items():
            terms[e] = terms.get(e, 0) + n
        return _Time(self.known + other.known, terms)

    def longer(self, other: _Time) -> _Time:
        """At least as long as both."""
        terms = dict(self.terms)
        for e, n in other.terms.items():
            terms[e] = max(terms.get(e, 0), n)
        return _Time(max(self.known, other.known), terms)

    def times(self, count: Expr) -> _Time:
        """That of ``count`` iterations, a number from 0 to :data:`INTERVAL`."""
        if isinstance(count, Const):
            return _Time(int(count.value) * self.known, {e: int(count.value) * n for e, n in self.terms.items()})
        if not self.terms:
            return _Time(0, {count: self.known})
        return _Time(0, {count * minimum(self.expr(), INTERVAL): 1})

    def where(self, *values: tuple[Var, Expr]) -> _Time:
        """The longest of those with one of the values for its variable."""
        made = _Time(self.known)
        for e, n in self.terms.items():
            found = [substitute(e, {var: value}) for var, value in values] if uses_var(e, (values[0][0],)) else [e]
            longest = found[0]
            for other in found[1:]:
                longest = longest if other is longest else maximum(longest, other)
            made += _Time(n * int(longest.value)) if isinstance(longest, Const) else _Time(0, {longest: n})
        return made

    def expr(self) -> Expr:
        """The sum."""
        total: Expr = const(self.known, INDEX)
        for e, n in self.terms.items():
            total = e * n + total
        return total


@dataclass(slots=True)
class _Asker:
    facts: Facts | None
    """None if all loops have a known number of turns."""
    parallel: bool = False
    """Whether the statement is inside a parallel loop: those inside it are serial."""
    unknown: set[Var] = field(default_factory=set)
    """Variables whose values cannot be computed in front of the loops around them."""
    weights: dict[Expr, int] = field(default_factory=dict)
    read: set[Expr] = field(default_factory=set)
    """Expressions that contain something read from memory."""

    def visit(self, s: Stmt) -> tuple[Stmt, _Time]:
        """The statement that asks, and the longest time that it takes without asking."""
        if isinstance(s, For):
            return self.loop(s)
        time = _Time(self.work(s))
        parts = children(s)
        if not parts:
            return s, time
        if isinstance(s, Let):
            if not self.is_known((s.value,)):
                self.unknown.add(s.var)
            with self.inside(s):
                body, inner = self.visit(s.body)
            made: tuple[Stmt, ...] = (body,)
            time += inner.where((s.var, s.value))
        elif isinstance(s, If):
            with self.where(s.condition, True, s.then):
                then, inner = self.visit(s.then)
            otherwise, other = None, _Time(0)
            if s.otherwise is not None:
                with self.where(s.condition, False, s.otherwise):
                    otherwise, other = self.visit(s.otherwise)
            made = (then,) if otherwise is None else (then, otherwise)
            time += inner.longer(other)
        else:
            found: list[Stmt] = []
            for i, part in enumerate(parts):
                before = parts[i - 1] if i else None
                # Stores to one buffer in a row are copies that unrolling made: one of them tells what each takes.
                if not (type(part) is Store and type(before) is Store and part.buffer is before.buffer):
                    one, inner = self.visit(part)
                found.append(part if type(part) is Store else one)
                time += inner
            made = tuple(found)
        return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made), time

    @contextmanager
    def where(self, condition: Expr, holds: bool, s: Stmt) -> Iterator[None]:
        """Facts where a condition holds, or does not: bounds of indices, if there are loops whose turns they bound."""
        if self.facts is None or not any(isinstance(x, For) for x in walk(s)):
            yield
            return
        with self.facts.scope():
            for form in forms_of(condition, holds):
                self.facts.assume(form >= 0)
            if holds and (bound := _divided(condition)) is not None:
                self.facts.assume(bound)
            yield

    def inside(self, s: For | Let) -> AbstractContextManager[object]:
        """Facts in the body of a loop or a let."""
        return nullcontext() if self.facts is None else inside(self.facts, s)

    def loop(self, s: For) -> tuple[Stmt, _Time]:
        known = self.is_known((s.start, s.extent))
        if not known:
            self.unknown.add(s.var)
        outer, self.parallel = self.parallel, self.parallel or s.kind == "parallel"
        with self.inside(s):
            body, inner = self.visit(s.body)
        self.parallel = outer
        if known:
            inner = inner.where((s.var, s.start), (s.var, s.start + s.extent - 1))
        inner += _Time(_OPERATION)
        made = s if body is s.body else replace(s, body=body)
        if s.kind == "parallel" and not outer:
            # The runtime asks between pieces of at least the grain.
            grain = min(INTERVAL, int(s.annotations.get("grain", 1)))
            return made if _is_short(inner.times(const(grain, INDEX))) else _asking(made, INTERVAL, inner), _Time(0)
        turns = minimum(maximum(s.extent, 0), INTERVAL)
        most = self.most(s.extent) if known else None
        time = inner.times(turns if most is None else const(most, INDEX))
        if outer and not isinstance(s.extent, Const):  # of many rows, which may be short
            return made, time if known else inner
        if not known:
            return self.versions(made, INTERVAL // _SHARE, inner), inner.longer(_Time(INTERVAL // _SHARE))
        if most is not None and _is_short(time):
            return made, time
        return self.versions(made, INTERVAL, inner), inner.times(turns)

    def most(self, extent: Expr) -> int | None:
        """The largest number of iterations, if it is known to be at most :data:`INTERVAL`."""
        if isinstance(extent, Const):
            found: int | None = max(0, int(extent.value))
        else:
            found = None if self.facts is None else self.facts.maximum(extent)
            if found is None and self.facts is not None:
                # The rest of a row that was cut is bounded by quotients of its length, of which only proofs know.
                for n in _BOUNDS:
                    if not self.facts.prove(make("le", extent, const(n, INDEX))):
                        break
                    found = n
        return None if found is None or found > INTERVAL else max(0, found)

    def versions(self, s: For, interval: int, inner: _Time) -> Stmt:
        """The loop, asking; one of open extent in two versions if it is an inner loop."""
        asking = _asking(s, interval, inner)
        if isinstance(s.extent, Const) or inner.terms or inner.known > _MAX_COPIED or s.kind == "parallel":
            return asking
        return If(make("lt", s.extent, asking.annotations[ASK]), s, asking)

    def is_known(self, roots: Iterable[Expr]) -> bool:
        """Whether values can be computed early, wherever the variables are known: without memory and without fault."""
        for e in post_order(*roots):
            if isinstance(e, (Load, Call)) or (isinstance(e, Var) and e in self.unknown):
                return False
            if isinstance(e, Binary) and e.op in DIVISIONS and not (isinstance(e.b, Const) and e.b.value):
                return False
        return True

    def work(self, s: Stmt) -> int:
        """The time of a statement without its parts."""
        if isinstance(s, (Seq, Allocate)):
            return 0
        if isinstance(s, Let) and s.var.dtype == INDEX:
            return 0
        if foreign_call(s) is not None:
            return _FOREIGN
        return _OPERATION + sum(bottom_up(e, self.weights, self.weight) for e in expressions(s))

    def weight(self, e: Expr) -> int:
        """The time of an expression whose parts are known. Shared parts count more than once, up to a limit."""
        if type(e) is Const or type(e) is Var:
            return 0
        total = 0
        for part in e.children:
            total += self.weights[part]
            if part in self.read:
                self.read.add(e)
        if type(e) is Load:
            apart = 1 if type(e.indices[-1]) is Ramp else e.lanes
            total += _SCATTERED * apart if e in self.read else _OPERATION
            self.read.add(e)
        elif type(e) is Ramp:
            pass
        elif e.lanes == 1 and e.dtype in _SCALAR_INDICES and e not in self.read:
            total = 0
        elif isinstance(e, Call) and e.name not in _PLAIN_CALLS:
            total += _FUNCTION * e.lanes
        else:
            each = _DIVISION if type(e) is Binary and e.op in DIVISIONS else _OPERATION
            total += each * max(1, e.lanes * e.dtype.nbytes // _VECTOR_BYTES)
        return total if total < _MAX_WEIGHT else _MAX_WEIGHT


def _is_short(time: _Time) -> bool:
    """Whether a time is proved to be short enough to ask only afterwards."""
    return not time.terms and time.known <= INTERVAL


def _asking(s: For, interval: int, inner: _Time) -> For:
    """``s`` asks after so many iterations, each of which takes ``inner``, as take ``interval``."""
    turns: int | Expr = max(1, interval // max(1, inner.known))
    if inner.terms:
        turns = maximum(make("floordiv", const(interval, INDEX), inner.expr()), 1)
    return replace(s, annotations=s.annotations.replace(**{ASK: turns}))


def _divided(condition: Expr) -> Expr | None:
    """What ``a // d < n`` says of ``a``."""
    if not (isinstance(condition, Binary) and condition.op == "lt" and isinstance(condition.b, Const)):
        return None
    a, n = condition.a, condition.b
    if not (isinstance(a, Binary) and a.op == "floordiv" and a.dtype == INDEX and isinstance(a.b, Const)):
        return None
    return make("lt", a.a, int(a.b.value) * int(n.value)) if int(a.b.value) > 0 else None
