"""Masked scores: what is far below the largest is exactly 0, since products of subnormal numbers take very long."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS

TINY = np.finfo(np.float32).tiny


def softmax(data: np.ndarray, target: str = "cpu") -> np.ndarray:
    shape = ", ".join(map(str, data.shape))
    text = f"def @main(%x: f32[{shape}]) -> f32[{shape}] {{\n  %y: f32[{shape}] = softmax(%x, axis=-1)\n  return %y\n}}"
    result: np.ndarray = weft.compile(parse(text, OPERATORS), target=target, threads=1)(data)
    return result


def exact(data: np.ndarray) -> np.ndarray:
    wide = np.exp(data.astype(np.float64) - data.max(-1, keepdims=True))
    result: np.ndarray = wide / wide.sum(-1, keepdims=True)
    return result


@pytest.mark.parametrize("columns", [1, 2, 7, 16, 49, 100])
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_masked_scores_vanish_and_others_stay(columns: int, offset: float) -> None:
    steps = np.array([0, -1, -80, -87, -87.3, -87.4, -88, -95, -100, -104, -150, -1e4, -3e38, -np.inf], np.float32)
    rows = np.stack([np.resize(np.roll(steps, n), columns) for n in range(len(steps))])
    rows[:, 0] = 0.0
    data = rows + np.float32(offset)
    found = softmax(data)
    assert not np.any((found != 0) & (found < TINY / columns)), "neither powers nor, but for the quotient, results"
    np.testing.assert_allclose(found, exact(data), rtol=2e-6, atol=float(TINY))
    assert np.all(found[data - data.max(-1, keepdims=True) < -87.4] == 0)


def test_what_is_not_a_number_stays() -> None:
    data = np.array([[0, np.nan, -100], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1]], np.float32)
    assert np.all(np.isnan(softmax(data)[:2])) and np.isnan(softmax(data)[2, 0])
