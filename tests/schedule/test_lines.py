"""Short reductions before a function are computed for a line of vectors: a core overlaps few long chains of both."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule, other_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Program

TARGETS = ("zen4", "zen3", "raspberry-pi-4")


def window_sums(shape: tuple[Any, ...], function: str, window: int = 3, sizes: tuple[Any, ...] = ()) -> Program:
    """Sums over padded windows of pixels whose channels are in blocks of vectors, and a function of them."""
    c, h, w, lanes = shape
    x = te.placeholder((c, h, w, lanes), name="x")
    f = te.placeholder((c, window, window, lanes), name="f")
    u, v = te.reduce_axis((0, window), "u"), te.reduce_axis((0, window), "v")

    def padded(k: te.Expr, i: te.Expr, j: te.Expr, n: te.Expr) -> te.Expr:
        inside = te.all(i >= 1, i < h + 1, j >= 1, j < w + 1)
        return te.if_then_else(inside, x[k, i - 1, j - 1, n], 0.0)

    p = te.compute((c, h + window - 1, w + window - 1, lanes), padded, name="p")
    y = te.compute(shape, lambda k, i, j, n: te.sum(p[k, i + u, j + v, n] * f[k, u, v, n], axis=(u, v)), name="y")
    ends = {
        "silu": lambda a: a * te.sigmoid(a),
        "gelu": lambda a: 0.5 * a * (1.0 + te.erf(a * 0.70710678)),
        "relu": lambda a: te.max(a, 0.0),
        "mean": lambda a: a * (1.0 / window**2),
    }
    return te_to_tir("window", [x, f], [te.compute(shape, lambda *i: ends[function](y(*i)), name="out")])


def by_lines(s: Schedule) -> bool:
    """Whether the sums have a loop over the line of their own."""
    common = set(s.get_loops("out")) & set(s.get_loops("y"))
    lines = [x for x in s.get_loops("y") if x not in common and s.state.loop(x).extent.value > 1]
    return len([x for x in lines if str(s.state.loop(x).kind) == "serial"]) > 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("function", "lines"), [("silu", True), ("gelu", True), ("mean", False)])
def test_functions_are_computed_by_lines(target: str, function: str, lines: bool) -> None:
    lanes = 16 if target == "zen4" else 8 if target == "zen3" else 4
    program = window_sums((4, 10, 12, lanes), function)
    s, asked = other_schedule(program, Target(target), ())
    assert ("compute y by lines of out" in asked) == lines
    assert by_lines(s) == lines
    other, _ = other_schedule(program, Target(target), ["compute y by lines of out"])
    assert not by_lines(other)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 8), (2, 3, 1, 8), (2, 3, 2, 8), (1, 5, 7, 8), (3, 2, 9, 11), (2, 2, 3, 40)]
)
@pytest.mark.parametrize("function", ["silu", "gelu"])
def test_lines_of_all_lengths_are_right(shape: tuple[int, ...], function: str) -> None:
    program = window_sums(shape, function)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    f = rng.standard_normal((shape[0], 3, 3, shape[3])).astype(np.float32)
    (found,) = run_program(default_schedule(program, Target("cpu")).program, [x, f])
    y, wide = np.zeros(shape, np.float64), np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for u in range(3):
        for v in range(3):
            y += wide[:, u : u + shape[1], v : v + shape[2]] * f[:, None, None, u, v]
    wanted = y / (1 + np.exp(-y)) if function == "silu" else 0.5 * y * (1 + np.vectorize(erf)(y * 0.70710678))
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_long_lines_stay_by_vectors() -> None:
    """A line that does not stay in the first cache would be read again from further away."""
    s = default_schedule(window_sums((1, 4, 4096, 8), "silu"), Target("zen3"))
    assert not by_lines(s)


def test_open_lines_stay_by_vectors() -> None:
    n = te.var("n")
    s = default_schedule(window_sums((2, 4, n, 8), "silu"), Target("zen3"))
    assert not by_lines(s)


@pytest.mark.parametrize("stride", [1, 2])
def test_vectors_along_a_line_stay(stride: int) -> None:
    """Where channels are not in blocks, the vectors of a line are taken one after another: lines of their own would be
    split at the edges of the picture, and with strides take more than twice the time."""
    x, f = te.placeholder((8, 40, 40), name="x"), te.placeholder((8, 3, 3), name="f")
    u, v = te.reduce_axis((0, 3), "u"), te.reduce_axis((0, 3), "v")

    def padded(k: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(i >= 1, i < 41, j >= 1, j < 41), x[k, i - 1, j - 1], 0.0)

    p, n = te.compute((8, 42, 42), padded, name="p"), 40 // stride
    at = (8, n, n)
    y = te.compute(at, lambda k, i, j: te.sum(p[k, stride * i + u, stride * j + v] * f[k, u, v], axis=(u, v)), name="y")
    program = te_to_tir("plain", [x, f], [te.compute(at, lambda *i: te.sigmoid(y(*i)), name="out")])
    _, asked = other_schedule(program, Target("zen3"), ())
    assert "compute y by lines of out" not in asked
