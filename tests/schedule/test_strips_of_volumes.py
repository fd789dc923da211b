"""Convolutions whose padded input is made strip by strip: the rows of a strip, in volumes and with groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.schedule.schedule import Schedule
from weft.target import Target

ONE: dict[str, Any] = {"strides": 1, "dilations": 1, "groups": 1}


def convolution(channels: int, out: int, space: tuple[int, ...], kernel: tuple[int, ...], **changes: int) -> Module:
    """A convolution padded by half of its kernel; strides and dilations are the same along all axes."""
    given = {**ONE, **changes}
    rank = len(space)
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((out, channels // given["groups"], *kernel)).astype(np.float32) / 8
    pads = tuple(given["dilations"] * (k // 2) for k in kernel)
    attributes = {
        "strides": (given["strides"],) * rank,
        "dilations": (given["dilations"],) * rank,
        "groups": given["groups"],
        "pads": pads + pads,
    }
    x = build.var("x", (1, channels, *space))
    return Module.of(build.function([x], call(op("conv"), [x, build.constant(weights)], attributes)))


def schedule_of(module: Module) -> Schedule:
    target = Target("skylake-x -num-cores=2")
    calls = post_order(optimize(module, target).main)
    (group,) = [e.target for e in calls if isinstance(e, Call) and isinstance(e.target, Function)]
    return scheduled(unscheduled(group)[0], target)


@pytest.mark.parametrize("depth", [8, 32, 64])
def test_the_depth_of_a_volume_does_not_make_strips_lower(depth: int) -> None:
    schedule = schedule_of(convolution(24, 12, (depth, 48, 48), (3, 3, 3)))
    *_, depths, lines, _, _ = schedule.get_loops(schedule.get_block("conv_pad"))
    assert [int(schedule.state.loop(one).extent) for one in (depths, lines)] == [3, 6 + 2]  # type: ignore[call-overload]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("channels", "out", "space", "kernel", "changes"),
    [
        (6, 12, (5, 12, 18), (3, 3, 3), {}),
        (6, 12, (5, 12, 18), (1, 3, 3), {}),
        (6, 12, (5, 12, 18), (3, 1, 1), {}),
        (3, 5, (7, 24, 33), (3, 3, 3), {"strides": 2}),
        (4, 6, (9, 16, 35), (3, 3, 3), {"dilations": 2}),
        (8, 12, (4, 12, 20), (3, 3, 3), {"groups": 4}),
        (8, 8, (4, 12, 20), (3, 3, 3), {"groups": 8}),
        (12, 20, (24, 40), (3, 3), {"groups": 4}),
        (12, 20, (24, 40), (5, 5), {"groups": 2, "strides": 2}),
        (6, 12, (1, 1, 1), (3, 3, 3), {}),
    ],
)
def test_agrees_with_the_interpreter(
    channels: int, out: int, space: tuple[int, ...], kernel: tuple[int, ...], changes: dict[str, int]
) -> None:
    module = convolution(channels, out, space, kernel, **changes)
    x = np.random.default_rng(1).standard_normal((1, channels, *space)).astype(np.float32)
    expected = np.asarray(run(module, [x]))
    artifact, _ = compile_module(module, [Target("cpu -num-cores=2")], options=Options(jobs=1))
    results = [np.asarray(Executable(artifact, threads)(x)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes()
