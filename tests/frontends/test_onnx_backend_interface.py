"""The backend interface: values that decide shapes, sequences, single nodes, errors; rows of different lengths."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_samples import model, tensor_info

from weft.frontends.onnx import backend
from weft.support.errors import InputError, ModelError, UserError


def test_devices() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(InputError):
        backend.prepare(model([helper.make_node("Neg", ["x"], ["y"])], [tensor_info("x", [2])], ["y"]), "CUDA")


def test_a_prepared_model_serves_other_target_shapes() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    inputs = [tensor_info("x", [2, 3, 4]), tensor_info("s", ["n"], onnx.TensorProto.INT64)]
    prepared = backend.prepare(model(nodes, inputs, ["y"]))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for shape in ([4, 6], [-1, 2], [0, -1], [2, 3, 4]):
        (y,) = prepared.run([x, np.array(shape, np.int64)])
        kept = [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
        assert np.array_equal(y, x.reshape(kept))


def test_axes_at_run_time() -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    inputs = [tensor_info("x", [2, 3]), tensor_info("axes", [1], onnx.TensorProto.INT64)]
    prepared = backend.prepare(model(nodes, inputs, ["y"]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1, -1):
        (y,) = prepared.run([x, np.array([axis], np.int64)])
        assert np.allclose(y, x.sum(axis))


def test_nodes_and_names() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a = np.ones((2, 3), np.float32)
    (c,) = backend.run_node(node, [a, a])
    assert np.array_equal(c, a + a)
    sample = model([node], [tensor_info("a", [2, 3]), tensor_info("b", [2, 3])], ["c"])
    assert np.array_equal(backend.run_model(sample, {"a": a, "b": a})[0], c)
    with pytest.raises(UserError):
        backend.run_model(sample, [a, a, a])


def test_missing_operators_are_named_when_prepared() -> None:
    with pytest.raises(ModelError, match="NoSuchThing"):
        backend.prepare(model([helper.make_node("NoSuchThing", ["x"], ["y"])], [tensor_info("x", [2])], ["y"]))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("length", [5, 20])
@pytest.mark.parametrize(("kind", "gates", "outputs"), [("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)])
def test_sequences_of_different_lengths(kind: str, gates: int, outputs: int, length: int) -> None:
    """Padding does not matter: each row gives what it gives alone, and zeros behind its end."""
    rng, rows, width, hidden = np.random.default_rng(0), 3, 4, 6
    shapes = {"W": (2, gates * hidden, width), "R": (2, gates * hidden, hidden), "B": (2, 2 * gates * hidden)}
    weights = {k: (rng.standard_normal(s) * 0.4).astype(np.float32) for k, s in shapes.items()}
    names = ["y", "h", "c"][:outputs]

    def sample(n: int, steps: int, with_lengths: bool) -> object:
        node = helper.make_node(
            kind,
            ["x", "W", "R", "B", "lengths" if with_lengths else ""],
            names,
            hidden_size=hidden,
            direction="bidirectional",
        )
        inputs = [tensor_info("x", [steps, n, width])]
        if with_lengths:
            inputs.append(tensor_info("lengths", [n], onnx.TensorProto.INT32))
        return model([node], inputs, names, weights)

    x = rng.standard_normal((length, rows, width)).astype(np.float32)
    lengths = np.array([length, 2, length - 1], np.int32)
    made = backend.run_model(sample(rows, length, True), [x, lengths])
    for row, end in enumerate(lengths):
        alone = backend.run_model(sample(1, int(end), False), [x[:end, row : row + 1]])
        assert np.allclose(made[0][:end, :, row], alone[0][:, :, 0], atol=1e-5)
        assert not made[0][end:, :, row].any()
        for state, wanted in zip(made[1:], alone[1:], strict=True):
            assert np.allclose(state[:, row], wanted[:, 0], atol=1e-5)
