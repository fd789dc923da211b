"""Quantization, compiled, is the formula of the specification to the last place: ties, scales and zero points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft

SIZE = 4096


def model(nodes: list[Any], outputs: dict[str, tuple[int, list[int]]], constants: dict[str, np.generic]) -> Any:
    """Of one input ``x`` of SIZE numbers."""
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("scale", [0.0123, 6 / 255, 0.25, 1 / 3])
@pytest.mark.parametrize(("kind", "zero"), [(TensorProto.UINT8, np.uint8(3)), (TensorProto.INT8, np.int8(-7))])
def test_halves_are_rounded_to_even(scale: float, kind: int, zero: np.generic) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    s = np.float32(scale)
    exe = weft.compile(model([node], {"y": (kind, [SIZE])}, {"scale": s, "zero": zero}))
    x = (np.random.default_rng(1).integers(-150, 300, SIZE) + 0.5).astype(np.float32) * s
    limits = np.iinfo(zero.dtype)
    wanted = np.clip(np.rint(x / s) + np.float32(zero), limits.min, limits.max).astype(zero.dtype)
    assert np.mean(np.abs(x / s - np.trunc(x / s)) == 0.5) > 0.5  # the inputs are ties indeed
    assert np.array_equal(np.asarray(exe(x)), wanted)


def test_a_scale_found_at_run_time_is_the_rounded_quotient() -> None:
    outputs = {"y": (TensorProto.UINT8, [SIZE]), "scale": (TensorProto.FLOAT, []), "zero": (TensorProto.UINT8, [])}
    exe = weft.compile(model([helper.make_node("DynamicQuantizeLinear", ["x"], list(outputs))], outputs, {}))
    for seed in range(30):
        x = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
        low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
        scale = (high - low) / np.float32(255)
        zero = np.clip(np.rint(np.float32(0) - low / scale), 0, 255)
        y = np.clip(np.rint(x / scale) + zero, 0, 255)
        for got, wanted in zip(exe(x), (y, scale, zero), strict=True):
            assert np.array_equal(np.asarray(got), wanted), seed
