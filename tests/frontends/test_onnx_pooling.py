"""Windows larger than the data, which exporters use for global pooling, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import weft
from weft.support.errors import ModelError


def pooling(kind: str, **attrs: object) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 7, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made: bytes = model.SerializeToString()
    return made


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize("kernel, strides", [([1280, 1280], [1280, 1280]), ([9, 7], [4, 4]), ([7, 8], [1, 4])])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 0, 1]])
def test_one_window_that_sticks_out(kind: str, kernel: list[int], strides: list[int], pads: list[int]) -> None:
    model = pooling(kind, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=1)
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 5)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    (got,) = weft.compile(weft.load(model)).run({"x": x}).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_windows_that_do_not_fit_are_refused() -> None:
    for attrs in ({"ceil_mode": 0}, {"ceil_mode": 1, "strides": [2, 2]}):
        with pytest.raises(ModelError, match="does not fit"):
            weft.load(pooling("AveragePool", kernel_shape=[9, 9], **attrs))
