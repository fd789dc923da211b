"""Software pipelining: accepted stages and orders give the same results, and iterations overlap."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import Program
from weft.tir.text import parse, to_text


def chain(rows: object) -> Program:
    """Three stages over the same rows; the last reads both others."""
    a = te.placeholder((rows, 5), name="A")
    p = te.compute((rows, 5), lambda i, j: a[i, j] * 2.0, name="P")
    q = te.compute((rows, 5), lambda i, j: p[i, 4 - j] + 1.0, name="Q")
    return te_to_tir("chain", [a], [te.compute((rows, 5), lambda i, j: q[i, j] * p[i, j], name="C")])


def in_rows(program: Program) -> Schedule:
    s = Schedule(program)
    row = s.get_loops("C")[0]
    s.compute_at("Q", row)
    s.compute_at("P", row)
    return s


def agrees(original: Program, s: Schedule, rows: int, sizes: dict[str, int] | None = None) -> str:
    x = np.random.default_rng(rows).random((rows, 5), dtype=np.float32)
    kernel = tir_to_kernel(s.program, Target("cpu"))
    (expected,) = run(original, [x], sizes)
    judged = Interpreter(kernel, races=True).run([x], sizes).outputs[0]
    np.testing.assert_array_equal(judged.reshape(rows, 5), expected)
    np.testing.assert_allclose(run_program(s.program, [x], list((sizes or {}).values()))[0], expected, rtol=1e-6)
    return to_text(kernel)


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("stages", "order"),
    [((0, 0, 0), (0, 1, 2)), ((0, 1, 2), (2, 1, 0)), ((0, 1, 2), (0, 1, 2)), ((0, 0, 1), (1, 2, 0)),
     ((0, 2, 5), (1, 2, 0)), ((3, 3, 4), (0, 1, 2))],
)  # fmt: skip
def test_stages_and_orders_agree(rows: int, stages: tuple[int, ...], order: tuple[int, ...]) -> None:
    original = chain(rows)
    s = in_rows(original)
    s.pipeline(s.get_loops("C")[0], stages, order)
    agrees(original, s, rows)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_symbolic_extents(rows: int) -> None:
    original = chain(te.var("n"))
    s = in_rows(original)
    s.pipeline(s.get_loops("C")[0], (0, 1, 2), (2, 1, 0))
    agrees(original, s, rows, {"n": rows})


def test_steady_loop_overlaps_iterations() -> None:
    original = chain(9)
    s = in_rows(original)
    s.pipeline(s.get_loops("C")[0], (0, 0, 1), (1, 2, 0))
    text = agrees(original, s, 9)
    assert "allocate P: f32[10]" in text and "allocate Q: f32[10]" in text  # two iterations are under way
    steady = text[text.index("in serial(1, 8)") :]
    assert steady.index("C[") < steady.index("P[") < steady.index("Q[j")


def test_statements_inside_vectors_windows_and_threads() -> None:
    original = chain(12)
    s = in_rows(original)
    row = s.get_loops("C")[0]
    strip, row = s.split(row, nparts=3)
    for block in s.get_blocks():
        s.vectorize(s.get_loops(block)[-1])
    s.parallel(strip)
    s.pipeline(row, (0, 1, 2), (0, 1, 2))
    agrees(original, s, 12)


def test_annotated_programs_are_read_back() -> None:
    s = in_rows(chain(9))
    s.pipeline(s.get_loops("C")[0], (0, 1, 2), (2, 1, 0))
    again = Schedule(parse(to_text(s.program)))
    with pytest.raises(ScheduleError) as caught:
        again.compute_root("P")
    assert caught.value.code == "S066"
    before = again.program
    with pytest.raises(ScheduleError):
        again.unroll(again.get_loops("C")[0])
    assert again.program is before
    again.unannotate(again.get_loops("C")[0], "pipeline_stages")
    again.compute_root("P")


@pytest.mark.parametrize("wish", ["P", "Q"])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_double_buffers_are_filled_ahead(wish: str, rows: int) -> None:
    original = chain(rows)
    s = in_rows(original)
    s.double_buffer(wish)
    text = agrees(original, s, rows)
    assert rows == 1 or f"allocate {wish}: f32[10]" in text
    assert rows < 9 or "in serial(1, 8)" in text


def test_double_buffers_of_parallel_loops_are_left_alone() -> None:
    original = chain(9)
    s = in_rows(original)
    row = s.get_loops("C")[0]
    s.double_buffer("P")
    s.parallel(row)
    assert "allocate P: f32[5]" in agrees(original, s, 9)


def test_double_buffers_in_a_pipeline_are_left_alone() -> None:
    original = chain(9)
    s = in_rows(original)
    s.double_buffer("P")
    s.pipeline(s.get_loops("C")[0], (0, 1, 2), (2, 1, 0))
    agrees(original, s, 9)


@pytest.mark.parametrize("pipeline_first", [True, False])
def test_pipelined_buffers_do_not_keep_their_contents_across_outer_loops(pipeline_first: bool) -> None:
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda i: a[i] + 1.0, name="B")
    s = Schedule(te_to_tir("kept", [a], [te.compute((3, 6), lambda t, i: b[i] * 2.0, name="C")]))
    again, inner = s.get_loops("C")
    s.compute_at("B", inner)
    steps = [lambda: s.pipeline(inner, (0, 1), (0, 1)), lambda: s.run_once("B", again, 0)]
    first, second = steps if pipeline_first else reversed(steps)
    first()
    before = s.program
    with pytest.raises(ScheduleError, match="later iterations of a loop around") as caught:
        second()
    assert caught.value.code == ("S066" if pipeline_first else "S065") and s.program is before
