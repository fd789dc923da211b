"""Transposes in memory: tiles whose rows are whole cache lines follow each other along the operand's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text

C, H, W = te.var("c"), te.var("h"), te.var("w")


def channels_last(shape: tuple[Any, Any, Any], dtype: str, target: str = "sapphire-rapids") -> Program:
    c, h, w = shape
    a = te.placeholder(shape, dtype, name="a")
    out = te.compute((h, w, c), lambda i, j, k: a[k, i, j], name="out")
    return default_schedule(te_to_tir("move", [a], [out]), Target(target)).program


def inner_loops(text: str, tile: int) -> bool:
    """Whether the innermost loops are eight tiles, the rows of a tile, and the lanes."""
    inner = text[: text.index("block ")].rsplit("for ", 3)
    found = [x.split(" in ")[1].split(")")[0] + ")" for x in inner[1:]]
    return found == ["serial(0, 8)", f"unrolled(0, {tile})", f"vectorized(0, {tile})"]


@pytest.mark.parametrize(("dtype", "tile"), [("float32", 16), ("int64", 8), ("float64", 8)])
def test_eight_tiles_follow_each_other(dtype: str, tile: int) -> None:
    """Pages of 64 channels were visited for one line each: int64 took 1.9 times as long as onnxruntime."""
    text = to_text(channels_last((64, 256, 256), dtype))
    assert inner_loops(text, tile)


@pytest.mark.parametrize("shape", [(496, 224, 224), (497, 223, 225), (64, 256, 256), (2047, 96, 96), (64, H, W)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_tiles_prefetch_the_lines_that_the_next_ones_write(shape: tuple[Any, Any, Any], dtype: str) -> None:
    """Large arrays of NumPy begin 16 bytes after the start of a line, so each vector is stored in two lines. The second
    was in no cache, and each store waited for it: 496 channels of 224 x 224 took 4 times as long as onnxruntime."""
    scheduled = channels_last(shape, dtype)
    text = to_text(scheduled)
    assert 'prefetch_shares = [["out", 1]]' in text and 'prefetch_share = ["out"]' in text
    asked = to_text(tir_to_kernel(scheduled, Target("sapphire-rapids"))).count("prefetch_l2(out[")
    rows = 64 // np.dtype(dtype).itemsize
    assert asked >= rows and asked % rows == 0  # those of a tile, in the code of whole and of other tiles


@pytest.mark.parametrize(("dtype", "tile"), [("float32", 16), ("int64", 8)])
@pytest.mark.parametrize("shape", [(64, H, W), (128, 250, W), (64, H, 256)])
def test_images_of_open_size_too(shape: tuple[Any, Any, Any], dtype: str, tile: int) -> None:
    """The tiles are split at once: there is one condition for each pixel, as without groups of tiles."""
    text = to_text(channels_last(shape, dtype))
    assert inner_loops(text, tile)
    conditions = text.partition("where ")[2].partition("\n")[0]
    assert conditions.count("<") <= 1


@pytest.mark.parametrize("shape", [(C, H, W), (1024, H, W)])
def test_long_rows_of_the_result_are_written_one_tile_at_a_time(shape: tuple[Any, Any, Any]) -> None:
    """Their pixels are in as many pages: an open matrix of 3000 x 3000 took 2.6 times as long."""
    assert "serial(0, 8)" not in to_text(channels_last(shape, "float32"))


def test_pixels_that_are_apart_in_the_result_are_not() -> None:
    """Between two of them are all rows of another axis."""
    a = te.placeholder((64, 100, H), name="a")
    out = te.compute((H, 100, 64), lambda i, j, k: a[k, j, i], name="out")
    text = to_text(default_schedule(te_to_tir("move", [a], [out]), Target("sapphire-rapids")).program)
    assert "unrolled(0, 16)" in text and "serial(0, 8)" not in text


@pytest.mark.parametrize(
    ("shape", "dtype"), [((64, 256, 256), "float16"), ((64, 256, 256), "uint8"), ((16, 16, 16), "float32")]
)
def test_parts_of_lines_and_small_tensors_do_not(shape: tuple[int, int, int], dtype: str) -> None:
    assert "serial(0, 8)" not in to_text(channels_last(shape, dtype))


def test_blocks_of_channels_do_not() -> None:
    """The next tile along the channels is in another block: the pixels of one block follow each other."""
    a = te.placeholder((64, 14 * 14, 16), name="a")
    out = te.compute((1024, 14 * 14), lambda c, p: a[c // 16, p, c % 16], name="out")
    text = to_text(default_schedule(te_to_tir("move", [a], [out]), Target("zen4")).program)
    assert "unrolled(0, 16)" in text and "serial(0, 8)" not in text


@pytest.mark.parametrize("shape", [(64, 96, 112), (48, 131, 100), (33, 257, 80), (129, 64, 65)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_results(shape: tuple[int, int, int], dtype: str) -> None:
    data = np.random.default_rng(0).integers(0, 1000, shape).astype(dtype)
    found = run_program(channels_last(shape, dtype, "cpu"), [data])[0]
    assert (found == data.transpose(1, 2, 0)).all()


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("width", [W, 5])
def test_results_of_open_sizes(width: Any, dtype: str) -> None:
    """Groups of tiles with and without a rest, fewer pixels than a group or than a tile, and none."""
    for channels in (33, 16):
        program = channels_last((channels, H, width), dtype, "cpu")
        for h, w in [(0, 5), (1, 5), (3, 5), (7, 7), (8, 16), (31, 33), (16, 65), (20, 40), (200, 5)]:
            if width is W or w == width:
                data = np.random.default_rng(0).integers(0, 1000, (channels, h, w)).astype(dtype)
                found = run_program(program, [data], [{H: h, W: w}[v] for v in program.sizes])[0]
                assert (found == data.transpose(1, 2, 0)).all(), data.shape
