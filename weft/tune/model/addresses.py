"""Addresses as sums of loop variables, and their values at sample points.

An index is ``sum(factor * term) + constant``. A term is a loop variable, :data:`LANE` (the number of the lane in a
vector), or an expression that is not linear, such as ``i // 3``. What is not linear is computed for sample values of
the variables; what depends on data has no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from weft.cost.assumed import EXTENT
from weft.expr.nodes import BINARY, Binary, Broadcast, Cast, Const, Expr, Not, Ramp, Select, Var
from weft.expr.visit import bottom_up, free_vars
from weft.tune.model.footprint import Stride, strides_between

LANE: Final = Var("lane")
"""Stands for the number of the lane wherever a vector of addresses is one term of a sum."""
MAX_SAMPLED_TURNS: Final = 128
"""Most iterations of a loop for which an address that is not linear is computed."""

Lets: TypeAlias = "tuple[tuple[Var, Expr], ...]"
"""Variables that stand for values, outermost first."""
Values: TypeAlias = "dict[Var, Any]"


class AffineForm(NamedTuple):
    """``sum(factor * term) + constant`` of elements."""

    terms: frozenset[tuple[Expr, int]]
    constant: int


@dataclass(slots=True, eq=False)
class Forms:
    """Forms of index expressions. ``sizes`` have the assumed extent; variables of ``lets`` are replaced by what they
    stand for, where that is linear."""

    sizes: frozenset[Var]
    lets: Lets = ()
    known: dict[Expr, AffineForm] = field(default_factory=dict)

    def of(self, e: Expr) -> AffineForm:
        """The form of ``e``, of which a vector may be any number of lanes."""
        return bottom_up(e, self.known, self._node)

    def inside(self, var: Var, value: Expr) -> Forms:
        """The forms where ``var`` stands for ``value``."""
        made = Forms(self.sizes, (*self.lets, (var, value)))
        form = self.of(value)
        made.known[var] = form if all(type(t) is Var for t, _ in form.terms) else _term(var)
        made.known.update((v, self.known[v]) for v, _ in self.lets if v is not var)
        return made

    def _node(self, e: Expr) -> AffineForm:
        kind = type(e)
        if kind is Const:
            return AffineForm(_NO_TERMS, int(e.value)) if np.isfinite(e.value) else _term(e)  # type: ignore[attr-defined]  # constant
        if kind is Var:
            return AffineForm(_NO_TERMS, EXTENT) if e in self.sizes else _term(e)
        if kind is Broadcast or (kind is Cast and e.dtype.is_integer):
            return self.known[e.children[0]]
        if kind is Ramp:
            base, step = (self.known[c] for c in e.children)
            return _term(e) if step.terms else _sum(base, AffineForm(frozenset(((LANE, step.constant),)), 0), 1)
        if isinstance(e, Binary):
            return _binary(e, self.known[e.a], self.known[e.b])
        return _term(e)


_NO_TERMS: Final = frozenset[tuple[Expr, int]]()


def _term(e: Expr) -> AffineForm:
    return AffineForm(frozenset(((e, 1),)), 0)


def _binary(e: Binary, a: AffineForm, b: AffineForm) -> AffineForm:
    if e.op == "add" or e.op == "sub":
        return _sum(a, b, 1 if e.op == "add" else -1)
    if e.op == "mul" and not (a.terms and b.terms):
        by, form = (b.constant, a) if not b.terms else (a.constant, b)
        return AffineForm(frozenset((t, f * by) for t, f in form.terms) if by else _NO_TERMS, form.constant * by)
    if not a.terms and not b.terms:
        found = _evaluated(e, a.constant, b.constant)
        return AffineForm(_NO_TERMS, int(found))
    return _term(e)


def _sum(a: AffineForm, b: AffineForm, sign: int) -> AffineForm:
    constant = a.constant + sign * b.constant
    if not b.terms:
        return AffineForm(a.terms, constant)
    if not a.terms and sign == 1:
        return AffineForm(b.terms, constant)
    factors = dict(a.terms)
    for term, factor in b.terms:
        factors[term] = factors.get(term, 0) + sign * factor
    return AffineForm(frozenset((t, f) for t, f in factors.items() if f), constant)


def _evaluated(e: Binary, a: Any, b: Any) -> Any:
    if e.op in ("floordiv", "floormod", "truncdiv", "truncmod", "div") and not np.all(b):
        b = np.where(b == 0, 1, b)  # never reached, or the program is wrong: any value will do
    with np.errstate(all="ignore"):
        return BINARY[e.op].evaluate(a, b)


def value_of(e: Expr, values: Mapping[Any, Any], lets: Lets = ()) -> Any | None:
    """The value of ``e`` where variables have ``values`` (numbers or arrays of one length); None if it depends on data,
    or on a function. Variables without a value are sizes."""
    if type(e) is Const:
        return e.value
    known: dict[Expr, Any] = {**values}
    for var, value in lets:
        known[var] = bottom_up(value, known, lambda n: _value(n, known))
    return bottom_up(e, known, lambda n: _value(n, known))


def _value(e: Expr, known: Mapping[Expr, Any]) -> Any | None:
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return EXTENT
    parts = [known[c] for c in e.children]
    if any(p is None for p in parts):
        return None
    if isinstance(e, Binary):
        return _evaluated(e, *parts)
    if isinstance(e, Select):
        return np.where(*parts)
    if isinstance(e, Not):
        return np.logical_not(parts[0])
    if isinstance(e, Ramp):
        return parts[0] + known.get(LANE, 0) * parts[1]
    return parts[0] if isinstance(e, (Cast, Broadcast)) else None


def movement(
    form: AffineForm, var: Var, turns: range, middle: Values, lets: Lets, nbytes: int
) -> tuple[Stride, ...] | None:
    """How an address moves in the ``turns`` of a variable, while the others have their ``middle`` values: strides in
    bytes, none if it does not move; None if it moves to places that come from data. ``nbytes``: of an element."""
    plain = 0
    others: list[tuple[Expr, int]] = []
    for term, factor in form.terms:
        if term is var:
            plain = factor
        elif (type(term) is not Var or term not in middle) and var in moved_by(term, lets):
            others.append((term, factor))
    if not others:
        return (Stride(plain * nbytes, len(turns)),) if plain and len(turns) > 1 else ()
    sampled = np.arange(turns.start, turns.start + min(len(turns), MAX_SAMPLED_TURNS), dtype=np.int64)
    offsets: Any = plain * sampled
    for term, factor in others:
        found = value_of(term, {**middle, var: sampled}, lets)
        if found is None:
            return None
        offsets = offsets + factor * np.asarray(found).astype(np.int64)
    return _regular(np.broadcast_to(offsets, sampled.shape), turns, nbytes)


def _regular(offsets: Any, turns: range, nbytes: int) -> tuple[Stride, ...]:
    """Strides that reach the offsets. If there are more turns than offsets, they go on as they began."""
    distinct: Sequence[int] = (np.unique(offsets) * nbytes).tolist()
    found = strides_between(distinct)
    if len(turns) > len(offsets) and found and distinct[-1] == int(offsets[-1]) * nbytes:
        more = len(turns) // len(offsets)
        found.append(Stride(distinct[-1] - distinct[0] + found[0].step, more))
    return tuple(found)


def moved_by(term: Expr, lets: Lets) -> frozenset[Var]:
    """The variables that change the value of ``term``, those behind ``lets`` included, and :data:`LANE` for vectors."""
    stands_for = dict(lets)
    found: set[Var] = set()
    pending = [term]
    while pending:
        e = pending.pop()
        if e.lanes > 1:
            found.add(LANE)
        for var in free_vars(e):
            if var not in found:
                found.add(var)
                if var in stands_for:
                    pending.append(stands_for[var])
    return frozenset(found)
