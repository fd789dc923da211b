"""Search strategies on synthetic landscapes: no kernel is built."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from random import Random
from time import perf_counter

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic import Known, Speed, choice, order, record_of, searched, sketch, space, terraces, tile

from weft.support.errors import UserError
from weft.tune.encoding import Encoding
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import STRATEGIES, strategy_named
from weft.tune.search.beam import BeamSearch
from weft.tune.search.described import KnobRows
from weft.tune.search.guides import MIN_SEEN, LearnedGuide
from weft.tune.search.history import History, Trial
from weft.tune.search.q_learning import Network, stepped
from weft.tune.search.refine import DraftVerifyRefine
from weft.tune.search.simple import RandomSearch
from weft.tune.search.strategy import Strategy
from weft.tune.space import Knob, Point, Space

ALL = pytest.mark.parametrize("name", STRATEGIES)
SEEDS = range(5)
GUIDES = pytest.mark.parametrize("guided", [False, True], ids=["alone", "guided"])


def small() -> Space:
    """38 points of three sketches, one of which has a single point."""
    return Space((sketch(choice(1, 2, 4), tile(12, 2), choice("a", "b")), sketch(), sketch(choice(*range(1)))))


def guide_of(made: Space, guided: bool) -> Known | None:
    return Known(lambda p: 1.0 + sum(p.positions), noise=0.1) if guided else None


@ALL
@GUIDES
def test_small_spaces_are_exhausted_once(name: str, guided: bool) -> None:
    made = small()
    history = searched(STRATEGIES[name], made, lambda p: 1.0 + sum(p.positions), 500, guide=guide_of(made, guided))
    assert set(history.by_point) == set(made.points())
    assert len(history.trials) == made.size == 38


@ALL
@GUIDES
def test_a_space_of_the_default_point_alone_ends_at_once(name: str, guided: bool) -> None:
    made = space()
    guide = guide_of(made, guided)
    assert searched(STRATEGIES[name], made, lambda p: 1.0, 50, guide=guide, default=True).trials == []
    assert len(searched(STRATEGIES[name], made, lambda p: 1.0, 50, guide=guide).trials) == 1


@ALL
@GUIDES
def test_searches_survive_that_all_points_fail(name: str, guided: bool) -> None:
    made = space(choice(1, 2, 3), tile(8, 2), order(3))
    guide = Known(lambda p: 0.0) if guided else None
    history = searched(STRATEGIES[name], made, lambda p: 0.0, 200, guide=guide, default=True)
    assert len(history.trials) == made.size - 1
    assert history.best is None
    assert history.best_record is history.baseline


@ALL
def test_the_same_seed_takes_the_same_way(name: str) -> None:
    made, speed = terraces()

    def way(seed: int) -> list[Point]:
        guide = Known(speed, noise=0.5)
        return [t.point for t in searched(STRATEGIES[name], made, speed, 24, guide=guide, seed=seed).trials]

    first = way(1)
    assert len(first) == 24
    assert way(1) == first
    if name not in ("grid", "descent", "beam"):  # these draw little or nothing
        assert way(2) != first


@pytest.mark.thinned(2)
@ALL
@pytest.mark.parametrize("batch", [1, 3])
def test_batches_of_any_size(name: str, batch: int) -> None:
    made, speed = terraces()
    history = searched(STRATEGIES[name], made, speed, 10, guide=Known(speed), batch=batch, default=True)
    assert len(history.trials) == 10


@ALL
def test_strategies_are_told_of_points_that_they_did_not_propose(name: str) -> None:
    made, speed = terraces()
    history = History(record_of(1.0))
    strategy = STRATEGIES[name](made, history, Random(0))
    rng = Random(7)
    known = [history.add(p, record_of(speed(p))) for p in dict.fromkeys(made.sample(rng) for _ in range(20))]
    strategy.tell(known)  # what another run measured, before anything was asked for
    strategy.tell([])
    for _ in range(3):
        points = strategy.ask(8)
        assert points
        assert not any(history.tried(p) for p in points)
        more = [made.sample(rng)]
        strategy.tell([history.add(p, record_of(speed(p))) for p in dict.fromkeys([*points, *more])])


def reached(name: str, trials: int, noise: float | None, seed: int) -> float:
    made, speed = terraces()
    guide = None if noise is None else Known(speed, noise)
    return searched(STRATEGIES[name], made, speed, trials, guide=guide, seed=seed, default=True).best_score


@cache
def median(name: str, trials: int, noise: float | None = None) -> float:
    return statistics.median(reached(name, trials, noise, seed) for seed in SEEDS)


@pytest.mark.parametrize("name", ["refine", "annealing", "evolutionary", "beam"])
def test_a_guide_that_knows_much_makes_searches_better_than_random_ones(name: str) -> None:
    assert median("random", 32) < 5.0
    assert median(name, 32, noise=0.4) > 1.25 * median("random", 32)


@pytest.mark.parametrize("name", ["refine", "descent", "genetic", "neighbours"])
def test_searches_that_go_from_good_points_are_better_than_random_ones(name: str) -> None:
    assert median(name, 160) > 1.08 * median("random", 160)


def test_q_learning_is_no_worse_than_random_search() -> None:
    assert median("q-learning", 160) > median("random", 160)


@pytest.mark.parametrize("name", ["refine", "beam", "evolutionary", "annealing"])
def test_a_perfect_guide_leads_to_the_best_point(name: str) -> None:
    assert reached(name, 24, 0.0, 0) > 7.5


def test_refining_finds_what_the_guide_denies() -> None:
    made, speed = terraces()
    wrong = Known(lambda p: 1 / max(speed(p), 0.01), noise=0.1)
    assert searched(STRATEGIES["beam"], made, speed, 100, guide=wrong, default=True).best_score < 2
    found = searched(STRATEGIES["refine"], made, speed, 100, guide=wrong, seed=1, default=True).best_score
    assert found > 1.2 * reached("random", 100, None, 1)


def test_beam_search_finds_the_optimum_of_a_separable_guide() -> None:
    made = space(*(choice(*range(30)) for _ in range(6)), choice(*(f"t{i}" for i in range(9))))
    best = Random(3).sample(range(9), 7)
    guide = Known(lambda p: 2.0 ** -sum(abs(a - b) for a, b in zip(p.positions, best, strict=True)) + 1e-30)
    guide.score = lambda points: np.array(  # type: ignore[method-assign]
        [-sum(abs(a - b) for a, b in zip(p.positions, best, strict=True)) for p in points], np.float64
    )
    (first,) = BeamSearch(made, History(record_of(1.0)), Random(0), guide).ask(1)
    assert first.positions == tuple(best)


def test_a_learned_guide_beats_random_search() -> None:
    made, speed = terraces()

    def found(seed: int) -> float:
        encoding = Encoding(made)
        model = BoostedTrees(encoding.columns, BoostingOptions(seed=seed))
        guide = LearnedGuide(KnobRows(encoding), model)
        assert not guide.ready
        score = searched(STRATEGIES["refine"], made, speed, 64, guide=guide, seed=seed, default=True).best_score
        assert guide.ready
        return score

    assert statistics.median(found(seed) for seed in range(3)) > 1.15 * median("random", 64)


def test_a_learned_guide_is_silent_until_it_has_seen_enough() -> None:
    made, speed = terraces()
    encoding = Encoding(made)
    guide = LearnedGuide(KnobRows(encoding), BoostedTrees(encoding.columns, BoostingOptions()))
    points = [made.sample(Random(i)) for i in range(MIN_SEEN)]
    history = History(record_of(1.0))
    trials = [history.add(p, record_of(speed(p))) for p in points]
    guide.learn([])
    assert guide.score(points).tolist() == [0.0] * MIN_SEEN
    guide.learn(trials[:-1])
    assert not guide.ready
    guide.learn(trials[-1:])
    assert guide.ready
    assert np.ptp(guide.score(points)) > 0


def test_large_spaces_take_no_longer() -> None:
    """A guard against work for every point of a space: such a search would not end."""
    made = space(*(choice(*range(12)) for _ in range(12)), tile(720, 4))
    for name in STRATEGIES:
        begin = perf_counter()
        history = searched(STRATEGIES[name], made, lambda p: 1 + sum(p.positions), 16, guide=guide_of(made, True))
        assert len(history.trials) == 16
        assert perf_counter() - begin < 30, name


def test_strategies_by_name() -> None:
    assert strategy_named("refine") is next(iter(STRATEGIES.values()))
    assert {s.name for s in STRATEGIES.values()} == set(STRATEGIES)
    with pytest.raises(UserError, match="no strategy 'refined'") as error:
        strategy_named("refined")
    assert error.value.code == "U033"
    assert "refine" in (error.value.hint or "")


# -- parts ----------------------------------------------------------------------------------------------------------


class Repeating(Strategy):
    """Proposes what was tried, and the same point twice."""

    def proposed(self, count: int) -> list[Point]:
        return [*self.history.by_point, *self.space.points(), *self.space.points()]


def test_asking_leaves_out_what_was_tried_or_comes_twice() -> None:
    made = small()
    history = History(record_of(1.0))
    strategy = Repeating(made, history, Random(0))
    history.add(made.default(), record_of(1.0))
    points = strategy.ask(100)
    assert len(points) == len(set(points)) == made.size - 1
    assert len(strategy.ask(5)) == 5


def test_fresh_points_are_all_that_is_left() -> None:
    made = small()
    strategy = RandomSearch(made, History(record_of(1.0)), Random(0))
    assert set(strategy.fresh(100)) == set(made.points())
    assert strategy.fresh(0) == []
    for point in list(made.points())[3:]:
        strategy.history.add(point, record_of(1.0))
    assert set(strategy.fresh(1)) < set(strategy.fresh(100)) == set(list(made.points())[:3])


def test_scores_follow_the_ratio_to_the_best_of_their_moment() -> None:
    history = History(TrialRecord(None, Outcome.OK, 1.0))

    def add(i: int, **given: float) -> float:
        return history.add(Point(0, (i,)), TrialRecord(None, Outcome.OK, **given)).score  # type: ignore[arg-type]

    def settle(relative: float) -> float:
        (trial,) = history.unsettled
        return history.settle(trial, TrialRecord(None, Outcome.OK, 3.0, relative=relative)).score

    assert add(0, seconds=0.5, relative=0.5) == 2.0 and history.best is None
    assert settle(0.5) == 2.0 and history.best_score == 2.0
    assert add(1, seconds=4.0, relative=0.8) == 2.5  # the machine is slower now
    assert settle(0.4) == 2.5
    assert add(2, seconds=0.8) == 1.25  # of another run
    assert add(3, seconds=9.0, relative=2.0) == 1.25
    assert history.best is history.by_point[Point(0, (1,))]
    assert add(6, seconds=1.0, relative=0.5) == 5.0 and settle(0.625) == 1.6, "it was luck"
    assert history.best is history.by_point[Point(0, (1,))] and not history.unsettled
    slow = history.add(Point(0, (4,)), TrialRecord(None, Outcome.SLOW, 10.0))
    failed = history.add(Point(0, (5,)), TrialRecord(None, Outcome.CRASHED))
    assert (slow.score, failed.score) == (0.1, 0.0)
    assert [t.score for t in history.top(9)] == [2.5, 2.0, 1.6, 1.25, 1.25, 0.1]
    assert history.top(1) == [history.best]


def test_stopped_trials_never_become_the_best() -> None:
    history = History(TrialRecord(None, Outcome.OK, 1.0))
    history.add(Point(0, (0,)), TrialRecord(None, Outcome.SLOW, 0.1))
    assert (history.best, history.best_score) == (None, 1.0)


def test_the_network_learns_a_function() -> None:
    rng = np.random.default_rng(0)
    network = Network(2, 3, seed=1)
    x = rng.uniform(-1, 1, (256, 2))
    output = rng.integers(0, 3, 256)
    wanted = np.choose(output, [x[:, 0] * x[:, 1], np.abs(x[:, 0]), 0.5 - x[:, 1]])

    def error() -> float:
        return float(np.abs(network(x)[np.arange(256), output] - wanted).mean())

    before = error()
    for _ in range(800):
        network.train(x, output, wanted)
    assert before > 0.25
    assert error() < 0.03


def test_training_one_output_leaves_the_rest_of_the_row_alone() -> None:
    network = Network(3, 2, seed=0)
    x = np.array([[0.5, -0.5, 1.0]])
    for _ in range(300):
        network.train(x, np.array([1]), np.array([0.7]))
    assert abs(float(network(x)[0, 1]) - 0.7) < 0.02


def test_steps_of_directions() -> None:
    knobs = (Knob("n", (1, 2, 4), 0), Knob("t", ("a", "b", "c"), 0))
    assert stepped(knobs, Point(0, (1, 1)), (0, 1)) == Point(0, (2, 1))
    assert stepped(knobs, Point(0, (2, 1)), (0, 1)) is None
    assert stepped(knobs, Point(0, (0, 1)), (0, -1)) is None
    circle = [stepped(knobs, Point(0, (0, p)), (1, 1)) for p in range(3)]
    assert circle == [Point(0, (0, 1)), Point(0, (0, 2)), Point(0, (0, 0))]
    assert stepped(knobs, Point(0, (0, 0)), (1, -1)) == Point(0, (0, 2))


def four_sketches() -> Space:
    return Space(tuple(sketch(choice(*range(8)), choice(*range(8)), name=n) for n in "abcd"))


class Promising(Known):
    """A guide that also says something about the sketches."""

    def __init__(self, speed: Speed, speeds: list[float]) -> None:
        super().__init__(speed)
        self.speeds = speeds

    def sketches(self) -> NDArray[np.float64]:  # type: ignore[override]
        return np.log(np.maximum(self.speeds, 1e-9))


def test_a_search_begins_with_the_defaults_of_promising_sketches() -> None:
    made, asked = four_sketches(), [0]

    class Counting(Promising):
        def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
            asked[0] += 1
            return super().score(points)

    guide = Counting(lambda p: 1.0, [1.0, 0.1, 0.5, 2.0])
    history = History(record_of(1.0))
    history.by_point[made.default()] = Trial(made.default(), record_of(1.0), 1.0)
    strategy = DraftVerifyRefine(made, history, Random(0), guide)
    assert strategy.ask(8) == [made.default(3), made.default(2)]
    assert asked[0] == 0  # nothing else was looked at


def test_sketches_that_stay_behind_are_given_up() -> None:
    """They get a trial or two, and the best sketch gets the rest; that of the default schedule is never given up."""
    made = four_sketches()
    speeds = [0.5, 0.6, 0.95, 1.0]

    def speed(point: Point) -> float:
        return speeds[point.sketch] * (2.0 - 0.1 * abs(point.positions[0] - 5) - 0.1 * abs(point.positions[1] - 3))

    history = searched(DraftVerifyRefine, made, speed, 64, guide=Promising(speed, [1.0] * 4), default=True)
    counts = [sum(t.point.sketch == n for t in history.trials) for n in range(4)]
    assert counts[1] <= 6 and counts[3] > 16
    assert history.best is not None and history.best.point == Point(3, (5, 3))
    speeds[2] = 0.7
    doubted = searched(DraftVerifyRefine, made, speed, 64, guide=Promising(speed, [1.0, 1.0, 0.01, 1.0]), default=True)
    assert sum(t.point.sketch == 2 for t in doubted.trials) <= 8  # random ones only
    speeds[2] = 1.5
    doubted = searched(DraftVerifyRefine, made, speed, 64, guide=Promising(speed, [1.0, 1.0, 0.01, 1.0]), default=True)
    assert doubted.best is not None and doubted.best.point.sketch == 2  # a trial says more than a prediction


def test_a_space_whose_good_sketches_are_exhausted_goes_on() -> None:
    made = Space((sketch(choice(1, 2)), sketch(choice(1, 2, 3), name="slow")))
    speed: Speed = lambda p: 2.0 if p.sketch == 0 else 0.01  # noqa: E731
    for batch in (1, 2, 8):
        history = searched(DraftVerifyRefine, made, speed, 50, guide=Known(speed), batch=batch)
        assert set(history.by_point) == set(made.points())
