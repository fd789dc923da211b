"""Who reads a value of an ONNX model, in any of its bodies."""

from __future__ import annotations

from typing import Any, Final

_ONE_BY_ONE: Final = frozenset(
    {
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
        "Cosh", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf",
        "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
        "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Transpose",
    }
)  # fmt: skip
"""Operators of the default domain that compute each element from one of their first input, in time proportional to the
number of elements. Other inputs are scalars."""

_JOINS: Final = "Concat"


class Readers:
    """The readers of the values of a model."""

    def __init__(self, model: Any) -> None:
        self._nodes: dict[str, list[Any]] = {}
        graphs = [model.graph, *model.functions]
        while graphs:
            graph = graphs.pop()
            for node in graph.node:
                for value in node.input:
                    self._nodes.setdefault(value, []).append(node)
                graphs += [a.g for a in node.attribute if a.HasField("g")]

    def only_join(self, name: str) -> bool:
        """Whether the value ``name`` ends in outputs and in joins with others, with nothing but operators on single
        elements on the way: no kernel needs to know whether one of its sizes is 0 or 1."""
        pending, seen = [name], {name}
        while pending:
            for node in self._nodes.get(pending.pop(), ()):
                if node.domain not in ("", "ai.onnx"):
                    return False
                if node.op_type == _JOINS:
                    continue
                if node.op_type not in _ONE_BY_ONE:
                    return False
                found = [o for o in node.output if o and o not in seen]
                seen.update(found)
                pending += found
        return True
