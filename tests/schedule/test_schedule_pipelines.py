"""Image pipelines: six schedules of each give identical results, on the interpreter and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from image_pipelines import PIPELINES, SCHEDULES
from kernel_runner import run_program

from weft.lower.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import Interpreter, execute, run
from weft.tir.verify import verify

H, W = 13, 10


def image(program) -> np.ndarray:
    shape = [int(d.value) for d in program.params[0].shape]
    return np.random.default_rng(5).integers(0, 9, shape).astype(np.float32)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_schedules_give_identical_results(pipeline: str, schedule: str) -> None:
    original = PIPELINES[pipeline](H, W)
    given = image(original)
    (expected,) = run(original, [given])
    s = Schedule(original)
    SCHEDULES[schedule](s)
    verify(s.program)
    made = execute(s.program, [given])
    np.testing.assert_array_equal(made.outputs[0], expected)
    np.testing.assert_allclose(run_program(s.program, [given])[0], expected, rtol=2e-6, atol=1e-5)
    kernel = Interpreter(tir_to_kernel(s.program, Target("cpu")), races=True)
    np.testing.assert_allclose(kernel.run([given]).outputs[0].reshape(H, W), expected, rtol=2e-6, atol=1e-5)
    if schedule == "sliding":
        for name, counts in made.counts.items():
            assert max(counts.values()) == 1, f"{name} is computed again"
        for buffer in s.program.allocs:
            assert int(buffer.shape[0].value) < H // 2 + 6


def test_rolling_buffers_hold_just_the_window() -> None:
    s = Schedule(PIPELINES["blur"](H, W))
    SCHEDULES["sliding"](s)
    assert [int(d.value) for d in s.program.allocs[0].shape] == [3, W]


def test_scheduled_windows_can_be_scheduled_further() -> None:
    original = PIPELINES["blur"](H, W)
    s = Schedule(original)
    row = s.get_loops("down")[0]
    s.compute_at("across", row)
    s.store_at("across", row)
    s.fold_storage("across", *s.window("across"))
    again = Schedule(s.program)
    for move in (lambda: again.compute_root("across"), lambda: again.cache_read("down", 0, "local"),
                 lambda: again.parallel(again.get_loops("down")[0])):  # fmt: skip
        with pytest.raises(ScheduleError):
            move()
    again.vectorize(again.get_loops("down")[1])
    given = image(original)
    np.testing.assert_array_equal(run(again.program, [given])[0], run(original, [given])[0])


def test_windows_slide_along_two_dimensions() -> None:
    original = PIPELINES["blur"](H, W)
    s = Schedule(original)
    y, x = s.get_loops("down")
    s.compute_at("across", x)
    s.store_at("across", y)
    s.store_at("across", x)
    given = image(original)
    made = execute(s.program, [given])
    np.testing.assert_array_equal(made.outputs[0], run(original, [given])[0])
    assert set(made.counts["across"].values()) == {1}
    np.testing.assert_allclose(run_program(s.program, [given])[0], made.outputs[0], rtol=1e-6)
