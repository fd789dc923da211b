"""Results that are narrowed and written past the caches: every store of theirs must be non-temporal."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
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
