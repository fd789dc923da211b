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
    """Channels moved from the end to place 1."""
    rank = len(x.shape)
    if rank < 3:
        raise Malformed(f"it needs samples, space and channels, not {x.x.tensor}")
    return x.transpose(0, rank - 1, *range(1, rank - 1))


def in_channels_first(x: Traced) -> Traced:
    """Channels moved back from place 1 to the end."""
    return x.transpose(0, *range(2, len(x.shape)), 1)


def _around(convert: Callable[[Node], Result], data: tuple[int, ...]) -> Callable[[Node], Result]:
    """An operator on channels-first tensors for channels-last ones; ``data`` are the operands that are turned."""

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
