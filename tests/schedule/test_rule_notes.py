"""Notes of rules that fall back to slower code."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.kernels.stages import task_stages
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program

ZEN4 = Target("zen4")


def row_sums(columns: int, stride: int = 1) -> Program:
    a = te.placeholder((8, columns * stride), name="a")
    k = te.reduce_axis((0, columns), "k")
    return te_to_tir("rows", [a], [te.compute((8,), lambda i: te.sum(a[i, k.var * stride], axis=k), name="total")])


def test_vectors_need_no_note() -> None:
    assert default_schedule(row_sums(256), ZEN4).notes == ()


def test_a_note_explains_why_a_short_reduction_has_no_vectors() -> None:
    (note,) = default_schedule(row_sums(6), ZEN4).notes
    assert note == "total: 6 steps are too few for vectors of 4 partial results: one element at a time"


def test_a_note_explains_why_a_strided_reduction_has_no_vectors() -> None:
    (note,) = default_schedule(row_sums(256, stride=3), ZEN4).notes
    assert note == "total: no operand is contiguous along the reduction: one element at a time"


def test_the_trace_stage_shows_notes_as_comments() -> None:
    stages = {s.name: s.text for s in task_stages(KernelTask(row_sums(6), ZEN4))}
    assert stages["trace"].splitlines()[-1].startswith("# note: total: 6 steps")
    compile(stages["trace"], "trace", "exec")


def test_notes_are_recorded_once_and_copied_with_the_schedule() -> None:
    schedule = Schedule(row_sums(8))
    schedule.note("twice")
    schedule.note("twice")
    copied = schedule.copy()
    copied.note("of the copy")
    assert schedule.notes == ("twice",) and copied.notes == ("twice", "of the copy")


def test_what_is_computed_from_positions_is_reduced_in_vectors() -> None:
    """No operand moves along the reduction, so none is in the way."""
    a, k = te.placeholder((8,), "int64", name="a"), te.reduce_axis((0, 256), "k")
    below = te.compute((8,), lambda i: te.sum(te.select(k.var < a[i], te.const(1.0), te.const(0.0)), axis=k), name="n")
    made = default_schedule(te_to_tir("count", [a], [below]), ZEN4)
    assert made.notes == () and "vectorized" in str(made.program)
    (counts,) = run(made.program, [np.array([0, 1, 7, 64, 255, 256, 300, -3])])
    assert counts.tolist() == [0, 1, 7, 64, 255, 256, 256, 0]
