"""One harness makes an executable of one program: scheduled or a kernel already, from text, from a task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.kernels.machine_code import scheduled
from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.measure.one_kernel import of_text
from weft.runtime import Executable
from weft.schedule.schedule import Schedule
from weft.support.errors import InputError
from weft.target import Target
from weft.tir.text import parse

SCHEDULED = """program "scale"[n](x: f32[n, 6]) -> (y: f32[n, 6]):
  for i in serial(0, n):
    for j in serial(0, 6):
      block "y"(a: spatial n = i, b: spatial 6 = j):
        reads x[a, b]
        writes y[a, b]
        body:
          y[a, b] = x[a, b] * 3.0
"""
KERNEL = """program "twice"(x: f32[8]) -> (y: f32[8], z: f32[8]):
  for i in serial(0, 8):
    y[i] = x[i] * 2.0
    z[i] = x[i] + 1.0
"""


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def of_task(task: KernelTask) -> Executable:
    """The executable of a task, scheduled as the task says."""
    program = scheduled(task.program, task.target, task.trace, task.intrinsics).program
    return Executable(one_program(program, task.target), 1)


def test_scheduled_programs() -> None:
    exe = Executable(one_program(parse(SCHEDULED), Target("cpu")), 1)
    for n in (0, 1, 5):
        np.testing.assert_array_equal(exe(numbers(n, 6)), 3 * numbers(n, 6))


def test_kernels_with_several_results() -> None:
    y, z = of_text(KERNEL, 1)(numbers(8))
    np.testing.assert_array_equal(y, 2 * numbers(8))
    np.testing.assert_array_equal(z, numbers(8) + 1)


def test_tasks_run_by_their_schedule() -> None:
    task = KernelTask(parse(SCHEDULED), Target("cpu"))
    s = Schedule(task.program)
    s.vectorize(s.get_loops("y")[1])
    for made in (task, task.with_trace(s.trace)):
        np.testing.assert_array_equal(of_task(made)(numbers(4, 6)), 3 * numbers(4, 6))
    assert of_task(task).artifact.codes != of_task(task.with_trace(Schedule(task.program).trace)).artifact.codes


def test_sizes_come_from_inputs() -> None:
    text = SCHEDULED.replace("x: f32[n, 6]", "x: f32[4, 6]").replace("x[a, b]", "x[a % 4, b]")
    with pytest.raises(InputError, match="'n' is no dimension of any input"):
        one_program(parse(text), Target("cpu"))
