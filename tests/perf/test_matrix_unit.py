"""Products and windows on a machine with a matrix unit, in numbers that no clock gives: see ``perf_metrics``."""

from __future__ import annotations

import json

import perf_cases
import pytest
from perf_metrics import Metrics, losses, measure
from test_lost_optimizations import EXPECTED, check

from weft.pipeline import Options
from weft.schedule.rules import cpu

MACHINE = "sapphire-rapids"
CASES = (
    "convolution 1x1",
    "convolution 3x3",
    "convolution 3x3, stride 2",
    "convolution of a picture",
    "matrix product with GELU",
    "products of attention",
)


def measured(case: str) -> Metrics:
    return measure(perf_cases.module(case), Options(precision="bf16"), target=MACHINE)


@pytest.mark.parametrize("case", CASES)
def test_matrix_unit(case: str, request: pytest.FixtureRequest) -> None:
    found = measured(case)
    assert ("tiles" in found) == (case != "convolution of a picture"), "three channels fill no tile"
    check(f"{case}, matrix tiles", found, request.config.getoption("--bless"))


@pytest.mark.parametrize("case", ["convolution 3x3", "matrix product with GELU"])
def test_without_the_rule_there_is_more_to_do(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "CONTRACTIONS", tuple(r for r in cpu.CONTRACTIONS if r is not cpu.schedule_matrix))
    expected = json.loads(EXPECTED.read_text())[f"{case}, matrix tiles"]
    assert any(": operations went from" in line for line in losses(case, measured(case), expected))


def test_without_blocks_of_32_channels_windows_have_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.pipeline.graph.BFLOAT16_TILE", 0)
    assert "tiles" not in measured("convolution 3x3")
