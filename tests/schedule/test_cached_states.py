"""States of recurrences in a buffer of their own: what is refused, and that results are the same and streamed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program
from random_moves import INTRINSICS, random_moves
from schedule_cases import check
from seeds import seeds
from test_schedule_random import check_compiled

from weft import te
from weft.expr.nodes import Expr, Load
from weft.expr.visit import collect
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule import Schedule
from weft.schedule.rules.cpu import default_schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import For, Program, Store
from weft.tir.text import parse, to_text
from weft.tir.visit import walk

SMALL = "cpu -l1=1024 -l2=2048 -l3=12288"
"""Caches that hold none of the results here."""


def recurrence(
    each: Callable[[Any, Expr, Expr, Any], Any],
    shape: tuple[Any, ...] = (9, 12),
    dtype: str = "float32",
    first_rows: int = 1,
) -> Program:
    """A recurrence ``state[t, i] = each(state, t, i, x)`` over the last axis of a matrix."""
    x, state = te.placeholder(shape, dtype, name="x"), te.placeholder(shape, dtype, name="state")
    first = te.compute((first_rows, *shape[1:]), lambda t, *i: x[(t, *i)], name="first")
    step = te.compute(shape, lambda t, *i: each(state, t, i, x), name="step")
    return te_to_tir("recurrence", [x], [te.scan(first, step, state, [x], name="totals")])


def summed(state: Any, t: Any, i: Any, x: Any) -> Any:
    return state[(t - 1, *i)] + x[(t, *i)]


REFUSED: dict[str, tuple[Callable[..., Any], int]] = {
    "another column": (lambda s, t, i, x: s[t - 1, x.shape[1] - 1 - i[0]] + x[(t, *i)], 1),
    "two columns": (lambda s, t, i, x: s[(t - 1, *i)] + s[t - 1, 0] + x[(t, *i)], 1),
    "two steps before": (lambda s, t, i, x: s[(t - 2, *i)] + x[(t, *i)], 2),
    "two steps": (lambda s, t, i, x: s[(t - 1, *i)] + s[(t - 2, *i)], 2),
    "no earlier step": (lambda s, t, i, x: x[(t, *i)], 1),
    "under a condition": (lambda s, t, i, x: te.if_then_else(t > 4, s[(t - 1, *i)], x[(t, *i)]), 1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_recurrences_are_refused_and_stay_right(case: str) -> None:
    each, rows = REFUSED[case]
    program = recurrence(each, first_rows=rows)
    s = Schedule(program)
    with pytest.raises(ScheduleError) as refusal:
        s.cache_state("step")
    assert refusal.value.code == "S046" and s.program is program
    made = default_schedule(recurrence(each, (33, 192), first_rows=rows), Target(f"{SMALL} -num-cores=2"))
    assert "totals_state" not in to_text(made.program)


def test_open_numbers_of_steps_are_refused() -> None:
    s = Schedule(recurrence(summed, (te.var("n"), 12)))
    with pytest.raises(ScheduleError) as refusal:
        s.cache_state("step")
    assert refusal.value.code == "S046"


def test_only_a_complete_block_alone_in_its_nest() -> None:
    s = Schedule(recurrence(summed))
    s.split(s.get_loops("step")[1], factors=(None, 5))  # the last part is not whole
    with pytest.raises(ScheduleError) as refusal:
        s.cache_state("step")
    assert refusal.value.code == "S020"


def test_blocks_that_are_no_recurrence_are_refused() -> None:
    for block in ("first", "totals.init"):
        s = Schedule(recurrence(summed))
        with pytest.raises(ScheduleError) as refusal:
            s.cache_state(block)
        assert refusal.value.code == "S046"


def test_the_state_is_copied_once_and_results_are_not_read() -> None:
    s = Schedule(recurrence(summed))
    with pytest.raises(ScheduleError) as refusal:
        s.stream("step")
    assert refusal.value.code == "S044"
    start = s.cache_state("step")
    s.stream("step")
    found = s.state.block("step")
    assert [r.buffer.name for r in found.reads] == ["totals_state", "x"]
    assert [r.buffer.name for r in s.state.block(start).reads] == ["totals"]
    check(recurrence(summed), s.program, {})


PROGRAMS: dict[str, Callable[[], Program]] = {
    "sums": lambda: recurrence(summed),
    "one step": lambda: recurrence(summed, (2, 5)),
    "cubes": lambda: recurrence(summed, (5, 3, 4)),
    "products": lambda: recurrence(lambda s, t, i, x: s[(t - 1, *i)] * x[(t, *i)] + x[(t - 1, *i)], (6, 7)),
    "both": lambda: recurrence(lambda s, t, i, x: te.max(s[(t - 1, *i)], x[(t, *i)]) - s[(t - 1, *i)], (6, 7)),
    "bytes": lambda: recurrence(summed, (6, 7), "int8"),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_schedules_of_states(seed: int, name: str) -> None:
    """Whatever other primitives accept after the state was kept apart computes the same."""
    for case in range(5):
        original, rng = PROGRAMS[name](), random.Random(100 * seed + case)
        s = Schedule(original, seed=case, intrinsics=INTRINSICS)
        s.cache_state("step")
        if rng.random() < 0.5:
            s.stream("step")
        random_moves(s, rng, 10, Counter())
        try:
            check(original, s.program, {})
            if not any(isinstance(x, For) and x.kind == "thread" for x in walk(s.program.body)):
                check_compiled(original, s.program, {})
        except Exception:  # shown, and raised on
            print(s.trace.to_python(), to_text(s.program), sep="\n\n")
            raise


def steps_of(shape: tuple[Any, ...], dtype: str, name: str, target: str, **attrs: Any) -> Program:
    operator = op(name)
    inputs = [te.placeholder(shape, dtype, name=f"x{n}") for n in range(1 + (name == "linear_recurrence"))]
    given = operator.complete({"axis": 0, "reverse": False, **attrs})
    result = operator.compute(given, TensorType.of(shape, dtype), *inputs)
    return default_schedule(te_to_tir("steps", inputs, [result]), Target(target)).program


SHAPES = [(9, 256), (50, 64), (40, 3, 160), (33, 4096), (12, 2, 48, 16), (8, 1024), (13, 16)]
DTYPES = ["float32", "float64", "int64", "int32", "int8", "uint8"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize(("shape", "dtype"), [*((x, "float32") for x in SHAPES), *(((40, 3, 192), d) for d in DTYPES)])
@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("cumsum", {}),
        ("cumsum", {"exclusive": True}),
        ("cumsum", {"exclusive": True, "reverse": True}),
        ("cumprod", {}),
        ("linear_recurrence", {}),
    ],
)
def test_default_schedules_with_small_caches_are_right(
    shape: tuple[int, ...], dtype: str, cores: int, name: str, attrs: dict[str, Any]
) -> None:
    numbers = np.random.default_rng(0)
    arrays = [numbers.integers(0, 3, shape).astype(dtype) for _ in range(1 + (name == "linear_recurrence"))]
    arrays[0] = (arrays[0] % 2).astype(dtype)
    program = steps_of(shape, dtype, name, f"{SMALL} -num-cores={cores}", **attrs)
    expected = op(name).reference(op(name).complete({"axis": 0, **attrs}), *arrays)
    np.testing.assert_array_equal(run_program(program, arrays)[0], expected)


def accesses(program: Program) -> list[str]:
    """The parameters that the innermost loop of the steps loads and stores, of the kernel for one core."""
    loops = [s for s in walk(program.body) if isinstance(s, For)]
    inner = max(loops, key=lambda x: sum(1 for s in walk(x.body) if isinstance(s, Store)) * (not _has_loop(x)))
    found = [f"load {e.source.name}" for s in walk(inner.body) for e in _loads(s)]
    return found + [f"store {s.buffer.name}" for s in walk(inner.body) if isinstance(s, Store)]


def _has_loop(loop: For) -> bool:
    return any(isinstance(s, For) for s in walk(loop.body))


def _loads(s: Any) -> list[Any]:
    return collect(s.value, Load) if isinstance(s, Store) else []


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("cores", [1, 2])
def test_large_results_are_streamed_and_not_read(dtype: str, cores: int) -> None:
    """Each element of the operand is read once and each of the result written once, past the caches."""
    program = steps_of((200, 1024), dtype, "cumsum", f"x86-64-v4 -l2=65536 -l3=131072 -num-cores={cores}")
    kernel = tir_to_kernel(program, Target("x86-64-v4"))
    result = program.params[-1].name
    assert kernel.attrs["stream"] == (result,)
    moved = [a for a in accesses(kernel) if a.split()[1] in ("x0", result)]
    assert moved.count("load x0") == moved.count(f"store {result}") == 2
    assert 'prefetch_shares = [["x0", 1]]' in to_text(program)
    assert f"load {result}" not in moved


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((200, 1024), "x86-64-v4"),  # the caches hold it
        ((200, 1025), SMALL),  # rows are no whole lines
        ((7, 1024), SMALL),  # few steps
        ((te.var("n"), 1024), SMALL),
        ((200, te.var("n")), SMALL),
    ],
)
def test_others_are_not_streamed(shape: tuple[Any, ...], target: str) -> None:
    text = to_text(steps_of(shape, "float32", "cumsum", f"{target} -num-cores=1"))
    assert "stream" not in text and "cumsum_scan_state" not in text, text


def test_hand_written_steps_in_another_order_of_axes() -> None:
    """The axis of the steps may be any of the result's."""
    program = parse(
        """
program "late"(x: f32[5, 6]) -> (y: f32[5, 6]):
  for i in serial(0, 5):
    block "first"(i: spatial 5 = i):
      reads x[i, 0]
      writes y[i, 0]
      body:
        y[i, 0] = x[i, 0]
  for t in serial(1, 5):
    for j in serial(0, 5):
      block "step"(t: ordered 5 from 1 = t, j: spatial 5 = j):
        reads y[j, t - 1], x[j, t]
        writes y[j, t]
        body:
          y[j, t] = y[j, t - 1] * x[j, t]
"""
    )
    s = Schedule(program)
    s.cache_state("step")
    s.reorder(*reversed(s.get_loops("step")))
    check(program, s.program, {})
