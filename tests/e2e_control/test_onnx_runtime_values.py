"""Axes, bounds, steps, sizes, scales and similar operands as inputs: one executable works for all values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from runtime_values_cases import EVERY, USUAL, Runs

from weft.frontends.onnx import backend

BY_ONNXRUNTIME = {"Resize-sizes-cubic-pytorch_half_pixel"}
"""Where the reference implementation breaks the specification: a single element lies at 0, not at -0.5."""


def expected(case: Runs, model: Any, feeds: dict[str, Any]) -> list[Any]:
    """What the reference implementation computes; onnxruntime, where that fails (pads that remove elements)."""
    try:
        if str(case) in BY_ONNXRUNTIME:
            raise ValueError
        return list(ReferenceEvaluator(model).run(None, feeds))
    except ValueError:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))


@pytest.mark.parametrize(
    "case", [c if str(c) in USUAL else pytest.param(c, marks=pytest.mark.slow) for c in EVERY], ids=str
)
def test_one_executable_serves_all_values(case: Runs) -> None:
    model = case.model()
    prepared = backend.prepare(model)
    for run in case.runs:
        feeds = {
            i.name: np.asarray(v) for i, v in zip(model.graph.input, [v for v in run if v is not None], strict=True)
        }
        for made, wanted in zip(prepared.run(feeds), expected(case, model, feeds), strict=True):
            assert made.shape == wanted.shape and made.dtype == wanted.dtype
            np.testing.assert_allclose(made, wanted, rtol=case.rtol, atol=case.atol)
    assert len(prepared._compiled) == 1 and not prepared.needed
