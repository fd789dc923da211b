"""The counter of executed instructions: what it counts, what it does for the runtime, and what it notices."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("unicorn")

from benchmarks.instructions import convolution, count
from weft.backends.llvm import compile_object
from weft.backends.protocol import Code
from weft.kernels.machine_code import MachineCode, machine_code
from weft.target import Target
from weft.tir.interpret import run
from weft.tune.measure.inputs import inputs_of, shape_of

TARGET = Target("raspberry-pi-4")


def kernel(body: str, declared: str = "") -> MachineCode:
    """A kernel of LLVM's instructions."""
    text = f'target triple = "{TARGET.cpu.triple}"\n{declared}\ndefine i32 @k(ptr %b, ptr %s) {{\n{body}\n}}\n'
    return MachineCode(Code("elf", compile_object(text, TARGET, 0), "k", frozenset()), (0,))


LOOP = """
entry:
  %n = load i64, ptr %s
  br label %next
next:
  %i = phi i64 [ %n, %entry ], [ %less, %next ]
  %less = sub i64 %i, 1
  store volatile i64 %less, ptr %s
  %more = icmp ne i64 %less, 0
  br i1 %more, label %next, label %end
end:
  ret i32 0
"""


def test_instructions_are_counted_exactly() -> None:
    assert count(kernel("  ret i32 0"), []).instructions == 2, "a move and a return"
    one, two, many = (count(kernel(LOOP), [], [n]) for n in (1, 2, 1001))
    turn = two.instructions - one.instructions
    assert 3 <= turn <= 8, "a subtraction, a store, a comparison, a branch"
    assert many.instructions == one.instructions + 1000 * turn
    assert max(many.blocks.values()) >= 1000


def test_buffers_are_read_and_written() -> None:
    body = """  %x = load ptr, ptr %b
  %v = load i32, ptr %x
  %w = mul i32 %v, 3
  store i32 %w, ptr %x
  ret i32 0"""
    x = np.array([14], np.int32)
    count(kernel(body), [x])
    assert x[0] == 42


@pytest.mark.parametrize("beyond", [64, 1 << 14, 1 << 40])
def test_accesses_beyond_a_buffer(beyond: int) -> None:
    body = f"""  %x = load ptr, ptr %b
  %y = getelementptr i8, ptr %x, i64 {beyond}
  %v = load i32, ptr %y
  ret i32 %v"""
    with pytest.raises(RuntimeError, match="cannot go on at 0x"):
        count(kernel(body), [np.zeros(64, np.uint8), np.zeros(64, np.uint8)])


def test_what_a_kernel_reports_and_what_it_may_call() -> None:
    with pytest.raises(RuntimeError, match="returned 7"):
        count(kernel("  ret i32 7"), [])
    body = "  %y = load float, ptr %s\n  %x = call float @expf(float %y)\n  %i = fptosi float %x to i32\n  ret i32 %i"
    with pytest.raises(RuntimeError, match="cannot go on"):
        count(kernel(body, "declare float @expf(float)"), [], [1])


@pytest.mark.parametrize("shape", [(10, 14, 9, 3, 1, 1), (3, 8, 16, 3, 2, 1), (16, 16, 8, 3, 1, 16)])
def test_convolutions_compute_what_the_interpreter_does(shape: tuple[int, int, int, int, int, int]) -> None:
    """With parallel loops, in one thread."""
    task = convolution(*shape, str(TARGET))
    inputs = inputs_of(task.program, {})
    result = np.full(shape_of(task.program.params[-1], {}), np.nan, np.float32)
    made = count(machine_code(task), [*inputs, result])
    np.testing.assert_allclose(result, run(task.program, inputs)[0], rtol=1e-4, atol=1e-4)
    assert made.calls["weft_parallel_for"] == 1
    assert made.instructions > result.size
