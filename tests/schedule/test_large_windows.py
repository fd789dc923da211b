"""Windows by channel that are too large to unroll: one line is unrolled, for enough sums to hide the latency of a
multiply-add."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph import build
from weft.graph.build import function, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.types import Dim
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import optimize, unscheduled
from weft.schedule.rules.cpu.tiles import register_tile
from weft.target import Target

BLOCKED = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16o", "out_layout": "NCHW16c"}


def by_channel(kernel: int, height: Dim, width: Dim, stride: int = 1) -> Module:
    x, w = var("x", (1, 2, height, width, 16)), var("w", (2, 1, kernel, kernel, 16))
    attrs = {**BLOCKED, "groups": 32, "strides": (stride, stride), "pads": (kernel // 2,) * 4}
    return Module.of(function([x, w], call(op("conv"), [x, w], attrs)))


@pytest.mark.parametrize("kernel", [7, 9, 11])
@pytest.mark.parametrize("width", [56, 40, "w"], ids=str)
def test_a_line_is_unrolled_for_many_sums(kernel: int, width: int | str) -> None:
    target = Target("zen4")
    module = by_channel(kernel, 40, build.size(width) if isinstance(width, str) else width)
    groups = [e.target for e in post_order(optimize(module, target).main) if isinstance(e, Call)]
    (group,) = (g for g in groups if isinstance(g, Function))
    s = scheduled(unscheduled(group)[0], target)
    loops = [s.state.loop(x) for x in s.get_loops("conv")]
    taps, pixels = loops[-3], loops[-2]
    assert (taps.kind, str(taps.extent)) == ("unrolled", str(kernel))
    assert pixels.kind == "unrolled" and int(str(pixels.extent)) >= 8, "the latency is four cycles of two"


def test_vectors_of_a_line_and_sums_fit_into_the_registers() -> None:
    for registers in (16, 32):
        tile = register_tile(56, 1, registers, 49, broadcasts=False, unrolled=7)
        assert 2 * tile.rows + 2 <= registers and tile.rows >= 6


@pytest.mark.thinned(2)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [7, 9])
def test_agrees_with_numpy(kernel: int, stride: int) -> None:
    exe = weft.compile(by_channel(kernel, build.size("h"), build.size("w"), stride))
    rng = np.random.default_rng(kernel)
    w = rng.standard_normal((2, 1, kernel, kernel, 16)).astype("float32")
    for height, width in ((1, 1), (3, 17), (14, 14), (9, 57), (2, 0)):
        x = rng.standard_normal((1, 2, height, width, 16)).astype("float32")
        known = weft.compile(by_channel(kernel, height, width, stride))(x, w)
        p = kernel // 2
        around = np.pad(x.astype("float64"), ((0, 0), (0, 0), (p, p), (p, p), (0, 0)))
        lines, columns = -(-height // stride), -(-width // stride)
        expected = np.zeros((1, 2, lines, columns, 16))
        for i in range(kernel):
            for j in range(kernel):
                seen = around[:, :, i : i + height : stride, j : j + width : stride]
                expected += seen[:, :, :lines, :columns] * w[None, :, 0, i, j][:, :, None, None]
        for found in (exe(x, w), known):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
