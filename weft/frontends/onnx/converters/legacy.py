"""Operators of the first operator sets that were removed later; old models still contain them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import arithmetic
from weft.frontends.onnx.converters.contraction import scaled
from weft.frontends.onnx.converters.slicing import Cut, cut
from weft.frontends.onnx.node import Node, Result


def _affine(node: Node) -> Result:
    x = scaled(node, node.data(0), node.real("alpha", 1.0))
    return node.call("add", x, node.scalar(node.real("beta", 0.0), x))


def _image_scaler(node: Node) -> Result:
    x = scaled(node, node.data(0), node.real("scale", 1.0))
    bias = np.array(node.reals("bias", ()), x.tensor.dtype.numpy)
    return node.call("add", x, node.constant(bias.reshape(-1, 1, 1))) if bias.size else x


def _crop(node: Node) -> Result:
    x, border = node.data(0), node.integers("border", (0, 0, 0, 0))
    if x.tensor.rank != 4 or len(border) != 4:
        raise Malformed("it needs four dimensions and four borders")
    left, top, right, bottom = border
    scale = node.integers("scale", ())
    height, width = x.tensor.shape[2:]
    kept = scale if len(scale) == 2 else ()
    rows, columns = kept or (arithmetic("sub", height, top + bottom), arithmetic("sub", width, left + right))
    return cut(node, x, {2: Cut(top, rows), 3: Cut(left, columns)})


def _scaled_tanh(node: Node) -> Result:
    x = node.data(0)
    inner = node.call("tanh", scaled(node, x, node.real("beta", 1.0)))
    return scaled(node, inner, node.real("alpha", 1.0))


def _parametric_softplus(node: Node) -> Result:
    inner = node.call("softplus", scaled(node, node.data(0), node.real("beta", 1.0)))
    return scaled(node, inner, node.real("alpha", 1.0))


LEGACY: dict[str, Callable[[Node], Result]] = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _parametric_softplus,
    "ScaledTanh": _scaled_tanh,
}
