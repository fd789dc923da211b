"""Sketches: every schedule of every sketch computes what the default one computes, or is refused."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import representative

from weft import te
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.pipeline.kernels import unscheduled
from weft.schedule.rules.cpu import default_schedule, other_schedule
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.measure.bench import Bench
from weft.tune.measure.timing import Limits
from weft.tune.multi_level import schedule_multi_level
from weft.tune.record import Outcome
from weft.tune.sketches import MAX_SKETCHES, space_of
from weft.tune.space import Space, TraceSketch

HERE = Target("cpu")
POINTS = 8
"""Random points of a sketch."""
MAX_REFUSED = 0.05
"""Limit on the share of them that are no schedules."""
QUICK = Limits(abort=1e9, seconds=0.0)
"""One round a candidate: these tests look at results, not at times."""


def matmul(n: int, m: int, k: int, open_rows: bool = False) -> Program:
    rows = te.size_var("n") if open_rows else n
    a, b = te.placeholder((rows, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((rows, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((rows, m), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te_to_tir("matmul", [a, b], [d])


def conv(channels: int, size: int, filters: int, window: int) -> Program:
    x = te.placeholder((1, channels, size, size), name="X")
    w = te.placeholder((filters, channels, window, window), name="W")
    half = window // 2

    def at(n: te.Expr, c: te.Expr, y: te.Expr, i: te.Expr) -> te.Expr:
        inside = te.all(y >= half, y < size + half, i >= half, i < size + half)
        return te.if_then_else(inside, x[n, c, y - half, i - half], 0.0)

    padded = te.compute((1, channels, size + 2 * half, size + 2 * half), at, name="P")
    c, u, v = (te.reduce_axis((0, e), name=n) for e, n in ((channels, "c"), (window, "u"), (window, "v")))
    out = te.compute(
        (1, filters, size, size),
        lambda n, f, y, i: te.sum(padded[n, c, y + u, i + v] * w[f, c, u, v], axis=(c, u, v)),
        name="Y",
    )
    return te_to_tir("conv", [x, w], [out])


def row_norms(rows: int, columns: int) -> Program:
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, columns), name="k")
    s = te.compute((rows,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="S")
    y = te.compute((rows, columns), lambda i, j: x[i, j] / te.sqrt(s[i] + 1.0), name="Y")
    return te_to_tir("row_norms", [x], [y])


PROGRAMS = {
    "matmul": lambda: matmul(48, 80, 33),
    "matmul of primes": lambda: matmul(13, 17, 7),
    "matmul with one column": lambda: matmul(37, 1, 29),
    "matmul with one row": lambda: matmul(1, 50, 64),
    "matmul of open rows": lambda: matmul(0, 40, 24, open_rows=True),
    "conv": lambda: conv(3, 7, 16, 3),
    "conv 1x1": lambda: conv(8, 6, 5, 1),
    "row norms": lambda: row_norms(9, 70),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_schedules_agree_with_the_default_one(name: str) -> None:
    task = KernelTask(PROGRAMS[name](), HERE)
    space, rng = space_of(task), Random(len(name))
    bench = Bench(task, 2, [(31,)] if task.program.sizes else (), QUICK)
    ended: Counter[Outcome] = Counter()
    for number in range(len(space.sketches)):
        points = [space.default(number), space.sample(rng, number)]
        for point in points:
            record = bench.trial(space.trace(point), None, None)
            assert record.outcome in (Outcome.OK, Outcome.REFUSED), (space.sketches[number].name, point, record.message)
            ended[record.outcome] += 1
    assert ended[Outcome.OK] >= len(space.sketches)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [(48, 80, 33), (13, 17, 7), (37, 5, 29), (2, 200, 3)])
def test_multi_level_tiles_of_all_sizes(shape: tuple[int, int, int]) -> None:
    task = KernelTask(matmul(*shape), HERE)
    schedule, _ = other_schedule(task.program, HERE, (), (schedule_multi_level,))
    space, rng = Space((TraceSketch("tiles", schedule.trace),)), Random(shape[0])
    bench = Bench(task, 1, (), QUICK)
    ok = 0
    for _ in range(12):
        record = bench.trial(space.trace(space.sample(rng)), None, None)
        assert record.outcome in (Outcome.OK, Outcome.REFUSED), record.message
        ok += record.ok
    assert ok == 12


def test_the_default_schedule_comes_first() -> None:
    task = KernelTask(matmul(48, 80, 33), HERE)
    space = space_of(task)
    assert space.sketches[0].name == "default"
    assert space.trace(space.default()).to_json() == scheduled(task.program, HERE).trace.to_json()
    assert "multi-level tiles" in {s.name for s in space.sketches}


def test_nothing_flipped_is_the_default() -> None:
    program = conv(3, 11, 16, 3)
    schedule, asked = other_schedule(program, HERE, ())
    assert schedule.trace.to_json() == default_schedule(program, HERE).trace.to_json()
    assert "inline P" in asked and any("schedule_contraction" in a for a in asked)


def test_decisions_are_flipped() -> None:
    """With the padding inlined the reduction reads under conditions; without its rule it has no tile of sums."""
    program = conv(3, 11, 16, 3)
    inlined, _ = other_schedule(program, HERE, ("inline P",))
    assert "P" not in {b.name for b in inlined.get_blocks()} and "P" in {
        b.name for b in other_schedule(program, HERE, ())[0].get_blocks()
    }
    plain, asked = other_schedule(program, HERE, ("schedule_contraction Y",))
    assert "schedule_contraction Y" in asked
    assert not any(b.scope == "register" and len(b.shape) == 4 for b in plain.program.allocs)


def test_sketches_differ_and_are_few() -> None:
    space = space_of(KernelTask(conv(16, 14, 32, 3), HERE))
    assert 3 <= len(space.sketches) <= MAX_SKETCHES
    assert len({s.name for s in space.sketches}) == len(space.sketches)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", representative.GRAPHS)
def test_sketches_of_what_models_are_made_of(name: str) -> None:
    for group in representative.groups(name, HERE):
        task = KernelTask(unscheduled(group)[0], HERE)
        space, rng = space_of(task), Random(0)
        bench = Bench(task, 1, (), QUICK)
        for number in rng.sample(range(len(space.sketches)), min(6, len(space.sketches))):
            for point in (space.default(number), space.sample(rng, number)):
                try:
                    trace = space.trace(point)
                except ScheduleError:
                    continue
                record = bench.trial(trace, None, None)
                assert record.outcome in (Outcome.OK, Outcome.REFUSED), (space.sketches[number].name, record.message)


def norm_product(rows: int, depth: int, columns: int) -> Program:
    """A product with rows that a stage computes first: the stage has places to choose from."""
    x, w = te.placeholder((rows, depth), name="X"), te.placeholder((depth, columns), name="W")
    k, q = te.reduce_axis((0, depth), name="k"), te.reduce_axis((0, depth), name="q")
    s = te.compute((rows,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="S")
    n = te.compute((rows, depth), lambda i, j: x[i, j] / te.sqrt(s[i] + 1.0), name="N")
    return te_to_tir(
        "norm_product",
        [x, w],
        [te.compute((rows, columns), lambda i, j: te.sum(n[i, q] * w[q, j], axis=q), name="Y")],
    )


def attention(heads: int, rows: int, width: int) -> Program:
    q, k, v = (te.placeholder((heads, rows, width), name=name) for name in "QKV")
    d, m, n, o = (te.reduce_axis((0, e), name=s) for e, s in ((width, "d"), (rows, "m"), (rows, "n"), (rows, "o")))
    s = te.compute((heads, rows, rows), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), name="S")
    t = te.compute((heads, rows), lambda h, i: te.max(s[h, i, m], axis=m), name="T")
    e = te.compute((heads, rows, rows), lambda h, i, j: te.exp(s[h, i, j] - t[h, i]), name="E")
    z = te.compute((heads, rows), lambda h, i: te.sum(e[h, i, n], axis=n), name="Z")
    y = te.compute((heads, rows, width), lambda h, i, c: te.sum(e[h, i, o] / z[h, i] * v[h, o, c], axis=o), name="Y")
    return te_to_tir("attention", [q, k, v], [y])


SAMPLED = {
    **{name: PROGRAMS[name] for name in ("matmul of open rows", "conv", "conv 1x1", "row norms")},
    "conv of wide lines": lambda: conv(8, 28, 16, 3),
    "norm and product": lambda: norm_product(32, 96, 64),
    "attention": lambda: attention(2, 64, 32),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SAMPLED)
def test_points_of_the_default_sketch_are_schedules(name: str) -> None:
    """Whatever tiles, orders and places a point has, its instructions name the loops that they are meant for."""
    program, rng = SAMPLED[name](), Random(0)
    task = KernelTask(program, HERE)
    space = Space((TraceSketch("default", scheduled(program, HERE, None, (), task.maker).trace),))
    refused: Counter[str] = Counter()
    for _ in range(POINTS):
        try:
            Schedule(program).replay(space.trace(space.sample(rng)))
        except ScheduleError as problem:
            refused[str(problem).splitlines()[0]] += 1
    assert refused.total() <= MAX_REFUSED * POINTS, refused
