"""Whether a loop runs in several threads, and in how many pieces; only work and target decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runner import run_program

import weft
from weft import te
from weft.cost import REFERENCE
from weft.lowering.te_to_tir import te_to_tir
from weft.runtime import Executable
from weft.schedule.rules.common.access import View, moves_or_decodes
from weft.schedule.rules.common.work import bytes_of, cycles_of, pieces_of, work_of, worth_parallel
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Program, seq
from weft.tir.text import to_text

WORK = st.floats(1, 1e12)
CORES = st.integers(1, 256)


def machine(cores: int, name: str = "x86-64-v4") -> Target:
    return Target(f"{name} -num-cores={cores}")


def summed(*shape: int, dtype: str = "float32") -> Program:
    a = te.placeholder(shape, name="a", dtype=dtype)
    over = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(shape)]
    return te_to_tir(
        "summed", [a], [te.compute((), lambda: te.sum(a[tuple(o.var for o in over)], axis=over), name="total")]
    )


def copied(n: int) -> Program:
    a = te.placeholder((n,), name="a")
    return te_to_tir("copied", [a], [te.compute((n,), lambda i: a[i], name="copy")])


@given(WORK, WORK, CORES)
def test_more_work_is_divided_no_less(some: float, more: float, cores: int) -> None:
    some, more = sorted((some, more))
    target = machine(cores)
    assert 1 <= pieces_of(some, target) <= pieces_of(more, target)
    assert worth_parallel(more, target) or not worth_parallel(some, target)


@given(WORK, CORES)
def test_handing_out_costs_less_than_it_saves(work: float, cores: int) -> None:
    target = machine(cores)
    alone, pieces = cycles_of(work, target), pieces_of(work, target)
    assert REFERENCE.claim_cycles * pieces <= max(REFERENCE.claim_cycles, alone / pieces)
    if worth_parallel(work, target):
        assert alone > REFERENCE.fork_cycles + 2 * REFERENCE.claim_cycles


@pytest.mark.parametrize("cores", [2, 8, 64])
def test_small_work_stays_in_one_thread_and_large_work_does_not(cores: int) -> None:
    for elements, wanted in ((1 << 12, False), (1 << 17, True), (1 << 24, True)):
        text = to_text(default_schedule(copied(elements), machine(cores)).program)
        assert ("parallel(" in text) == wanted, elements


def test_the_work_of_a_copy_is_its_bytes() -> None:
    block = Schedule(copied(1 << 16)).get_blocks()[0]
    view = View(Schedule(copied(1 << 16)).state.block(block))
    assert bytes_of(view, 1 << 16) == 2 * 4 * (1 << 16)
    assert work_of(view) == 4 * (1 << 16)


def test_a_buffer_that_is_read_again_counts_once() -> None:
    a = te.placeholder((64,), name="a")
    schedule = Schedule(te_to_tir("rows", [a], [te.compute((512, 64), lambda i, j: a[j], name="rows")]))
    view = View(schedule.state.block(schedule.get_blocks()[0]))
    assert bytes_of(view, 512 * 64) == 4 * 64 + 4 * 512 * 64


def test_only_single_stores_move_or_decode() -> None:
    """Blocks with several stores do not count, even if the first only moves, and neither do blocks without a store."""
    block = Schedule(copied(64)).state.block(Schedule(copied(64)).get_blocks()[0])
    view = View(block)
    assert moves_or_decodes(view)
    assert not moves_or_decodes(View(replace(block, body=seq(*view.stores, *view.stores))))
    assert not moves_or_decodes(View(replace(block, body=seq())))


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_one_long_sum_is_divided_whatever_the_number_of_cores(cores: int) -> None:
    texts = [to_text(default_schedule(summed(*shape), machine(cores)).program) for shape in ((1 << 18,), (256, 1024))]
    assert all("parallel(" in t for t in texts)
    assert texts == [to_text(default_schedule(summed(*s), machine(8)).program) for s in ((1 << 18,), (256, 1024))]


@pytest.mark.parametrize(
    "shape", [(1,), (0,), (3, 0), (17,), (65536,), (65537,), (257, 1021), (3, 5, 20011), (2, 1 << 17)]
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_long_sums_are_right(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    program = default_schedule(summed(*shape, dtype=dtype), Target("cpu")).program
    assert run_program(program, [x])[0] == x.sum(dtype=np.int64)


def test_long_sums_keep_nan_and_do_not_depend_on_threads() -> None:
    from onnx import TensorProto, helper

    n = 300_007
    x = np.random.default_rng(1).standard_normal(n, dtype=np.float32)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
    ]
    outputs = [info(name, TensorProto.FLOAT, []) for name in "sm"]
    graph = helper.make_graph(nodes, "long", [info("x", TensorProto.FLOAT, [n])], outputs)
    artifact = weft.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    ).artifact
    first = [np.asarray(v) for v in Executable(artifact, 1)(x)]
    np.testing.assert_allclose(first[0], x.sum(dtype=np.float64), rtol=1e-5, atol=1e-2)
    assert first[1] == x.max()
    for threads in (2, 3, 7, 64):
        assert [np.asarray(v).tobytes() for v in Executable(artifact, threads)(x)] == [v.tobytes() for v in first]
    for place in (0, n // 2, n - 1):
        spoiled = x.copy()
        spoiled[place] = np.nan
        assert all(np.isnan(v) for v in Executable(artifact, 2)(spoiled))


def test_single_instructions_are_repeated_rather_than_stored() -> None:
    """Three readers of a rounded row: rounding again costs less than storing the row."""
    a = te.placeholder((40, 50), name="a")
    rounded = te.compute((40, 50), lambda i, j: te.round(a[i, j]), name="rounded")
    k = te.reduce_axis((0, 50), "k")
    total = te.compute((40,), lambda i: te.sum(rounded[i, k.var], axis=k), name="total")
    less = te.compute((40, 50), lambda i, j: rounded[i, j] - total[i], name="less")
    assert 'block "rounded"' not in to_text(default_schedule(te_to_tir("p", [a], [less]), machine(2)).program)
    slow = te.compute((40, 50), lambda i, j: te.exp(a[i, j]), name="slow")
    total = te.compute((40,), lambda i: te.sum(slow[i, k.var], axis=k), name="total")
    less = te.compute((40, 50), lambda i, j: slow[i, j] - total[i], name="less")
    assert 'block "slow"' in to_text(default_schedule(te_to_tir("p", [a], [less]), machine(2)).program)


@pytest.mark.parametrize("shape", [(te.var("n"), te.var("m")), (389, 257)], ids=["open", "odd"])
def test_values_made_of_positions_need_no_division(shape: tuple[te.Var | int, ...]) -> None:
    """The axes of a diagonal are not fused: each element would divide its place by the size of a row."""
    made = te.compute(shape, lambda i, j: te.select(i == j, te.const(1.0), te.const(0.0)), name="diagonal")
    program = default_schedule(te_to_tir("eye", [], [made]), machine(2)).program
    text = to_text(program)
    inner = text[text.index('block "diagonal"') :]
    assert "//" not in inner and "%" not in inner
    sizes = {v.name: n for v, n in zip(program.sizes, (5, 37), strict=False)}
    expected = np.eye(*(d if isinstance(d, int) else sizes[d.name] for d in shape), dtype=np.float32)
    np.testing.assert_array_equal(run_program(program, [], list(sizes.values()))[0], expected)


@pytest.mark.parametrize("how", ["repeated", "interleaved", "every second", "reversed"])
def test_rows_in_another_order_are_stored_before_they_are_reduced(how: str) -> None:
    """Read where they are, their elements would be added one by one."""
    places = {
        "repeated": (lambda j: j // 2, 64),
        "interleaved": (lambda j: j % 2 * 32 + j // 2, 64),
        "every second": (lambda j: 2 * j, 32),
        "reversed": (lambda j: 63 - j, 64),
    }
    place, columns = places[how]
    a = te.placeholder((40, 64), name="a")
    moved = te.compute((40, columns), lambda i, j: a[i, place(j)], name="moved")
    k = te.reduce_axis((0, columns), "k")
    total = te.compute((40,), lambda i: te.sum(moved[i, k.var], axis=k), name="total")
    less = te.compute((40, columns), lambda i, j: moved[i, j] - total[i], name="less")
    made = default_schedule(te_to_tir("p", [a], [less]), machine(2))
    assert made.notes == () and 'block "moved"' in to_text(made.program)
    x = np.random.default_rng(0).integers(-9, 9, (40, 64)).astype(np.float32)
    rows = x[:, [place(j) for j in range(columns)]]
    np.testing.assert_array_equal(run_program(made.program, [x])[0], rows - rows.sum(1, keepdims=True))
