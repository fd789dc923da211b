"""Primitives of the field's notation for tensor programs: each computes the same, and refuses what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, conv2d_relu, inputs_for, matmul_relu, softmax

from weft import te
from weft.expr.nodes import maximum
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, Trace
from weft.schedule.refs import LoopRef
from weft.support.errors import ScheduleError
from weft.tir.interpret import execute, run
from weft.tir.nodes import Program
from weft.tir.text import to_text
from weft.tir.verify import verify


def agrees(original: Program, s: Schedule) -> None:
    """Interpreter, compiled code and both replays of the trace agree with the original."""
    check(original, s.program)
    given = inputs_for(original)
    for want, got in zip(run(original, given), run_program(s.program, given, []), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    replayed(original, s)


def replayed(original: Program, s: Schedule) -> None:
    read = Trace.from_json(s.trace.to_json())
    executed = Schedule(original)
    exec(read.to_python(), {"s": executed})
    for again in (Schedule(original).replay(read), executed):
        assert to_text(again.program) == to_text(s.program)


def refused(code: str, s: Schedule, action: Callable[[], object]) -> str:
    before = s.program
    with pytest.raises(ScheduleError) as caught:
        action()
    assert caught.value.code == code and s.program is before, str(caught.value)
    return str(caught.value)


def matmul() -> Program:
    return matmul_relu(8, 12, 6)


# -- variables of blocks ------------------------------------------------------------------------------------


def test_variables_in_another_order() -> None:
    s = Schedule(matmul())
    s.reorder_block_iter_var("C", [2, 0, 1])
    assert 'block "C"(k: reduce 6 = k, i: spatial 8 = i, j: spatial 12 = j)' in to_text(s.program)
    agrees(matmul(), s)
    refused("S004", s, lambda: s.reorder_block_iter_var("C", [0, 1]))
    refused("S004", s, lambda: s.reorder_block_iter_var("C", [0, 0, 1]))


@pytest.mark.parametrize(
    "index_map",
    [
        lambda i, j, k: (i // 4, j // 3, k, i % 4, j % 3),
        lambda i, j, k: (k // 2, j, i, k % 2),
        lambda i, j, k: (i * 12 + j, k),
        lambda i, j, k: (k, j * 8 + i),
    ],
    ids=["tiles", "reduction", "number", "swapped"],
)
def test_a_block_runs_over_other_variables(index_map: Callable[..., object]) -> None:
    s = Schedule(matmul())
    s.transform_block_layout("C", index_map)
    assert len(s.get_loops("C")) == len(s.state.block("C").iters)
    agrees(matmul(), s)
    assert all(n == 1 for n in execute(s.program, inputs_for(matmul())).counts["C"].values())


@pytest.mark.parametrize(
    "index_map",
    [
        lambda i, j, k: (i // 3, j, k, i % 3),
        lambda i, j, k: (i // 4, j, k),
        lambda i, j, k: (i, i, j, k),
        lambda i, j, k: (i * 6 + k, j),
        lambda i, j, k: (i * 13 + j, k),
        lambda i, j, k: (i + 1, j, k),
    ],
    ids=["uneven", "lost", "twice", "kinds", "gaps", "shifted"],
)
def test_maps_that_do_not_carry_every_instance_once(index_map: Callable[..., object]) -> None:
    s = Schedule(matmul())
    refused("S070", s, lambda: s.transform_block_layout("C", index_map))


def test_a_block_with_changed_loops_keeps_its_variables() -> None:
    s = Schedule(matmul())
    s.split(s.get_loops("C")[0], factor=4)
    refused("S011", s, lambda: s.transform_block_layout("C", lambda i, j, k: (j, i, k)))


# -- merged loops -------------------------------------------------------------------------------------------


def rows() -> Program:
    """Two stages over rows, the second of which reads its own row, and one that reads all rows."""
    a = te.placeholder((6, 8), name="A")
    p = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="P")
    q = te.compute((6, 8), lambda i, j: p[i, 7 - j] + 1.0, name="Q")
    return te_to_tir("rows", [a], [te.compute((6, 8), lambda i, j: q[5 - i, j] + p[i, j], name="C")])


def test_loops_of_neighbours_are_merged() -> None:
    s = Schedule(rows())
    loop = s.merge(s.get_loops("P")[0], s.get_loops("Q")[0])
    assert s.get_loops("P")[0] == s.get_loops("Q")[0] == loop
    agrees(rows(), s)
    s.parallel(loop)
    agrees(rows(), s)
    refused("S015", s, lambda: s.merge(s.get_loops("P")[1], s.get_loops("Q")[1]))


def test_loops_that_need_other_iterations_are_not_merged() -> None:
    s = Schedule(rows())
    refused("S015", s, lambda: s.merge(s.get_loops("Q")[0], s.get_loops("C")[0]))
    refused("S013", s, lambda: s.merge(s.get_loops("P")[0], s.get_loops("C")[0]))
    refused("S013", s, lambda: s.merge(s.get_loops("Q")[0], s.get_loops("P")[0]))
    other = Schedule(lengths())
    refused("S012", other, lambda: other.merge(other.get_loops("P")[0], other.get_loops("Q")[0]))


def lengths() -> Program:
    a = te.placeholder((6, 8), name="A")
    p = te.compute((6,), lambda i: a[i, 0] * 2.0, name="P")
    q = te.compute((5,), lambda i: p[i] + 1.0, name="Q")
    return te_to_tir("two", [a], [te.compute((5,), lambda i: q[i], name="C")])


def test_a_reduction_is_complete_before_it_is_used() -> None:
    original = softmax(4, 4)
    s = Schedule(original)
    row = s.merge(*(s.get_loops(b)[0] for b in ("most", "exps", "total", "softmax")))
    agrees(original, s)
    assert row
    refused("S015", s, lambda: s.merge(s.get_loops("most")[1], s.get_loops("exps")[1]))


def test_a_start_and_its_reduction_are_merged() -> None:
    original = matmul()
    s = Schedule(original)
    init = s.decompose_reduction("C", s.get_loops("C")[0])
    loop = s.merge(s.get_loops(init)[0], s.get_loops("C")[0])
    assert loop
    agrees(original, s)


def recurrence(mirrored: bool = False) -> Program:
    """Sums along columns, read in another order of steps, and perhaps of columns."""
    a, state = te.placeholder((6, 8), name="A"), te.placeholder((6, 8), name="state")
    first = te.compute((1, 8), lambda t, i: a[t, i], name="first")
    step = te.compute((6, 8), lambda t, i: state[t - 1, i] + a[t, i], name="step")
    totals = te.scan(first, step, state, [a], name="sums")
    return te_to_tir(
        "recurrence", [a], [te.compute((8, 6), lambda i, t: totals[5 - t, 7 - i if mirrored else i], name="C")]
    )


def strips(s: Schedule, width: int) -> list[LoopRef]:
    found = []
    for block, column, time in (("sums.init", 1, 0), ("step", 1, 0), ("C", 0, 1)):
        loops = s.get_loops(block)
        outside, inside = s.split(loops[column], factors=(None, width))
        s.reorder(outside, loops[time], inside)
        found.append(outside)
    return found


@pytest.mark.parametrize("width", [1, 4, 3])
def test_strips_of_columns_are_merged(width: int) -> None:
    """Later nests read elements that earlier ones wrote or changed, but each iteration only its own columns."""
    original = recurrence()
    s = Schedule(original)
    s.compute_inline("first")
    loop = s.merge(*strips(s, width))
    agrees(original, s)
    s.parallel(loop)
    agrees(original, s)


def test_strips_that_read_other_columns_are_not_merged() -> None:
    s = Schedule(recurrence(mirrored=True))
    s.compute_inline("first")
    *own, reader = strips(s, 4)
    refused("S015", s, lambda: s.merge(*own, reader))
    assert s.merge(*own)


# -- operands in the shape of a block -----------------------------------------------------------------------


def convolution() -> Program:
    x, w = te.placeholder((11,), name="X"), te.placeholder((3, 4), name="W")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((4, 5), lambda o, n: te.sum(x[n * 2 + k] * w[k, o], axis=k), name="Y")
    return te_to_tir("conv", [x, w], [te.compute((4, 5), lambda o, n: maximum(y[o, n], 0.0), name="Z")])


def test_operands_get_the_shape_of_the_block() -> None:
    s = Schedule(convolution())
    names = [r.buffer.name for r in s.state.block("Y").reads]
    data = s.reindex("Y", names.index("X"))
    weights = s.reindex("Y", names.index("W"))
    result = s.reindex("Y", 0, written=True)
    shapes = {b.name: [int(d) for d in b.shape] for b in s.program.allocs}
    assert shapes["X_reindex"] == [5, 3] and shapes["W_reindex"] == [4, 3] and shapes["Y_reindex"] == [4, 5]
    assert {data.name, weights.name, result.name} == {"X_reindex", "W_reindex", "Y_reindex"}
    agrees(convolution(), s)


def test_places_that_do_not_exist_for_all_values_are_not_copied() -> None:
    original = conv2d_relu(2, 5, 2)
    s = Schedule(original)
    refused("S045", s, lambda: s.reindex("pad", 0))
    refused("S040", s, lambda: s.reindex("pad", 4))
    s.split(s.get_loops("conv")[0], factor=1)
    agrees(original, s)


def test_a_block_that_reads_a_buffer_at_two_places_is_not_reindexed() -> None:
    a = te.placeholder((8,), name="A")
    original = te_to_tir("two", [a], [te.compute((7,), lambda i: a[i] + a[i + 1], name="C")])
    s = Schedule(original)
    refused("S040", s, lambda: s.reindex("C", 0))


# -- padding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(5))
def test_padding_is_filled_first(at: int) -> None:
    original = conv2d_relu(2, 5, 2)
    s = Schedule(original)
    fill = s.decompose_padding("pad", s.get_loops("pad")[at])
    assert fill.name == "pad_pad" and "select" not in to_text(s.program).split('block "conv"')[0]
    agrees(original, s)


def test_padding_inside_of_a_consumer() -> None:
    original = conv2d_relu(2, 5, 2)
    s = Schedule(original)
    s.compute_at("pad", s.get_loops("conv")[2])
    s.decompose_padding("pad", s.get_loops("pad")[3])
    agrees(original, s)


def test_only_choices_with_a_constant_are_padding() -> None:
    s = Schedule(conv2d_relu(2, 5, 2))
    refused("S057", s, lambda: s.decompose_padding("relu", s.get_loops("relu")[0]))
    refused("S057", s, lambda: s.decompose_padding("conv", s.get_loops("conv")[0]))
    refused("S051", s, lambda: s.decompose_padding("pad", s.get_loops("conv")[0]))


# -- types, copies, layouts of parameters -------------------------------------------------------------------


def test_values_are_stored_in_another_type() -> None:
    original = matmul()
    s = Schedule(original)
    s.unsafe_set_dtype("C", 0, "float64")
    assert next(b for b in s.program.allocs if b.name == "C").dtype == "float64"
    agrees(original, s)
    s.unsafe_set_dtype("C", 0, "int8")
    agrees(original, s)  # the sums are small whole numbers
    refused("S041", s, lambda: s.unsafe_set_dtype("relu", 0, "float16"))
    refused("S004", s, lambda: s.unsafe_set_dtype("C", 0, "float17"))
    refused("S040", s, lambda: s.unsafe_set_dtype("C", 1, "float16"))


def test_a_narrow_type_rounds() -> None:
    a = te.placeholder((4,), name="A")
    p = te.compute((4,), lambda i: a[i] + 0.0, name="P")
    original = te_to_tir("narrow", [a], [te.compute((4,), lambda i: p[i] * 1.0, name="C")])
    s = Schedule(original)
    s.unsafe_set_dtype("P", 0, "float16")
    verify(s.program)
    values = np.array([1.0001, 1 / 3, 3.14159, 1e-3], "float32")
    want = values.astype("float16").astype("float32")
    np.testing.assert_array_equal(run(s.program, [values])[0], want)
    np.testing.assert_array_equal(run_program(s.program, [values], [])[0], want)


def test_copies_in_a_loop() -> None:
    original = matmul()
    s = Schedule(original)
    read = s.read_at(s.get_loops("C")[0], "C", 0, "local")
    written = s.write_at(s.get_loops("C")[0], "C", 0, "local")
    assert len(s.get_loops(read)) >= 1 and len(s.get_loops(written)) >= 1
    agrees(original, s)
    refused("S023", s, lambda: s.write_at(s.get_loops("C")[2], "C"))


def test_the_layout_of_a_parameter_changes_only_with_permission() -> None:
    original = matmul()
    s = Schedule(original)
    assert "change_parameter" in refused("S071", s, lambda: s.transform_layout("C", "B", lambda k, j: (j, k)))
    s.transform_layout("C", "B", lambda k, j: (j // 4, k, j % 4), change_parameter=True)
    s.transform_layout("relu", "relu", lambda i, j: (j, i), change_parameter=True)
    verify(s.program)
    replayed(original, s)
    a, b = inputs_for(original)
    packed = np.ascontiguousarray(b.reshape(6, 3, 4).transpose(1, 0, 2))
    want = np.maximum(a @ b, 0).T
    np.testing.assert_allclose(run(s.program, [a, packed])[0], want)
    np.testing.assert_allclose(run_program(s.program, [a, packed], [])[0], want)


def test_layouts_of_parameters_that_cannot_change() -> None:
    s = Schedule(matmul())
    refused("S072", s, lambda: s.transform_layout("relu", "relu", lambda i, j: (j // 5, i, j % 5), None, True))
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    open_ = Schedule(te_to_tir("open", [a], [te.compute((n, 4), lambda i, j: a[i, j] + 1.0, name="C")]))
    refused("S071", open_, lambda: open_.transform_layout("C", "A", lambda i, j: (j, i), None, True))
