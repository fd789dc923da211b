"""Windows of pools, in one pass and in two, compiled: random kernels, strides, dilations, pads, dtypes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft.api
from weft.expr.nodes import Var as Symbol
from weft.graph import build
from weft.graph.nodes import Module, Var, call
from weft.graph.operator import Attrs
from weft.graph.types import TensorType
from weft.ops.catalogue import op
from weft.ops.pooling import in_two_passes
from weft.pipeline import Options
from weft.support.dtypes import DType
from weft.support.errors import UserError

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8")
"""All of them for sums and maxima; the first four, which are floats, have roots."""
SIZES = (1, 5, 9, 16, 17, 18, 33, 40)


def attributes(rng: np.random.Generator, name: str, rank: int) -> dict[str, Any]:
    kernel = tuple(int(rng.integers(1, 7)) for _ in range(rank))
    found: dict[str, Any] = {
        "kernel": kernel,
        "strides": tuple(int(rng.integers(1, 6)) for _ in range(rank)),
        "dilations": tuple(int(rng.integers(1, 3)) for _ in range(rank)),
        "pads": tuple(int(rng.integers(0, k)) for k in kernel * 2),
        "ceil_mode": bool(rng.integers(0, 2)),
    }
    return found | ({"count_include_pad": bool(rng.integers(0, 2))} if name == "avg_pool" else {})


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.integers(0 if dtype == "uint8" else -100, 100, shape)
    return values.astype(DType(dtype).numpy)


def compiled(
    name: str, attrs: dict[str, Any], x: np.ndarray, shape: tuple[Any, ...], target: str = "cpu"
) -> np.ndarray:
    var = Var("x", TensorType(shape, DType(x.dtype)))
    module = Module.of(build.function([var], [call(op(name), [var], attrs)]))
    return np.asarray(weft.api.compile(module, threads=1, target=target, options=Options(jobs=1))(x))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", seeds(30))
def test_random_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    done = 0
    while done < 3:
        rank = int(rng.integers(1, 4))
        name = str(rng.choice(["max_pool", "avg_pool", "lp_pool"]))
        blocked = bool(rng.integers(0, 2))
        attrs = attributes(rng, name, rank)
        channels = int(rng.choice([1, 3, 17]))
        shape = (
            1,
            channels,
            *(int(rng.choice(SIZES[: 9 - 2 * rank])) for _ in range(rank)),
            *((8,) if blocked else ()),
        )
        dtype = str(rng.choice(DTYPES))
        x = numbers(rng, dtype, shape)
        try:
            call(op(name), [Var("x", TensorType.of(shape, DType(dtype)))], attrs)
        except UserError:  # the window does not fit
            continue
        want = op(name).reference(op(name).complete(attrs), x)
        got = compiled(name, attrs, x, shape)
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5)
        message = f"{name} {dtype} {shape} {attrs}"
        if x.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want, err_msg=message)
        else:
            wide = (np.asarray(a, np.float64) for a in (got, want))
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=100 * tolerance, err_msg=message)
        done += 1


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("window", [(5, 1, 2), (4, 3, 0), (13, 1, 6), (3, 4, 1)], ids=str)
def test_windows_of_open_sizes(name: str, window: tuple[int, int, int]) -> None:
    kernel, stride, pad = window
    attrs = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}
    rng = np.random.default_rng(kernel)
    height, width = Symbol("h"), Symbol("w")
    for size in ((13, 13), (14, 41)):
        x = numbers(rng, "float32", (2, 3, *size))
        want = op(name).reference(op(name).complete(attrs), x)
        np.testing.assert_allclose(compiled(name, attrs, x, (2, 3, height, width)), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3", "c"])
def test_windows_on_other_targets(target: str) -> None:
    rng = np.random.default_rng(1)
    for name, kernel, stride in (("max_pool", 5, 1), ("avg_pool", 4, 3), ("max_pool", 4, 4)):
        attrs = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (1, 0, 1, 2)}
        x = numbers(rng, "float32", (1, 3, 20, 33))
        want = op(name).reference(op(name).complete(attrs), x)
        np.testing.assert_allclose(compiled(name, attrs, x, x.shape, target), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "stride", "blocked", "two"),
    [(2, 2, False, False), (3, 1, True, False), (5, 1, True, True), (4, 3, False, True), (9, 1, False, True)],
)
def test_two_passes_are_taken_where_they_save_operations(kernel: int, stride: int, blocked: bool, two: bool) -> None:
    attrs = op("max_pool").complete(Attrs({"kernel": (kernel, kernel), "strides": (stride, stride)}))
    shape = (1, 4, 32, 32, 16) if blocked else (1, 64, 32, 32)
    assert in_two_passes("max_pool", attrs, shape) is two


@pytest.mark.thinned(3)
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("blocked", [False, True])
def test_windows_within_the_padding(blocked: bool, rank: int, counted: bool) -> None:
    """Windows that reach no element, at both ends, with strides and dilations: as the reference has them, also where
    the sizes are open."""
    for kernel, pads, stride, dilation in ((2, (2, 2), 1, 1), (1, (3, 0), 2, 1), (2, (5, 6), 1, 2), (3, (3, 7), 2, 1)):
        attrs: dict[str, Any] = {
            "kernel": (kernel,) * rank,
            "strides": (stride,) * rank,
            "dilations": (dilation,) * rank,
            "pads": (pads[0],) * rank + (pads[1],) * rank,
            "count_include_pad": counted,
        }
        shape = (1, 3, *range(4, 4 + rank), *((8,) if blocked else ()))
        x = numbers(np.random.default_rng(kernel), "float32", shape)
        with np.errstate(all="ignore"):
            want = op("avg_pool").reference(op("avg_pool").complete(attrs), x)
        open_ = (1, 3, *(Symbol(f"n{d}") for d in range(rank)), *shape[2 + rank :])
        for declared in (shape, open_):
            got = compiled("avg_pool", attrs, x, declared)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4, err_msg=f"{declared} {attrs}")
