"""Templates: knobs that are found by running them, and schedules that are used without them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from kernel_runner import run_program
from tuned_kernels import product

from weft.ir.structural import structural_hash
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError, UserError
from weft.tir.text import parse
from weft.tune.measure.bench import Bench
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome
from weft.tune.space import Point, Space
from weft.tune.template import Knobs, TemplateSketch

TASK = product(12, 16, 10, target="cpu")
QUICK = Limits(seconds=0.001)


def tiled(cfg: Knobs, s: Schedule) -> None:
    """A template with a knob of every kind. ``packed`` and the split of ``k`` depend on a decision."""
    (block,) = s.get_blocks()
    i, j, k = s.get_loops(block)
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_factor("j", j, (3, 5, 8), default=8)
    order = cfg.define_reorder("order", (i1, k, j1), before=(i0, j0))
    cfg.define_annotate("inner", order[-1:], kinds=("none", "unroll"))
    cfg.define_annotate("outer", (i0,), kinds=("none", "parallel", "unroll"))
    cfg.define_knob("text", ("a", "b"))
    if cfg.define_knob("steps", (0, 2, 5)):
        cfg.define_knob("only then", (1, 2, 3), default=2)


def space_of(function: Callable[[Knobs, Schedule], None], n: int = 12) -> Space:
    return Space((TemplateSketch(product(n, 16, 10, target="cpu").program, function),))


def looped(function: Callable[[Knobs, Schedule, list[object]], object]) -> Callable[[Knobs, Schedule], None]:
    """A template that has the loops of the product."""

    def template(cfg: Knobs, s: Schedule) -> None:
        function(cfg, s, list(s.get_loops("out")))

    return template


SPACE = space_of(tiled)


def test_the_default_run_finds_the_knobs() -> None:
    knobs = {k.name: k for k in SPACE.sketches[0].knobs}
    assert list(knobs) == ["i", "j", "order", "inner", "outer", "text", "steps"]
    assert knobs["i"].values == ((12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12))
    assert knobs["i"].values[knobs["i"].default] == (1, 12)
    assert (knobs["j"].values, knobs["j"].default) == ((3, 5, 8), 2)
    assert len(knobs["order"].values) == 6
    assert knobs["outer"].values == ("none", "parallel", "unroll")
    assert SPACE.size == 6 * 3 * 6 * 2 * 3 * 2 * 3


def test_a_sketch_is_named_after_its_function_or_its_title() -> None:
    assert SPACE.sketches[0].name == "tiled"
    assert TemplateSketch(TASK.program, tiled, title="mine").name == "mine"


def test_points_are_found_again_by_their_traces() -> None:
    rng = Random(0)
    points = [SPACE.sample(rng) for _ in range(60)]
    assert {SPACE.sketches[0].knobs[4].values[p.positions[4]] for p in points} == {"none", "parallel", "unroll"}
    assert [SPACE.point(SPACE.trace(p)) for p in points] == points


def test_traces_need_no_template() -> None:
    rng = Random(1)
    for _ in range(10):
        point = SPACE.sample(rng)
        s = Schedule(TASK.program)
        decisions = {k.name: k.values[p] for k, p in zip(SPACE.knobs(point), point.positions, strict=True)}
        tiled(Knobs(s, decisions), s)
        replayed = Schedule(TASK.program).replay(SPACE.trace(point)).program
        assert structural_hash(replayed) == structural_hash(s.program)


def test_the_default_point_is_the_default_run() -> None:
    s = Schedule(TASK.program)
    tiled(Knobs(s, {}), s)
    assert SPACE.trace(SPACE.default()) == s.trace


def test_a_schedule_of_a_similar_kernel_gives_the_nearest_point() -> None:
    other = space_of(tiled, n=20)
    point = other.default().changed(0, [v for v, _ in other.sketches[0].knobs[0].values].index(5)).changed(4, 2)
    found = SPACE.point(other.trace(point))
    assert found is not None
    assert SPACE.knobs(found)[0].values[found.positions[0]] == (3, 4)
    assert found.positions[1:] == point.positions[1:]


def test_schedules_of_other_makes_are_of_no_template() -> None:
    s = Schedule(TASK.program)
    s.split(s.get_loops("out")[0], factors=(None, 4))
    assert SPACE.point(s.trace) is None
    assert (
        space_of(looped(lambda cfg, s, loops: cfg.define_split("k", loops[2]))).point(SPACE.trace(SPACE.default()))
        is None
    )


def test_candidates_that_depend_on_decisions_are_the_nearest() -> None:
    def twice(cfg: Knobs, s: Schedule) -> None:
        _, inner = cfg.define_split("i", s.get_loops("out")[0], default=(1, 12))
        cfg.define_split("again", inner)

    made = space_of(twice)
    first, again = made.sketches[0].knobs
    assert (len(first.values), len(again.values)) == (6, 6)
    point = Point(0, (first.values.index((3, 4)), again.values.index((4, 3))))
    trace = made.trace(point)
    assert [d.decision for d in trace.decisions] == [(3, 4), (1, 4)]  # 4 divides into no inner loop of 3
    found = made.point(trace)
    assert found is not None
    assert made.trace(found) == trace


def test_the_decisions_of_the_template_itself_are_no_knobs() -> None:
    def drawing(cfg: Knobs, s: Schedule) -> None:
        s.sample_choice((1, 2), decision=1)
        cfg.define_knob("own", (7, 8, 9))

    made = space_of(drawing)
    assert [k.name for k in made.sketches[0].knobs] == ["own"]
    assert [made.point(made.trace(p)) for p in made.points()] == list(made.points())


def test_a_template_without_knobs_is_one_point() -> None:
    made = space_of(lambda cfg, s: cfg.define_knob("alone", (3,)) and None)
    assert list(made.points()) == [Point(0, ())]
    assert made.point(made.trace(Point(0, ()))) == Point(0, ())


def test_define_knob_starts_with_its_default() -> None:
    seen: list[object] = []
    made = space_of(lambda cfg, s: seen.append(cfg.define_knob("k", (4, 8, 16), default=8)))
    assert made.default().positions == (1,)
    made.trace(Point(0, (2,)))
    assert seen == [8, 16]


def test_define_split_limits_the_innermost_loop() -> None:
    made = space_of(
        looped(lambda cfg, s, loops: cfg.define_split("i", loops[0], 3, innermost_at_most=3, default=(2, 2, 3)))
    )
    (knob,) = made.sketches[0].knobs
    assert {v[-1] for v in knob.values} == {1, 2, 3}
    assert all(np.prod(v) == 12 for v in knob.values)
    assert knob.values[knob.default] == (2, 2, 3)


def test_define_annotate_does_what_it_says() -> None:
    kinds = ("none", "unroll", "vectorize", "parallel")
    made = space_of(looped(lambda cfg, s, loops: cfg.define_annotate("a", loops[:1], kinds)))
    applied = [[i.name for i in made.trace(Point(0, (p,))).instructions][2:] for p in range(4)]
    assert applied == [[], ["unroll"], ["vectorize"], ["parallel"]]


def test_define_reorder_keeps_the_loops_around() -> None:
    made = space_of(looped(lambda cfg, s, loops: cfg.define_reorder("o", (loops[0], loops[1]), after=(loops[2],))))
    program = Schedule(TASK.program).replay(made.trace(Point(0, (1,))))
    assert [loop.name for loop in program.get_loops("out")] == ["j", "i", "k"]


@pytest.mark.parametrize("seed", range(3))
def test_tiles_that_do_not_divide_give_right_results(seed: int) -> None:
    point = SPACE.sample(Random(seed)).changed(1, seed % 2)  # parts of 3 and 5 of 16 columns
    x, w = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((12, 10), (10, 16)))
    (got,) = run_program(Schedule(TASK.program).replay(SPACE.trace(point)).program, [x, w])
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)


def test_the_bench_takes_points_of_templates() -> None:
    bench = Bench(TASK, limits=QUICK)
    record = bench.trial(SPACE.trace(SPACE.default().changed(1, 0)), None, None)
    assert (record.outcome, record.message) == (Outcome.OK, "")


def test_refused_combinations_are_schedule_errors() -> None:
    made = space_of(looped(lambda cfg, s, loops: cfg.define_annotate("a", loops[2:], ("none", "parallel"))))
    made.trace(made.default())
    with pytest.raises(ScheduleError):
        made.trace(Point(0, (1,)))


OPEN = """program "rows"[n](x: f32[n, 4]) -> (out: f32[n, 4]):
  for i in serial(0, n):
    for j in serial(0, 4):
      block "out"(a: spatial n = i, b: spatial 4 = j):
        reads x[a, b]
        writes out[a, b]
        body:
          out[a, b] = x[a, b]
"""
EMPTY = OPEN.replace("[n](", "(").replace("f32[n", "f32[0").replace("serial(0, n)", "serial(0, 0)")
EMPTY = EMPTY.replace("spatial n", "spatial 0")

BAD = {
    "a name twice": (lambda c, s, loops: [c.define_knob("k", (1, 2)), c.define_knob("k", (1, 2))], "'k' twice"),
    "a name of another knob": (lambda c, s, loops: [c.define_split("k", loops[0]), c.define_knob("k", (1,))], "twice"),
    "no values": (lambda c, s, loops: c.define_knob("k", ()), "has no candidates"),
    "equal values": (lambda c, s, loops: c.define_knob("k", (1, 2, 1)), "needs different values"),
    "another default": (lambda c, s, loops: c.define_knob("k", (1, 2), default=3), "its default among them"),
    "no factors": (lambda c, s, loops: c.define_factor("k", loops[0], ()), "has no candidates"),
    "another factor": (lambda c, s, loops: c.define_factor("k", loops[0], (2, 4), default=8), "its default among them"),
    "no parts": (lambda c, s, loops: c.define_split("k", loops[0], 0), "splits into 0 loops"),
    "too many parts": (lambda c, s, loops: c.define_split("k", loops[0], 17), "splits into 17 loops"),
    "other factors": (lambda c, s, loops: c.define_split("k", loops[0], default=(5, 2)), "not have the default"),
    "no room": (lambda c, s, loops: c.define_split("k", loops[0], innermost_at_most=0), "has no candidates"),
    "one part too large": (lambda c, s, loops: c.define_split("k", loops[0], 1, 4), "has no candidates"),
    "one loop": (lambda c, s, loops: c.define_reorder("k", loops[:1]), "orders 1 loops"),
    "six loops": (lambda c, s, loops: c.define_reorder("k", loops + loops), "orders 6 loops"),
    "no kinds": (lambda c, s, loops: c.define_annotate("k", loops[:1], ()), "has no candidates"),
    "equal kinds": (lambda c, s, loops: c.define_annotate("k", loops[:1], ("none", "none")), "repeats a kind"),
    "unknown kind": (lambda c, s, loops: c.define_annotate("k", loops[:1], ("none", "vectorise")), "knows no 'vectori"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_knobs_that_cannot_be(name: str) -> None:
    function, message = BAD[name]
    with pytest.raises(UserError, match=message) as error:
        space_of(looped(function)).default()
    assert error.value.code == "U032"
    assert error.value.hint


@pytest.mark.parametrize(("text", "message"), [(OPEN, "extent is not known"), (EMPTY, "no candidates: 0 iterations")])
def test_loops_that_cannot_be_factored(text: str, message: str) -> None:
    sketch = TemplateSketch(parse(text), looped(lambda cfg, s, loops: cfg.define_split("k", loops[0])))
    with pytest.raises(UserError, match=message) as error:
        _ = sketch.knobs
    assert error.value.code == "U032"
    assert error.value.hint


def test_loops_of_unknown_extent_have_factors() -> None:
    sketch = TemplateSketch(parse(OPEN), looped(lambda cfg, s, loops: cfg.define_factor("k", loops[0], (4, 7))))
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    for point in Space((sketch,)).points():
        program = Schedule(parse(OPEN)).replay(sketch.trace(point.positions)).program
        np.testing.assert_array_equal(run_program(program, [x], [10])[0], x)
