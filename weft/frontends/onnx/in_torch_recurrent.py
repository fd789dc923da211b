"""LSTM, GRU and RNN: part of the table of ``in_torch``. PyTorch's layers run them; their gates have another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.frontends.onnx.in_torch_functions import Attributes, Converter
from weft.support.errors import ModelError

_GATES: Final = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""The places of PyTorch's gates in ONNX's order."""
_ACTIVATIONS: Final = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def _layer(kind: str) -> Converter:
    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        given = [*x, *[None] * (8 - len(x))]
        data, weights, recurrent, bias, lengths, state, cell, peepholes = given
        direction = a.get("direction", "forward")
        both = 2 if direction == "bidirectional" else 1
        names = [_text(n) for n in a.get("activations", _ACTIVATIONS[kind] * both)]
        plain = [n.lower() for n in names] == [n.lower() for n in _ACTIVATIONS[kind] * both]
        if lengths is not None or peepholes is not None or not plain:
            raise ModelError(
                f"the PyTorch peer has no converter for {kind} with lengths, peepholes or other activations",
                code="M040",
            )
        if kind == "GRU" and not a.get("linear_before_reset", 0):
            raise ModelError("the PyTorch peer has no converter for GRU with linear_before_reset=0", code="M040")
        hidden = recurrent.shape[-1]
        if a.get("layout", 0):
            data = data.transpose(0, 1)
            state, cell = (None if s is None else s.transpose(0, 1) for s in (state, cell))
        if direction == "reverse":
            data = t.flip(data, [0])
        parameters = []
        for d in range(both):
            parameters += [_reordered(t, w[d], hidden, kind) for w in (weights, recurrent)]
            half = len(_GATES[kind]) * hidden
            parts = t.zeros(2 * half, dtype=data.dtype) if bias is None else bias[d]
            parameters += [_reordered(t, p, hidden, kind) for p in (parts[:half], parts[half:])]
        zeros = t.zeros(both, data.shape[1], hidden, dtype=data.dtype)
        first = zeros if state is None else state
        start: Any = (first, zeros if cell is None else cell) if kind == "LSTM" else first
        name = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[kind]
        made, *ends = getattr(t, name)(data, start, parameters, True, 1, 0.0, False, both == 2, False)
        made = made.reshape(*made.shape[:2], both, hidden)
        if direction == "reverse":
            made = t.flip(made, [0])
        if a.get("layout", 0):
            return [made.transpose(0, 1), *(e.transpose(0, 1) for e in ends)]
        return [made.transpose(1, 2), *ends]

    return convert


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _reordered(t: Any, weights: Any, hidden: int, kind: str) -> Any:
    return t.cat([weights[g * hidden : (g + 1) * hidden] for g in _GATES[kind]])


RECURRENT: dict[str, Converter] = {kind: _layer(kind) for kind in _GATES}
"""ONNX operator → what computes it, as in ``FUNCTIONS``."""
