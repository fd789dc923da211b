"""GridSample in every mode, held against interpolation pixel by pixel in doubles."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft

Array = np.ndarray[Any, Any]
PADDINGS = ("zeros", "border", "reflection")


def model(x: tuple[Any, ...], grid: tuple[Any, ...], mode: str, padding: str, corners: int) -> Any:
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x), ("grid", grid))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", values, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def reflected(p: float, low: float, high: float) -> float:
    while high > low and not low <= p <= high:
        p = 2 * low - p if p < low else 2 * high - p
    return p if high > low else low


def weights(t: float, cubic: bool) -> list[tuple[int, float]]:
    """Neighbours, relative to the one before, and their weights."""
    if not cubic:
        return [(0, 1 - t), (1, t)]
    a = -0.75

    def far(s: float) -> float:
        return a * (s**3 - 5 * s**2 + 8 * s - 4)

    def near(s: float) -> float:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1

    return [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


def along(g: float, size: int, mode: str, padding: str, corners: int) -> list[tuple[int | None, float]]:
    """Positions along an axis (None: outside) and their weights."""
    p = float(np.float32(g) + np.float32(1))
    p = p * 0.5 * (size - 1) if corners else (p * size - 1) * 0.5
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    if mode == "nearest":
        p = float(np.rint(p))
    if padding == "border" and not low <= p <= high:
        p = min(max(p, 0.0), size - 1.0)
    if padding == "reflection":
        p = reflected(p, low, high)
    base = math.trunc(p) if mode == "nearest" else math.floor(p)
    found: list[tuple[int | None, float]] = []
    for step, weight in [(0, 1.0)] if mode == "nearest" else weights(p - base, mode == "cubic"):
        at: int | None = base + step
        if padding == "zeros" and not 0 <= base + step < size:
            at = None
        elif padding == "border":
            at = min(max(base + step, 0), size - 1)
        elif padding == "reflection":
            at = min(max(math.trunc(reflected(base + step, low, high)), 0), size - 1)
        found.append((at, weight))
    return found


def expected(x: Array, grid: Array, mode: str, padding: str, corners: int) -> Array:
    spatial = x.shape[2:]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for b, *at in np.ndindex(*grid.shape[:-1]):
        axes = [along(g, n, mode, padding, corners) for g, n in zip(grid[b, *at][::-1], spatial, strict=True)]
        for corner in itertools.product(*axes):
            if all(p is not None for p, _ in corner):
                y[b, :, *at] += x[b, :, *(p for p, _ in corner)].astype(np.float64) * math.prod(w for _, w in corner)
    return y


def sample(shape: tuple[int, ...], places: tuple[int, ...], seed: int) -> tuple[Array, Array]:
    """Data, and coordinates inside, on the borders, and far outside."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    grid = rng.uniform(-1.5, 1.5, (shape[0], *places, len(places))).astype(np.float32)
    few = rng.random(grid.shape)
    grid = np.where(few < 0.1, rng.choice([-1, 1, 0, -7.25, 9.5], grid.shape), grid).astype(np.float32)
    return x, grid


SHAPES = [
    ((1, 1, 5, 7), (6, 20)),
    ((1, 3, 6, 5), (5, 18)),
    ((2, 4, 3, 4), (3, 17)),
    ((2, 5, 4, 3), (2, 9)),
    ((1, 2, 1, 1), (3, 3)),
    ((1, 3, 2, 1), (4, 5)),
    ((0, 2, 3, 3), (2, 2)),
    ((1, 2, 9), (33,)),
    ((1, 2, 3, 4, 2), (2, 3, 4)),
    ((2, 6, 2, 3, 3), (2, 2, 3)),
]


MODES = [
    (mode, seed)
    for mode in ("nearest", "linear", "cubic")
    for seed, (shape, places) in enumerate(SHAPES)
    if mode != "cubic" or (len(places) > 1 and shape[1] != 6)
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("mode", "seed"), MODES)
def test_every_mode(mode: str, padding: str, corners: int, seed: int) -> None:
    shape, places = SHAPES[seed]
    x, grid = sample(shape, places, seed)
    wanted = expected(x, grid, mode, padding, corners)
    made = np.asarray(weft.compile(model(shape, grid.shape, mode, padding, corners))(x, grid))
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("channels", [3, "c"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_open_sizes(mode: str, padding: str, channels: int | str) -> None:
    exe = weft.compile(model(("n", channels, "h", "w"), ("n", "p", "q", 2), mode, padding, 0))
    for seed, (shape, places) in enumerate([((2, 3, 5, 4), (3, 19)), ((1, 3, 1, 2), (1, 1)), ((0, 3, 2, 2), (2, 2))]):
        x, grid = sample(shape, places, seed)
        made = np.asarray(exe(x, grid))
        np.testing.assert_allclose(made, expected(x, grid, mode, padding, 0), rtol=1e-4, atol=2e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_is_outside_counts_as_zero_beside_infinities(mode: str, channels: int) -> None:
    x = np.full((1, channels, 4, 4), np.inf, np.float32)
    grid = np.full((1, 3, 17, 2), 3.0, np.float32)
    made = np.asarray(weft.compile(model(x.shape, grid.shape, mode, "zeros", 0))(x, grid))
    np.testing.assert_array_equal(made, np.zeros_like(made))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("padding", PADDINGS)
def test_coordinates_that_are_no_places_read_nothing_outside(padding: str, value: float) -> None:
    """The results are of no use, but the run ends well, and other places keep theirs."""
    x, grid = sample((1, 3, 5, 6), (2, 32), 1)
    wanted = expected(x, grid, "linear", padding, 0)
    spoilt = grid.copy()
    spoilt[0, 0, ::2] = value
    made = np.asarray(weft.compile(model(x.shape, grid.shape, "linear", padding, 0))(x, spoilt))
    np.testing.assert_allclose(made[:, :, 1], wanted[:, :, 1], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(made[:, :, 0, 1::2], wanted[:, :, 0, 1::2], rtol=1e-4, atol=2e-5)
