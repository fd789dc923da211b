"""Constants of an activation's definition are not rounded to the 16-bit type of its operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import weft

_erfc = np.vectorize(math.erfc)
_ALPHA, _GAMMA = 1.6732632423543772, 1.0507009873554805

ACTIVATIONS: dict[str, tuple[str, dict[str, Any], Callable[[Any], Any]]] = {
    "gelu": ("Gelu", {}, lambda x: 0.5 * x * _erfc(-x * math.sqrt(0.5))),
    "gelu by tanh": (
        "Gelu",
        {"approximate": "tanh"},
        lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "hard swish": ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "hard sigmoid": ("HardSigmoid", {"alpha": 0.3, "beta": 0.7}, lambda x: np.clip(0.3 * x + 0.7, 0, 1)),
    "leaky relu": ("LeakyRelu", {"alpha": 0.01}, lambda x: np.where(x < 0, 0.01 * x, x)),
    "elu": ("Elu", {"alpha": 0.7}, lambda x: np.where(x < 0, 0.7 * np.expm1(np.minimum(x, 0)), x)),
    "selu": ("Selu", {}, lambda x: _GAMMA * np.where(x < 0, _ALPHA * np.expm1(np.minimum(x, 0)), x)),
    "celu": ("Celu", {"alpha": 0.7}, lambda x: np.where(x < 0, 0.7 * np.expm1(np.minimum(x, 0) / 0.7), x)),
}


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_results_are_the_nearest_number_or_its_neighbour(name: str, dtype: np.dtype[Any]) -> None:
    """At every number of the type up to 4, against doubles; very small results, where sums cancel, are left out."""
    operator, attributes, exact = ACTIVATIONS[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    x = x[np.abs(x.astype(np.float32)) <= 4]
    kind = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    node = onnx.helper.make_node(operator, ["x"], ["y"], **attributes)
    values = [onnx.helper.make_tensor_value_info(n, kind, [x.size]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    y = np.asarray(weft.compile(made)(x)).view(dtype)
    wanted = exact(x.astype(np.float64))
    nearest = wanted.astype(dtype)
    seen = np.abs(wanted) > 1e-2
    steps = np.abs(y.view(np.int16).astype(np.int32) - nearest.view(np.int16).astype(np.int32))[seen]
    assert steps.max() <= 1
    assert (steps > 0).mean() < 0.02
