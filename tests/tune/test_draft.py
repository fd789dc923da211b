"""The draft model: estimates of many points from a few scheduled programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from tuned_kernels import product

from weft.graph.text import parse as parse_graph
from weft.ops.catalogue import OPERATORS
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.draft.estimate import DraftMachine, estimate
from weft.tune.draft.model import FIRST_PROBES, MAX_OVER, MAX_PROBES, DraftModel
from weft.tune.draft.nests import Nests, nests_of, resolved
from weft.tune.search.guides import DraftGuide
from weft.tune.sketches import space_of
from weft.tune.space import Point, Space, TraceSketch
from weft.tune.template import Function, Knobs, TemplateSketch
from weft.tune.workloads import kernels_of_model

MACHINE = DraftMachine.of(Target("zen4"), 4)
ALONE = DraftMachine.of(Target("zen4"), 1)
PRODUCT = product(64, 96, 128).program


def tiles(cfg: Knobs, s: Schedule) -> None:
    """Tiles whose inner loops have an order."""
    i, j, k = s.get_loops("out")
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_split("j", j)
    k0, k1 = cfg.define_split("k", k)
    cfg.define_reorder("order", (i1, k1, j1), before=(i0, j0, k0))


def kinds(cfg: Knobs, s: Schedule) -> None:
    """Tiles whose outer loops have an order, and one of which may be parallel: its kind moves with it."""
    i, j, k = s.get_loops("out")
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_split("j", j)
    cfg.define_reorder("order", (i0, j0), after=(i1, j1, k))
    cfg.define_annotate("inner", (i1,), ("none", "unroll"))
    cfg.define_annotate("outer", (i0,), ("none", "parallel"))


def fused(cfg: Knobs, s: Schedule) -> None:
    """Loops that are fused in an order."""
    i, j, k = s.get_loops("out")
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_split("j", j)
    a, b = cfg.define_reorder("order", (i0, j0), after=(i1, j1, k))
    s.parallel(s.fuse(a, b))


def of_template(function: Function, program: Program = PRODUCT) -> Space:
    return Space((TemplateSketch(program, function),))


def scheduled(space: Space, program: Program, points: Sequence[Point], machine: DraftMachine = MACHINE) -> list[float]:
    """The estimates of points whose programs are really made."""
    found = []
    for point in points:
        try:
            nests = nests_of(Schedule(program).replay(space.trace(point)).program)
        except ScheduleError:
            found.append(math.inf)
            continue
        found.append(float(estimate(nests.structure, nests.numbers[None], machine)[0]))
    return found


def without_limit(space: Space, program: Program) -> DraftModel:
    """A model that looks at every structure at once."""
    model = DraftModel(space, program, MACHINE)
    model.most_probes = 10**9
    return model


def share_of_equals(space: Space, program: Program, count: int = 40, rtol: float = 1e-6) -> float:
    rng = Random(3)
    points = [space.sample(rng) for _ in range(count)]
    got = without_limit(space, program).seconds(points)
    return float(np.isclose(got, scheduled(space, program, points), rtol=rtol).mean())


def kernel(text: str, sketches: int | None = 1) -> tuple[Space, Program]:
    module = parse_graph(f"def @main({text}\n}}\n", OPERATORS)
    tasks = [k.workload.task for k in kernels_of_model(module, Target("zen4"))]
    spaces = [Space(space_of(t).sketches[:sketches]) for t in tasks]
    largest = max(range(len(tasks)), key=lambda i: spaces[i].size)
    return spaces[largest], tasks[largest].program


def estimated(nests: Nests) -> float:
    return float(estimate(resolved(nests), nests.numbers[None], MACHINE)[0])


def limited(cfg: Knobs, s: Schedule) -> None:
    """A loop that is unrolled where a tile is short enough."""
    i, j, k = s.get_loops("out")
    cfg.define_split("i", i)
    k0, k1 = cfg.define_split("k", k)
    s.reorder(k0, k1, j)
    s.unroll(k1, limit=cfg.define_knob("most", (0, 4, 16)))


def limits_by_loop(cfg: Knobs, s: Schedule) -> None:
    """The limit of each loop goes with it."""
    i, j, k = s.get_loops("out")
    k0, k1 = cfg.define_split("k", k)
    j0, j1 = cfg.define_split("j", j)
    cfg.define_reorder("order", (k1, j1), before=(i, k0, j0))
    s.unroll(k1, limit=cfg.define_knob("of k", (0, 4, 16)))
    s.unroll(j1, limit=cfg.define_knob("of j", (0, 2, 8, 64)))


def limits_by_place(cfg: Knobs, s: Schedule) -> None:
    """The limit belongs to the place, whichever loop is there."""
    i, j, k = s.get_loops("out")
    k0, k1 = cfg.define_split("k", k)
    j0, j1 = cfg.define_split("j", j)
    outer, inner = cfg.define_reorder("order", (k1, j1), before=(i, k0, j0))
    s.unroll(inner, limit=cfg.define_knob("inner", (0, 4, 16)))
    s.unroll(outer, limit=cfg.define_knob("outer", (0, 2, 8, 64)))


def rounded_twice(cfg: Knobs, s: Schedule) -> None:
    """Fused loops whose tiles do not divide the axes, or are as long as these."""
    i, j, _ = s.get_loops("out")
    i0, i1 = cfg.define_factor("i", i, (1, 3, 5, 7, 24, 64))
    j0, j1 = cfg.define_factor("j", j, (1, 7, 10, 40, 96))
    s.reorder(i0, j0, i1, j1)
    s.parallel(s.fuse(i0, j0))
    s.vectorize(j1)


@pytest.mark.parametrize("function", [tiles, kinds, fused, limited, limits_by_loop, limits_by_place, rounded_twice])
def test_tiles_that_divide_are_estimated_as_if_they_were_scheduled(function: Function) -> None:
    assert share_of_equals(of_template(function), PRODUCT) == 1.0


@pytest.mark.parametrize("place", range(6))
def test_orders_may_start_with_any_of_them(place: int) -> None:
    made = of_template(tiles)
    base = made.trace(made.default().changed(3, place).changed(0, 2).changed(1, 3))
    assert share_of_equals(Space((TraceSketch("other", base),)), PRODUCT, 20) == 1.0


CONV = "%x: f32[1, 8, 14, 14], %w: f32[8, 8, 3, 3]) -> f32[1, 8, 14, 14] {\n  %0 = conv(%x, %w)\n  return %0"
CONV = CONV.replace("%w)\n", "%w, pads=(1, 1, 1, 1))\n")
SOFTMAX = "%x: f32[64, 100]) -> f32[64, 100] {\n  %0 = softmax(%x)\n  return %0"


@pytest.mark.parametrize("text", [CONV, SOFTMAX], ids=["conv", "softmax"])
def test_schedules_of_the_default_rules_are_estimated_nearly_as_if_made(text: str) -> None:
    """Nearly: the rows of a stage overlap, and the last tiles are smaller. None of the points is refused."""
    space, program = kernel(text)
    assert share_of_equals(space, program, count=24, rtol=0.1) >= 0.95
    rng = Random(3)
    assert np.isfinite(scheduled(space, program, [space.sample(rng) for _ in range(24)])).mean() >= 0.95


DEPTHWISE = CONV.replace("[8, 8, 3, 3]", "[8, 1, 3, 3]").replace("))\n", "), groups=8)\n")
POOL = "%x: f32[1, 24, 29, 29]) -> f32[1, 24, 14, 14] {\n  %0 = max_pool(%x, kernel=(3, 3), strides=(2, 2))\n"
POOL += "  return %0"
MATMUL = "%x: f32[64, 128], %y: f32[128, 96]) -> f32[64, 96] {\n  %0 = matmul(%x, %y)\n  return %0"


@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(CONV, id="conv"), pytest.param(POOL, id="pool"), pytest.param(MATMUL, id="matmul")),
        pytest.param(DEPTHWISE, id="depthwise", marks=pytest.mark.slow),
        pytest.param(SOFTMAX, id="softmax", marks=pytest.mark.slow),
    ],
)
def test_all_sketches_are_estimated_as_if_made(text: str) -> None:
    """Tiles there need not divide, extents of fused loops are rounded twice, and loops are unrolled up to limits."""
    space, program = kernel(text, sketches=None)
    rng = Random(0)
    points = [space.sample(rng, n) for n in range(len(space.sketches)) for _ in range(6)]
    real = np.array(scheduled(space, program, points))
    got = without_limit(space, program).seconds(points)
    assert np.isfinite(real).mean() > 0.5
    assert np.isclose(got, real, rtol=0.05).mean() > 0.9


def test_extents_that_do_not_divide_are_rounded_up() -> None:
    def parts(cfg: Knobs, s: Schedule) -> None:
        cfg.define_factor("i", s.get_loops("out")[0], (1, 3, 5, 7, 16, 20, 64))

    assert share_of_equals(of_template(parts), PRODUCT, 7) == 1.0


def test_few_programs_are_scheduled_for_many_points() -> None:
    rng = Random(0)
    for space, program, most in (
        (of_template(tiles), PRODUCT, 20),
        (of_template(kinds), PRODUCT, 100),
        (space_of(product(64, 96, 128)), PRODUCT, 2 * FIRST_PROBES),
    ):
        model = DraftModel(space, program, MACHINE)
        points = [space.sample(rng) for _ in range(10_000)]
        first = model.seconds(points)
        assert first.shape == (10_000,)
        assert 0 < model.probes < most
        before = model.probes
        assert (model.seconds(points[:50]) == first[:50]).all()
        assert model.probes == before


def test_sketches_beyond_the_limit_wait_for_it_to_rise() -> None:
    sketches = 40
    space = Space(tuple(TemplateSketch(PRODUCT, tiles) for _ in range(sketches)))
    model = DraftModel(space, PRODUCT, MACHINE)
    points = [space.default(i) for i in range(sketches)]
    known = np.isfinite(model.seconds(points))
    assert known[0] and not known.all()
    assert model.probes <= MAX_OVER * FIRST_PROBES + 3 * MAX_PROBES
    assert model.seconds(points[:1]) == model.seconds(points)[:1], "what is known stays known"
    model.most_probes = 10**9
    assert np.isfinite(model.seconds(points)).all(), "waiting is no refusal"


def test_estimates_do_not_depend_on_what_is_asked_together() -> None:
    space, rng = of_template(kinds), Random(0)
    points = [space.sample(rng) for _ in range(12)]
    together = DraftModel(space, PRODUCT, MACHINE).seconds(points)
    model = DraftModel(space, PRODUCT, MACHINE)
    assert np.allclose([model.seconds([p])[0] for p in reversed(points)][::-1], together)
    assert model.seconds([]).shape == (0,)


def test_structures_that_are_refused_take_for_ever() -> None:
    def half(cfg: Knobs, s: Schedule) -> None:
        i, _, k = s.get_loops("out")
        cfg.define_split("i", i)
        cfg.define_annotate("sum", (k,), ("none", "parallel"))  # a sum cannot be parallel

    space = of_template(half)
    model = DraftModel(space, PRODUCT, MACHINE)
    points = list(space.points())
    assert np.isinf(model.seconds(points)).tolist() == [p.positions[1] == 1 for p in points]
    scores = DraftGuide(model).score(points)
    assert np.isfinite(scores).all()
    assert max(scores[1::2]) < min(scores[::2])


def test_a_space_of_one_point() -> None:
    space = of_template(lambda cfg, s: None)
    model = DraftModel(space, PRODUCT, MACHINE)
    assert model.seconds([space.default()] * 2).tolist() == scheduled(space, PRODUCT, [space.default()] * 2)
    assert model.probes == 1


def test_another_function_may_schedule_the_points() -> None:
    asked: list[Point] = []

    def made(point: Point) -> Schedule:
        asked.append(point)
        raise ScheduleError("refused", code="S004")

    space = of_template(tiles)
    model = DraftModel(space, PRODUCT, MACHINE, scheduled=made)
    assert np.isinf(model.seconds([space.default()])).all()
    assert len(asked) == len(set(asked)) == model.probes


# -- which of two schedules is better -------------------------------------------------------------------------------


def seconds(make: Callable[[Schedule], object], n: int = 64, machine: DraftMachine = ALONE) -> float:
    s = Schedule(product(n, n, n).program)
    make(s)
    nests = nests_of(s.program)
    return float(estimate(nests.structure, nests.numbers[None], machine)[0])


def vectors(s: Schedule) -> None:
    i, j, k = s.get_loops("out")
    j0, j1 = s.split(j, factors=(None, 16))
    s.reorder(i, j0, k, j1)
    s.decompose_reduction("out", loop=k)
    s.vectorize(j1)


def register_tile(s: Schedule, rows: int = 4, columns: int = 2) -> None:
    i, j, k = s.get_loops("out")
    i0, i1 = s.split(i, factors=(None, rows))
    j0, j1, j2 = s.split(j, factors=(None, columns, 16))
    s.reorder(i0, j0, k, i1, j1, j2)
    s.decompose_reduction("out", loop=k)
    for loop in (i1, j1):
        s.unroll(loop)
    s.vectorize(j2)


def strided(s: Schedule) -> None:
    i, j, k = s.get_loops("out")
    i0, i1 = s.split(i, factors=(None, 16))
    s.reorder(i0, j, k, i1)
    s.decompose_reduction("out", loop=k)
    s.vectorize(i1)


def blocked(s: Schedule) -> None:
    i, j, k = s.get_loops("out")
    i0, i1 = s.split(i, factors=(None, 64))
    j0, j1, j2 = s.split(j, factors=(None, 4, 16))
    k0, k1 = s.split(k, factors=(None, 64))
    s.reorder(i0, j0, k0, i1, k1, j1, j2)
    s.vectorize(j2)


def unblocked(s: Schedule) -> None:
    i, j, k = s.get_loops("out")
    j0, j1, j2 = s.split(j, factors=(None, 4, 16))
    s.reorder(j0, i, k, j1, j2)
    s.vectorize(j2)


def test_vectors_are_better_than_scalars() -> None:
    assert seconds(vectors) < 0.5 * seconds(lambda s: None)


def test_a_register_tile_is_better_than_none() -> None:
    assert seconds(register_tile) < 0.7 * seconds(vectors)


def test_tiles_that_spill_are_worse() -> None:
    assert seconds(lambda s: register_tile(s, 64, 4)) > seconds(lambda s: register_tile(s, 8, 2))


def test_contiguous_vectors_are_better_than_strided_ones() -> None:
    assert seconds(vectors) < 0.7 * seconds(strided)


def test_blocks_are_better_where_the_matrices_are_large() -> None:
    assert seconds(blocked, 4096) < 0.9 * seconds(unblocked, 4096)


def test_threads_share_the_work() -> None:
    def parallel(s: Schedule) -> None:
        s.parallel(s.get_loops("out")[0])

    four, three = seconds(parallel, 512, MACHINE), seconds(parallel, 512, DraftMachine.of(Target("zen4"), 3))
    assert four < three < 0.5 * seconds(lambda s: None, 512, MACHINE)
    assert seconds(parallel, 4, MACHINE) > seconds(lambda s: None, 4, MACHINE)  # threads cost more than that


def test_what_was_measured_is_described_without_its_structure() -> None:
    """One program for each point, the same numbers as by a fit, and none where a fit is known."""
    task = product(64, 64, 64, target="zen4")
    space, rng = space_of(task), Random(0)
    points = [space.near_default(rng, space.sample(rng)) for _ in range(6)]
    model = DraftModel(space, task.program, MACHINE)
    rows, seconds = model.rows_of_measured(points)
    assert model.probes <= len(points) + len(space.sketches) + 30  # some of which tell orders apart
    refused = [i for i, s in enumerate(seconds) if not np.isfinite(s)]
    assert len(refused) < len(points) and not rows[refused].any()
    exact = [estimated(n) for p in points if (n := model._nests(p)) is not None]
    np.testing.assert_allclose(seconds[np.isfinite(seconds)], exact)


def test_speeds_of_sketches_are_relative_to_the_first() -> None:
    task = product(64, 64, 64, target="zen4")
    space = space_of(task)
    model = DraftModel(space, task.program, MACHINE)
    speeds = model.speeds_of_sketches()
    assert len(speeds) == len(space.sketches) and speeds[0] == 0.0 and model.probes == len(space.sketches)
    for sketch, speed in enumerate(speeds):
        nests = model._nests(space.default(sketch))
        if nests is None:
            assert speed == -np.inf
        else:
            first = model.seconds([space.default(0)])[0]
            assert np.exp(speed) == pytest.approx(first / estimated(nests), rel=0.2)
