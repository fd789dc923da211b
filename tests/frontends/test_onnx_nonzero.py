"""The places of numbers other than 0, of every rank, known and open sizes, empty ones included."""

from __future__ import annotations

import numpy as np
import pytest

import weft


@pytest.mark.thinned(2)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("shape", [(), (9,), (0,), (5, 7), (0, 7), (3, 0), (1, 1), (301, 17), (3, 4, 5), (2, 1, 3, 4)])
def test_places(shape: tuple[int, ...], opened: bool) -> None:
    from onnx import TensorProto, helper

    dims = [f"d{i}" for i in range(len(shape))] if opened else list(shape)
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
    )
    exe = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    for share in (0.0, 0.4, 1.0):
        x = np.float32(3) * np.asarray(np.random.default_rng(1).random(shape) < share, np.float32)
        wanted = np.array(np.nonzero(x)) if shape else np.zeros((0, int(x != 0)))  # "(0, N) for scalar input"
        np.testing.assert_array_equal(np.asarray(exe(x)), wanted)
        assert np.asarray(exe(x)).shape == wanted.shape
