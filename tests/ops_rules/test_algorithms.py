"""Rules that replace a convolution by another algorithm: where they apply, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Module, call
from weft.graph.passes.rewrite import Rewrite
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.ops.rules.pointwise import POINTWISE_RULES

RANDOM = np.random.default_rng(0)


def module(name: str, x_shape: tuple[int, ...], weights: np.ndarray, attrs: dict[str, object]) -> Module:
    x = build.var("x", x_shape)
    return Module({"main": build.function([x], call(op(name), [x, build.constant(weights)], attrs))})


def operators(m: Module) -> list[str]:
    return [e.target.name for e in post_order(m.main) if isinstance(e, Call)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(1, 5, 7), (4, 12, 20), (3, 6, 3 * 17)])
@pytest.mark.parametrize("space", [(16,), (7, 7), (3, 4, 5)])
def test_pointwise_convolutions_become_products(
    batch: int, groups: int, inputs: int, outputs: int, space: tuple[int, ...]
) -> None:
    weights = RANDOM.standard_normal((outputs, inputs // groups, *(1,) * len(space))).astype(np.float32)
    before = module("conv", (batch, inputs, *space), weights, {"groups": groups})
    after = Rewrite(POINTWISE_RULES).run(before)
    assert "conv" not in operators(after) and "matmul" in operators(after)
    x = RANDOM.standard_normal((batch, inputs, *space)).astype(np.float32)
    np.testing.assert_allclose(run(after, [x]), run(before, [x]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "weights", "attrs"),
    [
        ((1, 4, 8, 8), (6, 4, 1, 1), {"strides": (2, 2)}),
        ((1, 4, 8, 8), (6, 4, 1, 1), {"pads": (1, 1, 1, 1)}),
        ((1, 4, 8, 8), (6, 4, 3, 3), {}),
        ((1, 4, 8, 8), (4, 1, 1, 1), {"groups": 4}),
        ((1, 4, 1, 1), (6, 4, 1, 1), {}),
    ],
)
def test_other_convolutions_stay(shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, object]) -> None:
    before = module("conv", shape, np.ones(weights, np.float32), attrs)
    assert Rewrite(POINTWISE_RULES).run(before) is before
