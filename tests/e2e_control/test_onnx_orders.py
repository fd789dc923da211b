"""Sorting, selecting, distinct values and suppression of boxes by one executable for all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft

SIZES = (1, 2, 63, 64, 65, 128, 130, 257, 1000)
DTYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}


def _model(kind: str, inputs: list[Any], outputs: int, **attributes: Any) -> Any:
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, [t.name for t in inputs], names, **attributes)
    graph = helper.make_graph([node], kind, inputs, [onnx.ValueInfoProto(name=n) for n in names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _vector(dtype: str) -> Any:
    return helper.make_tensor_value_info("x", DTYPES[dtype], ["n"])


def _values(size: int, dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(size)
    x = rng.integers(0, max(2, size // 3), size).astype(dtype)
    if dtype == "float32":
        x[rng.random(size) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("dtype", DTYPES)
def test_topk_with_k_and_length_at_run_time(dtype: str) -> None:
    k = helper.make_tensor_value_info("k", TensorProto.INT64, [1])
    exe = weft.compile(_model("TopK", [_vector(dtype), k], 2))
    for size in SIZES:
        x = _values(size, dtype)
        keys = x.astype(np.float64)
        order = np.argsort(-np.where(np.isnan(keys), np.inf, keys), kind="stable")
        for count in {1, min(size, 10), size}:
            values, places = exe(x, np.array([count]))
            np.testing.assert_array_equal(np.asarray(places), order[:count])
            np.testing.assert_array_equal(np.asarray(values), x[order[:count]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_distinct_values_of_any_length(dtype: str) -> None:
    exe = weft.compile(_model("Unique", [_vector(dtype)], 4))
    for size in SIZES:
        x = _values(size, dtype)
        expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        for made, wanted in zip(exe(x), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(made), wanted)


def _boxes(count: int, classes: int, batches: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(count)
    corners = rng.uniform(0, 4, (batches, count, 2, 2))
    scores = rng.integers(0, 20, (batches, classes, count)) / 20
    return corners.reshape(batches, count, 4).astype(np.float32), scores.astype(np.float32)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("given", [3, 4, 5])
def test_suppression_with_everything_at_run_time(given: int, center: int) -> None:
    value = helper.make_tensor_value_info
    inputs = [
        value("boxes", TensorProto.FLOAT, ["b", "n", 4]),
        value("scores", TensorProto.FLOAT, ["b", "c", "n"]),
        value("most", TensorProto.INT64, [1]),
        value("iou", TensorProto.FLOAT, [1]),
        value("score", TensorProto.FLOAT, [1]),
    ]
    exe = weft.compile(_model("NonMaxSuppression", inputs[:given], 1, center_point_box=center))
    # The reference needs the limit of overlaps, which is 0 where it is not given.
    full = _model("NonMaxSuppression", inputs[: max(given, 4)], 1, center_point_box=center)
    reference, overlap = ReferenceEvaluator(full), 0.0 if given == 3 else 0.3
    for batches, classes, count in ((1, 1, 1), (2, 3, 7), (1, 2, 70)):
        boxes, scores = _boxes(count, classes, batches)
        for most in (0, 1, 5, 1 << 40):
            limits = (np.array([most]), np.array([overlap], np.float32), np.array([0.4], np.float32))
            values = (boxes, scores, *limits)
            (wanted,) = reference.run(None, {t.name: v for t, v in zip(inputs[: max(given, 4)], values, strict=False)})
            made = np.asarray(exe(*values[:given]))
            np.testing.assert_array_equal(made, np.asarray(wanted).reshape(-1, 3), err_msg=f"{count} boxes, {most}")


def test_suppression_refuses_boxes_that_do_not_fit() -> None:
    value = helper.make_tensor_value_info
    inputs = [value("boxes", TensorProto.FLOAT, [1, 5, 4]), value("scores", TensorProto.FLOAT, [1, 2, 6])]
    inputs.append(value("most", TensorProto.INT64, [1]))
    with pytest.raises(weft.UserError, match="boxes"):
        weft.compile(_model("NonMaxSuppression", inputs, 1))
