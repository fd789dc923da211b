"""With few registers, all sums of a tile are finished (a bias is added) before functions of them are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule, other_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Block, Program
from weft.tir.visit import walk

FEW, MANY = Target("x86-64-v3"), Target("zen4")
Array = np.ndarray[Any, Any]


def silu(x: te.Expr) -> te.Expr:
    return x * te.sigmoid(x)


def product(m: Any, n: Any, k: Any, function: Any = silu, more: str = "", dtype: str = "float32") -> Program:
    """``function(a @ b + bias)``. ``more``: ``residual`` adds a matrix, too, ``twice`` stores the sums as well."""
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    bias, other = te.placeholder((n,), dtype, "bias"), te.placeholder((m, n), dtype, "other")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="S")
    if more == "residual":
        before = s
        s = te.compute((m, n), lambda i, j: before[i, j] + other[i, j], name="R")
    y = te.compute((m, n), lambda i, j: function(s[i, j]), name="Y")
    inputs = [a, b, bias, *([other] if more == "residual" else [])]
    return te_to_tir("product", inputs, [y, s] if more == "twice" else [y])


def conv(size: int, channels: int, out: int, window: int, block: int = 8) -> Program:
    """A convolution over blocks of channels, with a bias and SiLU."""
    wide = size + window - 1
    x = te.placeholder((channels, wide, wide), name="X")
    w = te.placeholder((out // block, channels, window, window, block), name="W")
    bias = te.placeholder((out // block, block), name="bias")
    c, u, v = (te.reduce_axis((0, n), s) for n, s in ((channels, "c"), (window, "u"), (window, "v")))
    shape = (out // block, size, size, block)
    y = te.compute(shape, lambda o, i, j, z: te.sum(x[c, i + u, j + v] * w[o, c, u, v, z], axis=(c, u, v)), name="C")
    s = te.compute(shape, lambda o, i, j, z: y[o, i, j, z] + bias[o, z], name="S")
    return te_to_tir("conv", [x, w, bias], [te.compute(shape, lambda *i: silu(s(*i)), name="Y")])


def depthwise(size: int, channels: int) -> Program:
    x, w = te.placeholder((size + 2, size + 2, channels), name="X"), te.placeholder((3, 3, channels), name="W")
    bias, u, v = te.placeholder((channels,), name="bias"), te.reduce_axis((0, 3), "u"), te.reduce_axis((0, 3), "v")
    shape = (size, size, channels)
    y = te.compute(shape, lambda i, j, c: te.sum(x[i + u, j + v, c] * w[u, v, c], axis=(u, v)), name="C")
    s = te.compute(shape, lambda i, j, c: y[i, j, c] + bias[c], name="S")
    return te_to_tir("depthwise", [x, w, bias], [te.compute(shape, lambda *i: silu(s(*i)), name="Y")])


def scopes(s: Schedule) -> dict[str, str]:
    return {w.buffer.name: w.buffer.scope for n in walk(s.program.body) if isinstance(n, Block) for w in n.writes}


def blocks(s: Schedule) -> list[str]:
    return [n.name for n in walk(s.program.body) if isinstance(n, Block)]


@pytest.mark.parametrize("made", [product(48, 64, 40), conv(14, 16, 32, 3)], ids=["product", "conv"])
def test_a_bias_is_added_to_the_whole_tile_first(made: Program) -> None:
    s = default_schedule(made, FEW)
    assert "S" in blocks(s) and scopes(s)["S"] == "local"
    assert s.get_loops("S")[0].name == s.get_loops("Y")[0].name, "it is in the loops of the tiles"


@pytest.mark.parametrize(
    ("made", "target"),
    [
        (product(48, 64, 40), MANY),
        (product(48, 64, 40, lambda x: x * 2.0), FEW),  # no function
        (product(48, 64, 40, more="twice"), FEW),  # a result itself
        (depthwise(14, 32), FEW),  # no tiles of sums whose operands are used again
        (product(48, 70, 40), FEW),  # a part of a vector: with its conditions this took twice as long
        (product(te.var("m"), 64, 40), FEW),
        (product(48, te.var("n"), 40), FEW),
        (product(48, 64, 400), FEW),
        (product(48, 64, 40, lambda x: te.sigmoid(te.tanh(x))), FEW),
    ],
    ids=[
        "registers",
        "no function",
        "result",
        "depthwise",
        "ragged",
        "open rows",
        "open columns",
        "long sums",
        "functions",
    ],
)
def test_otherwise_it_is_part_of_the_function(made: Program, target: Target) -> None:
    assert scopes(default_schedule(made, target)).get("S", "none") != "local"


def test_searches_may_decide_otherwise() -> None:
    s, asked = other_schedule(product(48, 64, 40), FEW, ["finish sums by S"])
    assert "finish sums by S" in asked and "S" not in blocks(s)
    _, asked = other_schedule(product(48, 64, 40), MANY, [])
    assert "finish sums by S" in asked
    s, _ = other_schedule(product(48, 64, 40), MANY, ["finish sums by S"])
    assert "S" in blocks(s)


def wanted(inputs: list[Array], function: Any) -> Array:
    a, b, *more = (x.astype(np.float64) for x in inputs)
    return np.asarray(function(a @ b + sum(more)))


def numpy_silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def draw(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Array]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / (s[0] ** 0.5 if len(s) > 1 else 1)).astype(dtype) for s in shapes]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("more", ["", "residual"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (48, 64, 40),
        (1, 64, 40),
        (7, 33, 5),
        (64, 8, 16),
        (13, 17, 1),
        (5, 100, 3),
        (3, 3, 3),
        (100, 20, 30),
        (6, 16, 1),
    ],
)
def test_products_of_all_sizes_are_right(m: int, n: int, k: int, more: str) -> None:
    inputs = draw((m, k), (k, n), (n,), *([(m, n)] if more else []))
    made, name = product(m, n, k, more=more), "R" if more else "S"
    default = f"finish sums by {name}" in other_schedule(made, FEW, [])[1]
    for target, flipped in ((Target("cpu"), []), (FEW, []), (FEW, [f"finish sums by {name}"] if default else [])):
        s, _ = other_schedule(made, target, flipped)
        (found,) = run_program(s.program, inputs, target=target)
        np.testing.assert_allclose(found, wanted(inputs, numpy_silu), rtol=2e-5, atol=2e-6)


def test_open_sizes_and_doubles_are_right() -> None:
    m = te.var("m")
    s, _ = other_schedule(product(m, 40, 24), FEW, ["finish sums by S"])  # not the default
    assert "S" in blocks(s)
    for rows in (0, 1, 5, 6, 48, 61):
        inputs = draw((max(rows, 1), 24), (24, 40), (40,))
        inputs[0] = inputs[0][:rows]
        (found,) = run_program(s.program, inputs, [rows], target=FEW)
        np.testing.assert_allclose(found, wanted(inputs, numpy_silu), rtol=2e-5, atol=2e-6)
    inputs = draw((30, 24), (24, 40), (40,), dtype="float64")
    s = default_schedule(product(30, 40, 24, te.tanh, dtype="float64"), FEW)
    (found,) = run_program(s.program, inputs, target=FEW)
    np.testing.assert_allclose(found, wanted(inputs, np.tanh), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1, 5, 14, 29])
@pytest.mark.parametrize("window", [1, 3])
def test_convolutions_are_right(size: int, window: int) -> None:
    wide = size + window - 1
    x, w, bias = draw((6, wide, wide), (3, 6, window, window, 8), (3, 8))
    s = default_schedule(conv(size, 6, 24, window), FEW)
    (found,) = run_program(s.program, [x, w, bias], target=FEW)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (window, window), (1, 2))
    sums = np.einsum("cijuv,ocuvz->oijz", windows, w) + bias[:, None, None]
    np.testing.assert_allclose(found, numpy_silu(sums), rtol=2e-5, atol=2e-6)
