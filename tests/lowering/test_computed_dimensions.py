"""Fused loops over dimensions that are computed from sizes, such as those of pools and slices: no element costs a
division, and nothing is assumed of sizes for which a dimension is 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import weft
from weft import te
from weft.expr.nodes import Binary, Expr, Var
from weft.expr.prove import Facts
from weft.expr.visit import post_order
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Store
from weft.tir.visit import expressions, walk

TARGET = Target("x86-64-v4")
N, M = Var("n"), Var("m")
PAIRS = [(N - 2, M - 3), ((N + 2) // 3 - 1, (M + 2) // 3 - 1), ((N - 4) // 2 + 1, M - 1), (N * 2 - 4, M * 3 - 6)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("pieces", [1, 16])
def test_the_index_of_a_fused_loop(a: Expr, b: Expr, pieces: int) -> None:
    facts, q, lane = Facts(), Var("q"), Var("l")
    for size in (N, M):
        facts.bind_size(size, 0)
    for d in (a, b):
        facts.bind_dimension(d)
    assert not facts.prove(a >= 1), "the loop may not run"
    with facts.scope():
        facts.bind(q, 0, (a * b * 5 + (pieces - 1)) // pieces)
        facts.bind(lane, 0, pieces)
        at = q * pieces + lane
        whole = ((at // (a * b)) * a + at // b % a) * b + at % b
        assert facts.prove(a >= 1) and facts.prove(b >= 1)
        assert facts.equal(whole, at)
    assert not facts.prove(a >= 1)


def test_a_product_alone_says_nothing_of_its_factors() -> None:
    """Both may be negative: only dimensions are known not to be."""
    facts, q = Facts(), Var("q")
    for size in (N, M):
        facts.bind_size(size, 0)
    facts.bind(q, 0, (N - 2) * (M - 3))
    assert not facts.prove(N >= 3)


@pytest.mark.parametrize("pair", PAIRS)
def test_no_division_for_an_element(pair: tuple[Expr, Expr]) -> None:
    x = [te.placeholder((1, 3, *pair), name=f"x{n}") for n in range(3)]

    def joined(t: Expr, *i: Expr) -> Expr:
        return te.if_then_else(t < 1, x[0][(t, *i)], te.if_then_else(t < 2, x[1][(t - 1, *i)], x[2][(t - 2, *i)]))

    out = te.compute((3, 3, *pair), joined, name="joined")
    kernel = tir_to_kernel(default_schedule(te_to_tir("joined", x, [out]), TARGET).program, TARGET)
    stores = [s for s in walk(kernel.body) if isinstance(s, Store)]
    assert stores
    for s in stores:
        found = [e for e in post_order(*expressions(s)) if isinstance(e, Binary) and e.lanes > 1]
        assert not [e.op for e in found if e.op in ("floordiv", "floormod")]


@pytest.mark.parametrize(
    "first", ["MaxPool <kernel_shape = [4, 4], strides = [3, 3]> (x)", "Slice (x, two, ends, axes)"]
)
def test_sizes_down_to_nothing(first: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[b, 3, n, m] x)
    => (float[p, q, r, s] y, float[d, e, f, h] z) {{
      pads = Constant <value_ints = [0, 0, 0, 1, 0, 0, 1, 0]> ()
      two = Constant <value_ints = [2, 3]> ()
      ends = Constant <value_ints = [9000, 9000]> ()
      axes = Constant <value_ints = [2, 3]> ()
      a = {first}
      c = Neg (a)
      y = Concat <axis = 0> (a, c, a)
      z = Pad <mode = "constant"> (a, pads)
    }}"""
    exe = weft.compile(onnx.parser.parse_model(text))
    rng = np.random.default_rng(0)
    pooled = first.startswith("MaxPool")
    for b, n, m in (
        (1, 4, 4),
        (2, 5, 30),
        (1, 43, 57),
        (0, 7, 7),
        *(() if pooled else ((2, 2, 9), (1, 9, 3), (3, 2, 3))),
    ):
        x = rng.standard_normal((b, 3, n, m)).astype(np.float32)
        y, z = exe(x)
        a = _pooled(x) if pooled else x[:, :, 2:, 3:]
        np.testing.assert_array_equal(y, np.concatenate([a, -a, a]))
        np.testing.assert_array_equal(z, np.pad(a, ((0, 0), (0, 0), (0, 1), (1, 0))))


def _pooled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(x, (4, 4), axis=(2, 3))
    return np.asarray(windows[:, :, ::3, ::3].max(axis=(4, 5)))
