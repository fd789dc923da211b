"""Reductions and recurrences bound by memory: joined axes, several vectors of columns, tails without masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Call, Const, Load
from weft.expr.visit import free_vars
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.rules.cpu.recurrence import MIN_PIECE_BYTES
from weft.target import Target
from weft.tir.nodes import Evaluate, For, Program
from weft.tir.text import to_text
from weft.tir.visit import blocks, walk

TARGET = Target("x86-64-v4")
CACHES = f"-l1={48 << 10} -l2={2 << 20} -l3={64 << 20}"
"""What the rules decide by, whatever machine runs the tests."""


def total(shape: tuple[int, ...], axes: tuple[int, ...]) -> Program:
    a = te.placeholder(shape, name="a")
    over = {d: te.reduce_axis((0, shape[d]), name=f"r{d}") for d in axes}
    kept = [d for d in range(len(shape)) if d not in axes]

    def element(*i):
        at = dict(zip(kept, i, strict=False))
        return te.sum(
            a[tuple(over[d].var if d in over else at[d] for d in range(len(shape)))], axis=list(over.values())
        )

    return te_to_tir("total", [a], [te.compute(tuple(shape[d] for d in kept), element, name="total")])


def running(steps: int, columns: int) -> Program:
    a = te.placeholder((steps, columns), name="a")
    state = te.placeholder((steps, columns), name="state")
    first = te.compute((1, columns), lambda t, i: a[t, i], name="first")
    step = te.compute((steps, columns), lambda t, i: state[t - 1, i] + a[t, i], name="step")
    return te_to_tir("running", [a], [te.scan(first, step, state, [a], name="running")])


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 8, 16), (1, 2)),
        ((3, 7, 7), (1, 2)),
        ((2, 3, 5, 9), (1, 2, 3)),
        ((2, 3, 40, 9), (0, 2, 3)),
        ((4, 6, 8), (0, 2)),
        ((40, 1024), (0,)),
        ((40, 1020), (0,)),
        ((17, 4096), (0,)),
        ((3, 40, 512), (1,)),
        ((1, 1), (0,)),
    ],
)
def test_sums_are_right(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    program = default_schedule(total(shape, axes), Target("cpu")).program
    np.testing.assert_array_equal(run_program(program, [x])[0], x.sum(axes))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_long_rows_are_added_in_vectors(rows: int) -> None:
    """No rule asks for what a primitive refuses (it would raise here), and the sums are vectors."""
    program = default_schedule(total((rows, 100_000), (1,)), Target("zen4")).program
    assert any(isinstance(s, For) and s.kind == "vectorized" for s in walk(program.body))


def test_contiguous_axes_are_reduced_as_one() -> None:
    text = to_text(default_schedule(total((4, 8, 16), (1, 2)), TARGET).program)
    assert "serial(0, 2)" in text and "vectorized(0, 64)" in text


def test_axes_apart_are_not_joined() -> None:
    text = to_text(default_schedule(total((4, 6, 128), (0, 2)), TARGET).program)
    assert "serial(0, 4)" in text


def test_long_sums_over_rows_take_several_vectors_of_columns() -> None:
    assert "vectorized(0, 128)" in to_text(default_schedule(total((32, 1 << 12), (0,)), TARGET).program)
    assert "vectorized(0, 16)" in to_text(default_schedule(total((4, 1 << 14), (0,)), TARGET).program)


@pytest.mark.parametrize(("steps", "columns"), [(2, 1), (5, 16), (9, 50), (40, 1024)])
def test_running_sums_are_right(steps: int, columns: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (steps, columns)).astype(np.float32)
    program = default_schedule(running(steps, columns), Target("cpu")).program
    np.testing.assert_array_equal(run_program(program, [x])[0], x.cumsum(0))


def test_recurrences_run_in_vectors() -> None:
    text = to_text(default_schedule(running(9, 64), TARGET).program)
    assert text[text.index('block "step"') - 200 :].count("vectorized(0, 16)") >= 1


def steps_in(loop: For) -> bool:
    return any(b.name == "step" for b in blocks(loop))


@pytest.mark.parametrize(("steps", "columns"), [(1024, 256), (300, 1000), (700, 4099), (2000, 64), (65, 33_000)])
@pytest.mark.parametrize("cores", [2, 3, 64])
def test_threads_take_strips_of_columns(steps: int, columns: int, cores: int) -> None:
    """All steps of a strip run in one thread, and equal strips in all of them, as far as there are columns. Strips of
    data in memory are wide, unless many threads need narrow ones."""
    x = np.random.default_rng(0).standard_normal((steps, columns)).astype(np.float32)
    target = Target(f"cpu -num-cores={cores} {CACHES}")
    program = default_schedule(running(steps, columns), target).program
    nest = next(s for s in walk(program.body) if isinstance(s, For) and s.kind == "parallel" and steps_in(s))
    assert isinstance(nest.extent, Const) and isinstance(nest.body, For) and nest.body.kind == "serial"
    strips = int(nest.extent.value)
    assert strips >= min(cores, columns // max(2 * target.cpu.lanes(32), MIN_PIECE_BYTES // 4))
    if 4 * steps * columns > target.cpu.l2 and cores <= 3:
        assert 4 * columns // strips >= 1024
    np.testing.assert_array_equal(run_program(program, [x])[0], x.cumsum(0, np.float32))


def scheduled_steps(shape: tuple[Any, ...], dtype: str, name: str, **attrs: Any) -> Program:
    operator, x = op(name), te.placeholder(shape, dtype, name="x")
    given = operator.complete({"axis": 0, "reverse": False, **attrs})
    result = operator.compute(given, TensorType.of(shape, dtype), x)
    return default_schedule(te_to_tir("steps", [x], [result]), Target(f"cpu -num-cores=1 {CACHES}")).program


@pytest.mark.parametrize(
    ("shape", "dtype", "name", "ahead"),
    [
        ((2048, 1024), "float32", "cumsum", "1"),
        ((4096, 1027), "int64", "cumsum", "1"),
        ((4096, 1003), "float64", "cumprod", "1"),
        ((20_000, 128), "float32", "cumprod", "8"),
        ((9000, 15, 17), "float32", "cumsum", "4"),
        ((te.var("n"), 1024), "float32", "cumsum", "1"),
        ((te.var("n"), te.var("m")), "float32", "cumsum", '4096, "bytes"'),
    ],
)
def test_rows_of_later_steps_are_fetched(shape: tuple[Any, ...], dtype: str, name: str, ahead: str) -> None:
    """What is asked for is what a later step writes, not what it reads of the result, which was written just before."""
    program = scheduled_steps(shape, dtype, name)
    result = program.params[-1].name
    assert f'prefetch_shares = [["{result}", {ahead}]]' in to_text(program)
    target = Target(f"cpu -num-cores=1 {CACHES}")
    kernel = tir_to_kernel(program, target)
    asked = [
        s.value.args[0]
        for s in walk(kernel.body)
        if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name == "prefetch_l2"
    ]
    assert asked and all(isinstance(e, Load) and e.source.name == result for e in asked)
    if all(isinstance(n, int) for n in shape):
        places = []
        for e in asked:
            at = {v: 5 if v.name.startswith("t") else 0 for v in free_vars(e.children[0])}
            places.append(int(evaluate(e.children[0], at)))
        assert min(places) == (5 + int(ahead)) * math.prod(shape[1:])


@pytest.mark.parametrize("shape", [(100, 1024), (16, 1 << 20), (1 << 16, 16)])
def test_rows_that_stay_near_or_have_few_vectors_are_not_fetched(shape: tuple[int, int]) -> None:
    assert "prefetch" not in to_text(scheduled_steps(shape, "float32", "cumsum"))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("shape", [(3, 300_000), (700, 1000), (1500, 513), (5000, 200), (1100, 15, 33)])
@pytest.mark.parametrize("opened", [False, True])
def test_sums_whose_rows_are_fetched_are_right(name: str, shape: tuple[int, ...], opened: bool) -> None:
    target, sizes = Target(f"cpu -num-cores=1 {CACHES}"), shape if opened else ()
    program = scheduled_steps(tuple(te.var(f"n{d}") for d in range(len(shape))) if opened else shape, "float32", name)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    x = x if name == "cumsum" else np.sign(x + 0.5)
    (got,) = run_program(program, [x], sizes=sizes, target=target)
    np.testing.assert_array_equal(got, x.cumsum(0) if name == "cumsum" else x.cumprod(0))


def test_columns_that_mix_stay_in_step() -> None:
    a, state = te.placeholder((100, 4096), name="a"), te.placeholder((100, 4096), name="state")
    first = te.compute((1, 4096), lambda t, i: a[t, i], name="first")
    step = te.compute((100, 4096), lambda t, i: state[t - 1, 4095 - i] + a[t, i], name="step")
    program = default_schedule(
        te_to_tir("mixed", [a], [te.scan(first, step, state, [a], name="mixed")]), Target("cpu -num-cores=2")
    ).program
    assert not any(steps_in(s) for s in walk(program.body) if isinstance(s, For) and s.kind == "parallel")
    x = np.random.default_rng(0).integers(-9, 9, (100, 4096)).astype(np.float32)
    expected = x.copy()
    for t in range(1, 100):
        expected[t] += expected[t - 1, ::-1]
    np.testing.assert_array_equal(run_program(program, [x])[0], expected)


@pytest.mark.parametrize(
    ("columns", "masked"), [(56, False), (28, False), (20, False), (30, True), (54, True), (17, False)]
)
def test_tails_of_whole_vectors_have_no_mask(columns: int, masked: bool) -> None:
    program = total((columns, 24, columns), (1,))
    x = np.random.default_rng(0).integers(-9, 9, (columns, 24, columns)).astype(np.float32)
    kernel = to_text(tir_to_kernel(default_schedule(program, TARGET).program, TARGET))
    assert ("< broadcast(" in kernel) == masked
    np.testing.assert_array_equal(run_program(default_schedule(program, Target("cpu")).program, [x])[0], x.sum(1))


@pytest.mark.parametrize("shape", [(1024, 512), (1000, 528), (997, 1024), (130, 4096 + 16), (201, 8192), (4099, 128)])
@pytest.mark.parametrize("largest", [False, True])
def test_large_reductions_over_rows_add_a_few_at_a_time(shape: tuple[int, int], largest: bool) -> None:
    """All columns of a few rows, so that memory is read in order, in pieces that do not depend on the threads."""
    rows, columns = shape
    a, r = te.placeholder(shape, name="a"), te.reduce_axis((0, rows), name="r")
    made = te.compute((columns,), lambda j: (te.max if largest else te.sum)(a[r, j], axis=r), name="made")
    program = te_to_tir("made", [a], [made])
    scheduled = default_schedule(program, TARGET).program
    assert "unrolled(0, 4)" in to_text(scheduled) and "made_rf" in to_text(scheduled)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    np.testing.assert_array_equal(run_program(scheduled, [x])[0], x.max(0) if largest else x.sum(0))
