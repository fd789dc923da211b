"""All small expressions of a few shapes: the value stays at every point, and the form is the one in the golden file.

The points are all that the facts allow, so a condition that holds (or fails) at each of them could be decided: the
golden file marks with ``!`` those that are not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest
from exact import exact

from weft.expr.evaluate import evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Broadcast, Call, Const, Expr, Not, Ramp, Select, Var, maximum, minimum
from weft.expr.prove import Facts
from weft.expr.text import to_text
from weft.support.dtypes import BOOL, DType

X, Y, N = Var("x"), Var("y"), Var("n")
Golden = Callable[[str, str], None]


def known() -> Facts:
    made = Facts([N])
    made.bind(X, 0, 8)
    made.bind(Y, -1, 4)
    return made


PLACES = list(itertools.product(range(8), range(-1, 3), (1, 2, 3, 5, 40)))


def points(places: Iterable[Sequence[int]]) -> dict[Var, np.ndarray]:
    columns = np.array(list(places), np.int64).T
    return dict(zip((X, Y, N), columns, strict=True))


def lines_of(expressions: Iterable[Expr], facts: Facts, places: Iterable[Sequence[int]] = PLACES) -> Iterator[str]:
    """A line for each expression, with its normal form."""
    at = points(places)
    for e in dict.fromkeys(expressions):
        made = facts.simplify(e)
        before, after = exact(e, at), exact(made, at)
        assert (made.dtype, made.lanes) == (e.dtype, e.lanes), e
        assert np.all(before == after), f"{to_text(e)} became {to_text(made)}"
        again = known().simplify(made)  # with nothing remembered
        assert again is made, f"{to_text(e)} became {to_text(made)}, and that {to_text(again)}"
        open_ = e.dtype == BOOL and not isinstance(made, Const) and len(np.unique(before)) == 1
        yield f"{to_text(e)}  →  {to_text(made)}{'  !' if open_ else ''}"


TERMS: tuple[Expr, ...] = (
    X, X + 3, X - 9, -1 - X, X * 2 + 1, X * 6 + Y, X * 4 - Y * 2, X * Y, X * N, X * N + Y + 1, X * N * 4 + N * 2,
    X // 3, X % 3, X % 6 + 2, X // 2 * 3 + 1, (X + N) % 4, minimum(X, 5), Const(-7), N - 1, N * 3, X // N, X % N,
)  # fmt: skip
DIVISORS: tuple[Expr, ...] = (
    Const(1), Const(2), Const(3), Const(4), Const(6), Const(8), Const(-2), Const(1 << 40), N, N * 2, N + 2, Y + 2,
)  # fmt: skip


def test_quotients_and_remainders(golden: Golden) -> None:
    facts = known()
    found = [Binary(op, p, d) for op in ("floordiv", "floormod") for p in TERMS for d in DIVISORS]
    found += [Binary(op, p, Const(d)) for op in ("truncdiv", "truncmod") for p in TERMS[:6] for d in (1, 3, -3)]
    golden("normal_quotients.txt", "\n".join(lines_of(found, facts)) + "\n")


def test_sums_of_quotients_and_remainders(golden: Golden) -> None:
    """Digits that belong together become one number again, and only those."""
    facts = known()
    u = X * 5 + Y + 1
    found: list[Expr] = []
    for a, c, f in itertools.product((2, 3, 4), (-3, 1, 2, 3, 4, 6, 12), (-1, 1, 2, 3)):
        found.append(u // a * c + u % a * f)
    for a, b, c, f in itertools.product((2, 3), (2, 3), (2, 3, 4, 6), (1, 2)):
        found.append(u // a % b * c + u % a * f)
    for c, f in itertools.product((-3, -1, 1, 3), (-2, -1, 1, 3)):
        found.append(u * c + u // 3 * f * 3)
        found.append((u // N * N * f + u * c) + Y)
        found.append(u // N * N * c + u % N * f)
        found.append(u // N % 3 * N * c + u % N * f + X)
        found.append((u % 3 + u % 2 * 3) * c + u // 3 * f)
        found.append(u // (N + 1) * N * c + u // (N + 1) * f + u % (N + 1) * c)  # all of the quotient, or a part
    golden("normal_sums.txt", "\n".join(lines_of(found, facts)) + "\n")


SIDES: tuple[Expr, ...] = (
    X, X + 1, X * 2, X * 4 + Y * 2, X * 3 + 1, Y, Y - X, X * N, N, N * 2 + X, X // 3, X % 3, Const(0), Const(4),
    Const(7), Const(8), Const(-1), X * 2 + Y * 2 + 2, N * 8 + Y,
)  # fmt: skip


@pytest.mark.parametrize("op", ["lt", "le", "eq", "min", "max"])
def test_comparisons(golden: Golden, op: str) -> None:
    found = [Binary(op, a, b) for a, b in itertools.permutations(SIDES, 2)]
    golden(f"normal_{op}.txt", "\n".join(lines_of(found, known())) + "\n")


def test_greater_is_less_the_other_way_round() -> None:
    facts = known()
    for a, b in itertools.permutations(SIDES, 2):
        assert facts.simplify(Binary("gt", a, b)) is facts.simplify(Binary("lt", b, a))
        assert facts.simplify(Binary("ge", a, b)) is facts.simplify(Binary("le", b, a))
        for op in ("eq", "ne"):
            assert facts.simplify(Binary(op, a, b)) is facts.simplify(Binary(op, b, a))
        for op, opposite in (("lt", "ge"), ("le", "gt"), ("eq", "ne"), ("ne", "eq")):
            assert facts.simplify(Not(Binary(op, a, b))) is facts.simplify(Binary(opposite, a, b))


CONDITIONS: tuple[Expr, ...] = (
    X < 3, X < 5, X >= 3, X >= 5, X * 2 < 7, X + Y < 3, X + Y >= 3, Y < 1, X < N, Binary("eq", X, Const(3)),
    Binary("ne", X, Const(3)), X + Y < 5,
)  # fmt: skip


@pytest.mark.parametrize("op", ["and", "or"])
def test_connectives(golden: Golden, op: str) -> None:
    found: list[Expr] = [Binary(op, a, b) for a, b in itertools.permutations(CONDITIONS, 2)]
    for a, b, c in itertools.combinations(CONDITIONS[:7], 3):
        found.append(Binary(op, Binary(op, a, b), c))
        found.append(Binary("and" if op == "or" else "or", Binary(op, a, b), c))
    golden(f"normal_{op}.txt", "\n".join(lines_of(found, known())) + "\n")


def test_under_a_condition(golden: Golden) -> None:
    """Each side of a select is simplified with what its condition says; so is what is asked inside ``assuming``."""
    lines: list[str] = []
    asked = [X // 4, X % 4, minimum(X, 3), maximum(X, Const(4)), (X + Y) // 8, X - 3, (X * N) // (N * 4)]
    for given in CONDITIONS:
        found: list[Expr] = [Select(given, e, Const(0)) for e in asked] + [Select(given, Const(0), e) for e in asked]
        found += [Select(given, Select(other, X, Y), N) for other in CONDITIONS[:4]]
        lines += lines_of(found, known())
        facts = known()
        places = [p for p in PLACES if bool(np.all(exact(given, points([p]))))]
        with facts.assuming(given):
            lines += ["", f"if {to_text(given)}", *lines_of([*asked, *CONDITIONS], facts, places), ""]
        assert facts.simplify(given) is known().simplify(given) or not isinstance(facts.simplify(given), Const)
    golden("normal_under.txt", "\n".join(lines) + "\n")


def test_answers_about_expressions(golden: Golden) -> None:
    """Bounds hold all values, and are the ones in the golden file."""
    facts, lines, at = known(), [], points(PLACES)
    for e in dict.fromkeys((*TERMS, *SIDES, *(p // d for p in TERMS for d in DIVISORS[3:6]))):
        values = exact(e, at) + np.zeros(len(PLACES), np.int64)
        within, least, greatest = facts.bounds(e), facts.minimum(e), facts.maximum(e)
        assert within.lo <= values.min() and values.max() <= within.hi, e
        assert least is None or least <= values.min()
        assert greatest is None or greatest >= values.max()
        assert not facts.nonnegative(e) or values.min() >= 0
        assert not facts.equal(e, 0) or not values.any()
        factors, constant = facts.terms(e)
        sum_ = sum((t * f for t, f in factors.items()), Const(constant))
        assert np.all(exact(sum_, at) == values)
        told = [f"{within.lo}..{within.hi}", f"{least}..{greatest}", "+" if facts.nonnegative(e) else ""]
        for moving in ((X,), (Y,), (X, Y)):
            swept = facts.sweep(e, moving)
            if swept is None:
                told.append("?")
                continue
            low, width = exact(swept.low, at), exact(swept.width, at)
            assert np.all(low <= values) and np.all(values <= low + width)
            told.append(f"{to_text(swept.low)} … + {to_text(swept.width)}")
            form = facts.linear(e, *moving)
            if form is not None:
                parts = sum((v * f for v, f in form[0].items()), form[1])
                assert np.all(exact(parts, at) == values)
                told.append(f"{ {v.name: f for v, f in form[0].items()} } + {to_text(form[1])}")
        lines.append(f"{to_text(e)}: " + "; ".join(told))
    golden("normal_answers.txt", "\n".join(lines) + "\n")


VECTORS: tuple[Expr, ...] = (
    Ramp(X, Const(1), 4), Ramp(X * 4, Const(1), 4), Ramp(X, Const(4), 4), Ramp(X, Const(-1), 4), Ramp(X, Y, 4),
    Ramp(Const(0), Const(3), 4), Broadcast(X, 4), Broadcast(Const(3), 4), Broadcast(Const(40), 4),
)  # fmt: skip


def test_vectors(golden: Golden) -> None:
    found: list[Expr] = []
    for op in ("add", "sub", "mul", "min", "max", "lt", "le"):
        found += [Binary(op, a, b) for a, b in itertools.product(VECTORS, VECTORS)]
    others = [Ramp(N * X, N, 4), Ramp(X * 8, Const(8), 4), Ramp(X * 4, Const(2), 2), Ramp(X % 4, Const(1), 4)]
    for op, d in itertools.product(("floordiv", "floormod"), (Const(1), Const(3), Const(4), Const(8), N)):
        found += [Binary(op, a, Broadcast(d, a.lanes)) for a in (*VECTORS[:6], *others)]
    found += [Binary(op, VECTORS[0], b) for op in ("gt", "ge", "eq", "ne") for b in VECTORS]
    golden("normal_vectors.txt", "\n".join(lines_of(found, known())) + "\n")


@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "min", "max", "floordiv", "floormod", "lt", "gt", "le", "ge", "eq", "ne"]
)
def test_vectors_that_are_no_sequences(op: str) -> None:
    """Lanes without one stride, on either side or both, keep their values."""
    others = [VECTORS[0] * VECTORS[0] + 1, Ramp(X, Const(1), 4) % 3 + 1, maximum(VECTORS[0], Broadcast(Const(2), 4))]
    pairs = [p for v in others for w in (*VECTORS[:3], Broadcast(N, 4), *others) for p in ((v, w), (w, v))]
    if op in ("floordiv", "floormod"):
        pairs = [(a, maximum(b, Broadcast(Const(1), 4))) for a, b in pairs] + [(v, Broadcast(N, 4)) for v in others]
    assert len(list(lines_of([Binary(op, a, b) for a, b in pairs], known()))) > 20


def test_vectors_of_conditions(golden: Golden) -> None:
    conditions = [Broadcast(Const(v, BOOL), 4) for v in (True, False)]
    conditions += [Broadcast(X < 3, 4), VECTORS[0] < VECTORS[6], VECTORS[3] < VECTORS[7]]
    found: list[Expr] = [Binary(op, a, b) for op in ("and", "or") for a, b in itertools.product(conditions, conditions)]
    found += [Select(c, a, b) for c in conditions for a, b in itertools.permutations(VECTORS[6:9], 2)]
    found += [Not(c) for c in conditions]
    golden("normal_lane_conditions.txt", "\n".join(lines_of(found, known())) + "\n")


@pytest.mark.parametrize(
    ("state", "low", "high"),
    [
        (lambda f: f.bind(X), 0, None),
        (lambda f: f.bind(X, 3), 3, None),
        (lambda f: f.bind(X, 3, 4), 3, 6),
        (lambda f: f.bind(X, extent=4), 0, 3),
        (lambda f: f.bind(X, N, 4), 1, None),
        (lambda f: f.bind(X, 0, N), 0, None),
        (lambda f: f.bind(IterVar(X, Const(5), start=Const(2))), 2, 6),
        (lambda f: f.bind_size(X), 1, None),
        (lambda f: f.bind_size(X, 0), 0, None),
        (lambda f: f.bind_size(X, 7), 7, None),
        (lambda f: f.assume(X < 9), None, 8),
        (lambda f: f.assume((X < 9) & (X > 2)), 3, 8),
        (lambda f: f.assume(Binary("eq", X, Const(4))), 4, 4),
        (lambda f: f.assume(True), None, None),
    ],
)
def test_what_is_stated_is_known_and_no_more(state: Callable[[Facts], None], low: int | None, high: int | None) -> None:
    facts = Facts([N])
    copied, empty = facts.copy(), facts.copy()
    with facts.scope():
        state(facts)
        assert (facts.minimum(X), facts.maximum(X)) == (low, high)
        inherited = facts.copy()
        with facts.binding(Y, X, 1):
            assert facts.minimum(Y) == low
        assert facts.minimum(Y) is None
    assert (facts.minimum(X), facts.maximum(X)) == (None, None), "forgotten with the scope"
    assert (inherited.minimum(X), inherited.maximum(X)) == (low, high)
    state(copied)
    assert (copied.minimum(X), copied.maximum(X)) == (low, high)
    assert (empty.minimum(X), empty.maximum(X)) == (None, None) == (facts.minimum(X), facts.maximum(X))
    assert empty.minimum(N) == 1


def test_a_loop_of_one_step_keeps_its_variable_if_it_is_to() -> None:
    for keeps in (False, True):
        facts = Facts(keeps_variables=keeps)
        facts.bind(X, 3, 1)
        assert (facts.simplify(X) is X) == keeps
        assert facts.bounds(X) == (3, 3)


def test_what_is_equal_and_what_is_not() -> None:
    facts = known()
    assert facts.equal(Const(0), 0) and not facts.equal(Const(1), 0) and not facts.equal(X, 0)
    assert facts.equal(X - X, 0) and facts.equal(X + Y, Y + X)
    assert facts.equal(X, X) and not facts.equal(X, Y) and not facts.equal(X, X + 1)


def test_a_call_that_is_assumed_is_true_and_says_nothing_of_its_arguments() -> None:
    """``likely`` alone means its argument."""
    given, number = Var("b", BOOL), Var("z", DType("float32"))
    small = Binary("lt", X, Const(5))
    for e in (given, small):
        facts = Facts()
        facts.assume(Call("likely", (Call("likely", (e,), BOOL),), BOOL))
        assert facts.simplify(e) == Const(True, BOOL)
    for call, inside in ((Call("isnan", (number,), BOOL), number), (Call("isinf", (number,), BOOL), number)):
        facts = Facts()
        facts.assume(call)
        assert facts.simplify(call) == Const(True, BOOL)
        assert facts.simplify(inside) is inside


def test_a_condition_that_is_a_call_holds_where_it_selects() -> None:
    small, kind = Binary("lt", X, Const(5)), DType("float32")
    missing = Call("isnan", (Var("z", kind),), BOOL)
    one, two, three = (Const(n) for n in (1, 2, 3))
    for condition, inside in ((Call("likely", (small,), BOOL), small), (missing, missing)):
        found = Facts().simplify(Select(condition, Select(inside, one, two), three))
        assert isinstance(found, Select) and (found.then, found.otherwise) == (one, three), to_text(found)
        deeper = Facts().simplify(Select(condition, Select(inside, Y, X) * Y + 1, Const(0)))
        assert isinstance(deeper, Select) and deeper.then is Facts().simplify(Y * Y + 1), to_text(deeper)
    fails = Facts().simplify(Select(missing, Const(0), Select(missing, X, Y) * Y + 1))
    assert isinstance(fails, Select) and fails.otherwise is Facts().simplify(Y * Y + 1), to_text(fails)


@pytest.mark.parametrize("constant", [(1 << 63) + 9, -(1 << 63) - 9, (1 << 63) - 1, -(1 << 63)])
def test_comparisons_whose_constants_together_need_more_than_64_bits(constant: int) -> None:
    """``a + c >= b - d``: the sum of the numbers is spread over both sides."""
    c, d = constant // 2, constant - constant // 2
    made = Facts([]).simplify(X + c >= Y - d)
    for x, y in itertools.product((0, 7, 1 << 62, -(1 << 62)), repeat=2):
        if all(-(1 << 63) <= v < 1 << 63 for v in (x + c, y - d)):
            assert bool(evaluate(made, {X: x, Y: y})) == (x + c >= y - d), (x, y)
