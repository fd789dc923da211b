"""Rewrite rules as data: patterns over expressions, and the table that applies them.

    x, y, c = wild("x"), wild("y"), literal("c")
    rule("mul-one", x * 1, x)
    rule("min-known", minimum(x, y), x, when=lambda m, ask: ask(m.x <= m.y))

A pattern matches nodes of any dtype; the literals in it match constants of that value. Operands of commutative
operators match in both orders. ``when`` gets the match and a function that says whether a condition is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from weft.expr.nodes import BINARY, Binary, Broadcast, Cast, Const, Expr, Not, Ramp, Select, logical_not, make
from weft.expr.visit import rebuild
from weft.support.dtypes import BOOL, DType


class Bindings:
    """The values of the names of a pattern, as attributes."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._found[name]
        except KeyError:
            raise AttributeError(name) from None

    def bind(self, name: str, value: Any) -> bool:
        """Bind ``name`` to ``value``; False if it is already bound to something else."""
        old = self._found.setdefault(name, value)
        return old is value or (isinstance(old, int) and not isinstance(old, Expr) and old == value)

    def mark(self) -> dict[str, Any]:
        return dict(self._found)

    def reset(self, mark: dict[str, Any]) -> None:
        self._found = mark


Ask: TypeAlias = Callable[[Expr], bool]
Guard: TypeAlias = Callable[[Any, Ask], bool]
PatternLike: TypeAlias = "ExprPattern | int | float | bool"


@dataclass(frozen=True, eq=False)
class ExprPattern:
    """A shape of expression: ``kind`` is an operator of BINARY, or one of those below."""

    kind: str
    args: tuple[ExprPattern, ...] = ()
    name: str = ""
    value: Any = None

    def __add__(self, other: PatternLike) -> ExprPattern:
        return _operator("add", self, other)

    def __radd__(self, other: PatternLike) -> ExprPattern:
        return _operator("add", other, self)

    def __sub__(self, other: PatternLike) -> ExprPattern:
        return _operator("sub", self, other)

    def __rsub__(self, other: PatternLike) -> ExprPattern:
        return _operator("sub", other, self)

    def __mul__(self, other: PatternLike) -> ExprPattern:
        return _operator("mul", self, other)

    def __truediv__(self, other: PatternLike) -> ExprPattern:
        return _operator("div", self, other)

    def __floordiv__(self, other: PatternLike) -> ExprPattern:
        return _operator("floordiv", self, other)

    def __mod__(self, other: PatternLike) -> ExprPattern:
        return _operator("floormod", self, other)

    def __and__(self, other: PatternLike) -> ExprPattern:
        return _operator("and", self, other)

    def __or__(self, other: PatternLike) -> ExprPattern:
        return _operator("or", self, other)

    def __invert__(self) -> ExprPattern:
        return ExprPattern("not", (self,))


WILD: Final = "wild"
LITERAL: Final = "literal"
VALUE: Final = "value"


def wild(name: str) -> ExprPattern:
    """Matches anything; the same name must match the same thing."""
    return ExprPattern(WILD, name=name)


def literal(name: str) -> ExprPattern:
    """Matches a constant (also one repeated in all lanes)."""
    return ExprPattern(LITERAL, name=name)


def _operator(kind: str, *args: PatternLike) -> ExprPattern:
    return ExprPattern(kind, tuple(as_pattern(a) for a in args))


def as_pattern(value: PatternLike) -> ExprPattern:
    return value if isinstance(value, ExprPattern) else ExprPattern(VALUE, value=value)


def binary(op: str, a: PatternLike, b: PatternLike) -> ExprPattern:
    return _operator(op, a, b)


def minimum(a: PatternLike, b: PatternLike) -> ExprPattern:
    return _operator("min", a, b)


def maximum(a: PatternLike, b: PatternLike) -> ExprPattern:
    return _operator("max", a, b)


def choose(condition: PatternLike, then: PatternLike, otherwise: PatternLike) -> ExprPattern:
    return _operator("select", condition, then, otherwise)


def converted(a: PatternLike, to: str) -> ExprPattern:
    """A cast; ``to`` names the dtype in the match."""
    return ExprPattern("cast", (as_pattern(a),), name=to)


def repeated(a: PatternLike, lanes: str = "lanes") -> ExprPattern:
    """A broadcast; ``lanes`` names the number of lanes in the match."""
    return ExprPattern("broadcast", (as_pattern(a),), name=lanes)


def ramp(base: PatternLike, stride: PatternLike, lanes: str = "lanes") -> ExprPattern:
    return ExprPattern("ramp", (as_pattern(base), as_pattern(stride)), name=lanes)


_KINDS: Final[dict[type[Expr], tuple[str, Callable[[Any], Any]]]] = {
    Not: ("not", lambda e: None),
    Select: ("select", lambda e: None),
    Cast: ("cast", lambda e: e.dtype),
    Broadcast: ("broadcast", lambda e: e.count),
    Ramp: ("ramp", lambda e: e.count),
}


def kind_of(e: Expr) -> str:
    """The pattern kind that ``e`` has."""
    if type(e) is Binary:
        return e.op
    known = _KINDS.get(type(e))
    return known[0] if known is not None else type(e).__name__


def matches(pattern: ExprPattern, e: Expr, found: Bindings) -> bool:
    """Whether ``e`` matches ``pattern``; names are bound in ``found``."""
    kind = pattern.kind
    if kind == WILD:
        return found.bind(pattern.name, e)
    if kind in (LITERAL, VALUE):
        inner = e.value if type(e) is Broadcast else e
        if type(inner) is not Const:
            return False
        if kind == VALUE:
            return type(inner.value) is type(pattern.value) and str(inner.value) == str(pattern.value)
        return found.bind(pattern.name, e)
    if kind_of(e) != kind:
        return False
    if pattern.name and not found.bind(pattern.name, _KINDS[type(e)][1](e)):
        return False
    children = e.children
    mark = found.mark()
    if all(matches(p, c, found) for p, c in zip(pattern.args, children, strict=True)):
        return True
    found.reset(mark)
    if kind in BINARY and BINARY[kind].commutative:
        mark = found.mark()
        if matches(pattern.args[0], children[1], found) and matches(pattern.args[1], children[0], found):
            return True
        found.reset(mark)
    return False


def build(pattern: ExprPattern, found: Bindings, like: Expr) -> Expr:
    """The expression of ``pattern``; literals in it get the dtype and lanes of ``like``."""
    kind = pattern.kind
    if kind in (WILD, LITERAL):
        made: Expr = getattr(found, pattern.name)
        return made
    if kind == VALUE:
        value = Const(pattern.value, BOOL if isinstance(pattern.value, bool) else like.dtype)
        return value if like.lanes == 1 else Broadcast(value, like.lanes)
    args = [build(p, found, like) for p in pattern.args]
    if kind in BINARY:
        return make(kind, *args)
    if kind == "not":
        return logical_not(args[0])
    if kind == "select":
        return rebuild(Select(args[0], args[1], args[2]), tuple(args))
    if kind == "cast":
        return rebuild(Cast(args[0], getattr(found, pattern.name)), tuple(args))
    if kind == "broadcast":
        return Broadcast(args[0], getattr(found, pattern.name))
    assert kind == "ramp", kind
    return Ramp(args[0], args[1], getattr(found, pattern.name))


@dataclass(frozen=True, slots=True)
class Rule:
    """``before`` becomes ``after`` (a pattern, or a function of the match) if ``when`` holds."""

    name: str
    before: ExprPattern
    after: ExprPattern | Callable[[Any], Expr]
    when: Guard | None = None

    def apply(self, e: Expr, ask: Ask) -> Expr | None:
        found = Bindings()
        if not matches(self.before, e, found):
            return None
        if self.when is not None and not self.when(found, ask):
            return None
        if isinstance(self.after, ExprPattern):
            return build(self.after, found, e)
        return self.after(found)


def rule(
    name: str, before: ExprPattern, after: PatternLike | Callable[[Any], Expr], *, when: Guard | None = None
) -> Rule:
    return Rule(name, before, after if callable(after) else as_pattern(after), when)


class RuleTable:
    """Rules by the kind of node that they start from."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Sequence[Rule] = tuple(rules)
        self._by_kind: dict[str, list[Rule]] = {}
        for r in self.rules:
            self._by_kind.setdefault(r.before.kind, []).append(r)

    def apply(self, e: Expr, ask: Ask) -> Expr | None:
        """The result of the first rule that matches ``e``; None if none matches."""
        for r in self._by_kind.get(kind_of(e), ()):
            made = r.apply(e, ask)
            if made is not None and made is not e:
                return made
        return None


def is_integer(name: str) -> Guard:
    """A guard: the value of ``name`` is an integer (of any width)."""

    def check(m: Any, ask: Ask) -> bool:
        dtype: DType = getattr(m, name).dtype
        return dtype.is_integer

    return check


def not_float(name: str) -> Guard:
    """A guard: the value of ``name`` is an integer or a bool."""

    def check(m: Any, ask: Ask) -> bool:
        return not getattr(m, name).dtype.is_float

    return check
