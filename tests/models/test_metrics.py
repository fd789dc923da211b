"""Numbers that need no clock: kernel counts and memory."""

from __future__ import annotations

import models_zoo as zoo
import onnx
import pytest

from weft.api import compile_with_report
from weft.pipeline import Report
from weft.runtime import Executable


def compiled(name: str) -> tuple[Executable, Report, int]:
    path = zoo.or_skip(zoo.light, name) if name in zoo.LIGHT else zoo.or_skip(zoo.transformer, name, "tiny", "static")
    exe, report = compile_with_report(path)
    operators = sum(n.op_type != "Constant" for n in onnx.load(path).graph.node)
    return exe, report, operators


@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_kernel_calls_are_a_third_of_the_operators(name: str) -> None:
    """Depth does not change the share: every layer of a network is fused alike."""
    _, report, operators = compiled(name)
    assert report.calls * 3 <= operators, f"{report.calls} kernel calls for {operators} operators"


def test_the_arena_is_close_to_the_largest_live_set() -> None:
    exe, report, _ = compiled("resnet50")
    assert report.largest_live_set > 0
    assert report.arena_bytes <= 1.2 * report.largest_live_set
    assert exe.artifact.program.arena_bytes == (report.arena_bytes,)


def test_static_models_are_straight_lines() -> None:
    """Nothing but kernel calls: no allocation, no branch, no size to compute while it runs."""
    exe, _, _ = compiled("resnet50")
    assert {type(i).__name__ for i in exe.artifact.program.instructions} <= {"CallKernel", "Copy"}


def test_layers_share_kernels() -> None:
    _, report, _ = compiled("resnet50")
    assert report.groups < 0.7 * report.calls
