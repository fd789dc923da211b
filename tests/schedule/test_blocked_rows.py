"""Statistics over channels in blocks: vectors run along the channels of a block, not one element after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Block, For, Program
from weft.tir.visit import loops_around, walk

WIDE = Target("llvm -mcpu=x86-64-v3")
"""Vectors of 8 float32 numbers, on any machine that runs the tests."""


def scheduled(name: str, inputs: list[te.Tensor], outputs: list[te.Tensor]) -> Program:
    return default_schedule(te_to_tir(name, inputs, outputs), WIDE).program


def in_vectors(program: Program, block: str) -> bool:
    """Whether every block of this name (partial results, too) is in a loop over lanes."""
    blocks = [s for s in walk(program.body) if isinstance(s, Block)]
    found = [s for s in blocks if s.name.startswith(block) and not s.name.endswith("_init")]
    return bool(found) and all(
        any(v.kind == "vectorized" for v in loops_around(program.body, s) if isinstance(v, For)) for s in found
    )


def group_norm(pixels: Any, lanes: int, dtype: str) -> Program:
    """Of each group of 2 blocks of channels: the sum, and the data without it."""
    x = te.placeholder((2, 4, pixels, lanes), dtype, name="x")
    p = te.reduce_axis((0, pixels), name="p")
    channels = te.compute((2, 4, lanes), lambda n, b, c: te.sum(x[n, b, p.var, c], axis=p), name="channels")
    m = te.reduce_axis((0, 2 * lanes), name="m")
    total = te.compute(
        (2, 2), lambda n, g: te.sum(channels[n, g * 2 + m.var // lanes, m.var % lanes], axis=m), name="total"
    )
    out = te.compute(x.shape, lambda n, b, i, c: x[n, b, i, c] - total[n, b // 2], name="out")
    return scheduled("group_norm", [x], [out])


@pytest.mark.parametrize("pixels", [1, 2, 7, 40])
@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 20])
@pytest.mark.parametrize("is_open", [False, True])
def test_sums_of_groups(pixels: int, lanes: int, is_open: bool) -> None:
    n = te.var("n")
    program = group_norm(n if is_open else pixels, lanes, "float32")
    assert in_vectors(program, "channels") or lanes == 1 or (pixels == 1 and not is_open)
    for size in (0, 1, pixels) if is_open else (pixels,):
        x = np.random.default_rng(size).integers(-9, 9, (2, 4, size, lanes)).astype(np.float32)
        (got,) = run_program(program, [x], [size] if is_open else (), WIDE)
        wanted = x.reshape(2, 2, 2, size, lanes).sum((2, 3, 4)).repeat(2, 1)[:, :, None, None]
        np.testing.assert_array_equal(got, x - wanted)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "float16"])
def test_other_types(dtype: str) -> None:
    x = np.random.default_rng(1).integers(-3, 4, (2, 4, 9, 16)).astype(dtype)
    (got,) = run_program(group_norm(9, 16, dtype), [x], (), WIDE)
    wanted = x.reshape(2, 2, 2, 9, 16).astype(np.int64).sum((2, 3, 4)).repeat(2, 1)[:, :, None, None]
    np.testing.assert_array_equal(got, (x.astype(np.int64) - wanted).astype(dtype))


@pytest.mark.parametrize("channels, lanes", [(64, 16), (48, 16), (40, 8), (32, 8), (16, 8), (60, 20), (21, 7), (30, 3)])
@pytest.mark.parametrize("pixels", [1, 5, "n"])
def test_sums_over_channels_of_each_pixel(channels: int, lanes: int, pixels: Any) -> None:
    """A layer norm after a transpose: the channels of a pixel are contiguous in runs of one block."""
    count = te.var("n") if pixels == "n" else pixels
    x = te.placeholder((channels // lanes, count, lanes), name="x")
    c = te.reduce_axis((0, channels), name="c")
    total = te.compute((count,), lambda i: te.sum(x[c.var // lanes, i, c.var % lanes], axis=c), name="total")
    out = te.compute((count, channels), lambda i, c: x[c // lanes, i, c % lanes] - total[i], name="out")
    program = scheduled("layer_norm", [x], [out])
    assert in_vectors(program, "total") or lanes % 8
    for size in (0, 1, 6) if pixels == "n" else (pixels,):
        data = np.random.default_rng(size).integers(-9, 9, (channels // lanes, size, lanes)).astype(np.float32)
        (got,) = run_program(program, [data], [size] if pixels == "n" else (), WIDE)
        rows = data.transpose(1, 0, 2).reshape(size, channels)
        np.testing.assert_array_equal(got, rows - rows.sum(1, keepdims=True))
