"""Default rules: a rule that does not fit leaves no changes; large results use streaming stores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import matmul_relu

from weft import te
from weft.cost.caches import exceeds_last_cache, last_cache
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.schedule.refs import BlockRef
from weft.schedule.rules import cpu as rules
from weft.schedule.rules.common.context import Context
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text

ZEN4 = Target("zen4")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_failed_attempt_does_not_change_the_context(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STRICT", "0")
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), ZEN4)
    context.separate.add("kept")
    context.done.add("placed")
    before = str(context.schedule.program)

    def rule(context: Context, block: BlockRef) -> bool:
        context.separate.add("C")
        context.done.add("C")
        context.nested = True
        context.schedule.split(context.schedule.get_loops(block)[0], factor=2)
        if refuses:
            context.schedule.split(context.schedule.get_loops(block)[0], factor=0)
        return False

    assert not rules._attempt(context, rule, context.schedule.get_block("C"))
    assert (context.separate, context.done, context.nested) == ({"kept"}, {"placed"}, False)
    assert str(context.schedule.program) == before
    if refuses:
        monkeypatch.setenv("WEFT_STRICT", "1")
        with pytest.raises(ScheduleError):
            rules._attempt(context, rule, context.schedule.get_block("C"))


def test_restoring_covers_every_field() -> None:
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), ZEN4)
    saved = context.saved()
    for f in dataclasses.fields(context):
        setattr(context, f.name, None)
    context.restore(saved)
    assert all(getattr(context, f.name) is getattr(saved, f.name) for f in dataclasses.fields(context))


def strict_trace(y: te.Tensor, *inputs: te.Tensor) -> str:
    """What the rules do, none of which is refused anything."""
    return rules.default_schedule(te_to_tir("f", inputs, (y,)), ZEN4).trace.to_python()


def test_reductions_over_two_axes_that_lanes_do_not_divide_run_in_lanes() -> None:
    x = te.placeholder((2, 7, 7), name="x")
    k, m = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 7), "m")
    made = strict_trace(te.compute((2,), lambda i: te.sum(x[i, k, m], axis=(k, m)), name="y"), x)
    assert "rfactor" in made and "vectorize" in made


def test_windows_with_edges_run_in_lanes_below_rows() -> None:
    x = te.placeholder((8, 30, 30, 16), name="x")
    k, m = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 3), "m")

    def at(i: te.Expr, d: te.Expr, n: te.Expr, c: te.Expr) -> te.Expr:
        inside = te.all(d + k >= 1, d + k < 31, n + m >= 1, n + m < 31)
        return te.max(te.if_then_else(inside, x[i, d + k - 1, n + m - 1, c], te.min_value("float32")), axis=(k, m))

    made = strict_trace(te.compute((8, 30, 30, 16), at, name="y"), x)
    assert "vectorize" in made and "parallel" in made and "unroll" in made


def test_a_rule_that_fits_keeps_what_it_decided() -> None:
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), ZEN4)

    def rule(context: Context, block: BlockRef) -> bool:
        context.separate.add(block.name)
        return True

    assert rules._attempt(context, rule, context.schedule.get_block("C"))
    assert context.separate == {"C"}


def streams(shape: tuple[int, ...], perm: tuple[int, ...] | None = None, target: Target = ZEN4) -> bool:
    """Whether the default schedule writes relu of a tensor, or its transpose, past the caches."""
    x = te.placeholder(shape, name="x")
    if perm is None:
        y = te.compute(shape, lambda *i: te.max(x[i], 0.0), name="y")
    else:
        y = te.compute(tuple(shape[p] for p in perm), lambda *i: x[tuple(i[perm.index(d)] for d in range(len(i)))])
    return "stream" in rules.default_schedule(te_to_tir("f", (x,), (y,)), target).trace.to_python()


def test_results_larger_than_the_caches_are_written_past_them() -> None:
    numbers = ZEN4.cpu.l3 // 4
    rows = numbers * 3 // 4 // 2 // 1024  # three quarters, together with what is read
    assert streams((rows + 1, 1024))
    assert not streams((rows, 1024))
    assert not streams((4096, numbers // 1024), (1, 0))
    assert not streams((0, 1024))


@pytest.mark.parametrize(("cores", "megabytes"), [(1, 32), (2, 64), (4, 96), (64, 96)])
def test_a_few_cores_have_a_share_of_the_last_cache(cores: int, megabytes: int) -> None:
    """A virtual machine of two cores reports the last cache of the whole machine, which others fill: results of 50 to
    130 MB took 1.3 to 1.4 times as long as past it, and those who read them did not make up for it."""
    target, rows = Target(f"zen4 -num-cores={cores} -l3={96 << 20}"), megabytes * 3 // 4 << 20 >> 13
    assert streams((rows + 1, 1024), target=target) and not streams((rows, 1024), target=target)


def test_without_a_third_cache_the_second_is_the_last() -> None:
    assert last_cache(1 << 20, 0, 4) == 1 << 20
    assert exceeds_last_cache(1 << 20, 1 << 20, 0, 4)
    assert not exceeds_last_cache(1 << 30, 0, 0, 1)


def test_of_an_operand_counts_what_is_read() -> None:
    """Each half of a tensor that is split: of twice the last cache, halves took 1.8 times as long as two copies."""
    rows = ZEN4.cpu.l3 * 3 // 4 // 4 // 1024

    def part(read: int, tensor: int) -> bool:
        x = te.placeholder((tensor, 1024), name="x")
        y = te.compute((read, 1024), lambda i, j: x[i + tensor - read, j], name="y")
        return "stream" in rules.default_schedule(te_to_tir("f", (x,), (y,)), ZEN4).trace.to_python()

    assert part(rows, 2 * rows) and part(rows // 2 + 1, 2 * rows)
    assert not part(rows // 2, 2 * rows) and not part(16, 4 * rows)


def sigmoid_of(shape: tuple[int, ...], target: Target, cheap: bool = False) -> Program:
    """A value of many operations of a tensor and a row; or a sum."""
    x, row = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="row")
    y = te.compute(shape, lambda *i: (x[i] if cheap else te.sigmoid(x[i])) + row[i[-1]], name="y")
    return rules.default_schedule(te_to_tir("f", (x, row), (y,)), target).program


@pytest.mark.parametrize("columns", [32768, 8192, 4096, 1024, 112, 48])
def test_large_operands_of_values_of_many_operations_are_prefetched(columns: int) -> None:
    """Streaming stores and few loads at once: a sigmoid in memory took 1.5 times as long as onnxruntime, and rows of
    8192 or 16384 numbers that are not prefetched 1.6 times as long as those that are."""
    rows = ZEN4.cpu.l3 // 4 // columns
    text = to_text(sigmoid_of((rows, columns), ZEN4))
    assert 'prefetch_shares = [["x", ' in text and 'prefetch_share = ["x"]' in text
    assert '"row"' not in text
    assert "prefetch" not in to_text(sigmoid_of((rows, columns), ZEN4, cheap=True))
    assert "prefetch" not in to_text(sigmoid_of((max(1, rows // 8), columns), ZEN4))


def test_flat_operands_are_prefetched_two_chunks_ahead() -> None:
    x = te.placeholder((ZEN4.cpu.l3 // 4,), name="x")
    y = te.compute(x.shape, lambda i: te.sigmoid(x[i]), name="y")
    text = to_text(rules.default_schedule(te_to_tir("f", (x,), (y,)), ZEN4).program)
    assert 'prefetch_shares = [["x", 2]]' in text


@pytest.mark.parametrize("shape", [(40_001,), (13, 1024), (121, 112), (301, 48), (2001, 16), (1, 20_000)])
def test_prefetched_and_streamed_results(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    row = np.random.default_rng(1).standard_normal(shape[-1]).astype(np.float32)
    program = sigmoid_of(shape, Target("cpu -num-cores=2 -l1=1024 -l2=32768 -l3=49152"))
    assert "stream = 0" in to_text(program)
    lanes = Target("cpu").cpu.lanes(32)  # not of rows of one vector, which have no inner loop
    assert ("prefetch" in to_text(program)) == (shape[-1] > lanes)
    found = run_program(program, [data, row])[0]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-data)) + row, rtol=1e-5, atol=1e-6)


def test_parts_of_lines_are_not_written_past_the_caches() -> None:
    numbers = ZEN4.cpu.l3 // 4

    def cut(rows: int, columns: int) -> bool:
        x = te.placeholder((rows, columns + 6), name="x")
        y = te.compute((rows, columns), lambda i, j: x[i, j + 3], name="y")
        return "stream" in rules.default_schedule(te_to_tir("f", (x,), (y,)), ZEN4).trace.to_python()

    assert cut(numbers // 192 + 1, 192)
    assert not cut(numbers // 192 + 1, 202)
