"""Transposed convolutions as ordinary ones: every rank, stride, dilation, padding, group and open size."""

from __future__ import annotations

import contextlib
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft.expr.nodes import Var
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, GraphExpr, Module, call
from weft.graph.passes.rewrite import Rewrite
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.ops.rules.transposed import TRANSPOSED_RULES, axis_phases
from weft.support.dtypes import DType
from weft.support.errors import TypeRelationError


def module(shape: tuple[Any, ...], kernel: np.ndarray[Any, Any] | GraphExpr, attrs: dict[str, Any]) -> Module:
    dtype = str(kernel.tensor.dtype if isinstance(kernel, GraphExpr) else kernel.dtype)
    x = build.var("x", shape, dtype)
    weights = kernel if isinstance(kernel, GraphExpr) else build.constant(kernel)
    params = [x, kernel] if isinstance(kernel, GraphExpr) else [x]
    return Module({"main": build.function(params, call(op("conv_transpose"), [x, weights], attrs))})


def agree(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Sums of products in another order: equal up to 1e-5 of the spread of the values."""
    assert found.shape == expected.shape
    spread = float(np.ptp(expected)) if expected.size else 0.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(spread, 1.0))


def is_rewritten(m: Module) -> bool:
    return all(not isinstance(e, Call) or e.target is not op("conv_transpose") for e in post_order(m.main))


def drawn(r: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """The shapes of data and kernel, and attributes."""
    n, groups = r.choice([1, 2, 3]), r.choice([1, 1, 2, 3])
    channels = groups * r.choice([1, 2])
    strides = tuple(r.randint(1, 4) for _ in range(n))
    dilations = tuple(r.choice([1, 1, 2, 3, 4]) for _ in range(n))
    kernel = (channels, r.choice([1, 2, 3]), *(r.randint(1, 5) for _ in range(n)))
    extra = tuple(r.randrange(max(s, d)) for s, d in zip(strides, dilations, strict=True))
    pads = tuple(r.choice([0, 0, 1, 2, 3]) for _ in range(2 * n))
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra, "groups": groups}
    return (2, channels, *(r.randint(1, 5) for _ in range(n))), kernel, attrs


@pytest.mark.parametrize("seed", seeds(150))
def test_the_result_does_not_change(seed: int) -> None:
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    before = None
    while before is None:  # sizes whose result would have less than no element are drawn again
        shape, kernel, attrs = drawn(r)
        weights = numbers.standard_normal(kernel).astype(np.float32)
        with contextlib.suppress(TypeRelationError):
            before = module(shape, weights, attrs)
    after = Rewrite(TRANSPOSED_RULES).run(before)
    x = numbers.standard_normal(shape).astype(np.float32)
    expected, found = run(before, [x]), run(after, [x])
    if expected.size:  # padding that removes rows of the input may leave none of them
        assert is_rewritten(after) or min(p for axis in phases_of(shape, kernel, attrs) for p in axis.pads) < 0
    agree(found, expected)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("taps", [1, 2, 4])
def test_padding_that_removes_rows_of_the_input(taps: int, size: int) -> None:
    """All strides, dilations, paddings and output paddings: also those that leave no row on one of two dimensions."""
    x = np.random.default_rng(taps).standard_normal((1, 2, size, 3)).astype(np.float32)
    weights = np.random.default_rng(size).standard_normal((2, 1, taps, 1)).astype(np.float32)
    computed = 0
    for stride, dilation, low, high in product((1, 2, 3), (1, 3), (0, 1, 3, 6), (0, 1, 3, 6)):
        for extra in range(max(stride, dilation)):
            attrs = {"strides": (stride, 1), "dilations": (dilation, 3), "pads": (low, 0, high, 0)}
            try:
                before = module(x.shape, weights, {**attrs, "output_padding": (extra, 2)})
            except TypeRelationError:
                continue  # the result would have less than no element
            agree(run(Rewrite(TRANSPOSED_RULES).run(before), [x]), run(before, [x]))
            computed += 1
    assert computed > 20


def test_nothing_left_of_one_dimension() -> None:
    weights = np.random.default_rng(0).standard_normal((2, 1, 4, 1)).astype(np.float32)
    attrs = {"dilations": (1, 3), "pads": (3, 3, 0, 0), "output_padding": (0, 2)}
    before = module((1, 2, 3, 2), weights, attrs)
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 2)).astype(np.float32)
    agree(run(Rewrite(TRANSPOSED_RULES).run(before), [x]), run(before, [x]))


def phases_of(shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any]) -> list[Any]:
    n = len(kernel) - 2
    pads, extra = attrs["pads"], attrs["output_padding"]
    return [
        axis_phases(k, s, dilation, (low, high), more, size)
        for k, s, dilation, low, high, more, size in zip(
            kernel[2:], attrs["strides"], attrs["dilations"], pads[:n], pads[n:], extra, shape[2:], strict=True
        )
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_each_dtype(dtype: str) -> None:
    numbers = np.random.default_rng(0)
    weights = numbers.integers(-3, 4, (4, 3, 3, 2)).astype(DType(dtype).numpy)
    x = numbers.integers(-3, 4, (1, 4, 4, 5)).astype(weights.dtype)
    before = module(x.shape, weights, {"strides": (2, 3), "pads": (1, 0, 0, 1), "groups": 2})
    after = Rewrite(TRANSPOSED_RULES).run(before)
    assert is_rewritten(after)
    np.testing.assert_array_equal(run(after, [x]), run(before, [x]))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", [(2, 1, 1), (1, 3, 8), (3, 7, 2), (0, 3, 4)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_open_sizes(stride: int, sizes: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0)
    weights = numbers.standard_normal((4, 2, 3, 4)).astype(np.float32)
    n, h, w = Var("n"), Var("h"), Var("w")
    attrs = {"strides": (stride, stride), "pads": (1, 1, 1, 1), "groups": 2, "dilations": (1, 2)}
    before = module((n, 4, h, w), weights, attrs)
    after = Rewrite(TRANSPOSED_RULES).run(before)
    assert is_rewritten(after)
    batch, height, width = sizes
    x = numbers.standard_normal((batch, 4, height, width)).astype(np.float32)
    exe = weft.compile(before)
    agree(exe(x), run(before, [x]))


def test_weights_that_are_an_input() -> None:
    numbers = np.random.default_rng(0)
    before = module((1, 4, 5), build.var("w", (4, 3, 5)), {"strides": (2,), "pads": (1, 2)})
    after = Rewrite(TRANSPOSED_RULES).run(before)
    assert is_rewritten(after)
    x, w = (numbers.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 5), (4, 3, 5)))
    agree(run(after, [x, w]), run(before, [x, w]))


@pytest.mark.parametrize(("shape", "pads"), [((1, 2, 0), (0, 0)), ((1, 2, 1), (2, 1)), ((1, 0, 3), (0, 0))])
def test_empty_data_and_empty_results_stay(shape: tuple[int, ...], pads: tuple[int, ...]) -> None:
    before = module(shape, np.ones((shape[1], 3, 3), np.float32), {"pads": pads})
    assert Rewrite(TRANSPOSED_RULES).run(before) is before


def test_a_kernel_smaller_than_the_stride_computes_no_zeros() -> None:
    """The window of the convolution has as many phases as the kernel has taps."""
    assert len(axis_phases(2, 5, 1, (0, 0), 0).taps) == 2
    assert axis_phases(3, 1, 4, (0, 0), 0).dilation == 4
    assert axis_phases(16, 8, 1, (4, 4), 0).pads == (1, 1)


def test_one_pixel_has_no_window() -> None:
    """The first layer of a generator: each result is one product."""
    assert axis_phases(4, 1, 1, (0, 0), 0, 1).taps == ((0,), (1,), (2,), (3,))
    assert axis_phases(4, 1, 1, (0, 0), 0, 1).pads == (0, 0)
