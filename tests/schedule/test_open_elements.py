"""Element-wise work over axes of open sizes is one loop in vectors, as over known ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernel_runner import call

from weft import te
from weft.backends.catalogue import backend_of
from weft.expr.nodes import Binary
from weft.expr.visit import collect
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.common.access import View, continues
from weft.schedule.rules.common.runs import contiguous_suffix
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.visit import all_expressions, blocks

TARGET = Target("x86-64-v4")
N, M, K = (te.var(x) for x in "nmk")


def unary(shape, dtype: str = "float32") -> Program:
    a = te.placeholder(shape, dtype, name="a")
    return te_to_tir("f", [a], [te.compute(shape, lambda *i: a[i] * 2 + 1, name="out")])


def binary(shape, second) -> Program:
    """A second operand that lacks axes or has axes of size 1."""
    a, b = te.placeholder(shape, name="a"), te.placeholder(second, name="b")
    skipped = len(shape) - len(second)

    def element(*i):
        return a[i] - b[tuple(0 if d == 1 else x for x, d in zip(i[skipped:], second, strict=True))]

    return te_to_tir("f", [a, b], [te.compute(shape, element, name="out")])


def fused(program: Program) -> int:
    return contiguous_suffix(View(next(iter(blocks(program.body)))))


@pytest.mark.parametrize(
    ("program", "axes"),
    [
        (unary((N, M, K)), 3),
        (unary((N, 3, K)), 3),
        (unary((N, M, 5)), 3),
        (unary((N, 1, M)), 3),
        (binary((N, M, K), (N, M, K)), 3),
        (binary((N, M, K), (K,)), 1),
        (binary((N, M, K), (M, K)), 2),
        (binary((N, M, K), (N, M, 1)), 1),
        (binary((N, M, K), (N, 1, 1)), 2),
        (binary((N, M, K), (N, 1, K)), 1),
        (binary((N, M, K), (1, 1, 1)), 3),
    ],
)
def test_axes_over_which_everything_is_compact_are_one(program: Program, axes: int) -> None:
    assert fused(program) == axes


def test_another_order_of_axes_is_not_one() -> None:
    a = te.placeholder((N, M, K), name="a")
    turned = te.compute((M, N, K), lambda i, j, k: a[j, i, k], name="out")
    assert fused(te_to_tir("f", [a], [turned])) == 1
    part = te.compute((N, 4, K), lambda i, j, k: a[i, j, k], name="out")
    assert fused(te_to_tir("f", [a], [part])) == 2


def test_axes_that_continue_each_other() -> None:
    """Rows and columns of pictures whose channels move behind them are one axis, of known and of open sizes."""
    for h, w in ((M, K), (M, 9), (8, K), (8, 9)):
        a = te.placeholder((N, 3, h, w), name="a")
        moved = te.compute((N, h, w, 3), lambda n, y, x, c, a=a: a[n, c, y, x], name="out")
        view = View(next(iter(blocks(te_to_tir("f", [a], [moved]).body))))
        n, y, x, c = view.spatial
        assert continues(view, y, x)
        assert not continues(view, n, y) and not continues(view, x, c) and not continues(view, x, y)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64", "float16"])
def test_no_index_is_divided(dtype: str) -> None:
    kernel = tir_to_kernel(default_schedule(unary((N, M, K), dtype), TARGET).program, TARGET)
    lanes = [e for x in all_expressions(kernel.body) for e in collect(x, Binary) if e.lanes > 1]
    assert lanes and not [e for e in lanes if e.op in ("floordiv", "floormod", "truncdiv", "truncmod")]


@pytest.mark.parametrize("second", [(N, M, K), (K,), (M, K), (N, M, 1), (N, 1, 1), (N, 1, K), (1, 1, 1)])
def test_results_are_right(second) -> None:
    target = Target("cpu")
    kernel = tir_to_kernel(default_schedule(binary((N, M, K), second), target).program, target)
    code = backend_of(target).emit(kernel, target)
    rng = np.random.default_rng(0)
    for n, m, k in [*itertools.product((0, 1, 3), (0, 1, 5), (0, 1, 17)), (2, 3, 200), (40, 33, 1)]:
        sizes = {N: n, M: m, K: k}
        a = rng.standard_normal((n, m, k)).astype(np.float32)
        shape = tuple(sizes.get(d, d) for d in second)
        b = rng.standard_normal(shape).astype(np.float32)
        got = np.full_like(a, 77)
        call(code.data, code.entry, [a, b, got], [sizes[v] for v in kernel.sizes])
        np.testing.assert_array_equal(got, a - b)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize("size", [K, 67, 259])
@pytest.mark.parametrize("count", [2, 3])
def test_repeated_rows_are_contiguous(count: int, size, dtype: str) -> None:
    target = Target("cpu")
    a = te.placeholder((N, size), dtype, name="a")
    out = te.compute((N, size * count), lambda i, j: a[i, j % size], name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("f", [a], [out]), target).program, target)
    lanes = [e for x in all_expressions(kernel.body) for e in collect(x, Binary) if e.lanes > 1]
    assert not [e for e in lanes if e.op in ("floordiv", "floormod", "truncdiv", "truncmod")]
    code = backend_of(target).emit(kernel, target)
    for n, k in itertools.product((0, 1, 3), (0, 1, 15, 16, 70) if size is K else (size,)):
        data = np.random.default_rng(0).integers(0, 100, (n, k)).astype(dtype)
        got = np.full((n, k * count), 77, dtype)
        call(code.data, code.entry, [data, got], [{N: n, K: k}[v] for v in kernel.sizes])
        np.testing.assert_array_equal(got, np.tile(data, (1, count)))


@pytest.mark.parametrize("kept", [0, 1])
def test_reductions_over_open_axes_divide_no_index(kept: int) -> None:
    """Their axes continue each other, but one axis of both would take quotients and remainders in vectors."""
    a = te.placeholder((N, M, K), name="a")
    axes = [te.reduce_axis((0, d)) for d in (N, M, K)[kept:]]
    out = te.compute((N,)[:kept], lambda *i: te.sum(a[(*i, *axes)], axis=axes), name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("f", [a], [out]), TARGET).program, TARGET)
    lanes = [e for x in all_expressions(kernel.body) for e in collect(x, Binary) if e.lanes > 1]
    assert lanes and not [e for e in lanes if e.op in ("floordiv", "floormod", "truncdiv", "truncmod")]
