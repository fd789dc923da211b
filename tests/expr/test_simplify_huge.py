"""Simplified index arithmetic computed in 64 bits, with huge constants and positions, against exact integers."""

from __future__ import annotations

import random

import pytest
from seeds import seeds

from weft.expr.nodes import Binary, Const, Expr, Not, Select, Var, make, select
from weft.expr.prove import Facts
from weft.expr.visit import post_order

CONSTANTS = (0, 1, 2, 3, -1, -2, 7, 16, 1 << 20, 3 << 30, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, -(1 << 31), 1 << 62)
DIVISORS = (1, 2, 3, 7, 64, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40)
LARGEST_SIZE = 1000
"""Products of a few sizes are numbers of elements of arrays, which fit into 64 bits with a factor of 2 to the 31."""


class TooLargeError(ArithmeticError):
    """A value does not fit into 64 bits."""


def cut(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MEANING = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b, "truncdiv": cut,
    "truncmod": lambda a, b: a - cut(a, b) * b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


def value(e: Expr, values: dict[Expr, int], wraps: bool) -> int:
    """In 64 bits that wrap around, or exactly: then TooLargeError for what does not fit."""
    done = dict(values)
    for node in post_order(e):
        if node in done:
            continue
        if isinstance(node, Const):
            made = int(node.value)
        elif isinstance(node, Select):
            made = done[node.then if done[node.condition] else node.otherwise]
        elif isinstance(node, Not):
            made = not done[node.a]
        else:
            assert isinstance(node, Binary)
            made = MEANING[node.op](done[node.a], done[node.b])
        if not -(1 << 63) <= made < 1 << 63:
            if not wraps:
                raise TooLargeError
            made = (made + (1 << 63)) % (1 << 64) - (1 << 63)
        done[node] = made
    return done[e]


def drawn(r: random.Random, variables: list[Var], depth: int) -> Expr:
    if depth == 0 or r.random() < 0.15:
        return r.choice(variables) if r.random() < 0.65 else Const(r.choice(CONSTANTS))
    op = r.choice(("add", "sub", "mul", "mul", "floordiv", "floordiv", "floormod", "min", "max", "truncdiv", "select"))
    a, b = drawn(r, variables, depth - 1), drawn(r, variables, depth - 1)
    if op == "select":
        condition = make(r.choice(("lt", "le", "eq")), drawn(r, variables, depth - 1), drawn(r, variables, depth - 1))
        return select(condition, a, b)
    if op in ("floordiv", "floormod", "truncdiv"):
        b = Const(r.choice(DIVISORS)) if r.random() < 0.8 else variables[0]
    return make(op, a, b)


@pytest.mark.parametrize("seed", seeds(40))
def test_values_stay(seed: int) -> None:
    r, compared = random.Random(seed), 0
    while compared < 50:
        facts, sizes, i = Facts(), [Var("n"), Var("m")], Var("i")
        extent = r.choice((3, 1 << 20, 1 << 31))
        for n in sizes:
            facts.bind_size(n)
        facts.bind(i, Const(0), Const(extent))
        values: dict[Expr, int] = {n: r.choice((1, 2, 5, LARGEST_SIZE, r.randint(1, LARGEST_SIZE))) for n in sizes}
        values[i] = r.choice((0, extent - 1, r.randrange(extent)))
        e = drawn(r, [*sizes, i], 3)
        if r.random() < 0.4:
            e = make(r.choice(("lt", "le", "eq", "ne")), e, drawn(r, [*sizes, i], 2))
        try:
            wanted = value(e, values, wraps=False)
        except (TooLargeError, ZeroDivisionError):
            continue  # not an index
        made = facts.simplify(e)
        assert value(made, values, wraps=True) == wanted, f"{e} -> {made} for {values}"
        compared += 1


def test_divisors_that_do_not_fit_are_not_made() -> None:
    facts, n, i = Facts(), Var("n"), Var("i")
    facts.bind_size(n)
    facts.bind(i, Const(0), n)
    large = 1 << 40
    for e in (n // large // large, i // large // n // large, (i // large + (1 << 30)) // large):
        divisors = [s.b for s in post_order(facts.simplify(e)) if isinstance(s, Binary) and s.op == "floordiv"]
        assert all((isinstance(d, Const) and d.value == large) or d is n for d in divisors), e
    assert str(facts.simplify(n // 1024 // 1024)) == "n // 1048576"


def test_comparisons_do_not_move_constants_that_do_not_fit() -> None:
    facts, n, m = Facts(), Var("n"), Var("m")
    for v in (n, m):
        facts.bind_size(v)
    e = make("le", make("sub", make("mul", n, 3), Const(1 << 62)), make("add", make("mul", m, 5), Const(1 << 62)))
    made = facts.simplify(e)
    for values in ({n: 1, m: 1}, {n: 1 << 40, m: 1}, {n: 1, m: 1 << 40}):
        assert value(made, values, wraps=True) == value(e, values, wraps=False), str(made)
