"""Padded domains: whole tiles for blocks whose extents do not divide."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for, matmul_relu

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.text import to_text


@pytest.mark.parametrize("padding", [(8, 8, 4), (1, 16, 1), (4, 1, 8), (16, 16, 16)])
def test_products_of_odd_sizes(padding: tuple[int, ...]) -> None:
    original = matmul_relu(13, 9, 5)
    s = Schedule(original)
    made = s.pad_einsum("C", padding)
    check(original, s.program)
    for loop, p in zip(s.get_loops("C"), padding, strict=True):
        assert int(s.state.loop(loop).extent.value) % p == 0
    assert {b.name for b in made} <= {"A_pad", "B_pad", "C_crop"}


def test_no_tile_is_cut_and_copies_can_be_moved() -> None:
    original = matmul_relu(13, 9, 5)
    s = Schedule(original)
    i, j, k = s.get_loops("C")
    a_pad, b_pad, crop = s.pad_einsum("C", (4, 8, 1))
    i_o, j_o, i_i, j_i = s.tile(i, j, 4, 8)  # the loops from before
    s.reorder(i_o, j_o, k, i_i, j_i)
    s.decompose_reduction("C", k)
    s.vectorize(j_i)
    s.compute_at(a_pad, i_o)
    s.compute_inline(b_pad)
    s.compute_inline(crop)
    check(original, s.program)
    assert "where" not in to_text(s.program)
    given = inputs_for(original)
    np.testing.assert_allclose(run_program(s.program, given)[0], run(original, given)[0], rtol=1e-5)


def test_extents_that_already_divide_are_not_padded() -> None:
    s = Schedule(matmul_relu(8, 8, 4))
    before = s.program
    assert s.pad_einsum("C", (4, 8, 2)) == ()
    assert s.program is before


def test_symbolic_and_elementwise_and_integer_blocks() -> None:
    n = te.var("n")
    a = te.placeholder((n, 5), "int8", name="A")
    k = te.reduce_axis((0, 5), "k")
    f = te.placeholder((n,), "int32", name="F")
    c = te.compute((n,), lambda i: te.sum(a[i, k].astype("int32") * f[i], axis=k), name="C")
    original = te_to_tir("p", [a, f], [te.compute((n,), lambda i: c[i] + 1, name="D")])
    s = Schedule(original)
    s.pad_einsum("C", (4, 8))
    s.pad_einsum("D", (16,))
    check(original, s.program, {"n": 7})


def test_infinite_operands_stay_outside() -> None:
    """Padding multiplies zeros with zeros only."""
    original = matmul_relu(3, 3, 3)
    s = Schedule(original)
    s.pad_einsum("C", (4, 4, 4))
    given = [np.full((3, 3), np.inf, np.float32), np.ones((3, 3), np.float32)]
    np.testing.assert_array_equal(run(s.program, given)[0], run(original, given)[0])


def test_the_classic_notation() -> None:
    a, b = te.placeholder((13, 5), name="A"), te.placeholder((5, 9), name="B")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((13, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    a_pad, b_pad, crop = s[c].pad_einsum((4, 16, 1))
    s[a_pad].vectorize(a_pad.op.axis[1])
    s[b_pad].parallel(b_pad.op.axis[0])
    s[crop].parallel(crop.op.axis[0])
    s[c].split(c.op.axis[0], factor=4)
    f = weft.build(s, [a, b, c])
    x, y = np.random.default_rng(0).random((13, 5), "float32"), np.random.default_rng(1).random((5, 9), "float32")
    np.testing.assert_allclose(f(x, y), x @ y, rtol=1e-5)


@pytest.mark.parametrize("columns", [24, 35])
def test_panels_that_are_whole_are_not_copied(columns: int) -> None:
    """Other indices may be of any form; what has elements for the whole domain is read where it lies."""
    a, panels = te.placeholder((13, 6), name="A"), te.placeholder((-(-columns // 16), 3, 16, 2), name="B")
    k, e = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "e")
    c = te.compute(
        (13, columns), lambda i, j: te.sum(a[i, k * 2 + e] * panels[j // 16, k, j % 16, e], axis=[k, e]), name="C"
    )
    original = te_to_tir("p", [a, panels], [c])
    s = Schedule(original)
    made = s.pad_einsum("C", (8, 16, 1, 1))
    assert {b.name for b in made} == {"A_pad", "C_crop"}
    check(original, s.program)
    with pytest.raises(ScheduleError, match="one variable for each index"):
        Schedule(original).pad_einsum("C", (8, 128, 1, 1))


def test_a_padded_sum_copies_operands_that_are_long_enough() -> None:
    a, b = te.placeholder((4, 8), name="A"), te.placeholder((8, 4), name="B")
    k = te.reduce_axis((0, 5), "k")
    original = te_to_tir("p", [a, b], [te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    with pytest.raises(ScheduleError, match="one variable for each index"):
        Schedule(original).pad_einsum("C", (1, 1, 8))
