"""What docs/semantics.md says about results on which implementations disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft


def three(node: Any, feeds: dict[str, np.ndarray], outputs: list[str], **weights: np.ndarray) -> list[list[np.ndarray]]:
    """The results of Weft, the reference evaluator and onnxruntime."""
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    made = helper.make_graph(
        [node], "disputed", inputs, [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = (
        weft.compile(model).run(feeds).values(),
        ReferenceEvaluator(model).run(None, feeds),
        session.run(None, feeds),
    )
    return [[np.asarray(v) for v in values] for values in found]


def test_resize_by_scales_that_give_no_whole_size() -> None:
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 7)
    how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **how)
    ours, reference, other = three(node, {"x": x}, ["y"], s=np.array([1, 1, 0.6], np.float32))
    np.testing.assert_allclose(ours[0].ravel(), [0, 1.875, 3.75, 5.625])
    np.testing.assert_allclose(ours[0], reference[0])
    np.testing.assert_allclose(other[0].ravel(), [0, 2, 4, 6])
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **how)
    for made in three(node, {"x": x}, ["y"], s=np.array([1, 1, 4], np.int64)):
        np.testing.assert_allclose(made[0].ravel(), [0, 2, 4, 6], atol=1e-6)


def test_nearest_positions_that_are_whole_up_to_rounding() -> None:
    x = np.arange(20, dtype=np.float32).reshape(1, 1, 20)
    node = helper.make_node(
        "Resize",
        ["x", "", "s"],
        ["y"],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    for scale, at in ((1.7, 17), (0.3, 3), (1.1, 11)):
        ours, reference, other = three(node, {"x": x}, ["y"], s=np.array([1, 1, scale], np.float32))
        np.testing.assert_array_equal(ours[0], reference[0])
        assert ours[0][0, 0, at] + 1 == other[0][0, 0, at] == round(at / scale), scale


def test_cubic_samples_next_to_the_border() -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((1, 1, 4, 4)), "g": rng.standard_normal((1, 2, 4, 2)) * 1.2}
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="cubic", padding_mode="border")
    ours, reference, other = three(node, {k: v.astype(np.float32) for k, v in feeds.items()}, ["y"])
    np.testing.assert_allclose(ours[0], reference[0], rtol=1e-4, atol=1e-5)
    assert np.abs(ours[0] - other[0]).max() > 0.01


def test_quantizing_zeros() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    ours, reference, other = three(node, {"x": np.zeros(4, np.float32)}, ["y", "scale", "zero"])
    for made in (ours, reference, other):
        assert not made[0].any() and not made[2].any()
    np.testing.assert_allclose([float(m[1]) for m in (ours, reference, other)], [0, 1 / 255, 1], rtol=1e-6)


def test_an_exported_roll_of_an_empty_batch() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[n, 3] x) => (float[m, 3] y)
    <int64[1] last = {-1}, int64[1] first = {0}, int64[1] end = {9223372036854775807}> {
      a = Slice (x, last, end)
      b = Slice (x, first, last)
      y = Concat <axis = 0> (a, b)
    }"""
    run = weft.compile(onnx.parser.parse_model(text))
    for n in (0, 1, 2, 7):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(run(x), np.roll(x, 1, 0))
