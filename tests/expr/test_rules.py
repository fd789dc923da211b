"""Every simplification rule, alone: both sides have the same value wherever its guard holds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from seeds import named

from weft.expr.affine import Poly, Ring, add
from weft.expr.bounds import Interval
from weft.expr.evaluate import evaluate
from weft.expr.match import LITERAL, VALUE, WILD, ExprPattern, Rule
from weft.expr.nodes import BINARY, Binary, Broadcast, Cast, Const, Expr, Not, Ramp, Select, Var
from weft.expr.normalize import Normalizer
from weft.expr.operators import COMPARISONS
from weft.expr.prove import Facts
from weft.expr.rules.division import DIVISION_RULES, DivisionRule
from weft.expr.rules.logic import LOGIC_RULES
from weft.expr.rules.values import VALUE_RULES
from weft.expr.solver import Assumptions
from weft.expr.visit import free_vars
from weft.support.dtypes import BOOL, DType
from weft.support.errors import UserError

RULES = (*LOGIC_RULES, *VALUE_RULES)
DTYPES = tuple(DType(d) for d in ("int64", "int32", "uint8", "float32", "float16", "bool"))
SPECIAL = {
    "float": (0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 3.25),
    "int": (0, 1, -1, 5, -7, 127, -128, 40000),
    "uint": (0, 1, 5, 200, 255),
    "bool": (False, True),
}


class Misfit(Exception):
    """The pattern has no instance of this dtype."""


def instance(p: ExprPattern, dtype: DType, wilds: dict[str, Expr], pick: random.Random) -> Expr:
    if p.kind == WILD:
        found = wilds.setdefault(p.name, Var(p.name, dtype))
        if found.dtype != dtype:
            raise Misfit
        return found
    if p.kind == LITERAL:
        return wilds.setdefault(p.name, Const(pick.choice(SPECIAL[dtype.kind]), dtype))
    if p.kind == VALUE:
        if {bool: "bool", int: "int", float: "float"}[type(p.value)] != dtype.kind.removeprefix("u"):
            raise Misfit
        return Const(p.value, dtype)
    if p.kind in BINARY:
        if p.kind in COMPARISONS and dtype == BOOL:
            inner = pick.choice(DTYPES)
        elif (p.kind in ("and", "or")) != (dtype == BOOL) or (p.kind == "div" and not dtype.is_float):
            raise Misfit
        else:
            inner = dtype
        return Binary(p.kind, *(instance(a, inner, wilds, pick) for a in p.args))
    if p.kind == "not":
        if dtype != BOOL:
            raise Misfit
        return Not(instance(p.args[0], BOOL, wilds, pick))
    if p.kind == "select":
        sides = [instance(a, dtype, wilds, pick) for a in p.args[1:]]
        return Select(instance(p.args[0], BOOL, wilds, pick), *sides)
    assert p.kind == "cast", p.kind
    return Cast(instance(p.args[0], pick.choice(DTYPES), wilds, pick), dtype)


def bindings(e: Expr, pick: random.Random) -> Iterator[dict[Var, Any]]:
    variables = free_vars(e)
    every = list(itertools.product(*(SPECIAL[v.dtype.kind] for v in variables)))
    for values in pick.sample(every, min(len(every), 40)):
        yield dict(zip(variables, values, strict=True))


def same_value(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        return False
    if a.dtype.kind == "f":
        return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))
    return bool(np.all(a == b))


@pytest.mark.parametrize("rule", RULES, ids=[r.name for r in RULES])
def test_rule_keeps_the_value(rule: Rule) -> None:
    pick = named(rule.name)
    facts = Facts()
    fired = 0
    for _ in range(60):
        for dtype in DTYPES:
            try:
                e = instance(rule.before, dtype, {}, pick)
            except Misfit:
                continue
            made = rule.apply(e, facts.prove)
            if made is None:
                continue
            fired += 1
            assert (made.dtype, made.lanes) == (e.dtype, e.lanes)
            if fired > 40:
                continue
            for values in bindings(e, pick):
                try:
                    before = evaluate(e, values)
                except UserError:
                    continue  # no defined value, so any will do
                if isinstance(e, Cast) and not defined(e, values):
                    continue
                assert same_value(evaluate(made, values), before), f"{e} → {made} at {values}"
    if rule.name == "cast-there-and-back":
        return  # needs facts: tested below
    assert fired, "the rule never applied"


def defined(e: Expr, values: dict[Var, Any]) -> bool:
    """Whether no float is converted to an integer that cannot hold it."""
    while isinstance(e, Cast):
        inner = evaluate(e.a, values)
        if e.a.dtype.is_float and not e.dtype.is_float:
            lo, hi = e.dtype.limits()
            if not (np.isfinite(inner) and lo <= float(inner) <= hi):  # float16 cannot hold the limits
                return False
        e = e.a
    return True


def test_names_are_unique() -> None:
    names = [r.name for r in (*RULES, *DIVISION_RULES)]
    assert len(set(names)) == len(names)


def test_cast_there_and_back_needs_bounds() -> None:
    i = Var("i")
    facts = Facts()
    assert facts.simplify(Cast(Cast(i, "int32"), "int64")) is not i
    facts.bind(i, 0, 1000)
    assert facts.simplify(Cast(Cast(i, "int32"), "int64")) is i


def random_poly(ring: Ring, atoms: list[Expr], pick: random.Random) -> Poly:
    coefficients = (1, 1, 1, 2, 3, 4, 6, 8, 12, -1, -4, 16)
    out: Poly = ring.poly(Const(pick.randint(-20, 20)))
    for atom in pick.sample(atoms, pick.randint(1, 3)):
        term = atom * pick.choice(coefficients)
        if pick.random() < 0.3:
            term = term * pick.choice(atoms)
        out = add(out, ring.poly(term))
    return out


@pytest.mark.parametrize("rule", DIVISION_RULES, ids=[r.name for r in DIVISION_RULES])
def test_division_rule_keeps_the_value(rule: DivisionRule) -> None:
    pick = named(rule.name)
    i, j, n = Var("i"), Var("j"), Var("n")
    fired = 0
    for _ in range(400):
        ring = Ring()
        normal = Normalizer(ring, Assumptions())
        ends = {i: (0, pick.randint(0, 20)), j: (pick.choice((0, -3)), pick.randint(1, 9)), n: (1, 9)}
        for var, (lo, hi) in ends.items():
            normal.solver.state_range(ring.number(var), Interval(lo, hi))
        normal.forget()
        atoms: list[Expr] = [i, j, n, i // 3, i % 8, (i + j) % 12, i // n, i % n]
        p = random_poly(ring, atoms, pick) if pick.random() < 0.8 else ring.poly(pick.choice(atoms[3:]))
        d = ring.poly(pick.choice([Const(4), Const(12), Const(3), n, n * 4, n + 2, n * n]))
        parts = rule.apply(normal, p, d)
        if parts is None or (parts.quotient is None and parts.remainder is None):
            continue
        fired += 1
        for _ in range(6):
            values = {v: pick.randint(lo, hi) for v, (lo, hi) in ends.items()}
            x, y = int(evaluate(ring.expr(p), values)), int(evaluate(ring.expr(d), values))
            if parts.quotient is not None:
                assert int(evaluate(ring.expr(parts.quotient), values)) == x // y
            if parts.remainder is not None:
                assert int(evaluate(ring.expr(parts.remainder), values)) == x % y
    assert fired > 5


@pytest.mark.parametrize(
    ("e", "wanted"),
    [
        (lambda i: Ramp(i * 8, Const(1), 8) // 8, lambda i: Broadcast(i, 8)),
        (lambda i: Ramp(i * 8, Const(1), 8) % 8, lambda i: Ramp(Const(0), Const(1), 8)),
        (lambda i: Ramp(i, Const(4), 8) // 4, lambda i: Ramp(i // 4, Const(1), 8)),
        (lambda i: Ramp(i, Const(4), 8) % 4, lambda i: Broadcast(i % 4, 8)),
        (lambda i: Ramp(i, Const(1), 8) * 3 + 2, lambda i: Ramp(i * 3 + 2, Const(3), 8)),
        (lambda i: Ramp(i * 8, Const(1), 8) < 80, lambda i: Broadcast(Const(True, BOOL), 8)),
        (lambda i: Ramp(i * 8, Const(1), 8) >= 80, lambda i: Broadcast(Const(False, BOOL), 8)),
        (lambda i: Binary("min", Ramp(i, Const(1), 8), Broadcast(Const(99), 8)), lambda i: Ramp(i, Const(1), 8)),
        (lambda i: Broadcast(i, 4) - Broadcast(i, 4), lambda i: Broadcast(Const(0), 4)),
    ],
)
def test_lane_sequences(e: Any, wanted: Any) -> None:
    i = Var("i")
    facts = Facts()
    facts.bind(i, 0, 10)
    made = facts.simplify(e(i))
    assert made is wanted(i), f"{made}, not {wanted(i)}"
