"""Quotients and remainders of a loop's variable by sizes: counted, not divided.

The index of a fused loop is taken apart again: ``i // (h * w)``, ``i // w % h``, ``i % w``. Where ``w`` is known when
compiling, the division is a product; otherwise it takes longer than copying a short row. The variable grows by one, so
the remainder grows by one or becomes 0, and then the quotient grows by one; it is itself a counter that may be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

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
class _Counter:
    """A division while its loop is emitted: the divisor and the names of both numbers. ``inner`` is the counter whose
    quotient is divided, None if the variable itself is."""

    division: Division
    divisor: str
    quotient: str
    remainder: str
    inner: _Counter | None


def divisions_of(kernel: Program) -> tuple[Division, ...]:
    """The divisions of indices by sizes that are not known when compiling, inner ones first."""
    if not kernel.sizes:
        return ()
    found: dict[Division, None] = {}
    for e in post_order(*(root for s in walk(kernel.body) for root in expressions(s))):
        divides = isinstance(e, Binary) and e.op in _DIVISIONS and e.dtype is INDEX and e.lanes == 1
        if divides and isinstance(e, Binary) and not isinstance(e.b, Const) and _is_size(e.b, kernel.sizes):
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
            divides = x.op in ("floordiv", "floormod") and isinstance(x.b, Const) and int(x.b.value) > 0
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
    counts, found = {s.var: None}, list[Division]()
    for d in divisions:
        if d.dividend in counts and len(found) < MAX_COUNTERS:
            found.append(d)
            counts[d.quotient] = None  # type: ignore[index]  # dividends are expressions
    return found


def begin(
    f: LlvmFunction, found: list[Division], first: str, loop: int, value: Value
) -> list[tuple[_Counter, str, str]]:
    """Divide the first value of the variable: each counter with the first values of its quotient and its remainder.
    A divisor of 0 is never used; it counts as 1."""
    made: dict[Expr, tuple[_Counter, str, str]] = {}
    for n, d in enumerate(found):
        inner = made.get(d.dividend)
        dividend = first if inner is None else inner[1]
        given = value(f, d.divisor)
        divisor = f.op(f"call i64 @llvm.smax.i64(i64 {given}, i64 1)")
        quotient = f.op(f"udiv i64 {dividend}, {divisor}")
        remainder = f.op(f"urem i64 {dividend}, {divisor}")
        name = f"{loop}.{n}"
        counter = _Counter(d, divisor, f"%quotient.{name}", f"%rest.{name}", None if inner is None else inner[0])
        made[d.quotient] = (counter, quotient, remainder)
    return list(made.values())


def define(f: LlvmFunction, counters: list[tuple[_Counter, str, str]], before: str, latch: str) -> None:
    """The numbers at the head of the loop; ``before`` and ``latch`` are the blocks from which it is entered."""
    for c, quotient, remainder in counters:
        for name, initial in ((c.quotient, quotient), (c.remainder, remainder)):
            f.lines.append(f"  {name} = phi i64 [ {initial}, %{before} ], [ {name}.next, %{latch} ]")
    for c, _, _ in counters:
        f.bind(c.division.quotient, c.quotient)
        f.bind(c.division.remainder, c.remainder)


def advance(f: LlvmFunction, counters: list[tuple[_Counter, str, str]]) -> None:
    """The numbers of the next iteration, at its latch."""
    wrapped: dict[_Counter, str] = {}
    for c, _, _ in counters:
        step = "1" if c.inner is None else wrapped[c.inner]
        grown = f.op(f"add nuw nsw i64 {c.remainder}, {step}")
        full = f.op(f"icmp eq i64 {grown}, {c.divisor}")
        wrapped[c] = f.op(f"zext i1 {full} to i64")
        f.lines.append(f"  {c.remainder}.next = select i1 {full}, i64 0, i64 {grown}")
        f.lines.append(f"  {c.quotient}.next = add nuw nsw i64 {c.quotient}, {wrapped[c]}")
