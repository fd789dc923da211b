"""Blocked channels are written as planes by tiles of pixels that are transposed in registers, whatever the size of the
image: a line that is no whole number of vectors, or of open length, does not make them gather."""

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
from weft.target import Target


def planes(channels: int, height: Dim, width: Dim) -> Module:
    """Blocks of 16 channels, written channel by channel."""
    x = var("x", (1, -(-channels // 16), height, width, 16))
    sizes = (1, channels, height, width) if channels % 16 else None
    attrs = {"src_layout": "NCHW16c", "dst_layout": "NCHW", "sizes": sizes}
    return Module.of(function([x], call(op("layout_transform"), [x], attrs)))


def loops(module: Module) -> list[tuple[str, str]]:
    """The kind and the extent of each loop around the stores."""
    target = Target("zen4")
    (group,) = (
        e.target
        for e in post_order(optimize(module, target).main)
        if isinstance(e, Call) and isinstance(e.target, Function)
    )
    s = scheduled(unscheduled(group)[0], target)
    found = [s.state.loop(x) for x in s.get_loops(s.get_blocks()[-1])]
    return [(x.kind, str(x.extent)) for x in found]


@pytest.mark.parametrize(("height", "width"), [(17, 17), (30, 30), (1, 49), (3, 50), (56, 56), (28, 28)])
def test_known_images_are_transposed_in_registers(height: int, width: int) -> None:
    *_, copies, lane = loops(planes(64, height, width))
    assert copies[0] == "unrolled" and lane[0] == "vectorized"
    assert int(copies[1]) >= 4 and int(lane[1]) >= 4


def test_images_of_open_size_are_transposed_in_registers() -> None:
    assert loops(planes(64, build.size("h"), build.size("w")))[-2:] == [("unrolled", "16"), ("vectorized", "16")]
    assert loops(planes(64, 5, build.size("w")))[-2:] == [("unrolled", "16"), ("vectorized", "16")]


def blocked(height: int, width: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Random planes, and the same in blocks with zeros in the padding."""
    plain = np.random.default_rng(height * 100 + width).standard_normal((1, channels, height, width)).astype("float32")
    whole = np.zeros((1, -(-channels // 16) * 16, height, width), "float32")
    whole[:, :channels] = plain
    return plain, whole.reshape(1, whole.shape[1] // 16, 16, height, width).transpose(0, 1, 3, 4, 2).copy()


SIZES = [(1, 1), (0, 5), (7, 7), (13, 29), (17, 17), (1, 49), (30, 30), (8, 7), (3, 50), (56, 56)]


@pytest.mark.parametrize("channels", [64, 40, 3])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_known_sizes_keep_every_element(height: int, width: int, channels: int) -> None:
    plain, x = blocked(height, width, channels)
    np.testing.assert_array_equal(weft.compile(planes(channels, height, width))(x), plain)


@pytest.mark.parametrize("channels", [64, 40, 3])
def test_open_sizes_keep_every_element(channels: int) -> None:
    exe = weft.compile(planes(channels, build.size("h"), build.size("w")))
    for height, width in SIZES:
        plain, x = blocked(height, width, channels)
        np.testing.assert_array_equal(exe(x), plain)
