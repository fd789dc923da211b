"""Buffers that are private to an iteration stay private; only primitives that would share them are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for, matmul_relu

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import Program


def refused(code: str, s: Schedule, action: Callable[[], object]) -> str:
    before = s.program
    with pytest.raises(ScheduleError) as caught:
        action()
    assert caught.value.code == code, str(caught.value)
    assert s.program is before
    return str(caught.value)


def agrees(original: Program, s: Schedule) -> None:
    """The program, its kernel with threads watched for races, and the compiled kernel give the same."""
    check(original, s.program)
    given = inputs_for(original)
    (expected,) = run(original, given)
    judged = Interpreter(tir_to_kernel(s.program, Target("cpu")), races=True).run(given).outputs[0]
    np.testing.assert_allclose(judged.reshape(expected.shape), expected)
    np.testing.assert_allclose(run_program(s.program, given, [])[0], expected)


def neighbours() -> Program:
    """Each element of C reads P two columns back, so that iterations over columns need the same parts of P."""
    a = te.placeholder((6, 8), name="A")
    p = te.compute((6, 8), lambda i, j: a[i, j] * 3.0, name="P")
    shifted = te.compute(
        (6, 8), lambda i, j: te.if_then_else(te.all(i >= 1, j >= 2), p[i - 1, j - 2], 0.0) + p[i, j], name="C"
    )
    return te_to_tir("neighbours", [a], [shifted])


def chained_windows() -> Program:
    a, w = te.placeholder((4, 6), name="A"), te.placeholder((2,), name="W")
    h, k = te.reduce_axis((0, 2), "h"), te.reduce_axis((0, 2), "k")
    p = te.compute((4, 5), lambda i, j: te.sum(a[i, j + h] * w[h], axis=h), name="P")
    return te_to_tir("windows", [a, w], [te.compute((4, 4), lambda i, j: te.sum(p[i, j + k] * w[k], axis=k), name="C")])


@pytest.mark.parametrize("outer", [False, True])
def test_a_loop_with_a_buffer_for_each_thread_is_not_cut(outer: bool) -> None:
    original = neighbours()
    s = Schedule(original)
    i, j = s.get_loops("C")
    s.compute_at("P", j)
    s.parallel(j)
    refused("S018", s, lambda: s.partition(i if outer else j, 3))
    agrees(original, s)


def test_parallel_loops_without_private_buffers_are_cut() -> None:
    original = neighbours()
    s = Schedule(original)
    s.compute_at("P", s.get_loops("C")[1])
    s.compute_root("P")
    fused = s.fuse(*s.get_loops("C"))
    s.parallel(fused)
    s.partition(fused, 16)
    s.parallel(s.get_loops("P")[0])
    agrees(original, s)


@pytest.mark.parametrize("vector_first", [False, True])
def test_threads_inside_lanes_have_nothing_to_themselves(vector_first: bool) -> None:
    original = neighbours()
    s = Schedule(original)
    outer, inner = s.split(s.get_loops("C")[1], factor=4)
    s.compute_at("P", inner)
    first, second = (s.vectorize, s.parallel) if vector_first else (s.parallel, s.vectorize)
    first(outer if vector_first else inner)
    message = refused("S018", s, lambda: second(inner if vector_first else outer))
    assert "lanes of 'j_1_0' share" in message
    agrees(original, s)


@pytest.mark.parametrize("window_first", [False, True])
def test_threads_inside_a_sliding_window(window_first: bool) -> None:
    """The window belongs to the loop around; threads inside of it would all fill the same part."""
    original = neighbours()
    s = Schedule(original)
    i, j = s.get_loops("C")
    s.compute_at("P", j)
    steps: list[Callable[[], object]] = [lambda: s.parallel(j), lambda: s.store_at("P", i)]
    first, second = reversed(steps) if window_first else steps
    first()
    assert "kept across 'i_1'" in refused("S018", s, second)
    agrees(original, s)


def windowed(original: Program, depth: int) -> Schedule:
    """``P`` computed and kept at a loop of ``C``."""
    s = Schedule(original)
    at = s.get_loops("C")[depth]
    s.compute_at("P", at)
    s.store_at("P", at)
    return s


def test_lanes_share_a_folded_buffer() -> None:
    original = chained_windows()
    folded = windowed(original, 2)
    _, j, _ = folded.get_loops("C")
    folded.fold_storage("P", 1, 1)
    assert "lanes of 'j_1'" in refused("S018", folded, lambda: folded.vectorize(j))
    folded.vectorize(folded.get_loops("C")[0])  # rows are apart
    agrees(original, folded)
    s = Schedule(original)
    _, j, k = s.get_loops("C")
    s.compute_at("P", k)
    s.vectorize(j)
    s.store_at("P", k)
    refused("S061", s, lambda: s.fold_storage("P", 1, 1))
    agrees(original, s)


def test_lanes_of_one_iteration_fit_the_window() -> None:
    original = chained_windows()
    s = windowed(original, 1)
    s.fold_storage("P", 1, 2)
    s.vectorize(s.get_loops("P")[2])
    agrees(original, s)


@pytest.mark.parametrize("move", ["store_at", "run_once"])
def test_a_folded_window_is_too_small_for_the_loop_outside(move: str) -> None:
    """The buffer holds one element, which is enough inside the loop of the sum. In an outer loop, the next result would
    find only the last operand of the sum."""
    a, w = te.placeholder((3, 5), name="A"), te.placeholder((5, 4), name="W")
    reduce = te.reduce_axis((0, 5), "k")
    p = te.compute((3, 5), lambda i, j: a[i, j] * 2.0, name="P")
    c = te.compute((3, 4), lambda i, j: te.sum(p[i, reduce] * w[reduce, j], axis=reduce), name="C")
    original = te_to_tir("rows", [a, w], [c])
    s = Schedule(original)
    _, j, k = s.get_loops("C")
    s.compute_at("P", k)
    whole = s.copy()
    s.store_at("P", k)
    s.fold_storage("P", 1, 1)
    again = (lambda: s.store_at("P", j)) if move == "store_at" else (lambda: s.run_once("P", j, 0))
    assert "holds only a window" in refused("S061", s, again)
    agrees(original, s)
    whole.store_at("P", j)
    agrees(original, whole)


def test_a_sum_without_its_init_is_not_padded() -> None:
    original = matmul_relu(7, 5, 6)
    s = Schedule(original)
    s.decompose_reduction("C", s.get_loops("C")[0])
    assert "decompose_reduction" in refused("S073", s, lambda: s.pad_einsum("C", (2, 2, 1)))
    assert len(s.pad_einsum("C", (1, 1, 4))) == 2  # only the operands are copied
    check(original, s.program)


def test_run_once_with_an_init_that_runs_again() -> None:
    a, w = te.placeholder((3, 6), name="A"), te.placeholder((5, 5), name="W")
    h, k = te.reduce_axis((0, 2), "h"), te.reduce_axis((0, 5), "k")
    p = te.compute((3, 5), lambda i, j: te.sum(a[i, j + h], axis=h), name="P")
    c = te.compute((3, 5), lambda i, j: te.sum(p[i, k] * w[k, j], axis=k), name="C")
    original = te_to_tir("rows", [a, w], [c])
    s = Schedule(original)
    column = s.get_loops("C")[1]
    s.compute_at("P", column)
    whole = s.copy()
    s.decompose_reduction("P", s.get_loops("P")[3])
    assert "'P_init' writes 'P'" in refused("S062", s, lambda: s.run_once("P", column, 0))
    refused("S062", s, lambda: s.run_once("P_init", column, 0))
    agrees(original, s)
    whole.run_once("P", column, 0)
    agrees(original, whole)


def test_loops_around_a_pipeline_are_not_cut() -> None:
    original = neighbours()
    s = Schedule(original)
    i, j = s.get_loops("C")
    s.compute_at("P", j)
    s.pipeline(j, (0, 1), (1, 0))
    assert "'P' passes between stages" in refused("S066", s, lambda: s.partition(i, 2))
    s.split(i, factor=2)
    agrees(original, s)


def test_pipelines_that_share_nothing_are_cut() -> None:
    """Stages over the output alone pass nothing on."""
    original = neighbours()
    s = Schedule(original)
    i, j = s.get_loops("C")
    s.compute_at("P", j)
    s.pipeline(j, (1, 1), (0, 1))
    s.partition(i, 2)
    agrees(original, s)
