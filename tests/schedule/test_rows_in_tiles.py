"""Blocks of short rows are computed for several rows before the next block: a core overlaps the rows of one block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Const
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule, other_schedule
from weft.target import Target
from weft.tir.nodes import Program


def softmax(shape: tuple[Any, ...]) -> Program:
    operator, x = op("softmax"), te.placeholder(shape, name="x")
    given = operator.complete({"axis": -1})
    result = operator.compute(given, operator.infer(given, TensorType.of(shape, "float32")), x)
    return te_to_tir("softmax", [x], [result])


def normalized(shape: tuple[int, int]) -> Program:
    """Rows without their mean, over their deviation."""
    rows, columns = shape
    x = te.placeholder(shape, name="x")
    j, k = te.reduce_axis((0, columns), "j"), te.reduce_axis((0, columns), "k")
    mean = te.compute((rows,), lambda i: te.sum(x[i, j] * (1.0 / columns), axis=j), name="mean")
    square = te.compute(
        (rows,), lambda i: te.sum((x[i, k] - mean[i]) * (x[i, k] - mean[i]) * (1.0 / columns), axis=k), name="square"
    )
    y = te.compute(shape, lambda i, c: (x[i, c] - mean[i]) * te.rsqrt(square[i] + 1e-5), name="y")
    return te_to_tir("normalized", [x], [y])


def tile_of(program: Program, target: str = "zen3") -> int:
    """Rows of a tile; 1 where rows are computed one after another."""
    last = program.params[-1].name
    _, asked = other_schedule(program, Target(target), ())
    if f"rows of {last} in tiles" not in asked:
        return 1
    s = default_schedule(program, Target(target))
    extent = s.state.loop(s.get_loops(last)[1]).extent
    assert isinstance(extent, Const)
    return int(extent.value)


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((1000, 97), 8),
        ((12, 64), 6),  # the largest divisor
        ((4, 64), 4),
        ((997, 64), 8),  # a last tile of five rows
        ((997, 200), 1),  # rows of such a tile have enough to do
        ((128, 768), 1),
        ((1, 64), 1),
        ((64, 5), 1),  # less than a vector
    ],
)
@pytest.mark.parametrize("make", [softmax, normalized])
def test_short_rows_are_computed_in_tiles(make: Any, shape: tuple[int, int], tile: int) -> None:
    assert tile_of(make(shape)) == tile


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((22, 22, 80), 8),  # of the last 22: a tile across its end would be in two lines
        ((22, 24, 80), 8),
        ((100, 2, 64), 8),  # four whole lines
        ((7, 6, 64), 6),
        ((5, 7, 64), 7),
        ((5, 3, 64), 3),
        ((997, 1, 64), 8),
        ((1, 997, 64), 8),
        ((1, 1, 1, 64), 1),
        ((11, 13, 200), 1),
    ],
)
def test_tiles_are_boxes_of_several_axes(shape: tuple[int, ...], tile: int) -> None:
    assert tile_of(softmax(shape)) == tile


def test_open_rows_have_no_tiles() -> None:
    n = te.var("n")
    assert tile_of(softmax((n, 64))) == 1 and tile_of(softmax((64, n))) == 1


@pytest.mark.parametrize("shape", [(8, 16), (13, 50), (5, 97), (17, 33), (2, 256), (1, 40), (97, 65), (64, 5), (3, 8)])
def test_tiles_of_all_sizes_are_right(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wide = x.astype(np.float64)
    (found,) = run_program(default_schedule(softmax(shape), Target("cpu")).program, [x])
    e = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    (found,) = run_program(default_schedule(normalized(shape), Target("cpu")).program, [x])
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "shape", [(22, 22, 80), (3, 22, 80), (5, 7, 80), (100, 2, 64), (3, 1, 9, 2, 40), (997, 1, 64), (1, 11, 1, 100)]
)
def test_tiles_of_several_axes_are_right(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    for target in ("cpu", "x86-64-v3"):  # on any x86 of today, tiles are those of machines without masks
        (found,) = run_program(default_schedule(softmax(shape), Target(target)).program, [x], target=Target(target))
        np.testing.assert_allclose(found, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)
