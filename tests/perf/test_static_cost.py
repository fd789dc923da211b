"""The static cost of kernels sees what it should: a kernel made worse on purpose is reported, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import perf_cases
import pytest

import weft.schedule.rules.cpu as rules
from weft import te
from weft.backends.llvm import LLVM, emit_ir, explained
from weft.backends.protocol import Backend
from weft.kernels.machine_code import lowered
from weft.pipeline import optimize, unscheduled
from weft.schedule.schedule import Schedule
from weft.static_cost.bound import least
from weft.static_cost.invariant import repeated
from weft.static_cost.ir import IrFunction, functions
from weft.static_cost.judge import Judgement, judge, kernels, machine_of
from weft.static_cost.kernel import kernel_cost
from weft.static_cost.trips import Trips
from weft.support.errors import UserError
from weft.target import Target

ZEN4 = Target("zen4")
PLAIN = replace(LLVM, schedule=lambda program, target, rules=(), intrinsics=(): Schedule(program))
"""A back end without rules: every kernel computes one number after the other."""


def verdicts(case: str, backend: Backend | None = None) -> dict[str, Judgement]:
    return {v.kernel: v for v in judge(kernels(optimize(perf_cases.module(case), ZEN4)), ZEN4, backend)}


@pytest.mark.parametrize("case", ["layer norm", "product of two inputs", "sum of columns"])
def test_kernels_that_are_as_they_should_be_are_not_slow(case: str) -> None:
    for v in verdicts(case).values():
        assert v.kernel == "layout_transform" or not v.slow, (v.ratio, v.reasons)
        assert v.ratio > 0.8, "the bound must be one"


@pytest.mark.parametrize("case", ["product with a transposed input"])
def test_the_cost_of_products_is_that_of_their_multiply_adds(case: str) -> None:
    products = [v for v in verdicts(case).values() if v.limit == "arithmetic"]
    assert products
    assert all(1.0 <= v.ratio < 1.15 for v in products)


def test_a_rule_that_is_lost_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", tuple(r for r in rules.RULES if r is not rules.schedule_elementwise))
    transposed = verdicts("products of attention")["layout_transform"]
    assert transposed.slow
    assert any("gathers in the innermost loop" in reason for reason in transposed.reasons), transposed.reasons


def test_one_number_after_the_other_is_reported() -> None:
    (norm,) = verdicts("layer norm", PLAIN).values()
    assert norm.slow
    assert any("waits for the one before" in reason for reason in norm.reasons), norm.reasons


def test_a_conversion_by_elements_is_reported() -> None:
    worse = verdicts("products of attention", PLAIN)["layout_transform"]
    assert worse.slow
    assert any("64 gathers" in reason for reason in worse.reasons), worse.reasons
    assert not verdicts("products of attention")["layout_transform"].slow


def test_narrow_vectors_are_reported() -> None:
    narrow = replace(LLVM, schedule=lambda program, target, *more: LLVM.schedule(program, Target("x86-64-v2"), *more))
    whole, quarter = verdicts("product of two inputs"), verdicts("product of two inputs", narrow)
    assert quarter["matmul"].cost_us > 1.9 * whole["matmul"].cost_us
    assert any("on 128 of 512 bits" in reason for reason in quarter["matmul"].reasons), quarter["matmul"].reasons


def test_memory_read_again_is_counted() -> None:
    """Rows of a product that no tile keeps in registers are read once for each column."""
    group = next(g for g in kernels(optimize(perf_cases.module("product of two inputs"), ZEN4)))
    program, work = unscheduled(group)
    machine = machine_of(ZEN4)
    size = int(work.bytes)
    moved = [
        kernel_cost(*explained(emit_ir(lowered(program, ZEN4, None, (), b), ZEN4), ZEN4), machine, size).moved[1]
        for b in (None, PLAIN)
    ]
    assert moved[0] < 2 * size
    assert moved[1] > 4 * moved[0]


LOOP = """
define void @f(i64 %n, ptr noalias %x, ptr noalias %y) {
entry:
  br label %loop.1
loop.1:                       ; preds = %loop.1, %entry
  %i = phi i64 [ 0, %entry ], [ %i.next, %latch.1 ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p, align 4
  %c = fcmp ogt float %v, 0.0
  br i1 %c, label %if.1, label %latch.1
if.1:
  %d = DIVISION
  br label %latch.1
latch.1:
  %i.next = add nuw nsw i64 %i, STEP
  %more = icmp slt i64 %i.next, 96
  br i1 %more, label %loop.1, label %done.1
done.1:
  ret void
}
"""


def only(division: str, step: int = 1) -> IrFunction:
    return next(functions(LOOP.replace("DIVISION", division).replace("STEP", str(step))))


def test_work_that_a_loop_does_not_change_is_found() -> None:
    ((loop, instruction, times),) = repeated(Trips(only("sdiv i64 1000, %n"), {}))
    assert (loop.header, instruction.opcode) == ("%loop.1", "sdiv")
    assert times == pytest.approx(96 / 2 * 95 / 96)
    assert not list(repeated(Trips(only("sdiv i64 %i, %n"), {})))


def test_invariant_work_in_a_kernel_is_found() -> None:
    """Without LLVM's passes the mean is divided again for every number of a row."""
    program, _ = unscheduled(kernels(optimize(perf_cases.module("layer norm"), ZEN4))[0])
    ir, machine = emit_ir(lowered(program, ZEN4, None), ZEN4), machine_of(ZEN4)
    costs = [kernel_cost(*explained(ir, ZEN4, level), machine, 0) for level in (0, 3)]
    found = [[e.opcode for f in cost.functions for _, e, _ in repeated(f.trips)] for cost in costs]
    assert "fdiv" in found[0]
    assert not found[1]


@pytest.mark.parametrize(("step", "turns"), [(1, 96), (2, 48), (5, 20), (96, 1), (200, 1)])
def test_turns_follow_from_the_bounds(step: int, turns: int) -> None:
    trips = Trips(only("sdiv i64 %i, %n", step), {})
    assert trips.turns(trips.loops[0]) == turns
    assert trips.frequency["%done.1"] == 1
    assert trips.frequency["%latch.1"] == turns


def test_other_processors_are_refused() -> None:
    with pytest.raises(UserError, match="cannot be computed") as caught:
        machine_of(Target("graviton3"))
    assert caught.value.code == "B011"


def product_bound(operand: Callable[[te.Expr, te.Expr], te.Expr]) -> float:
    """Units of the arithmetic of a sum of products of 64 by 64 results and 32 steps, by its bound."""
    a, b, k = te.placeholder((64, 32), name="A"), te.placeholder((64, 32), name="B"), te.reduce_axis((0, 32), "k")
    y = te.compute((64, 64), lambda i, j: te.sum(operand(a[i, k], k) * b[j, k], axis=k), name="Y")
    return least([y], [a, b], machine_of(ZEN4)).arithmetic


def test_a_multiplication_is_part_of_the_addition_after_it() -> None:
    plain = product_bound(lambda x, k: x)
    assert plain == 64 * 64 * 32 * 32 / 512  # multiply-adds of float32 in vectors of 512 bits
    a, k = te.placeholder((64, 32), name="A"), te.reduce_axis((0, 32), "k")
    guarded = product_bound(lambda x, k: te.if_then_else(k > 3, x, 0.0))
    assert plain <= guarded < 2 * plain + 200  # a choice for each step, and no multiplication besides
    same = te.compute((64, 50), lambda i, j: te.sum(a[i, k] * a[i, k], axis=k), name="Y")  # the same for all columns
    assert least([same], [a], machine_of(ZEN4)).arithmetic == 64 * 50 * 32 * 32 / 512
