"""The sizes of rows that a Loop without any iteration collects: those of the body, or those that it declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(op: str, inputs: str, output: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attrs)


def model(rows: list[Any], declared: list[Any] | None, trips: str, shape: list[Any]) -> Any:
    """A loop that hands its state on and collects ``row``."""
    value = helper.make_tensor_value_info
    nodes = [*rows, node("Identity", "c", "d"), node("Identity", "s", "o")]
    inputs = [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, None)]
    outputs = [value("d", BOOL, []), value("o", FLOAT, None), value("row", FLOAT, declared)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    main = helper.make_graph(
        [helper.make_node("Loop", [trips, "go", "x"], ["last", "y"], body=body)],
        "main",
        [value("x", FLOAT, shape), value("n", INT64, []), value("go", BOOL, []), value("k", INT64, [2])],
        [onnx.ValueInfoProto(name=o) for o in ("last", "y")],
        [numpy_helper.from_array(np.array(v), k) for k, v in {"one": np.float32(1), "zero": [0], "none": 0}.items()],
    )
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


EXPANDED = [node("Expand", "one k", "row")]
NEGATED = [node("Neg", "x", "row")]
FOUND = [node("NonZero", "x", "z"), node("Cast", "z", "row", to=FLOAT)]


@pytest.mark.parametrize("shape", [[3, 4], ["a", "b"]], ids=["known", "open"])
@pytest.mark.parametrize("trips", ["n", "none"])
@pytest.mark.parametrize(
    ("rows", "declared", "empty"),
    [
        (NEGATED, None, (0, 3, 4)),
        (NEGATED, [9, 9], (0, 3, 4)),
        (EXPANDED, [2, 5], (0, 2, 5)),
        (EXPANDED, ["u", 5], (0, 0, 5)),
        (EXPANDED, [7], (0, 0, 0)),
        (EXPANDED, None, (0, 0, 0)),
        (FOUND, [2, 12], (0, 2, 12)),
        (FOUND, None, (0, 2, 0)),
    ],
)
def test_shapes(rows: list[Any], declared: list[Any] | None, empty: Any, trips: str, shape: list[Any]) -> None:
    """What is declared counts only where no row was computed; rows of other sizes are collected as they are."""
    run = weft.compile(model(rows, declared, trips, shape), threads=1)
    x, k = np.arange(12, dtype=np.float32).reshape(3, 4) + 1, np.array([2, 6])
    for n, go in ((0, True), (3, False)):
        last, y = run(x, np.array(n), np.array(go), k)
        assert y.shape == empty
        np.testing.assert_array_equal(last, x)
    if trips == "n":
        one = {"Neg": -x, "Expand": np.ones(k), "NonZero": np.stack(np.nonzero(x))}[rows[0].op_type]
        np.testing.assert_array_equal(run(x, np.array(3), np.array(True), k)[1], np.stack([one] * 3))
