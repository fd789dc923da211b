"""The PyTorch peer computes the same results as onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from contrib_various_cases import FUSED
from one_node import OneNode, agree, by_onnxruntime, f, given, make_model, s

from weft.frontends.onnx.in_torch import torch_module
from weft.support.errors import ModelError

torch: Any = pytest.importorskip("torch")

PICTURE = f(1, 4, 9, 8)
LAYERS = (
    OneNode("Conv", (PICTURE, f(6, 2, 3, 3), f(6)), {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}, domain=""),
    OneNode("Conv", (PICTURE, f(6, 4, 3, 2)), {"auto_pad": "SAME_UPPER"}, domain="", name="same"),
    OneNode("MaxPool", (PICTURE,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, domain=""),
    OneNode("Clip", (PICTURE, s(-0.5), s(0.5)), domain=""),
    OneNode("Gemm", (f(3, 4), f(5, 4), f(5)), {"transB": 1, "alpha": 0.5, "beta": 2.0}, domain=""),
)
CASES = (*(c for c in FUSED if c.op == "FusedConv"), *LAYERS)


def in_torch(case: OneNode, folder: Path) -> Any:
    onnx.save(make_model(case), folder / "model.onnx")
    module = torch_module(folder / "model.onnx")
    with torch.no_grad():
        return [np.asarray(module(*(torch.from_numpy(np.array(v)) for v in given(case))))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_node_agrees_with_onnxruntime(case: OneNode, tmp_path: Path) -> None:
    agree(case, in_torch(case, tmp_path), by_onnxruntime(case))


@pytest.mark.parametrize(
    "case",
    [
        OneNode("FusedConv", (PICTURE, f(6, 4, 3, 3)), {"activation": "Cube"}),
        OneNode("QuickGelu", (PICTURE,)),
    ],
    ids=str,
)
def test_operators_without_a_converter_are_refused_by_name(case: OneNode, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"the PyTorch peer has no converter for {case.op}"):
        in_torch(case, tmp_path)
