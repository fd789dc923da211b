"""Operators of the first operator sets that were removed later; old models still hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontend.onnx.converters.contraction import scaled
from weft.frontend.onnx.converters.movement import Cut, cut
from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.problems import Malformed
from weft.frontend.onnx.sizes import arithmetic


def _affine(node: Node) -> Result:
    x = scaled(node, node.data(0), node.float("alpha", 1.0))
    return node.call("add", x, node.scalar(node.float("beta", 0.0), x))


def _image_scaler(node: Node) -> Result:
    x = scaled(node, node.data(0), node.float("scale", 1.0))
    bias = np.array(node.floats("bias", ()), x.tensor.dtype.numpy)
    return node.call("add", x, node.constant(bias.reshape(-1, 1, 1))) if bias.size else x


def _crop(node: Node) -> Result:
    x, border = node.data(0), node.ints("border", (0, 0, 0, 0))
    if x.tensor.rank != 4 or len(border) != 4:
        raise Malformed("it needs four dimensions and four borders")
    left, top, right, bottom = border
    scale = node.ints("scale", ())
    height, width = x.tensor.shape[2:]
    if len(scale) == 2:
        rows, columns = scale
    else:
        rows, columns = (arithmetic("sub", size, b) for size, b in ((height, top + bottom), (width, left + right)))
    return cut(node, x, {2: Cut(top, rows), 3: Cut(left, columns)})


def _scaled_tanh(node: Node) -> Result:
    x = node.data(0)
    inner = node.call("tanh", scaled(node, x, node.float("beta", 1.0)))
    return scaled(node, inner, node.float("alpha", 1.0))


def _parametric_softplus(node: Node) -> Result:
    inner = node.call("softplus", scaled(node, node.data(0), node.float("beta", 1.0)))
    return scaled(node, inner, node.float("alpha", 1.0))


LEGACY: dict[str, Callable[[Node], Result]] = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _parametric_softplus,
    "ScaledTanh": _scaled_tanh,
}
