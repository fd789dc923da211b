"""DeformConv: groups of channels and of offsets, masks, strides and open sizes, beside the reference of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft

CASES = {
    "plain": {"pads": (1, 1, 1, 1)},
    "offset groups, mask, bias": {
        "offset_group": 2,
        "strides": (2, 1),
        "dilations": (1, 2),
        "kernel": (3, 2),
        "more": "bm",
    },
    "groups finer than offset groups": {"group": 4, "offset_group": 2, "more": "bm"},
    "offset groups finer than groups": {"group": 2, "offset_group": 4, "more": "m"},
    "neither divides the other": {"group": 2, "offset_group": 3, "channels": 12, "outputs": 6, "more": "m"},
    "depthwise": {"group": 4, "offset_group": 4, "kernel": (1, 1), "more": "b"},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, "n"])
def test_deformed_convolution(case: str, batch: Any) -> None:
    given: dict[str, Any] = {"channels": 4, "outputs": 4, "kernel": (3, 3), "more": "", **CASES[case]}
    channels, outputs, kernel, more = (given.pop(k) for k in ("channels", "outputs", "kernel", "more"))
    attrs = {"group": 1, "offset_group": 1, "strides": (1, 1), "dilations": (1, 1), "pads": (0, 1, 1, 0), **given}
    rng, space = np.random.default_rng(3), (7, 6)
    out = tuple(
        (space[i] + attrs["pads"][i] + attrs["pads"][i + 2] - attrs["dilations"][i] * (kernel[i] - 1) - 1)
        // attrs["strides"][i]
        + 1
        for i in range(2)
    )
    taps = kernel[0] * kernel[1] * attrs["offset_group"]
    images = 1 if batch == 1 else 2
    inputs = {
        "x": rng.standard_normal((images, channels, *space)),
        "w": rng.standard_normal((outputs, channels // attrs["group"], *kernel)),
        "at": 2 * rng.standard_normal((images, 2 * taps, *out)),
        "b": rng.standard_normal(outputs) if "b" in more else None,
        "m": rng.standard_normal((images, taps, *out)) if "m" in more else None,
    }
    used = {k: v.astype(np.float32) for k, v in inputs.items() if v is not None}
    names = [k if k in used else "" for k in inputs]
    node = helper.make_node("DeformConv", names, ["y"], kernel_shape=kernel, **attrs)
    shapes = {k: (batch, *v.shape[1:]) if k in ("x", "at", "m") else v.shape for k, v in used.items()}
    values = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "deformed", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (expected,) = ReferenceEvaluator(model).run(None, used)
    np.testing.assert_allclose(weft.compile(model)(*used.values()), expected, rtol=1e-5, atol=1e-5)
