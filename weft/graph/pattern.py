"""Patterns over graph expressions, and rules made of them.

A rule is named data: what to look for, what to build, and when::

    x, w, scale = anything("x"), constant("w"), constant("scale")

    FOLD_SCALE = GraphRule(
        "scale-into-weights",
        pattern=op(multiply, op(conv2d, x, w, name="conv", once=True), scale),
        when=lambda m: m.scale.tensor.shape == (m.w.tensor.shape[0], 1, 1),
        build=lambda m: call(conv2d, [m.x, call(multiply, [m.w, m.scale])], m["conv"].attrs),
    )

* :func:`anything` matches every expression, :func:`constant` a constant (optionally one whose data satisfy a test, or
  equals a scalar), :func:`op` an operator call, :func:`project` a tuple field, :func:`either` one of several patterns.
* The operator is a value, a tuple of values, or a test on operators (a trait): ``op(lambda o: o.view, x)``.
* Operands of commutative operators match in both orders. ``rest`` at the end of the operands matches any further ones.
* ``once=True``: the call has no user outside the match, so replacing it does not duplicate its work.
* A name (or the same pattern object) that occurs twice must match the same expression: ``op(add, x, x)``.
* ``build`` gets the match, which gives expressions by name (``m.x``, ``m["x"]``) and the root as ``m.root``; it returns
  an expression of the same type, or None to decline. ``when`` is a condition on the match.

Each rule must be correct by itself; the order of rules may change quality, never meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, Origin, Project
from weft.graph.operator import Attrs, Operator
from weft.support.errors import InternalError

Target: TypeAlias = "Operator | tuple[Operator, ...] | Callable[[Operator], bool]"
Bindings: TypeAlias = "dict[object, GraphExpr]"


@dataclass(frozen=True, slots=True, eq=False)
class GraphPattern:
    """Base of patterns. ``name`` is how ``build`` and ``when`` refer to what matched."""

    name: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Anything(GraphPattern):
    test: Callable[[GraphExpr], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AConstant(GraphPattern):
    test: Callable[[np.ndarray[Any, Any]], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ACall(GraphPattern):
    target: Target
    args: tuple[GraphPattern, ...]
    attrs: Callable[[Attrs], bool] | None = None
    once: bool = False
    rest: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AField(GraphPattern):
    value: GraphPattern
    index: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Either(GraphPattern):
    options: tuple[GraphPattern, ...]


rest = Anything()
"""As last operand of :func:`op`: any number of further operands."""


def anything(name: str | None = None, test: Callable[[GraphExpr], bool] | None = None) -> Anything:
    """Every expression (that satisfies ``test``)."""
    return Anything(test, name=name)


def constant(
    name: str | None = None,
    test: Callable[[np.ndarray[Any, Any]], bool] | None = None,
    *,
    value: float | None = None,
) -> AConstant:
    """A constant whose data satisfy ``test``, or whose every element is ``value``."""
    if value is not None:
        return AConstant(lambda data: data.size > 0 and bool(np.all(data == value)), name=name)
    return AConstant(test, name=name)


def op(
    target: Target,
    *args: GraphPattern,
    name: str | None = None,
    attrs: Callable[[Attrs], bool] | Mapping[str, Any] | None = None,
    once: bool = False,
) -> ACall:
    """A call of an operator; ``attrs`` is a test or the values that some attributes must have."""
    test: Callable[[Attrs], bool] | None
    if isinstance(attrs, Mapping):
        wanted = dict(attrs)

        def has_values(found: Attrs) -> bool:
            return all(found.get(k) == v for k, v in wanted.items())

        test = has_values
    else:
        test = attrs
    open_ended = bool(args) and args[-1] is rest
    return ACall(target, args[:-1] if open_ended else args, test, once, open_ended, name=name)


def project(value: GraphPattern, index: int | None = None, *, name: str | None = None) -> AField:
    """Field ``index`` (None: any) of a tuple."""
    return AField(value, index, name=name)


def either(*options: GraphPattern, name: str | None = None) -> Either:
    """The first option that matches (the others are tried if the rest of the pattern then fails)."""
    return Either(options, name=name)


@dataclass(frozen=True, slots=True)
class GraphMatch:
    """What a pattern matched: expressions by name."""

    root: GraphExpr
    bindings: Bindings

    def __getitem__(self, name: str) -> Any:
        return self.bindings[name]

    def __contains__(self, name: str) -> bool:
        return name in self.bindings

    def __getattr__(self, name: str) -> Any:
        try:
            return self.bindings[name]
        except KeyError:
            raise AttributeError(f"the pattern has nothing named '{name}'") from None

    @property
    def call(self) -> Call:
        """The root, for patterns whose root is a call."""
        assert isinstance(self.root, Call)
        return self.root

    @property
    def origin(self) -> Origin:
        """The merged origins of the calls that matched. What :func:`anything` took stays as it is: with its origin,
        each layer of a model would have those of all layers before it."""
        merged = self.root.origin
        for pattern, expr in self.bindings.items():
            if isinstance(pattern, ACall):
                merged = merged | expr.origin
        return merged


@dataclass(frozen=True, slots=True, eq=False)
class GraphRule:
    """``pattern`` becomes ``build(match)`` where ``when(match)`` holds."""

    name: str
    pattern: GraphPattern
    build: Callable[[GraphMatch], GraphExpr | None]
    when: Callable[[GraphMatch], bool] | None = None

    def apply(self, expr: GraphExpr, uses: Callable[[GraphExpr], int]) -> tuple[GraphExpr, GraphMatch] | None:
        """The replacement of ``expr`` with the match that gave it, or None."""
        if not may_match(self.pattern, expr):
            return None
        for bindings in matches(self.pattern, expr, {}, uses, True):
            found = GraphMatch(expr, bindings)
            if self.when is not None and not self.when(found):
                continue
            made = self.build(found)
            if made is not None and made is not expr:
                return made, found
        return None


def may_match(pattern: GraphPattern, expr: GraphExpr) -> bool:
    """Whether ``expr`` has the operators and constants of ``pattern`` at the right positions: a quick test that binds
    nothing and rejects most expressions that do not match."""
    if isinstance(pattern, ACall):
        if not isinstance(expr, Call):
            return False
        target = expr.target
        if target is not pattern.target and not (isinstance(target, Operator) and _fits(pattern.target, target)):
            return False
        parts, args = pattern.args, expr.args
        if len(args) < len(parts) or (len(args) > len(parts) and not pattern.rest):
            return False
        if all(map(may_match, parts, args)):
            return True
        return len(parts) == len(args) == 2 and target.commutative and all(map(may_match, parts, args[::-1]))
    if isinstance(pattern, Anything):
        return True
    if isinstance(pattern, AConstant):
        return isinstance(expr, Constant)
    if isinstance(pattern, AField):
        return isinstance(expr, Project) and may_match(pattern.value, expr.value)
    return not isinstance(pattern, Either) or any(may_match(option, expr) for option in pattern.options)


Head: TypeAlias = "Operator | type[GraphExpr]"
"""The head of an expression: the operator of a call, the class of any other node."""


def head(expr: GraphExpr) -> Head:
    """The head of ``expr``."""
    return expr.target if isinstance(expr, Call) and isinstance(expr.target, Operator) else type(expr)


def may_begin(pattern: GraphPattern, top: Head, operands: tuple[Head, ...] | None = None) -> bool:
    """Whether an expression with the head ``top`` and operands with the heads ``operands`` (None: any) may match: the
    part of :func:`may_match` that can be cached for all expressions with equal heads."""
    if isinstance(pattern, ACall):
        if not isinstance(top, Operator) or not _fits(pattern.target, top):
            return False
        if operands is None:
            return True
        parts = pattern.args
        if len(operands) < len(parts) or (len(operands) > len(parts) and not pattern.rest):
            return False
        if all(map(may_begin, parts, operands)):
            return True
        return len(parts) == len(operands) == 2 and top.commutative and all(map(may_begin, parts, operands[::-1]))
    if isinstance(pattern, AConstant):
        return top is Constant
    if isinstance(pattern, AField):
        return top is Project
    return not isinstance(pattern, Either) or any(may_begin(option, top, operands) for option in pattern.options)


def matches(
    pattern: GraphPattern,
    expr: GraphExpr,
    bound: Bindings,
    uses: Callable[[GraphExpr], int],
    is_root: bool = False,
) -> Iterator[Bindings]:
    """All ways in which ``expr`` matches ``pattern``, given the names bound so far."""
    keys = (pattern,) if pattern.name is None else (pattern, pattern.name)
    for key in keys:
        if key in bound and not _same(bound[key], expr):
            return
    if pattern in bound:
        yield bound
        return
    own = {**bound, **dict.fromkeys(keys, expr)} if pattern is not rest else bound
    if isinstance(pattern, Anything):
        if pattern.test is None or pattern.test(expr):
            yield own
    elif isinstance(pattern, AConstant):
        if isinstance(expr, Constant) and (pattern.test is None or pattern.test(expr.data)):
            yield own
    elif isinstance(pattern, AField):
        if isinstance(expr, Project) and pattern.index in (None, expr.index):
            yield from matches(pattern.value, expr.value, own, uses)
    elif isinstance(pattern, Either):
        for option in pattern.options:
            yield from matches(option, expr, own, uses, is_root)
    elif isinstance(pattern, ACall):
        yield from _call_matches(pattern, expr, own, uses, is_root)
    else:
        raise InternalError(f"unknown pattern {type(pattern).__name__}")


def _same(a: GraphExpr, b: GraphExpr) -> bool:
    if a is b:
        return True
    if isinstance(a, Constant) and isinstance(b, Constant):  # by bits: 0 and -0 differ, a NaN is the same as itself
        return a.type == b.type and (a.data is b.data or (a.data.size == 1 and a.data.tobytes() == b.data.tobytes()))
    return False


def _call_matches(
    pattern: ACall, expr: GraphExpr, bound: Bindings, uses: Callable[[GraphExpr], int], is_root: bool
) -> Iterator[Bindings]:
    if not isinstance(expr, Call) or not isinstance(expr.target, Operator) or not _fits(pattern.target, expr.target):
        return
    if pattern.attrs is not None and not pattern.attrs(expr.attrs):
        return
    if pattern.once and not is_root and uses(expr) != 1:
        return
    if len(expr.args) < len(pattern.args) or (len(expr.args) > len(pattern.args) and not pattern.rest):
        return
    yield from _all(pattern.args, expr.args, bound, uses)
    if expr.target.commutative and len(pattern.args) == len(expr.args) == 2:
        yield from _all(pattern.args, expr.args[::-1], bound, uses)


def _fits(target: Target, operator: Operator) -> bool:
    if isinstance(target, Operator):
        return target is operator
    if isinstance(target, tuple):
        return any(t is operator for t in target)
    return target(operator)


def _all(
    patterns: tuple[GraphPattern, ...],
    exprs: tuple[GraphExpr, ...],
    bound: Bindings,
    uses: Callable[[GraphExpr], int],
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for more in matches(patterns[0], exprs[0], bound, uses):
        yield from _all(patterns[1:], exprs[1:], more, uses)
