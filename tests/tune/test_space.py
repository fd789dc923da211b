"""Search spaces: what a point is, which points are next to it, and what it means as a schedule."""

from __future__ import annotations

import math
from random import Random

import pytest
from synthetic import check_inside, choice, order, sketch, space, tile
from tuned_kernels import product

from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.tune.encoding import Encoding, knob_table
from weft.tune.sketches import space_of
from weft.tune.space import MAX_NEIGHBOURS, Knob, Point, Space, TraceSketch

KNOBS = {
    "numbers": choice(1, 2, 4, 8, at=2),
    "unordered numbers": choice(16, 0, 4),
    "texts": choice("none", "unroll", "vectorize"),
    "two factors": tile(96, 2, 32),
    "four factors": tile(360, 4, 8),
    "prime extent": tile(67, 3),
    "order of three": order(3, (2, 0, 1)),
    "order of five": order(5),
    "order of seven": order(7),
    "own order of seven": order(7, (6, 5, 4, 3, 2, 1, 0)),
    "many texts": choice(*(f"t{i}" for i in range(200))),
}
LARGE = space(*KNOBS.values())


def two_sketches() -> Space:
    return Space((sketch(choice(1, 2, 3), tile(12, 2), name="a"), sketch(order(3), name="b"), sketch(name="c")))


@pytest.mark.parametrize("name", KNOBS)
def test_neighbours_are_mutual_and_reach_every_candidate(name: str) -> None:
    (knob,) = sketch(KNOBS[name]).knobs
    near = [set(knob.neighbours(p)) for p in range(len(knob.values))]
    alone = knob.default if name.startswith("own") else None  # three swaps from the others, which swap two loops
    assert all(p not in found and p in near[q] for p, found in enumerate(near) for q in found if p != alone)
    reached, waiting = {knob.default}, [knob.default]
    while waiting:
        new = near[waiting.pop()] - reached
        reached |= new
        waiting += new
    assert len(reached) == len(knob.values)


def test_neighbours_are_one_step_away() -> None:
    assert Knob("n", (1, 4, 16), 0).neighbours(0) == (1,)
    assert Knob("n", (1, 4, 16), 0).neighbours(1) == (0, 2)
    factors = Knob("f", ((12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)), 0)
    assert {factors.values[p] for p in factors.neighbours(1)} == {(12, 1), (3, 4), (2, 6)}
    loops = Knob("o", ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)), 0)
    assert {loops.values[p] for p in loops.neighbours(0)} == {(0, 2, 1), (1, 0, 2), (2, 1, 0)}


def test_texts_have_a_limited_number_of_neighbours() -> None:
    (knob,) = sketch(KNOBS["many texts"]).knobs
    assert {len(knob.neighbours(p)) for p in range(200)} == {MAX_NEIGHBOURS}
    assert len(Knob("t", tuple("abc"), 0).neighbours(1)) == 2


def test_points_are_enumerated_once() -> None:
    made = two_sketches()
    points = list(made.points())
    assert made.sizes == (3 * 6, 6, 1)
    assert len(points) == len(set(points)) == made.size == 25
    for p in points:
        check_inside(made, p)


def test_every_step_stays_inside() -> None:
    rng = Random(1)
    for made in (two_sketches(), LARGE):
        for _ in range(300):
            a, b = made.sample(rng), made.sample(rng)
            check_inside(made, a)
            check_inside(made, made.crossed(rng, a, b))
            changed = made.mutated(rng, a)
            check_inside(made, changed)
            assert sum(x != y for x, y in zip(a.positions, changed.positions, strict=True)) == min(1, len(a.positions))
    for near in LARGE.neighbours(LARGE.default()):
        check_inside(LARGE, near)


def test_children_have_the_decisions_of_their_parents() -> None:
    rng, a, b = Random(2), LARGE.sample(Random(3)), LARGE.sample(Random(4))
    children = [LARGE.crossed(rng, a, b) for _ in range(50)]
    assert all(p in pair for c in children for p, *pair in zip(c.positions, a.positions, b.positions, strict=True))
    assert len(set(children)) > 40
    assert two_sketches().crossed(rng, Point(0, (0, 0)), Point(1, (0,))) == Point(0, (0, 0))


def test_far_mutations_reach_all_candidates() -> None:
    made, rng = space(choice(*range(20))), Random(0)
    assert {made.mutated(rng, Point(0, (7,)), far=1.0).positions[0] for _ in range(500)} == {*range(20)} - {7}
    assert {made.mutated(rng, Point(0, (7,)), far=0.0).positions[0] for _ in range(50)} == {6, 8}


@pytest.mark.parametrize("made", [two_sketches(), LARGE, space(), space(choice(3), choice("x", at=0))])
def test_default_points_give_the_traces_that_sketches_are_made_of(made: Space) -> None:
    for i, s in enumerate(made.sketches):
        assert made.trace(made.default(i)) == s.base  # type: ignore[attr-defined]  # a TraceSketch


def test_points_are_found_again_by_their_traces() -> None:
    rng = Random(5)
    for made in (two_sketches(), LARGE):
        points = list(made.points()) if made.size < 100 else [made.sample(rng) for _ in range(200)]
        assert [made.point(made.trace(p)) for p in points] == points


def test_equal_candidates_are_told_apart_by_their_decision() -> None:
    made = space(choice(4, 8, 4))
    assert [made.point(made.trace(p)) for p in made.points()] == list(made.points())


def test_a_decision_that_is_no_candidate_becomes_one() -> None:
    (knob,) = sketch(KNOBS["own order of seven"]).knobs
    assert knob.values[knob.default] == (6, 5, 4, 3, 2, 1, 0)
    assert len(set(knob.values)) == 1 + 1 + 21  # with the identity and all swaps


def test_single_candidates_leave_nothing_to_choose() -> None:
    made = space(choice(3), choice(1, 2), tile(1, 3))
    assert made.size == 2
    assert [k.values for k in made.knobs(made.default())] == [(1, 2)]
    alone = Knob("alone", (5,), 0)
    assert alone.neighbours(0) == ()

    class One:
        name, knobs = "one", (alone,)

    single = Space((One(),))  # type: ignore[arg-type]  # no traces are asked for
    assert single.mutated(Random(0), Point(0, (0,)), far=1.0) == Point(0, (0,))


def test_a_trace_without_decisions_is_a_space_of_one_point() -> None:
    s = Schedule(product(8, 8, 8).program)
    s.split(s.get_loops("out")[0], factors=(None, 4))
    made = Space((sketch(*s.trace.instructions),))
    assert list(made.points()) == [made.default()]
    assert made.size == 1
    assert made.trace(made.default()) == s.trace
    assert made.point(s.trace) == made.default()
    assert made.mutated(Random(0), made.default()) == made.default()
    assert made.neighbours(made.default()) == ()
    assert made.point(Trace()) is None


def test_the_nearest_candidates_stand_for_decisions_of_similar_kernels() -> None:
    here = space(choice(1, 2, 4, 8), tile(64, 2), order(3), choice("a", "b"))
    there = space(choice(1, 3, 7), tile(96, 2), order(3), choice("b", "c"))
    positions = {k.name: k.values for k in there.sketches[0].knobs}
    tiles = positions["1:tile"]

    def found(n: int, factors: tuple[int, int], text: int) -> list[object]:
        point = here.point(there.trace(Point(0, (n, tiles.index(factors), 4, text))))
        assert point is not None
        return [k.values[p] for k, p in zip(here.knobs(point), point.positions, strict=True)]

    assert found(2, (6, 16), 0) == [8, (4, 16), (2, 0, 1), "b"]
    assert found(1, (4, 24), 1)[1:] == [(2, 32), (2, 0, 1), "a"]  # 24 is nearer to 32 than to 16 in proportion
    assert found(0, (96, 1), 0)[:2] == [1, (64, 1)]


def test_default_schedules_of_similar_kernels_carry_over() -> None:
    large, small = space_of(product(96, 80, 64)), space_of(product(48, 80, 64))
    point = small.point(large.trace(large.default()))
    assert point is not None
    check_inside(small, point)
    rng = Random(0)
    for p in [small.default(), *(small.sample(rng) for _ in range(20))]:
        assert small.point(small.trace(p)) == p


def test_traces_of_other_primitives_are_of_no_sketch() -> None:
    made = two_sketches()
    assert made.point(Trace((choice(1, 2, 3),))) is None
    assert made.point(Trace((*sketch(choice(1, 2, 3), tile(12, 2)).base.instructions, choice(1, 2)))) is None


def test_errors_say_what_is_missing() -> None:
    with pytest.raises(UserError, match="has 2 candidates and no default 2") as first:
        Knob("k", (1, 2), 2)
    with pytest.raises(UserError, match="has 0 candidates") as second:
        Knob("k", (), 0)
    with pytest.raises(UserError, match="needs a sketch") as third:
        Space(())
    assert [e.value.code for e in (first, second, third)] == ["U030", "U030", "U031"]
    assert all(e.value.hint for e in (first, second, third))


def test_samples_cover_all_sketches_and_candidates() -> None:
    made, rng = two_sketches(), Random(0)
    points = {made.sample(rng) for _ in range(800)}
    assert points == set(made.points())
    assert {made.sample(rng, sketch=1).sketch for _ in range(20)} == {1}


def test_rows_tell_all_points_apart() -> None:
    made = two_sketches()
    encoding = Encoding(made)
    points = list(made.points())
    rows = encoding.rows(points)
    assert rows.shape == (25, encoding.width) == (25, len(encoding.columns))
    assert len({r.tobytes() for r in rows}) == 25
    assert encoding.rows([]).shape == (0, encoding.width)


def test_columns_of_a_knob_say_what_its_candidates_mean() -> None:
    assert knob_table(Knob("n", (0, 1, 8), 0)).tolist() == [[-1], [0], [3]]
    assert knob_table(Knob("f", ((4, 2), (8, 1)), 0)).tolist() == [[2, 1], [3, 0]]
    assert knob_table(Knob("o", ((0, 1, 2), (1, 2, 0)), 0)).tolist() == [[0, 1, 2], [2, 0, 1]]
    assert knob_table(Knob("t", ("a", "b"), 0)).tolist() == [[1, 0], [0, 1]]
    assert math.isfinite(float(knob_table(Knob("l", (-1, 0, 1), 0)).sum()))


def test_sketches_are_made_when_they_are_asked_for() -> None:
    made: list[str] = []

    def more() -> list[TraceSketch]:
        made.append("more")
        return [sketch(choice(1, 2), name="b")]

    lazy = Space((sketch(choice(1, 2, 3), name="a"),), more)
    point = lazy.default()
    assert lazy.has_choice and lazy.knobs(point) and lazy.trace(point) and not made
    assert lazy.size == 5 and [s.name for s in lazy.sketches] == ["a", "b"] and made == ["more"]
    assert lazy.sketch(1).name == "b" and lazy.default(1).sketch == 1
    alone = Space((sketch(name="a"),), more)
    assert alone.has_choice and made == ["more", "more"]
    assert not Space((sketch(name="a"),)).has_choice and not Space((sketch(name="a"),), list).has_choice
