"""The places of marks: written without a condition on marks, which a processor would guess wrongly."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import to_text

PLACES = op("places")


def program(count: int, marked: int) -> Program:
    counts = te.placeholder((count,), "int64", "counts")
    attrs = PLACES.complete({"size": marked})
    return te_to_tir("places", [counts], [PLACES.compute(attrs, TensorType.of((marked,), "int64"), counts)])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 5000])
def test_places_of_marks(count: int, share: float) -> None:
    marks = np.random.default_rng(count).random(count) < share
    marks[np.random.default_rng(0).integers(count)] = True
    made, given = program(count, int(marks.sum())), [np.cumsum(marks)]
    for found in (run_program(default_schedule(made, Target("cpu")).program, given), run(made, given)):
        np.testing.assert_array_equal(found[0], np.flatnonzero(marks))


@pytest.mark.parametrize("at", [[0], [4999], [1023, 1024], [0, 2048], [1024], []])
def test_parts_without_marks(at: list[int]) -> None:
    marks = np.zeros(5000, bool)
    marks[[*at, 3000]] = True
    made = program(5000, int(marks.sum()))
    (found,) = run_program(default_schedule(made, Target("cpu")).program, [np.cumsum(marks)])
    np.testing.assert_array_equal(found, np.flatnonzero(marks))


def test_no_condition_depends_on_one_mark() -> None:
    """A condition compares with the count at the end of a part: it holds up to the last mark. Guessing which elements
    are marked took four fifths of the time of NonZero."""
    text = to_text(program(5000, 70))
    conditions = [line for line in text.splitlines() if line.strip().startswith("if ")]
    assert len(conditions) == 1 and "< counts[min((u0 + 1) * 1024, 5000) - 1]" in conditions[0]
