"""Small ONNX models made in memory, for end-to-end tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

F32 = 1


def _value(name: str, shape: list[int | str]) -> Any:
    return onnx.helper.make_tensor_value_info(name, F32, shape)


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray]) -> Path:
    tensors = [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = onnx.helper.make_graph(nodes, path.stem, inputs, outputs, tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _random(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    return {k: (source.standard_normal(s) / np.sqrt(max(1, s[-1]))).astype(np.float32) for k, s in shapes.items()}


def dense(path: Path, batch: int | str = "batch", seed: int = 0) -> Path:
    """x f32[batch, 24] → two dense layers and a soft maximum → y f32[batch, 10]."""
    node = onnx.helper.make_node
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["h0"], "first"),
        node("Relu", ["h0"], ["h1"], "activation"),
        node("Gemm", ["h1", "w1", "b1"], ["h2"], "second"),
        node("Softmax", ["h2"], ["y"], "probabilities", axis=-1),
    ]
    weights = _random(seed, w0=(24, 40), b0=(40,), w1=(40, 10), b1=(10,))
    return _save(path, nodes, [_value("x", [batch, 24])], [_value("y", [batch, 10])], weights)


def window(path: Path, channels: int, size: int, seed: int = 0) -> Path:
    """x f32[1, channels, size, size] → a padded convolution of 3×3 → y of the same shape."""
    nodes = [onnx.helper.make_node("Conv", ["x", "k"], ["y"], "conv", pads=[1, 1, 1, 1])]
    shape: list[int | str] = [1, channels, size, size]
    weights = _random(seed, k=(channels, channels, 3, 3))
    return _save(path, nodes, [_value("x", shape)], [_value("y", shape)], weights)


def images(path: Path, batch: int | str = 1, seed: int = 0) -> Path:
    """x f32[batch, 3, 16, 16] → two convolutions with a residual, pooling, a dense layer → y f32[batch, 10]."""
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "k0", "c0"], ["h0"], "conv0", pads=[1, 1, 1, 1]),
        node("Relu", ["h0"], ["h1"], "relu0"),
        node("Conv", ["h1", "k1", "c1"], ["h2"], "conv1", pads=[1, 1, 1, 1]),
        node("Add", ["h1", "h2"], ["h3"], "residual"),
        node("Relu", ["h3"], ["h4"], "relu1"),
        node("MaxPool", ["h4"], ["h5"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["h5"], ["h6"], "average"),
        node("Flatten", ["h6"], ["h7"], "flatten"),
        node("Gemm", ["h7", "w", "b"], ["y"], "classify"),
    ]
    weights = _random(seed, k0=(16, 3, 3, 3), c0=(16,), k1=(16, 16, 3, 3), c1=(16,), w=(16, 10), b=(10,))
    return _save(path, nodes, [_value("x", [batch, 3, 16, 16])], [_value("y", [batch, 10])], weights)


class _Network:
    """Convolutions with weights of a sane range, one after another."""

    def __init__(self, seed: int) -> None:
        self.source, self.nodes, self.weights = np.random.default_rng(seed), [], {}  # type: ignore[var-annotated]

    def add(self, kind: str, *operands: str, **attrs: Any) -> str:
        name = f"h{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, operands, [name], name, **attrs))
        return name

    def weight(self, *shape: int, fan: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (self.source.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        fan, pad = kernel * kernel * inputs // groups, kernel // 2
        w, b = self.weight(outputs, inputs // groups, kernel, kernel, fan=fan), self.weight(outputs, fan=200)
        return self.add("Conv", x, w, b, strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def save(self, path: Path, x: str, channels: int) -> Path:
        """An average over the picture and ten classes behind the last convolution."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        w, b = self.weight(channels, 10, fan=2 * channels), self.weight(10, fan=200)
        self.nodes.append(onnx.helper.make_node("Gemm", [flat, w, b], ["y"], "classify"))
        return _save(path, self.nodes, [_value("x", [1, 3, 32, 32])], [_value("y", [1, 10])], self.weights)


def residual(path: Path, seed: int = 0) -> Path:
    """x f32[1, 3, 32, 32] → bottlenecks of 1×1, 3×3 and 1×1 convolutions beside shortcuts (ResNet) → y f32[1, 10]."""
    net = _Network(seed)
    x, width = net.add("Relu", net.conv("x", 3, 32, 3)), 32
    for inner, stride in ((16, 1), (32, 2), (32, 1), (64, 2)):
        y = net.add("Relu", net.conv(x, width, inner, 1))
        y = net.conv(net.add("Relu", net.conv(y, inner, inner, 3, stride)), inner, 4 * inner, 1)
        short = x if (stride, width) == (1, 4 * inner) else net.conv(x, width, 4 * inner, 1, stride)
        x, width = net.add("Relu", net.add("Add", y, short)), 4 * inner
    return net.save(path, x, width)


def inverted_residual(path: Path, seed: int = 0) -> Path:
    """x f32[1, 3, 32, 32] → wide blocks convolved channel by channel, cut off at 6 (MobileNetV2) → y f32[1, 10]."""
    net = _Network(seed)
    bounds = [net.weight(fan=2) for _ in range(2)]
    for name, value in zip(bounds, (0.0, 6.0), strict=True):
        net.weights[name] = np.array(value, np.float32)

    def cut(x: str) -> str:
        return net.add("Clip", x, *bounds)

    x, width = cut(net.conv("x", 3, 16, 3, 2)), 16
    for outputs, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        y = cut(net.conv(x, width, 6 * width, 1))
        y = net.conv(cut(net.conv(y, 6 * width, 6 * width, 3, stride, 6 * width)), 6 * width, outputs, 1)
        x, width = net.add("Add", x, y) if (stride, width) == (1, outputs) else y, outputs
    return net.save(path, cut(net.conv(x, width, 4 * width, 1)), 4 * width)


def two_results(path: Path) -> Path:
    """a, b f32[4] → total f32[4], product f32[4]."""
    node = onnx.helper.make_node
    nodes = [node("Add", ["a", "b"], ["total"], "sum"), node("Mul", ["a", "b"], ["product"], "times")]
    return _save(path, nodes, [_value(n, [4]) for n in "ab"], [_value(n, [4]) for n in ("total", "product")], {})


def random_input(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def onnxruntime_result(path: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime says, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
