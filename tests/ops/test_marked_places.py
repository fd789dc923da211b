"""The places of marks: written without a condition on single marks, which a processor would guess wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Const
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.ops.dynamic import _quotient
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import to_text

PLACES = op("places")


def program(shape: tuple[int, ...], marked: int) -> Program:
    marks = te.placeholder((int(np.prod(shape)),), "bool", "given")
    attrs = PLACES.complete({"size": marked, "shape": shape})
    result = TensorType.of((len(shape), marked), "int64")
    return te_to_tir("places", [marks], [PLACES.compute(attrs, result, marks)])


def check(marks: Any, shape: tuple[int, ...]) -> None:
    made = program(shape, int(marks.sum()))
    wanted = np.stack(np.nonzero(marks.reshape(shape)))
    for found in (run_program(default_schedule(made, Target("cpu")).program, [marks]), run(made, [marks])):
        np.testing.assert_array_equal(found[0], wanted)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 4095, 4096, 4097, 9000])
def test_places_of_marks(count: int, share: float) -> None:
    marks = np.random.default_rng(count).random(count) < share
    marks[np.random.default_rng(0).integers(count)] = True
    check(marks, (count,))


@pytest.mark.parametrize("at", [[0], [8999], [4095, 4096], [0, 8192], [4096], []])
def test_parts_without_marks(at: list[int]) -> None:
    marks = np.zeros(9000, bool)
    marks[[*at, 3000]] = True
    check(marks, (9000,))


@pytest.mark.parametrize("shape", [(7, 1000), (64, 100), (1, 300), (300, 1), (3, 5, 7, 11), (9, 8, 1, 12)])
def test_indices_along_several_axes(shape: tuple[int, ...]) -> None:
    check(np.random.default_rng(1).random(int(np.prod(shape))) < 0.4, shape)


def test_no_condition_depends_on_one_mark() -> None:
    """Conditions ask for the marks of a whole vector, and whether there is room. Guessing which elements are marked
    took four fifths of the time of NonZero."""
    text = to_text(program((9000,), 70))
    conditions = [line for line in text.splitlines() if line.strip().startswith("if ")]
    assert conditions and not any("given[" in line for line in conditions)


def test_counts_take_no_memory() -> None:
    """What every element would count takes eight bytes to write and eight to read, for a mark of one byte."""
    made = program((1_000_000,), 500_000)
    sizes = {b.name: int(np.prod([int(d) for d in b.shape])) for b in made.allocs}
    assert sum(sizes.values()) - sizes["places_listed"] < 10_000, sizes


@pytest.mark.parametrize("by", [1, 3, 7, 64, 1000, 999_983, (1 << 31) - 1, (1 << 40) + 1])
def test_quotients_of_places_are_exact(by: int) -> None:
    """Quotients just below and at whole numbers, up to the largest places that there may be."""
    rng = np.random.default_rng(by)
    for whole in (1, 2, *rng.integers(1, ((1 << 53) - by) // by, 200).tolist(), ((1 << 53) - by) // by - 1):
        for place in (whole * by - 1, whole * by, whole * by + 1):
            assert int(_quotient(Const(place), Const(by))) == place // by, place
