"""Bounds from counted work and given peaks; no clock decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.measure.roofline import COLUMNS, Level, Peaks, Roofline, beside_bounds, bounds, kernel_bounds, roofline
from weft.runtime.executable import Executable
from weft.runtime.profile import KernelProfile, Profile
from weft.runtime.program import BufferSpec, CallKernel, ExecutableProgram, KernelRef, TensorSpec

PEAKS = Peaks(1, 100.0, (Level("L1", 1 << 15, 200.0), Level("L2", 1 << 20, 100.0), Level("memory", 0, 10.0)))


def one_call(flops: int, nbytes: int, weights: int) -> ExecutableProgram:
    t = TensorSpec("x", "float32", ((4,),))
    buffers = (
        BufferSpec("input", nbytes=(16,)),
        BufferSpec("constant", nbytes=(weights,)),
        BufferSpec("output", nbytes=(16,)),
    )
    call = CallKernel(0, (0, 1, 2), label="node", flops=(flops,), bytes=(nbytes,))
    return ExecutableProgram((), (t,), (t,), buffers, (KernelRef("k_0123456789", 0),), (call,))


def test_levels_are_picked_by_size():
    assert [PEAKS.level(n).name for n in (0, 1 << 15, (1 << 15) + 1, 1 << 20, 1 << 30)] == [
        "L1", "L1", "L2", "L2", "memory",
    ]  # fmt: skip


def test_arithmetic_decides():
    (found,) = bounds(one_call(10**9, 1 << 12, 0), {}, PEAKS)
    assert found.limit == "compute" and found.ms == found.compute_ms == pytest.approx(10.0)


@pytest.mark.parametrize("dtype, rate", [("float32", 100.0), ("bfloat16", 200.0), ("int8", 400.0), ("float16", 100.0)])
def test_narrow_operands_have_the_peak_of_their_instructions(dtype: str, rate: float) -> None:
    peaks = replace(PEAKS, dots={"bfloat16": 200.0, "int8": 400.0, "uint8": 400.0})
    program = one_call(10**9, 1 << 12, 0)
    typed = tuple(replace(b, dtype=dtype if b.kind == "constant" else "float32") for b in program.buffers)
    (found,) = bounds(replace(program, buffers=typed), {}, peaks)
    assert found.compute_ms == pytest.approx(1e3 / rate) and peaks.arithmetic([dtype]) == rate
    rounded = tuple(replace(b, dtype=dtype if b.kind == "output" else "float32") for b in program.buffers)
    assert bounds(replace(program, buffers=rounded), {}, peaks)[0].compute_ms == pytest.approx(10.0), "only rounds"
    with_workspace = replace(
        program,
        buffers=(*typed, BufferSpec("arena")),
        instructions=(replace(program.instructions[0], buffers=(0, 1, 2, 3)),),
    )
    assert bounds(with_workspace, {}, peaks)[0].compute_ms == found.compute_ms, "a workspace is no operand of bytes"


def test_slower_dot_products_do_not_count() -> None:
    """Where a CPU runs products of bfloat16 slower than float32, a kernel may use the latter."""
    assert replace(PEAKS, dots={"bfloat16": 50.0}).arithmetic(("bfloat16", "float32")) == 100.0
    assert "200 in bfloat16" in str(Roofline((), 1.0, replace(PEAKS, dots={"bfloat16": 200.0})))


def test_memory_decides_by_the_level_that_holds_it():
    (near,) = bounds(one_call(1, 20_000, 0), {}, PEAKS)
    assert near.limit == "L1" and near.ms == pytest.approx(20_000 / 200e9 * 1e3)
    (far,) = bounds(one_call(1, 1 << 21, 0), {}, PEAKS)
    assert far.limit == "memory" and far.ms == pytest.approx((1 << 21) / 10e9 * 1e3)


def test_constants_come_from_where_the_model_lies():
    """Two operands of 2 MiB together: what is constant comes from memory, the rest from a cache."""
    weights = 2 << 20
    (found,) = bounds(one_call(1, weights + 1000, weights), {}, PEAKS)
    assert found.limit == "memory"
    assert found.memory_ms == pytest.approx(1e3 * (weights / 10e9 + 1000 / 200e9))
    (gathered,) = bounds(one_call(1, 1000, weights), {}, PEAKS)
    assert gathered.memory_ms == pytest.approx(1e3 * 1000 / 10e9), "only the bytes that must move count"


def test_kernels_are_sorted_by_lost_time():
    call = KernelProfile(0, "k_0123456789", "node", 3, 6.0, 2.0, 1.0, None, None)
    found = bounds(one_call(10**8, 1 << 12, 0), {}, PEAKS)
    roof = beside_bounds(Profile((call,), 2.5, 3, 1), found, PEAKS)
    (kernel,) = roof.kernels
    assert kernel.flops == 3 * 10**8 and kernel.bound_ms == pytest.approx(3.0) and kernel.lost_ms == pytest.approx(-1.0)
    assert kernel.gflops == pytest.approx(150.0) and kernel.share == pytest.approx(1.5)
    assert roof.flops == 3 * 10**8 and roof.bound_ms == pytest.approx(3.0) and roof.run_ms == 2.5
    assert all(len(row) == len(COLUMNS) for row in roof.rows())
    assert "100 GFLOP/s" in str(roof) and "k  " in roof.table() and "all 1 kernel " in roof.table()


def test_an_executable_tells_its_bounds(kernels):
    exe = Executable(artifact(vector_program("double_plus_one", size="n"), kernels), threads=1)
    (small,), (large,) = (kernel_bounds(exe, np.zeros(n, np.float32), peaks=PEAKS) for n in (100, 1_000_000))
    assert large.flops == 10_000 * small.flops and large.ms > small.ms
    roof = roofline(exe, {exe.inputs[0].name: np.zeros(100, np.float32)}, peaks=PEAKS, runs=3)
    assert [k.calls for k in roof.kernels] == [1] and roof.kernels[0].bound_ms == pytest.approx(small.ms)
