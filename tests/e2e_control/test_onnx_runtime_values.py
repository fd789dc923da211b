"""Axes, bounds, steps, sizes, scales and other deciding operands as inputs: one executable serves every value."""

# ruff: noqa: E402
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx.reference import ReferenceEvaluator
from runtime_values_cases import EVERY, USUAL, Runs

from weft.frontend.onnx import backend


def judges(model: Any) -> list[Any]:
    """What runs the model as well: onnxruntime where it can, the reference implementation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    made = [ReferenceEvaluator(model).run]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # its errors have no common type; the reference implementation remains
        return made
    return [session.run, *made]


def expected(run: list[Any], feeds: dict[str, Any]) -> list[Any]:
    """The results of the first judge that gives any."""
    for judge in run[:-1]:
        try:
            return list(judge(None, feeds))
        except Exception:  # as above
            continue
    return list(run[-1](None, feeds))


@pytest.mark.parametrize(
    "case", [c if str(c) in USUAL else pytest.param(c, marks=pytest.mark.slow) for c in EVERY], ids=str
)
def test_one_executable_serves_all_values(case: Runs) -> None:
    model = case.model()
    prepared, others = backend.prepare(model), judges(model)
    for run in case.runs:
        feeds = {
            i.name: np.asarray(v) for i, v in zip(model.graph.input, [v for v in run if v is not None], strict=True)
        }
        for made, wanted in zip(prepared.run(feeds), expected(others, feeds), strict=True):
            assert made.shape == wanted.shape and made.dtype == wanted.dtype
            np.testing.assert_allclose(made, wanted, rtol=case.rtol, atol=case.atol)
    assert len(prepared._compiled) == 1 and not prepared.needed
