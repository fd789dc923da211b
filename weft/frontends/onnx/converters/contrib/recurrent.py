"""Recurrent layers with quantized weights; their operands are quantized at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import arithmetic
from weft.frontends.onnx.converters.contrib.quantized import dynamically_quantized
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.converters.recurrent import LSTM_FUNCTIONS, lstm_step, recurrent
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """Weights [inputs, columns] of 8 bits, their scale and zero point: scalars, or [columns]."""

    weights: Traced
    scale: Traced
    zero: Traced

    def times(self, x: Traced) -> Traced:
        """``x`` [rows, inputs], quantized by its range, times the weights."""
        whole, scale, zero = dynamically_quantized(x)
        left = whole.to("int32") - zero.to("int32")
        right = self.weights.to("int32") - self.zero.to("int32")
        return left.call("matmul", right, out_dtype="int32").to(x.dtype) * (scale * self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeights:
    """The weights of one direction, with all gates concatenated."""

    hidden: int
    inputs: Quantized
    recurrence: Quantized

    def of_inputs(self, x: GraphExpr) -> GraphExpr:
        wide = Traced(self.inputs.scale.node, x)
        length, batch, width = wide.shape
        made = self.inputs.times(wide.reshape(arithmetic("mul", length, batch), width))
        return made.reshape(length, batch, made.shape[-1]).x

    def of_state(self, state: GraphExpr, first: int, count: int | None) -> GraphExpr:
        assert count is None, "only layers that need all gates at once are quantized"
        return self.recurrence.times(Traced(self.recurrence.scale.node, state)).x


def _quantized(node: Node, weights: int, scale: int, d: int) -> Quantized:
    """Operand ``weights`` of direction ``d``; its scale is operand ``scale``, its zero point the next operand."""
    made = []
    for i in (scale, scale + 1):
        given = operand(node, i)
        if not 1 <= len(given.shape) <= 2:
            raise Malformed(f"its scales and zero points {given.x.tensor} must be one for each direction or column")
        made.append(given.part(0, d))
    return Quantized(operand(node, weights).part(0, d), *made)


def _weights(node: Node, d: int, gates: int) -> QuantizedWeights:
    inputs, recurrence = _quantized(node, 1, 8, d), _quantized(node, 2, 10, d)
    hidden, columns = recurrence.weights.shape
    if not isinstance(hidden, int) or columns != gates * hidden:
        raise Malformed(f"its recurrence weights {recurrence.weights.x.tensor} do not hold {gates} gates")
    return QuantizedWeights(hidden, inputs, recurrence)


CONTRIB_RECURRENT: dict[str, Callable[[Node], Result]] = {
    "DynamicQuantizeLSTM": recurrent(lstm_step, 4, 2, LSTM_FUNCTIONS, _weights),
}
