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
def test_long_rows_of_the_result_are_prefetched(shape: tuple[Any, Any, Any]) -> None:
    """Their pixels are in as many pages: an open matrix of 3000 x 3000 took 2.7 times as long as onnxruntime without
    prefetches, and takes 0.4 times as long with them."""
    text = to_text(channels_last(shape, "float32"))
    assert inner_loops(text, 16) and 'prefetch_share = ["out"]' in text


def test_pixels_that_are_apart_in_the_result_are_prefetched() -> None:
    """Between two of them are all rows of another axis."""
    a = te.placeholder((64, 100, H), name="a")
    out = te.compute((H, 100, 64), lambda i, j, k: a[k, j, i], name="out")
    text = to_text(default_schedule(te_to_tir("move", [a], [out]), Target("sapphire-rapids")).program)
    assert inner_loops(text, 16) and 'prefetch_share = ["out"]' in text


@pytest.mark.parametrize(
    ("shape", "dtype", "target"),
    [
        ((256, 256, 256), "uint8", "sapphire-rapids"),  # channels are pages apart
        ((256, 256, 256), "float16", "sapphire-rapids"),
        ((256, 128, 128), "float32", "x86-64-v3"),
        ((32, 28, 28, 334), "uint8", "sapphire-rapids"),  # pixels are shorter than a line
        ((64, 64, 64, 10), "uint8", "sapphire-rapids"),
        ((32, 56, 56, 100), "float16", "sapphire-rapids"),
    ],
)
def test_parts_of_lines_follow_each_other_where_that_pays(shape: tuple[int, ...], dtype: str, target: str) -> None:
    """Lines that are read in parts were evicted in between: bytes of 28 x 28 x 32 took 1.6 times as long as
    onnxruntime, and take its time; those of 2048 x 2048 half of its time, and now a quarter."""
    assert follows(shape, dtype, target)


@pytest.mark.parametrize(
    ("shape", "dtype", "target"),
    [
        ((512, 28, 28, 20), "uint8", "sapphire-rapids"),  # result lines would be evicted: 1.6 times as long
        ((512, 40, 40, 20), "float16", "sapphire-rapids"),
        ((512, 28, 28, 20), "float32", "x86-64-v3"),
        ((512, H, W, 20), "uint8", "sapphire-rapids"),
        ((16, 16, 16, 1), "float32", "sapphire-rapids"),
    ],
)
def test_other_parts_of_lines_and_small_tensors_do_not(shape: tuple[Any, ...], dtype: str, target: str) -> None:
    assert not follows(shape, dtype, target)


def follows(shape: tuple[Any, ...], dtype: str, target: str) -> bool:
    """Whether several tiles of pictures, whose number is last in ``shape``, follow each other."""
    c, h, w, *pictures = shape
    a = te.placeholder((*pictures, c, h, w), dtype, name="a")
    out = te.compute((*pictures, h, w, c), lambda *i: a[(*i[:-3], i[-1], *i[-3:-1])], name="out")
    text = to_text(default_schedule(te_to_tir("move", [a], [out]), Target(target)).program)
    adjacent = text[: text.index("block ")].rsplit("for ", 3)[1].split(" in ")[1].split(")")[0]
    assert ("prefetch" in text) == (adjacent in ("serial(0, 7", "serial(0, 8"))
    return "prefetch" in text


def test_blocks_of_channels_do_not() -> None:
    """The next tile along the channels is in another block: the pixels of one block follow each other."""
    a = te.placeholder((64, 14 * 14, 16), name="a")
    out = te.compute((1024, 14 * 14), lambda c, p: a[c // 16, p, c % 16], name="out")
    text = to_text(default_schedule(te_to_tir("move", [a], [out]), Target("zen4")).program)
    assert "unrolled(0, 16)" in text and "serial(0, 8)" not in text


@pytest.mark.parametrize("shape", [(64, 96, 112), (48, 131, 100), (33, 257, 80), (129, 64, 65)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "uint8"])
def test_results(shape: tuple[int, int, int], dtype: str) -> None:
    data = np.random.default_rng(0).integers(0, 1000, shape).astype(dtype)
    program = channels_last(shape, dtype, "cpu -l2=65536")
    found = run_program(program, [data])[0]
    assert "prefetch" in to_text(program)
    assert (found == data.transpose(1, 2, 0)).all()


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("width", [W, 5])
def test_results_of_open_sizes(width: Any, dtype: str) -> None:
    """Groups of tiles with and without a rest, fewer pixels than a group or than a tile, and none."""
    for channels in (33, 16):
        program = channels_last((channels, H, width), dtype, "cpu")
        for h, w in [(0, 5), (1, 5), (3, 5), (7, 7), (8, 16), (31, 33), (16, 65), (20, 40), (200, 5)]:
            if width is W or w == width:
                assert moves(program, (channels, h, w), dtype)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_results_of_long_and_of_open_rows(dtype: str) -> None:
    program = channels_last((1100, H, W), dtype, "cpu")
    assert all(moves(program, (1100, h, w), dtype) for h, w in [(0, 5), (3, 5), (31, 33)])
    program = channels_last((C, H, W), dtype, "cpu")
    assert all(
        moves(program, shape, dtype) for shape in [(0, 9, 9), (9, 9, 0), (1, 31, 33), (40, 16, 65), (1100, 3, 5)]
    )


def moves(program: Program, shape: tuple[int, ...], dtype: str) -> bool:
    data = np.random.default_rng(0).integers(0, 1000, shape).astype(dtype)
    found = run_program(program, [data], [dict(zip((C, H, W), shape, strict=True))[v] for v in program.sizes])[0]
    return bool((found == data.transpose(1, 2, 0)).all())
