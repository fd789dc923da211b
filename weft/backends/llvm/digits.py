"""Quotients and remainders of a loop's variable by sizes: counted, not divided.

The index of a fused loop is taken apart again: ``i // (h * w)``, ``i // w % h``, ``i % w``. Where ``w`` is known when
compiling, the division is a product; otherwise it takes longer than copying a short row. The variable grows by one, so
the remainder grows by one or becomes 0, and then the quotient grows by one; it is itself a counter that may be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from weft.backends.llvm.function import LlvmFunction
from weft.expr.nodes import Binary, Cast, Const, Expr, Select, Var
from weft.expr.visit import post_order
from weft.support.dtypes import INDEX
from weft.tir.nodes import For, Program
from weft.tir.visit import expressions, walk

Value = Callable[[LlvmFunction, Expr], str]

_DIVISIONS = frozenset({"floordiv", "floormod"})
MAX_COUNTERS = 6
"""Most divisors for one loop: each keeps two or three registers."""


@dataclass(frozen=True)
class Division:
    """``dividend // divisor`` and ``dividend % divisor``, by a divisor of sizes."""

    dividend: Expr
    divisor: Expr

    @property
    def quotient(self) -> Expr:
        return Binary("floordiv", self.dividend, self.divisor)

    @property
    def remainder(self) -> Expr:
        return Binary("floormod", self.dividend, self.divisor)


@dataclass(frozen=True)
class Counter:
    """A division while its loop is emitted: the divisor, the names of both numbers, and ``first``, their values in the
    first iteration. ``inner`` is the counter whose quotient is divided, None if the variable itself is."""

    division: Division
    divisor: str
    quotient: str
    remainder: str
    first: tuple[str, str]
    inner: Counter | None


def divisions_of(kernel: Program) -> tuple[Division, ...]:
    """The divisions of indices by sizes that are not known when compiling, inner ones first, and those by numbers whose
    quotients are divided by such sizes: ``i // 2 % n``."""
    if not kernel.sizes:
        return ()
    found: dict[Division, None] = {}
    for e in post_order(*(root for s in walk(kernel.body) for root in expressions(s))):
        if not isinstance(e, Binary) or e.op not in _DIVISIONS or e.dtype is not INDEX or e.lanes > 1:
            continue
        if not isinstance(e.b, Const) and _is_size(e.b, kernel.sizes):
            if isinstance(e.a, Binary) and e.a.op == "floordiv" and isinstance(e.a.b, Const) and int(e.a.b.value) > 0:
                found[Division(e.a.a, e.a.b)] = None
            found[Division(e.a, e.b)] = None
    return tuple(found)


def _is_size(e: Expr, sizes: Collection[Var]) -> bool:
    """Whether the form of ``e`` says that it is computed from sizes alone and never negative."""
    for x in post_order(e):
        if isinstance(x, Var):
            good = x in sizes
        elif isinstance(x, Const):
            good = not isinstance(x.value, float) and int(x.value) >= 0
        elif isinstance(x, Binary):
            divides = x.op in _DIVISIONS and isinstance(x.b, Const) and int(x.b.value) > 0
            good = divides or x.op in ("add", "mul", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")
        else:
            good = isinstance(x, (Cast, Select))
        if not good or x.lanes != 1:
            return False
    return True


def of_loop(s: For, divisions: Iterable[Division]) -> list[Division]:
    """Those that divide the variable of a loop, or a quotient of it; none for loops that may begin below 0."""
    if not isinstance(s.start, Const) or int(s.start.value) < 0:
        return []
    counted: set[Expr] = {s.var}
    found: list[Division] = []
    for d in divisions:
        if d.dividend in counted and len(found) < MAX_COUNTERS:
            found.append(d)
            counted.add(d.quotient)
    return found


def begin(f: LlvmFunction, found: list[Division], start: str, loop: int, value: Value) -> list[Counter]:
    """Divide the first value of the variable, ``start``. A divisor of 0 is never used; it counts as 1."""
    made: dict[Expr, Counter] = {}
    for n, d in enumerate(found):
        inner = made.get(d.dividend)
        dividend = start if inner is None else inner.first[0]
        given = value(f, d.divisor)
        divisor = f.op(f"call i64 @llvm.smax.i64(i64 {given}, i64 1)")
        first = f.op(f"udiv i64 {dividend}, {divisor}"), f.op(f"urem i64 {dividend}, {divisor}")
        made[d.quotient] = Counter(d, divisor, f"%quotient.{loop}.{n}", f"%rest.{loop}.{n}", first, inner)
    return list(made.values())


def resume(f: LlvmFunction, counters: list[Counter], before: str, again: str) -> list[Counter]:
    """The counters of a loop that is entered several times: first from ``before``, then from ``again``, with the
    numbers that it was left with."""
    made: dict[Counter | None, Counter | None] = {None: None}
    for c in counters:
        firsts = []
        for name, first in zip((c.quotient, c.remainder), c.first, strict=True):
            f.lines.append(f"  {name}.strip = phi i64 [ {first}, %{before} ], [ {name}.next, %{again} ]")
            firsts.append(f"{name}.strip")
        made[c] = replace(c, first=(firsts[0], firsts[1]), inner=made[c.inner])
    return [c for c in made.values() if c is not None]


def define(f: LlvmFunction, counters: list[Counter], before: str, latch: str) -> None:
    """The numbers at the head of the loop; ``before`` and ``latch`` are the blocks from which it is entered."""
    for c in counters:
        for name, first in zip((c.quotient, c.remainder), c.first, strict=True):
            f.lines.append(f"  {name} = phi i64 [ {first}, %{before} ], [ {name}.next, %{latch} ]")
    for c in counters:
        f.bind(c.division.quotient, c.quotient)
        f.bind(c.division.remainder, c.remainder)


def advance(f: LlvmFunction, counters: list[Counter]) -> None:
    """The numbers of the next iteration, at its latch."""
    wrapped: dict[Counter, str] = {}
    for c in counters:
        step = "1" if c.inner is None else wrapped[c.inner]
        grown = f.op(f"add nuw nsw i64 {c.remainder}, {step}")
        full = f.op(f"icmp eq i64 {grown}, {c.divisor}")
        wrapped[c] = f.op(f"zext i1 {full} to i64")
        f.lines.append(f"  {c.remainder}.next = select i1 {full}, i64 0, i64 {grown}")
        f.lines.append(f"  {c.quotient}.next = add nuw nsw i64 {c.quotient}, {wrapped[c]}")
