"""Branches of selects are simplified under their condition, and only once if the condition does not affect them."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Sequence

import pytest
from expr_strategies import TENSORS

from weft.expr import normalize
from weft.expr.evaluate import evaluate
from weft.expr.folds import members
from weft.expr.nodes import Const, Expr, Load, Ramp, Var, cast, make, select
from weft.expr.normalize import Normalizer
from weft.expr.prove import Facts
from weft.expr.visit import post_order
from weft.support.dtypes import INDEX


def _chain(which: Expr, values: list[Expr]) -> Expr:
    made = values[-1]
    for k in range(len(values) - 2, -1, -1):
        made = select(which == k, values[k], made)
    return made


def test_conditions_simplify_expressions_of_their_variables() -> None:
    i, x = Var("i"), Var("x")
    facts = Facts(())
    facts.bind(i, 0, 16)
    made = facts.simplify(select(i < 4, x + i // 4, x))
    assert made is facts.simplify(x)


def test_other_expressions_are_simplified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    i, j, x, y = Var("i"), Var("j"), Var("x"), Var("y")
    shared = (x * 4 + y) // 3 + (y * 8 + x) // 5
    facts = Facts(())
    facts.bind(i, 0, 6)
    facts.bind(j, 0, 6)
    finished: list[Expr] = []
    plain = Normalizer._finish
    monkeypatch.setattr(Normalizer, "_finish", lambda self, node: finished.append(node) or plain(self, node))
    facts.simplify(_chain(j, [_chain(i, [shared + k * x for k in range(6)]) + k for k in range(6)]))
    assert sum(node is (x * 4 + y) // 3 for node in finished) == 1


def _calls(work: Callable[[], object]) -> int:
    counted = cProfile.Profile()
    counted.runcall(work)
    return sum(entry.callcount for entry in counted.getstats())


def _simplified(conditions: Sequence[Expr], start: Expr) -> Expr:
    """Selects of which each reads the one before in both operands."""
    made = start
    for k, condition in enumerate(conditions):
        made = select(condition, made + k, made - (k + 1))
    return Facts().simplify(made)


def test_selects_by_data_are_not_simplified_once_for_each_path() -> None:
    """2⁸⁰ paths lead through 80 conditions."""
    made: Expr = Load(TENSORS[0], (Var("i"), Var("j")))
    for _ in range(80):
        made = select(make("lt", made, 0.5), made * 2.0, make("add", made, 1.0))
    small = _calls(lambda: Facts().simplify(made))
    for _ in range(80):
        made = select(make("lt", made, 0.5), made * 2.0, make("add", made, 1.0))
    assert _calls(lambda: Facts().simplify(made)) < 4 * small


def test_what_a_condition_on_an_element_says_is_used() -> None:
    i = Var("i")
    at = cast(Load(TENSORS[0], (i + 1 - 1, Const(0))), INDEX)
    negative = make("lt", at, 0)
    assert Facts().simplify(select(negative, make("min", at, 5), 7)) is Facts().simplify(select(negative, at, 7))


def test_a_condition_on_data_is_known_where_it_is_asked_again() -> None:
    x, y = (Load(TENSORS[0], (Var("i"), Var(k))) for k in "jk")
    first, second = make("lt", x, 0.5), make("lt", y, 0.5)
    inner = select(second, select(first, x, y), x * y)
    simple = Facts().simplify(select(first, inner, y))
    assert simple is select(first, select(second, x, x * y), y)
    fails = Facts().simplify(select(first, y, inner))
    assert fails is select(first, y, select(second, y, x * y))


@pytest.mark.parametrize("count", [10, 40])
def test_many_conditions_on_indices_end(count: int) -> None:
    """None of them decides another, so an operand is another expression under each combination of them."""
    i, j = Var("i"), Var("j")
    conditions = [(i * (2 * k + 1) + j * (k + 2)) % 97 < 40 for k in range(count)]
    made = _simplified(conditions, i * j)
    assert _calls(lambda: _simplified(conditions, i * j)) < 3_000_000
    wanted = 5 * 3
    for k in range(count):
        wanted += k if (5 * (2 * k + 1) + 3 * (k + 2)) % 97 < 40 else -(k + 1)
    assert evaluate(made, {i: 5, j: 3}) == wanted


@pytest.mark.parametrize("count", [10, 6_000])
def test_only_what_is_simplified_under_conditions_is_limited(count: int) -> None:
    """However large the expression around a select is, its operands are simplified with what its condition says."""
    i, wide = Var("i"), cast(Var("v"), "int32")
    for k in range(count):
        wide = make("add", wide, Var(f"v{k}", "int32"))
    facts = Facts()
    facts.bind(i, 0, 16)
    chosen = select(i < 4, cast(i // 4, "int32"), Const(7, "int32"))
    made = facts.simplify(make("mul", wide, chosen))
    assert made is facts.simplify(make("mul", wide, select(i < 4, Const(0, "int32"), Const(7, "int32"))))
    assert cast(i // 4, "int32") not in post_order(made)


def test_the_limit_of_work_may_be_reached_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two looks at one select, whose operands are then simplified without its condition."""
    i, j = Var("i"), Var("j")

    def index(at: Expr) -> Expr:  # a clamped index, as gathers of gathers have it
        wrapped = select(at % 7 < j, at + 4, at)
        return make("max", make("min", wrapped, 3), 0)

    chain = index(index(index(index(i) * 5 + j) * 3 + i) + i * j)
    wanted = [evaluate(chain, {i: a, j: b}) for a in range(4) for b in range(3)]
    for limit in range(0, 150, 2):
        monkeypatch.setattr(normalize, "_MAX_CONTEXT_WORK", limit)
        made = Facts().simplify(chain)
        assert [evaluate(made, {i: a, j: b}) for a in range(4) for b in range(3)] == wanted, limit


def test_a_condition_without_variables_is_known_where_it_selects() -> None:
    """An expression shares no variables with such a condition, and depends on it."""
    first = make("lt", Load(TENSORS[0], (Const(0), Const(1))), 0.5)
    x, y = Var("x"), Var("y")
    facts = Facts()
    made = facts.simplify(select(first, select(first, x, y) * y + 1, select(first, x, y) * x))
    assert made is facts.simplify(select(first, x * y + 1, y * x))


@pytest.mark.parametrize("op", ["and", "or"])
@pytest.mark.parametrize("count", [2, 11, 12, 13, 30])
def test_members_of_a_conjunction_are_compared_if_they_are_twelve_or_fewer(op: str, count: int) -> None:
    variables = [Var(f"v{k}") for k in range(count - 1)]
    parts = [v < 5 for v in variables] + [variables[0] < (3 if op == "and" else 7)]
    made = parts[0]
    for part in parts[1:]:
        made = make(op, made, part)
    found = members(Facts().simplify(make(op, made, parts[0])), op)
    assert len(found) == (count - 1 if count <= 12 else count)
    assert (parts[0] in found) == (count > 12) and parts[-1] in found


def test_bounds_of_everything() -> None:
    """Of indices, of vectors, and of integers of other types."""
    facts, n = Facts(), Var("n", INDEX)
    facts.bind(n, Const(2, INDEX), Const(5, INDEX))
    assert (facts.bounds(n * 3 - 1).lo, facts.bounds(n * 3 - 1).hi) == (5, 17)
    small = cast(n, "int32") + Const(1, "int32")
    assert (facts.bounds(small).lo, facts.bounds(small).hi) == (3, 7)
    lanes = Ramp(n, Const(2, INDEX), 4)
    assert (facts.bounds(lanes).lo, facts.bounds(lanes).hi) == (2, 12)
    byte = Var("b", "uint8")
    assert (facts.bounds(byte).lo, facts.bounds(byte).hi) == (0, 255)


def test_ranges_of_constants_and_of_numbers_are_the_same() -> None:
    for start, extent in ((2, 5), (Const(2, INDEX), 5), (2, Const(5, INDEX)), (Const(2, INDEX), Const(5, INDEX))):
        facts, n = Facts(), Var("n", INDEX)
        facts.bind(n, start, extent)
        assert (facts.minimum(n), facts.maximum(n)) == (2, 6)
        facts, n = Facts(), Var("n", INDEX)
        facts.bind(n, start, 1)
        assert facts.simplify(n) == Const(2, INDEX), "one value"
