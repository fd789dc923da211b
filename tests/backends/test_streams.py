"""Results that are narrowed and written past the caches: every store of theirs must be non-temporal."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.catalogue import backend_of
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.runtime import _native
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

SMALL = "-l1=1024 -l2=4096 -l3=16384"
"""Caches that small results exceed."""
NARROWED = [
    *(("float32", to) for to in ("int8", "uint8", "int16", "bool", "float16", "bfloat16")),
    *(("int64", to) for to in ("int8", "int32", "uint16")),
    *(("int32", "int8"), ("uint16", "uint8"), ("float64", "float32"), ("uint8", "uint8")),
]


def cast(source: str, to: str, target: Target, size: int = 40_000) -> Program:
    x = te.placeholder((size,), source, name="x")
    y = te.compute((size,), lambda i: x[i].astype(to), name="y")
    return default_schedule(te_to_tir("f", (x,), (y,)), target).program


@pytest.mark.parametrize(("source", "to"), NARROWED)
@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "zen4", "sapphire-rapids"])
def test_narrowed_vectors_are_not_stored_by_the_instruction_that_narrows(machine: str, source: str, to: str) -> None:
    """It is an ordinary store. Every second one was: 38 million bytes took 589 ms, and 16 without streaming."""
    target = Target(f"{machine} {SMALL}")
    text = assembly(emit_ir(tir_to_kernel(cast(source, to, target), target), target), target)
    whole = target.cpu.has("avx512f") and (source, to) != ("int64", "int8")  # others are too short to be streamed
    assert "movnt" in text or not whole
    assert "movnt" not in text or not re.search(r"\t(vpmov|vcvt)\S*\t[^\n]*, *\S*\(\S*\)\n", text)


@pytest.mark.parametrize(("source", "to"), NARROWED)
@pytest.mark.parametrize("size", [40_000, 40_005])
def test_results(source: str, to: str, size: int) -> None:
    data = np.random.default_rng(0).integers(0, 100, size).astype(source)
    target = Target(f"cpu {SMALL}")
    found = run_program(cast(source, to, target, size), [data], target=target)[0]
    expected = ml_dtypes.bfloat16 if to == "bfloat16" else to
    np.testing.assert_array_equal(found, data.astype(expected))


def filled(shape: tuple[int, ...], dtype: str, target: Target) -> Program:
    """Numbers of no tensor."""
    y = te.compute(shape, lambda *i: te.select(i[-1] == i[0], te.const(1, dtype), te.const(0, dtype)), name="y")
    return default_schedule(te_to_tir("f", (), (y,)), target).program


def scaled(shape: tuple[int, ...], dtype: str, target: Target) -> Program:
    x, row = te.placeholder(shape, dtype, name="x"), te.placeholder(shape[-1:], dtype, name="row")
    y = te.compute(shape, lambda *i: x[i] * te.const(2, dtype) + row[i[-1]], name="y")
    return default_schedule(te_to_tir("f", (x, row), (y,)), target).program


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "float16", "int8", "uint16"])
@pytest.mark.parametrize("shape", [(40_000,), (40_013,), (64, 1040), (33, 1024), (50, 16, 48), (3, 20_000)])
def test_rows_begin_anywhere(shape: tuple[int, ...], dtype: str) -> None:
    """Memory of NumPy begins anywhere in a cache line: whole lines are joined from two vectors, and nothing is written
    before the row and after it."""
    target = Target(f"cpu {SMALL}")
    rng, width = np.random.default_rng(1), np.dtype(dtype).itemsize
    size, guard = int(np.prod(shape)), 64
    x = rng.integers(-1000, 1000, shape).astype(dtype)
    row = rng.integers(-1000, 1000, shape[-1:]).astype(dtype)
    ones = np.zeros(shape, dtype)
    if len(shape) > 1:
        steps = np.arange(min(shape[0], shape[-1]))
        ones[(steps, ..., steps)] = 1
    else:
        ones[:] = 1
    for program, given, wanted in (
        (scaled(shape, dtype, target), [x, row], x * x.dtype.type(2) + row),
        (filled(shape, dtype, target), [], ones),
    ):
        assert "stream" in str(program) or width < 4  # whole lines only
        code = backend_of(target).emit(tir_to_kernel(program, target), target)
        function = _native.Code(code.data)
        space = np.empty((size + 2 * guard) * width + 2 * 64, np.uint8)
        first = -space.ctypes.data % 64 + guard * width  # where a line begins
        for offset in range(0, 64, width):
            space[:] = 77
            at, end = first + offset, first + offset + size * width
            made = space[at:end]
            assert function.call(code.entry, [*(a.reshape(-1).view(np.uint8) for a in given), made], [], 3)[0] == 0
            np.testing.assert_array_equal(made.view(dtype).reshape(shape), wanted)
            assert (space[:at] == 77).all() and (space[end:] == 77).all(), offset


@pytest.mark.parametrize("operation", [filled, scaled])
def test_lines_are_joined_from_two_vectors(operation: Callable[[tuple[int, ...], str, Target], Program]) -> None:
    target = Target(f"x86-64-v4 {SMALL}")
    text = assembly(emit_ir(tir_to_kernel(operation((64, 1040), "float32", target), target), target), target)
    assert re.search(r"vperm[it]2ps", text) and len(re.findall(r"vmovntps\t%zmm", text)) > 2
