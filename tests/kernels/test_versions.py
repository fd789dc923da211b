"""Kernels that choose between versions of their code by open sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.graph.text import parse
from weft.kernels.machine_code import lowered, machine_code, scheduled
from weft.kernels.stages import task_stages
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.schedule.dispatch import MAX_DEPTH, Dispatch, schedule_from_json, traces_of
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.verify import verify
from weft.tune.measure.bench import Bench
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome
from weft.tune.space import Space, TraceSketch

HOST = Target("cpu")


def product() -> Program:
    """Panels of the weights are copied to the workspace, of constant size."""
    n, k = te.var("n"), te.reduce_axis((0, 96), "k")
    a, b = te.placeholder((n, 96), name="a"), te.placeholder((96, 80), name="b")
    c = te.compute((n, 80), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te_to_tir("product", [a, b], [te.compute((n, 80), lambda i, j: c[i, j] * 2.0, name="d")])


def two_sizes() -> Program:
    """A softmax of open rows and columns, whose intermediates have open sizes."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="x")
    k, q = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "q")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="total")
    return te_to_tir("softmax", [x], [te.compute((n, m), lambda i, j: e[i, j] / total[i], name="y")])


def counted() -> Program:
    """An elementwise kernel of integers."""
    n = te.var("n")
    x = te.placeholder((n, 7), "int32", name="x")
    return te_to_tir("counted", [x], [te.compute((n, 7), lambda i, j: x[i, j] * 3 + 1, name="y")])


def some(space: Space, program: Program, rng: Random) -> Trace:
    """A schedule of the space that the primitives allow."""
    while True:
        try:
            trace = space.trace(space.sample(rng))
            scheduled(program, HOST, trace)
        except ScheduleError:
            continue
        return trace


@pytest.mark.thinned(2)
@pytest.mark.parametrize("make", [product, two_sizes, counted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_every_size_is_right_under_any_dispatch(make: Any, seed: int) -> None:
    program, rng = make(), Random(seed)
    task, last = KernelTask(program, HOST), len(program.sizes) - 1
    space = Space((TraceSketch("default", scheduled(program, HOST).trace),))
    first, second = some(space, program, rng), some(space, program, rng)
    dispatch = Dispatch(0, 3, first, Dispatch(last, 40, None, Dispatch(0, 64, second, first)))
    values = (0, 1, 3, 4, 40, 41, 64, 65, 130)
    sizes = [(n,) * len(program.sizes) for n in values] + ([(2, 90), (90, 2)] if last else [])
    bench = Bench(task, 1, sizes, Limits(seconds=0.01))
    record = bench.trial(dispatch, None, None)
    assert record.outcome is Outcome.OK, record.message
    kernel = lowered(program, HOST, dispatch, backend=task.maker)
    verify(kernel, "kernel")
    names = [b.name for b in kernel.params]
    assert names == [b.name for b in program.params]
    for n, m in ((2, 2), (50, 50), (2, 50), (50, 2), (70, 70), (70, 2)):
        limited = (n, m)[last]
        wanted = first if n <= 3 or (limited > 40 and n > 64) else None if limited <= 40 else second
        assert dispatch.chosen((n, m)) is wanted


def test_the_workspaces_of_versions_lie_in_the_same_memory() -> None:
    program = product()
    alone = []
    for width in (16, 32):
        s = Schedule(program)
        copy = s.cache_read(s.get_block("c"), 1, "global")
        s.parallel(s.split(s.get_loops(copy)[0], factors=(None, width))[0])
        alone.append(s.trace)
    one, both = (
        machine_code(KernelTask(program, HOST, t)).workspace for t in (alone[0], Dispatch(0, 8, alone[0], alone[1]))
    )
    assert one == both and one != (0,)


def test_a_schedule_of_several_leaves_is_one_version() -> None:
    program = counted()
    trace = scheduled(program, HOST).trace
    kernel = lowered(program, HOST, Dispatch(0, 8, None, Dispatch(0, 64, trace, None)))
    assert str(kernel).count("in parallel(") == 2


def test_it_is_a_schedule_like_others(tmp_path: Any) -> None:
    program = product()
    task = KernelTask(program, HOST)
    dispatch = Dispatch(0, 8, None, scheduled(program, HOST).trace)
    given = task.with_trace(dispatch)
    assert given.key != task.key
    assert KernelTask.from_text(given.to_text()) == given
    texts = {s.name: s.text for s in task_stages(given)}
    assert texts["trace"].count("# for n <= 8:") == texts["trace"].count("# for 9 <= n:") == 1
    assert texts["scheduled"].count("# for ") == 2 and "n <= 8" in texts["kernel"]
    with pytest.raises(ScheduleError, match="2 schedules, chosen by its sizes") as error:
        scheduled(program, HOST, dispatch)
    assert error.value.code == "S008"


class Source:
    """Gives every kernel the same dispatch."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch, self.asked = dispatch, 0

    def find(self, task: KernelTask) -> Dispatch:
        self.asked += 1
        return self.dispatch


MODEL = """def @main<n>(%x: f32[n, 4], %w: f32[4, 6]) -> f32[n, 6] {
  %0: f32[n, 6] = matmul(%x, %w)
  return %0
}"""


def test_models_take_it_from_a_source() -> None:
    source = Source(Dispatch(0, 5, None, Dispatch(0, 9, None, None)))
    exe = weft.compile(parse(MODEL, OPERATORS), schedules=source, cache=False)
    assert source.asked == 1
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 6, 9, 10, 40):
        x, w = rng.standard_normal((n, 4), np.float32), rng.standard_normal((4, 6), np.float32)
        np.testing.assert_allclose(exe(x, w), x @ w, rtol=1e-5, atol=1e-5)


def test_a_size_that_the_kernel_does_not_have() -> None:
    for program in (counted(), te_to_tir("plain", *closed())):
        with pytest.raises(ScheduleError, match="chooses by size 2 of") as error:
            lowered(program, HOST, Dispatch(1, 8, None, None))
        assert error.value.code == "S007"


def closed() -> tuple[list[te.Tensor], list[te.Tensor]]:
    x = te.placeholder((4,), name="x")
    return [x], [te.compute((4,), lambda i: x[i] + 1.0, name="y")]


def test_json_is_read_back() -> None:
    trace = scheduled(counted(), HOST).trace
    for d in (Dispatch(0, 3, None, trace), Dispatch(1, 0, Dispatch(0, 2, trace, None), trace)):
        assert schedule_from_json(d.to_json()) == d
        assert traces_of(d) == (trace,)
    assert schedule_from_json(trace.to_json()) == trace
    assert traces_of(None) == () and traces_of(trace) == (trace,)


def deep() -> str:
    d: Any = None
    for _ in range(MAX_DEPTH + 1):
        d = {"dispatch": 1, "size": 0, "most": 4, "within": None, "beyond": d}
    return json.dumps(d)


LEAF: dict[str, Any] = {"dispatch": 1, "size": 0, "most": 4, "within": None, "beyond": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"dispatch": 1}',
        deep(),
        *(json.dumps({**LEAF, **wrong}) for wrong in (
            {"dispatch": 2}, {"size": -1}, {"size": True}, {"size": "n"}, {"most": 1.5}, {"most": None}, {"within": 3},
            {"beyond": []}, {"beyond": {}}, {"within": {"version": 99, "instructions": []}},
        )),
    ],
)  # fmt: skip
def test_other_texts_are_no_schedules(text: str) -> None:
    with pytest.raises(ScheduleError) as error:
        schedule_from_json(text)
    assert error.value.code == "S006"


def sizes_of(conditions: Sequence[str]) -> str:
    return " | ".join(conditions)


def test_conditions_for_people() -> None:
    d = Dispatch(0, 512, Dispatch(0, 3, None, Dispatch(1, 8, None, None)), None)
    found = sizes_of([v.condition(["n", "m"]) for v in d.versions()])
    assert found == "n <= 3 | 4 <= n <= 512 and m <= 8 | 4 <= n <= 512 and 9 <= m | 513 <= n"
    assert "size 1 <= 8" in d.to_python()
