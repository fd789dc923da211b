"""Consumers that read digits of their variables, numbers made of them or whole tiles move into loops of producers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tensor_expr.nodes import Tensor
from weft.tir.interpret import execute, run
from weft.tir.nodes import Program


def program(shape: tuple[int, ...], last: tuple[int, ...], read: Callable[..., tuple[object, ...]]) -> Program:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    return te_to_tir("reshape", [a], [te.compute(last, lambda *i: element(b, read(*i)) * 2.0, name="C")])


def element(x: Tensor, at: tuple[object, ...]) -> object:
    return x[at]


def agrees(original: Program, s: Schedule) -> None:
    """The same results, and every element computed once."""
    check(original, s.program)
    given = inputs_for(original)
    (expected,) = run(original, given)
    counts = execute(s.program, given).counts
    assert all(n == 1 for block in counts.values() for n in block.values())
    np.testing.assert_allclose(run_program(s.program, given, [])[0], expected)


DIGITS = program((6, 8), (48,), lambda x: (x // 8, x % 8))
THREE = program((2, 3, 4), (24,), lambda x: (x // 12, x // 4 % 3, x % 4))
SWAPPED = program((8, 6), (48,), lambda x: (x % 8, x // 8))
NUMBER = program((48,), (6, 8), lambda i, j: (i * 8 + j,))
BOTH = program((6, 8), (4, 12), lambda i, j: ((i * 12 + j) // 8, (i * 12 + j) % 8))


@pytest.mark.parametrize("original", [DIGITS, THREE, SWAPPED, NUMBER], ids=["digits", "three", "swapped", "number"])
def test_reshapes_are_inlined_into_their_producer(original: Program) -> None:
    s = Schedule(original)
    s.reverse_compute_inline("C")
    assert [b.name for b in s.get_blocks()] == ["B"]
    agrees(original, s)


@pytest.mark.parametrize(
    ("original", "at"), [(DIGITS, 0), (DIGITS, 1), (THREE, 0), (THREE, 1), (THREE, 2), (NUMBER, 0)]
)
def test_reshapes_are_computed_in_loops_of_their_producer(original: Program, at: int) -> None:
    s = Schedule(original)
    s.reverse_compute_at("C", s.get_loops("B")[at])
    assert len(s.get_loops("C")) >= at + 1
    agrees(original, s)


@pytest.mark.parametrize("factor", [2, 4, 8, 16])
def test_parts_of_a_flat_producer(factor: int) -> None:
    s = Schedule(NUMBER)
    outer, _ = s.split(s.get_loops("B")[0], factor=factor)
    s.reverse_compute_at("C", outer)
    agrees(NUMBER, s)


@pytest.mark.parametrize("factor", [3, 5])
def test_parts_that_are_no_boxes_are_refused(factor: int) -> None:
    s = Schedule(NUMBER)
    outer, _ = s.split(s.get_loops("B")[0], factor=factor)
    before = s.program
    with pytest.raises(ScheduleError) as caught:
        s.reverse_compute_at("C", outer)
    assert caught.value.code in ("S024", "S023") and s.program is before


def test_columns_of_digits_are_no_interval() -> None:
    s = Schedule(DIGITS)
    i, j = s.get_loops("B")
    s.reorder(j, i)
    with pytest.raises(ScheduleError, match="may read more"):
        s.reverse_compute_at("C", j)


def test_a_producer_with_more_digits_than_are_read() -> None:
    """B has 10 columns, C reads 8 of them: the others are computed for nobody."""
    original = program((6, 10), (48,), lambda x: (x // 8, x % 8))
    s = Schedule(original)
    s.reverse_compute_inline("C")
    check(original, s.program)


@pytest.mark.parametrize("size", [40, 45])
def test_a_consumer_with_fewer_elements(size: int) -> None:
    original = program((6, 8), (size,), lambda x: (x // 8, x % 8))
    s = Schedule(original)
    s.reverse_compute_inline("C")
    check(original, s.program)


def test_mixed_indices_are_refused() -> None:
    s = Schedule(BOTH)
    with pytest.raises(ScheduleError, match="element by element"):
        s.reverse_compute_inline("C")


def elementwise(rows: int, columns: int) -> Program:
    return program((rows, columns), (rows, columns), lambda i, j: (i, j))


@pytest.mark.parametrize("tiles_of_consumer", [False, True])
@pytest.mark.parametrize("at", [0, 1])
def test_tiles_made_by_blockize(tiles_of_consumer: bool, at: int) -> None:
    original = elementwise(8, 12)
    s = Schedule(original)
    for name in ("B", "C") if tiles_of_consumer else ("B",):
        s.blockize(s.tile(*s.get_loops(name), 4, 4)[2])
    s.reverse_compute_at("C_o" if tiles_of_consumer else "C", s.get_loops("B_o")[at])
    agrees(original, s)


def test_tiles_of_other_sizes_are_refused() -> None:
    s = Schedule(elementwise(8, 12))
    s.blockize(s.tile(*s.get_loops("B"), 4, 4)[2])
    s.blockize(s.tile(*s.get_loops("C"), 8, 4)[2])
    with pytest.raises(ScheduleError) as caught:
        s.reverse_compute_at("C_o", s.get_loops("B_o")[0])
    assert caught.value.code == "S024"
