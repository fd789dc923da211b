"""Sums of products written in te in other ways than as two elements become products of tiles: the cost of their code is
near that of its multiply-adds. No clock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import emit_ir, explained
from weft.kernels.machine_code import lowered
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.static_cost.judge import machine_of
from weft.static_cost.kernel import kernel_cost
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program

ZEN4 = Target("zen4")
LANES = 16
Made = tuple[Program, int]
"""A program and the multiply-adds that it must do, zeros between elements included."""


def data(*shape: int, name: str) -> te.Tensor:
    return te.placeholder(shape, name=name)


def convolution(read: Callable[..., te.Expr], image: tuple[int, int], results: int, channels: int = 8) -> Made:
    """A 3 x 3 convolution that reads ``read(X, c, i + u, j + v)``."""
    x, w = data(channels * 4, *image, name="X"), data(16, channels, 3, 3, name="W")
    c, u, v = (te.reduce_axis((0, n), name=s) for n, s in ((channels, "c"), (3, "u"), (3, "v")))
    y = te.compute(
        (16, results, results),
        lambda f, i, j: te.sum(read(x, c, i + u, j + v) * w[f, c, u, v], axis=(c, u, v)),
        name="Y",
    )
    return te_to_tir("convolution", [x, w], [y]), 16 * results * results * channels * 9


def padded(x: te.Tensor, c: te.Expr, a: te.Expr, b: te.Expr, n: int = 16) -> te.Expr:
    return te.if_then_else(te.all(a >= 1, a < n + 1, b >= 1, b < n + 1), x[c, a - 1, b - 1], 0.0)


def grouped_deconvolution(n: int = 16) -> Made:
    x, w = data(2, 8, n, n, name="X"), data(2, 8, 8, 4, 4, name="W")
    c, u, v = (te.reduce_axis((0, m), name=s) for m, s in ((8, "c"), (4, "u"), (4, "v")))

    def at(g: te.Expr, f: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        a, b = i + 2 - u, j + 2 - v
        there = te.all(a % 2 == 0, b % 2 == 0, a >= 0, b >= 0, a // 2 < n, b // 2 < n)
        return te.sum(te.if_then_else(there, x[g, c, a // 2, b // 2], 0.0) * w[g, c, f, u, v], axis=(c, u, v))

    m = 2 * n - 1
    return te_to_tir("deconvolution", [x, w], [te.compute((2, 8, m, m), at, name="Y")]), 2 * 8 * m * m * 8 * 16


def product(term: Callable[..., te.Expr], rows: int = 48, depth: int = 96, columns: int = 64) -> Made:
    """The sum over k of ``term(x, w, z, i, j, k)``."""
    x, w = data(rows, depth, name="X"), data(depth, columns, name="W")
    z, k = data(96, name="Z"), te.reduce_axis((0, depth), name="k")
    y = te.compute((rows, columns), lambda i, j: te.sum(term(x, w, z, i, j, k), axis=k), name="Y")
    return te_to_tir("product", [x, w, z], [y]), rows * depth * columns


def attention(rows: int = 64) -> Made:
    """Weights are divided by their sum where they are used."""
    q, k, v = (data(2, rows, 32, name=name) for name in "QKV")
    d, m, n, o = (te.reduce_axis((0, e), name=s) for e, s in ((32, "d"), (rows, "m"), (rows, "n"), (rows, "o")))
    s = te.compute((2, rows, rows), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), name="S")
    t = te.compute((2, rows), lambda h, i: te.max(s[h, i, m], axis=m), name="T")
    e = te.compute((2, rows, rows), lambda h, i, j: te.exp(s[h, i, j] - t[h, i]), name="E")
    z = te.compute((2, rows), lambda h, i: te.sum(e[h, i, n], axis=n), name="Z")
    y = te.compute((2, rows, 32), lambda h, i, c: te.sum(e[h, i, o] / z[h, i] * v[h, o, c], axis=o), name="Y")
    return te_to_tir("attention", [q, k, v], [y]), 2 * 2 * rows * rows * 32


def dilated_gelu(width: int = 14) -> Made:
    """A 3-D convolution whose lines end within a vector, and a GELU that reads the sum twice."""
    x, w, b = data(8, 8, 8, width + 4, name="X"), data(16, 8, 3, 3, 3, name="W"), data(16, name="B")
    c, u, v, z = (te.reduce_axis((0, n), name=s) for n, s in ((8, "c"), (3, "u"), (3, "v"), (3, "z")))
    y = te.compute(
        (16, 4, 4, width),
        lambda f, i, j, k: te.sum(x[c, i + 2 * u, j + 2 * v, k + 2 * z] * w[f, c, u, v, z], axis=(c, u, v, z)),
        name="Y",
    )
    s = te.compute((16, 4, 4, width), lambda f, i, j, k: y[f, i, j, k] + b[f], name="S")
    g = te.compute((16, 4, 4, width), lambda *i: 0.5 * s(*i) * (1.0 + te.erf(s(*i) * 0.70710678)), name="G")
    return te_to_tir("gelu", [x, w, b], [g]), 16 * 4 * 4 * LANES * 8 * 27


CASES: dict[str, tuple[Callable[[], Made], float]] = {
    "padding in the sum": (lambda: convolution(padded, (16, 16), 16), 1.6),
    "zeros between elements": (grouped_deconvolution, 1.8),
    "pixel shuffle": (
        lambda: convolution(lambda x, c, a, b: x[c * 4 + a % 2 * 2 + b % 2, a // 2, b // 2], (15, 15), 28),
        1.6,
    ),
    "repeated pixels": (lambda: convolution(lambda x, c, a, b: x[c, a // 2, b // 2], (15, 15), 28), 1.6),
    "wrapped image": (lambda: convolution(lambda x, c, a, b: x[c, a % 28, b % 28], (28, 28), 28), 1.6),
    "quotient of a row": (lambda: product(lambda x, w, z, i, j, k: x[i, k] / z[i] * w[k, j]), 1.5),
    "quotient of the product": (lambda: product(lambda x, w, z, i, j, k: x[i, k] * w[k, j] / z[i]), 1.5),
    "quotient of a column": (lambda: product(lambda x, w, z, i, j, k: x[i, k] * (w[k, j] / z[j])), 1.4),
    "scale of each step": (lambda: product(lambda x, w, z, i, j, k: x[i, k] * w[k, j] * z[k]), 1.4),
    "mean of products": (lambda: product(lambda x, w, z, i, j, k: x[i, k] * w[k, j] / 96.0), 1.5),
    "centered rows": (lambda: product(lambda x, w, z, i, j, k: (x[i, k] - z[i]) * w[k, j]), 1.5),
    "attention": (attention, 2.2),
    "GELU of lines that end in a vector": (dilated_gelu, 1.4),
}


@pytest.mark.parametrize("case", CASES)
def test_cost_is_near_that_of_the_products(case: str) -> None:
    make, most = CASES[case]
    program, steps = make()
    found = kernel_cost(*explained(emit_ir(lowered(program, ZEN4, None), ZEN4), ZEN4), machine_of(ZEN4), 0)
    assert 0.9 < found.units / (steps / LANES) < most


SMALL: dict[str, Callable[[], Made]] = {
    "padding in the sum": lambda: convolution(lambda x, c, a, b: padded(x, c, a, b, 4), (4, 4), 4, 2),
    "zeros between elements": lambda: grouped_deconvolution(2),
    "pixel shuffle": lambda: convolution(lambda x, c, a, b: x[c * 4 + a % 2 * 2 + b % 2, a // 2, b // 2], (4, 4), 6, 2),
    "wrapped image": lambda: convolution(lambda x, c, a, b: x[c, a % 5, b % 5], (5, 5), 5, 2),
    "quotient of the product": lambda: product(lambda x, w, z, i, j, k: x[i, k] * w[k, j] / z[i], 5, 7, 9),
    "scale of each step": lambda: product(lambda x, w, z, i, j, k: x[i, k] * w[k, j] * z[k], 5, 7, 9),
    "the same factor twice": lambda: product(lambda x, w, z, i, j, k: x[i, k] * x[i, k] * w[k, j], 5, 7, 9),
    "attention": lambda: attention(5),
    "GELU of lines that end in a vector": lambda: dilated_gelu(3),
}


@pytest.mark.parametrize("case", SMALL)
def test_results(case: str) -> None:
    program, _ = SMALL[case]()
    rng = np.random.default_rng(0)
    given = [rng.uniform(0.5, 1.5, [int(str(n)) for n in b.shape]).astype("float32") for b in program.params[:-1]]
    scheduled = default_schedule(program, Target("cpu")).program
    np.testing.assert_allclose(run_program(scheduled, given)[0], run(program, given)[0], rtol=2e-5)
