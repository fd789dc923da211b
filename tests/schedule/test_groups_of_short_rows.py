"""Contractions over rows shorter than a vector: the tile of sums stays in registers, whatever the width."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, optimize
from weft.runtime import Executable
from weft.static_cost.judge import judge, kernels
from weft.target import Target

RANDOM = np.random.default_rng(3)


def grouped(space: tuple[int, ...], channels: int = 16, groups: int = 2, kernel: int = 3) -> Module:
    """A convolution whose groups do not fill blocks of channels: vectors are along the rows."""
    rank = len(space)
    x = build.var("x", (1, channels, *space))
    weights = RANDOM.standard_normal((channels, channels // groups, *(kernel,) * rank)) / kernel**rank
    attrs = {"groups": groups, "pads": (kernel // 2,) * 2 * rank}
    return Module.of(build.function([x], call(op("conv"), [x, build.constant(weights.astype(np.float32))], attrs)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("space", [(14, 14), (15, 12), (9, 11), (4, 14, 14), (3, 12, 13)])
def test_sums_stay_in_registers(space: tuple[int, ...]) -> None:
    machine = Target("zen4")
    judged = judge(kernels(optimize(grouped(space, 32, 4), machine)), machine)
    assert not [v.reasons for v in judged if any("is in memory" in reason for reason in v.reasons)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 11, 12, 13, 14, 15, 16, 17, 23])
@pytest.mark.parametrize("lines", [(5,), (14,), (3, 14)])
def test_agrees_with_the_interpreter(width: int, lines: tuple[int, ...]) -> None:
    module = grouped((*lines, width))
    x = np.random.default_rng(width).standard_normal((1, 16, *lines, width)).astype(np.float32)
    artifact, _ = compile_module(module, [Target("cpu -num-cores=2")], options=Options(jobs=1))
    results = [np.asarray(Executable(artifact, threads)(x)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], np.asarray(run(module, [x])), rtol=1e-4, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes()
