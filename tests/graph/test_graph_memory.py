"""Orders of execution that need little memory, and stretches of memory that are placed by size and life."""

import random

import pytest
from seeds import seeds
from toy_operators import add, matmul, relu, reshape, shout

from weft.expr.nodes import index
from weft.graph import build, dims
from weft.graph.nodes import Call, If, call
from weft.graph.passes import memory
from weft.graph.passes.aliases import source
from weft.graph.passes.memory import execution_order, factor, plan_lives
from weft.support.errors import InternalError


def test_lives_that_follow_each_other_share_memory():
    lives = [(1000, i, i + 1) for i in range(9)]
    plan = plan_lives(lives)
    assert plan.total == 2 * 1024 == plan.largest == plan.assumed
    assert plan_lives([]).total == 0


def check_plan(lives: list[tuple[int, int, int]]) -> None:
    """Plan (bytes, first, last) lives: what lives at the same time is apart, and little memory is wasted."""
    plan = plan_lives(lives)
    at = [(o, o + n, first, last) for (n, first, last), o in zip(lives, plan.offsets, strict=True)]
    for i, (low, high, first, last) in enumerate(at):
        assert low % 64 == 0 and low >= 0 and high <= plan.total
        for a, b, c, d in at[:i]:
            assert high <= a or b <= low or last < c or d < first
    assert plan.total <= 1.2 * plan.largest


@pytest.mark.parametrize("seed", seeds(12))
def test_random_lives_are_safe_and_tight(seed):
    rng = random.Random(seed)
    lives = []
    for _ in range(80):
        first = rng.randrange(60)
        lives.append((rng.choice((1, 64, 100, 640, 4096)), first, first + rng.randrange(rng.choice((3, 3, 20)))))
    check_plan(lives)


@pytest.mark.parametrize("longest", [1, 30, 60])
def test_many_lives_at_once_are_safe_and_tight(longest, monkeypatch):
    """With very many alive at once, no list of all pairs is made."""
    monkeypatch.setattr(memory, "_overlaps", None)
    rng = random.Random(longest)
    lives = [(rng.choice((0, 1, 64, 100, 640, 4096)), rng.randrange(30)) for _ in range(900)]
    lives = [(n, first, 40 + rng.randrange(longest)) for n, first in lives]
    lives += [(64, 100 + i, 100 + i) for i in range(100)]
    check_plan(lives)


def test_gaps_join_again():
    rng = random.Random(0)
    gaps, taken = memory._Gaps(), []
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            gaps.give(*taken.pop(rng.randrange(len(taken))))
        else:
            size = rng.randrange(1, 50)
            start = gaps.take(size)
            assert all(start + size <= s or s + n <= start for s, n in taken) and start + size <= gaps.total
            taken.append((start, size))
    for start, size in taken:
        gaps.give(start, size)
    assert gaps.take(gaps.total) == 0


def test_symbolic_sizes_are_planned_in_units():
    n = build.size("n")
    sizes = [n * 64, 100, n * 64, n * 128, 200, index(n) * 64]
    plan = plan_lives([(s, i, i + 1) for i, s in enumerate(sizes)])
    assert dims.evaluate(plan.total, {n: 5}) == 3 * 64 * 5 + 128 + 256 - 128
    assert plan.assumed == dims.evaluate(plan.total, {n: 16})
    assert factor(n * 4 * 16)[0] == 64 and factor(7) == (7, None)


def test_five_thousand_lives_are_planned():
    assert plan_lives([(1024, i, i + 1) for i in range(5000)]).total == 2048


def test_views_are_where_their_operand_is():
    x = build.var("x", (4, 16))
    a = call(relu, [x])
    view = call(reshape, [a], {"shape": (64,)})
    b = call(relu, [view])
    assert execution_order(build.function([x], b)) == (a, b)
    assert source(view) == (a, 0)


def largest(order, results):
    """The most bytes alive at one step, of calls whose operands are calls or constants."""
    last = {c: i for i, e in enumerate(order) for c in e.args if isinstance(c, Call)}
    last.update((r, len(order)) for r in results)
    size = lambda e: dims.evaluate(e.tensor.shape[0], {}) * e.tensor.shape[1] * 4  # noqa: E731
    return max(sum(size(e) for e in order[: i + 1] if last.get(e, i) >= i) for i in range(len(order)))


def test_order_keeps_effects_and_lowers_the_peak():
    x = build.var("x", (1, 16))
    big = lambda e: call(add, [e, build.constant([[0.0]] * 64)])  # noqa: E731
    parts = [call(matmul, [build.constant([[0.0] * 64]), big(call(relu, [x]))]) for _ in range(4)]
    e = parts[0]
    for p in parts[1:]:
        e = call(add, [e, p])
    order = execution_order(build.function([x], e))
    for at, one in enumerate(order):
        assert all(a in order[:at] for a in one.args if isinstance(a, Call))
    assert largest(order, [e]) < 2 * 64 * 64 + 2048
    loud = build.function([x], [call(shout, [x]), call(shout, [call(relu, [x])])])
    assert [c.target.name for c in execution_order(loud)] == ["shout", "relu", "shout"]


def test_control_flow_has_no_one_order():
    x, c = build.var("x", (4, 16)), build.var("c", (), "bool")
    f = build.function([x, c], If(c, call(relu, [x]), x, x.type))
    with pytest.raises(InternalError, match="control flow"):
        execution_order(f)
