"""Steps of a recurrence that are reductions: factored, in lanes, shared by threads; they read what they also write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.text import parse
from weft.tir.verify import verify

WIDTH = 8


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def recurrence(back: int = 1) -> tuple[te.Tensor, te.Tensor, te.IterVar, te.Tensor]:
    n = te.var("n")
    X, state = te.placeholder((n, WIDTH), name="X"), te.placeholder((n, WIDTH), name="state")
    first = te.compute((1, WIDTH), lambda _, i: X[0, i], name="first")
    k = te.reduce_axis((0, WIDTH), name="k")
    step = te.compute((n, WIDTH), lambda t, i: te.sum(state[t - back, k] * X[t, i], axis=k), name="step")
    return X, step, k, te.scan(first, step, state)


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows = [x[0]]
    for t in range(1, len(x)):
        rows.append(rows[-1].sum() * x[t])
    return np.stack(rows)


def _factored(s: Any, step: te.Tensor, k: te.IterVar, outer: bool = False, axis: int = 0) -> Any:
    ko, ki = s[step].split(k, factor=4)
    return s.rfactor(step, ko if outer else ki, axis, reassociate=True)


def _factored_in_lanes(s: Any, step: te.Tensor, k: te.IterVar) -> None:
    partial = _factored(s, step, k, axis=2)
    s[partial].vectorize(s[partial].op.axis[-1])


def _factored_and_placed(s: Any, step: te.Tensor, k: te.IterVar) -> None:
    partial = _factored(s, step, k)
    s[partial].compute_at(s[step], step.op.axis[1])


def _lanes(s: Any, step: te.Tensor, k: te.IterVar) -> None:
    s[step].vectorize(s[step].split(k, factor=4)[1], reassociate=True)


def _lanes_of_columns(s: Any, step: te.Tensor, k: te.IterVar) -> None:
    s[step].reorder(k, step.op.axis[1])
    s[step].vectorize(step.op.axis[1])


SCHEDULES: dict[str, Callable[..., Any]] = {
    "inner factor": _factored,
    "outer factor": lambda s, step, k: _factored(s, step, k, outer=True, axis=1),
    "factor in lanes": _factored_in_lanes,
    "factor at a column": _factored_and_placed,
    "lanes": _lanes,
    "lanes of columns": _lanes_of_columns,
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("how", SCHEDULES)
def test_steps_that_reduce_are_scheduled_like_others(how: str, target: str) -> None:
    X, step, k, scan = recurrence()
    s = te.create_schedule(scan.op)
    SCHEDULES[how](s, step, k)
    program = weft.lower(s, [X, scan]).program
    verify(program)
    built = weft.build(s, [X, scan], target)
    for rows in (1, 2, 5):
        x = numbers(rows, WIDTH)
        np.testing.assert_allclose(built(x), expected(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(run(program, [x], order="shuffled")[0], expected(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_threads_share_the_reduction_of_a_step(order: Any) -> None:
    X, step, k, scan = recurrence()
    s = te.create_schedule(scan.op)
    s[step].bind(s[step].split(k, factor=4)[1], te.thread_axis("threadIdx.x"), reassociate=True)
    program = weft.lower(s, [X, scan]).program
    verify(program)
    x = numbers(5, WIDTH)
    np.testing.assert_allclose(run(program, [x], order=order)[0], expected(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["plain", "factor", "lanes"])
def test_steps_that_reduce_pairs(how: str) -> None:
    n = te.var("n")
    X, a, b = (te.placeholder((n, WIDTH), name=name) for name in "Xab")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])), lambda p, q: (te.const(0, p), te.min_value(q))
    )
    first = [te.compute((1, WIDTH), lambda _, i: X[0, i], name=f"first{j}") for j in range(2)]
    k = te.reduce_axis((0, WIDTH), name="k")
    step = te.compute((n, WIDTH), lambda t, i: both((a[t - 1, k] * X[t, i], b[t - 1, k] + X[t, i]), axis=k))
    A, B = te.scan(first, step, [a, b])
    s = te.create_schedule(A.op)
    if how != "plain":
        _, inner = s[step[0]].split(k, factor=4)
        if how == "factor":
            s.rfactor(step[0], inner, reassociate=True)
        else:
            s[step[0]].vectorize(inner, reassociate=True)
    x = numbers(4, WIDTH)
    largest = [x[0]]
    for t in range(1, 4):
        largest.append(largest[-1].max() + x[t])
    got = weft.build(s, [X, A, B])(x)
    np.testing.assert_allclose(got[0], expected(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], np.stack(largest), rtol=1e-5, atol=1e-6)


def test_the_init_of_a_step_comes_before_its_loops_but_after_earlier_steps() -> None:
    X, _, _, scan = recurrence()
    x = numbers(5, WIDTH)
    s = Schedule(te_to_tir("scan", [X], [scan]))
    time, column, _ = s.get_loops("step")
    with pytest.raises(ScheduleError, match="S051"):
        s.decompose_reduction("step", time)
    s.decompose_reduction("step", column)
    verify(s.program)
    np.testing.assert_allclose(run(s.program, [x])[0], expected(x), rtol=1e-4, atol=1e-5)


def test_a_sum_that_reads_its_own_row_is_not_factored() -> None:
    """Only what earlier steps have left is no accumulator."""
    program = parse(
        """program "own"(X: f32[4, 8]) -> (Y: f32[4, 8]):
  for t in serial(0, 4):
    for i in serial(0, 8):
      for k in serial(0, 8):
        block "Y"(t: ordered 4 = t, i: spatial 8 = i, k: reduce 8 = k):
          reads X[t, k], Y[t, 0:+8]
          writes Y[t, i]
          init:
            Y[t, i] = 0.0
          body:
            Y[t, i] = Y[t, i] + Y[t, 0] * X[t, k]
"""
    )
    s = Schedule(program)
    with pytest.raises(ScheduleError) as found:
        s.rfactor(s.get_loops("Y")[2], reassociate=True)
    assert found.value.code == "S053"
