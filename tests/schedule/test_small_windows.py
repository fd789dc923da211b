"""Small windows over single channels ask where the data ends; other windows read a padded copy, several rows at a
time."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.expr.nodes import Const, Expr
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program

AVX512 = Target("llvm -mcpu=x86-64-v4 -l1=49152 -l2=2097152")
CHANNELS = 5


def windows(kernel: int, stride: int = 1, size: int | None = None) -> Program:
    """A convolution of every channel by itself, of images of ``size`` squared or of open size."""
    h, w = (te.var("h"), te.var("w")) if size is None else (size, size)
    before = kernel // 2
    data = te.placeholder((CHANNELS, h, w), name="data")
    weights = te.placeholder((CHANNELS, kernel, kernel), name="weights")

    def element(c: Expr, i: Expr, j: Expr) -> Expr:
        inside = te.all(i >= before, i < h + before, j >= before, j < w + before)
        return te.if_then_else(inside, data[c, i - before, j - before], te.const(0, "float32"))

    padded = te.compute((CHANNELS, h + 2 * before, w + 2 * before), element, name="padded")
    ki, kj = te.reduce_axis((0, kernel), name="ki"), te.reduce_axis((0, kernel), name="kj")
    shape = (CHANNELS, (h + stride - 1) // stride, (w + stride - 1) // stride)
    made = te.compute(
        shape,
        lambda c, i, j: te.sum(padded[c, i * stride + ki, j * stride + kj] * weights[c, ki, kj], axis=[ki, kj]),
        name="made",
    )
    return te_to_tir("f", [data, weights], [made])


def names(schedule: Schedule) -> set[str]:
    return {b.name for b in schedule.get_blocks()}


@pytest.mark.parametrize(
    ("kernel", "stride", "size", "copied"),
    [
        (3, 1, 40, False),
        (3, 1, None, False),
        (3, 2, None, False),
        (5, 2, 40, False),
        (5, 1, 40, True),
        (5, 1, None, True),
    ],
)
def test_which_windows_read_a_copy(kernel: int, stride: int, size: int | None, copied: bool) -> None:
    assert ("padded" in names(default_schedule(windows(kernel, stride, size), AVX512))) is copied


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1)])
def test_open_images_of_all_sizes(kernel: int, stride: int) -> None:
    program = windows(kernel, stride)
    kernel_form = tir_to_kernel(default_schedule(program, AVX512).program, AVX512)
    rng = np.random.default_rng(0)
    for h, w in [(1, 1), (1, 20), (20, 1), (7, 7), (8, 16), (9, 17), (17, 31), (19, 70), (0, 5), (5, 0)]:
        data = rng.standard_normal((CHANNELS, h, w)).astype(np.float32)
        weights = rng.standard_normal((CHANNELS, kernel, kernel)).astype(np.float32)
        (want,) = run(program, [data, weights], {"h": h, "w": w})
        out = np.full_like(want, np.nan)
        run_kernel(kernel_form, [data, weights, out], [h, w])
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_strips_of_open_images_have_several_rows() -> None:
    schedule = default_schedule(windows(7), AVX512)
    loops = [schedule.state.loop(loop) for loop in schedule.get_loops(schedule.get_block("padded"))]
    rows = [int(loop.extent.value) for loop in loops if isinstance(loop.extent, Const) and loop.kind == "serial"]
    assert any(n >= 7 + 1 for n in rows), "the rows of several windows are copied together"


def test_matrices_that_share_nothing_are_not_joined() -> None:
    """The second operands of an open number of products: no matrix has parts of another."""
    n = te.var("n")
    first, second = te.placeholder((3, 66, 264), name="first"), te.placeholder((n, 3, 264, 784), name="second")
    k = te.reduce_axis((0, 264), name="k")
    made = te.compute(
        (n, 3, 66, 784), lambda b, g, i, j: te.sum(first[g, i, k] * second[b, g, k, j], axis=k), name="made"
    )
    schedule = default_schedule(te_to_tir("f", [first, second], [made]), AVX512)
    extents = [str(schedule.state.loop(loop).extent) for loop in schedule.get_loops(schedule.get_block("made"))]
    assert not any("//" in extent for extent in extents), extents
