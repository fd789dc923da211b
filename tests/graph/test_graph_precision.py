"""The pass that lowers precision: where it rounds, and that it rounds only once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.graph.build import constant, function, var
from weft.graph.interpret import run
from weft.graph.nodes import Call, Constant, GraphExpr, Module, Project, call
from weft.graph.passes.precision import LowerPrecision
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.support.dtypes import DType

BF16 = DType("bfloat16")
RNG = np.random.default_rng(0)


def weights(*shape: int) -> Constant:
    return constant(RNG.standard_normal(shape).astype(np.float32))


def lowered(inputs: list[Any], output: GraphExpr) -> tuple[Module, Module]:
    module = Module({"main": function(inputs, output)})
    made = LowerPrecision(BF16, op("cast")).run(module)
    verify(made)
    assert made.main.type == module.main.type
    return module, made


def calls(module: Module, name: str) -> list[Call]:
    found = (e for e in post_order(module.main) if isinstance(e, Call))
    return [e for e in found if getattr(e.target, "name", "") == name]


def close(a: Module, b: Module, *values: np.ndarray) -> None:
    x, y = np.asarray(run(a, values), np.float64), np.asarray(run(b, values), np.float64)
    np.testing.assert_allclose(x, y, rtol=0, atol=0.03 * np.abs(x).max())


def test_products_take_halves_and_give_float32() -> None:
    x = var("x", (3, 8))
    before, after = lowered([x], call(op("relu"), [call(op("matmul"), [x, weights(8, 4)])]))
    (product,) = calls(after, "matmul")
    assert [str(a.tensor.dtype) for a in product.args] == ["bfloat16", "bfloat16"]
    assert isinstance(product.args[1], Constant) and str(product.tensor.dtype) == "float32"
    assert len(calls(after, "cast")) == 1  # of the input
    close(before, after, RNG.standard_normal((3, 8)).astype(np.float32))


def test_a_value_is_rounded_before_it_is_moved() -> None:
    x = var("x", (2, 4, 6))
    y = call(op("transpose"), [call(op("exp"), [x])], {"perm": (0, 2, 1)})
    before, after = lowered([x], call(op("matmul"), [y, weights(4, 4)]))
    (moved,) = calls(after, "transpose")
    assert str(moved.tensor.dtype) == "bfloat16"
    assert [e.args[0].target.name for e in calls(after, "cast")] == ["exp"]  # type: ignore[attr-defined]
    close(before, after, RNG.standard_normal((2, 4, 6)).astype(np.float32))


def test_other_readers_read_the_stored_values() -> None:
    x = var("x", (4, 4))
    y = call(op("tanh"), [x])
    product = call(op("matmul"), [y, weights(4, 4)])
    before, after = lowered([x], call(op("add"), [product, y]))
    (total,) = calls(after, "add")
    widened = total.args[1]
    assert isinstance(widened, Call) and widened.attrs.to == "float32"
    assert widened.args[0] is calls(after, "matmul")[0].args[0]
    close(before, after, RNG.standard_normal((4, 4)).astype(np.float32))


def test_results_keep_their_digits() -> None:
    x = var("x", (4, 4))
    y = call(op("tanh"), [x])
    z = call(op("matmul"), [y, weights(4, 4)])
    module = Module({"main": function([x], [y, z])})
    made = LowerPrecision(BF16, op("cast")).run(module)
    value = RNG.standard_normal((4, 4)).astype(np.float32)
    assert np.array_equal(np.asarray(run(made, [value])[0]), np.asarray(run(module, [value])[0]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_models_of_other_types_stay_as_they_are(dtype: str) -> None:
    x, w = var("x", (3, 8), dtype), var("w", (8, 4), dtype)
    module = Module({"main": function([x, w], call(op("matmul"), [x, w]))})
    assert LowerPrecision(BF16, op("cast")).run(module) is module


def test_images_and_single_channels_stay_in_float32() -> None:
    x = var("x", (1, 3, 8, 8))
    y = call(op("conv"), [x, weights(16, 3, 3, 3)])
    y = call(op("conv"), [y, weights(16, 1, 3, 3)], {"groups": 16})
    y = call(op("conv"), [y, weights(4, 16, 1, 1)])
    before, after = lowered([x], y)
    assert [str(e.args[0].tensor.dtype) for e in calls(after, "conv")] == ["float32", "float32", "bfloat16"]
    close(before, after, RNG.standard_normal((1, 3, 8, 8)).astype(np.float32))


def test_parts_of_a_split_are_rounded_together() -> None:
    x = var("x", (4, 12))
    parts = call(op("split"), [call(op("tanh"), [x])], {"axis": 1, "sizes": (6, 6)})
    before, after = lowered([x], call(op("matmul"), [Project(parts, 0), Project(parts, 1)], {"transpose_b": True}))
    assert len(calls(after, "cast")) == 1 and len(calls(after, "split")) == 1
    close(before, after, RNG.standard_normal((4, 12)).astype(np.float32))
