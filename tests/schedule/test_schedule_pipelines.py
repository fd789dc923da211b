"""Image pipelines: eight schedules of each give identical results, on the interpreter and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from image_pipelines import PIPELINES, SCHEDULES
from kernel_runner import run_program

from weft.backends.llvm import emit_ir
from weft.classic.build import executable
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.schedule.library.stencils import inline_single_uses, register_tiles, sliding_pipeline
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import Interpreter, execute, run
from weft.tir.text import parse, to_text
from weft.tir.verify import verify

H, W = 13, 10


def image(program) -> np.ndarray:
    shape = [int(d.value) for d in program.params[0].shape]
    return np.random.default_rng(5).integers(0, 9, shape).astype(program.params[0].dtype.numpy)


@pytest.mark.thinned(4)
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


@pytest.mark.parametrize("offset", [0, 1, 4, 16])
def test_streamed_results_arrive_wherever_they_lie(offset: int) -> None:
    """Stores past the caches want 16 aligned bytes; elsewhere they are plain ones."""
    original = PIPELINES["smooth"](64, 80)
    s = Schedule(original)
    s.stream("down")
    register_tiles(s, "down", rows=4, lanes=16, strips=4, ahead=2)
    f = executable(s.program, threads=2)
    given = image(original)
    memory = np.full(64 * 80 + 32, -1.0, np.float32)
    first = -(memory.ctypes.data // 4) % 16 + offset
    out = memory[first : first + 64 * 80].reshape(64, 80)
    f(given, out=out)
    np.testing.assert_allclose(out, run(original, [given])[0], rtol=1e-6)
    assert (memory[:first] == -1).all() and (memory[first + 64 * 80 :] == -1).all()


def test_streams_are_emitted_for_stores_of_the_named_buffer_only() -> None:
    s = Schedule(PIPELINES["smooth"](16, 32))
    s.stream("down")
    sliding_pipeline(s, "down", lanes=16)
    kernel = tir_to_kernel(s.program, Target("cpu"))
    assert kernel.attrs["stream"] == ("down",)
    assert to_text(parse(to_text(kernel))) == to_text(kernel)
    x86 = emit_ir(kernel, Target("x86-64-v4"))
    # A vector whole; or the parts of the first one, lines of two, and the parts of the last one, as memory is aligned;
    # before and in the steady part of the loop.
    assert x86.count("!nontemporal") == 2 * (1 + 3 + 1 + 3)
    assert "call void @llvm.x86.sse.sfence()" in x86
    assert "nontemporal" not in emit_ir(kernel, Target("graviton2"))


def test_prefetch_asks_for_each_line_of_unrolled_rows_once() -> None:
    s = Schedule(PIPELINES["smooth"](16, 64))
    register_tiles(s, "down", rows=4, lanes=16, ahead=2)
    text = to_text(tir_to_kernel(s.program, Target("cpu")))
    assert text.count("prefetch(") == 6  # rows, each of 18 floats from the start of a line


def test_single_uses_are_inlined() -> None:
    s = Schedule(PIPELINES["unsharp"](H, W))
    inline_single_uses(s, "result")
    assert [b.name for b in s.get_blocks()] == ["across", "sharp", "result"]


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
