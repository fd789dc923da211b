"""STFT of signals with and without the last dimension, which PyTorch's exporter leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.support.errors import ModelError


def model(shape: list[Any], windowed: bool, onesided: int) -> Any:
    weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("step", 3), ("length", 8))]
    weights.append(numpy_helper.from_array(np.linspace(0.1, 1, 8, dtype=np.float32), "window"))
    operands = ["x", "step", "window" if windowed else "", "length"]
    node = helper.make_node("STFT", operands, ["y"], "stft", onesided=onesided)
    ports = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("shape", [[2, 20], [2, 20, 1], ["n", 20], ["n", "samples"], ["n", "samples", 1]], ids=str)
def test_real_signals(shape: list[Any], onesided: int, windowed: bool) -> None:
    proto = model(shape, windowed, onesided)
    run, session = weft.compile(proto), ort.InferenceSession(proto.SerializeToString())
    for batch, samples in ((2, 20), (1, 20), (3, 8), (1, 41)):
        sizes = (batch, samples)
        if any(isinstance(d, int) and d != size for d, size in zip(shape, sizes, strict=False)):
            continue
        x = np.random.default_rng(batch).standard_normal((*sizes, *shape[2:])).astype(np.float32)
        got = run(x)
        (wanted,) = session.run(None, {"x": x})
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [[20], [2, 20, 1, 1]], ids=str)
def test_other_signals_are_refused(shape: list[int]) -> None:
    with pytest.raises(ModelError, match="'stft': its signal has"):
        weft.load(model(shape, True, 1))
