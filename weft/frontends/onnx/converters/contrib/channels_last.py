"""Operators on tensors whose channels are the last dimension: [samples, …space…, channels]."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.contraction import CONTRACTION, MICROSOFT_CONTRACTION
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.converters.pooling import POOLING
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr


def channels_first(x: Traced) -> Traced:
    """``x`` with channels moved from the last dimension to dimension 1."""
    rank = len(x.shape)
    if rank < 3:
        raise Malformed(f"it needs samples, space and channels, not {x.x.tensor}")
    return x.transpose(0, rank - 1, *range(1, rank - 1))


def in_channels_first(x: Traced) -> Traced:
    """``x`` with channels moved back from dimension 1 to the last dimension."""
    return x.transpose(0, *range(2, len(x.shape)), 1)


def _around(convert: Callable[[Node], Result], data: tuple[int, ...]) -> Callable[[Node], Result]:
    """A converter for channels-last tensors from one for channels-first tensors; ``data`` are the operands to
    transpose."""

    def turned(node: Node) -> Result:
        inputs = [
            channels_first(operand(node, i)).x if i in data and node.has(i) else v for i, v in enumerate(node.inputs)
        ]
        made = convert(node.altered(tuple(inputs)))
        assert isinstance(made, GraphExpr)
        return in_channels_first(Traced(node, made)).x

    return turned


CHANNELS_LAST: dict[str, Callable[[Node], Result]] = {
    "NhwcConv": _around(CONTRACTION["Conv"], (0,)),
    "NhwcFusedConv": _around(MICROSOFT_CONTRACTION["FusedConv"], (0, 3)),
    "NhwcMaxPool": _around(POOLING["MaxPool"], (0,)),
}
