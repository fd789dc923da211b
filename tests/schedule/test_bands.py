"""Winograd's stages in bands: which programs get them, how high they are, and what numbers they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cost.assumed import PICTURES
from weft.cost.winograd import MIN_BUSY_SHARE, band_rows
from weft.expr.nodes import Const, Var
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.types import Dim
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.ops.winograd import span
from weft.pipeline import Options, compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.schedule.refs import LoopRef
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Allocate, For
from weft.tir.visit import walk

N = Var("n")
SMALL = "cpu -num-cores=2 -l1=4096 -l2=262144 -l3=1048576"
ALONE: dict[str, Any] = {"jobs": 1}


def winograd(batch: Dim, blocks: int, height: int, width: int, tile: int, pads: tuple[int, ...] = (1,) * 4) -> Module:
    """A transformed convolution and an activation that uses its result twice."""
    rng = np.random.default_rng(3)
    x = build.var("x", (batch, blocks, height, width, 16))
    weights = rng.standard_normal((span(tile), span(tile), blocks, blocks, 16, 16)).astype(np.float32) / 10
    made = call(op("winograd_conv"), [x, build.constant(weights)], {"pads": pads})
    return Module({"main": build.function([x], call(op("leaky_relu"), [made], {"alpha": 0.2}))})


def schedule_of(module: Module, target: Target) -> Schedule:
    calls = post_order(optimize(module, target).main)
    (group,) = [e.target for e in calls if isinstance(e, Call) and isinstance(e.target, Function)]
    return scheduled(unscheduled(group)[0], target)


def parallel_loops(schedule: Schedule) -> int:
    return sum(1 for x in walk(schedule.program.body) if isinstance(x, For) and x.kind == "parallel")


@pytest.mark.parametrize(
    ("blocks", "side", "bands"),
    [(2, 96, True), (4, 56, True), (2, 192, True), (2, 28, False), (16, 28, False), (32, 14, False)],
    ids=["32 channels", "64 channels", "large", "all stays near", "large weights", "few patches"],
)
def test_large_pictures_are_computed_in_bands(blocks: int, side: int, bands: bool) -> None:
    found = parallel_loops(schedule_of(winograd(1, blocks, side, side, 4), Target("skylake-x -num-cores=2")))
    assert (found == 1) is bands


def test_a_thread_stores_one_band() -> None:
    target = Target("skylake-x -num-cores=2")
    kernel = tir_to_kernel(schedule_of(winograd(1, 2, 192, 192, 4), target).program, target)
    stored = [a for a in walk(kernel.body) if isinstance(a, Allocate) and a.buffer.name == "winograd_multiply"]
    assert stored
    for a in stored:
        (size,) = (int(n) for n in a.buffer.shape)  # type: ignore[call-overload]  # constant
        assert 2 * size * a.buffer.dtype.nbytes <= target.cpu.l2 // 2


@pytest.mark.thinned(2)
@pytest.mark.parametrize("batch", [1, 4, None])
@pytest.mark.parametrize("side", [96, 112, 128, 144, 148, 160, 172, 176, 192, 200, 224, 256])
def test_a_band_reads_its_own_lines(side: int, batch: int | None) -> None:
    """Register tiles that reached into the next row of patches, and bands that reached into the next picture, made each
    band pad whole pictures."""
    images: Dim = N if batch is None else batch
    schedule = schedule_of(winograd(images, 2, side, side, 4), Target("skylake-x -num-cores=2"))
    assert parallel_loops(schedule) == 1, "the case has bands"
    loops = [schedule.get_loops(schedule.get_block(name)) for name in ("leaky_relu", "winograd_pad")]
    parallel, *back = (extent(schedule, loop) for loop in loops[0])
    _, *pad = (extent(schedule, loop) for loop in loops[1])
    if batch is not None:
        assert parallel is not None
        assert parallel > batch, "a picture has several bands"
    high = next(n for n in back[1:] if n is not None)
    assert 4 * high < side
    own = 4 * high + 2
    assert [n for n in pad if n not in (2, side + 2, 16)] == [own], "a band needs two lines beside its own"


def extent(schedule: Schedule, loop: LoopRef) -> int | None:
    """None for an extent that is not known."""
    found = schedule.state.loop(loop).extent
    return int(found.value) if isinstance(found, Const) else None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("batch", "blocks", "height", "width", "pads"),
    [
        (1, 1, 64, 59, (1, 1, 1, 1)),
        (1, 1, 64, 61, (1, 1, 1, 1)),  # 31 patches in a row: no tile divides them
        (1, 1, 40, 148, (1, 1, 1, 1)),  # 37
        (1, 2, 37, 40, (1, 1, 1, 1)),
        (3, 1, 33, 50, (0, 2, 1, 0)),
        (2, 2, 42, 27, (0, 0, 0, 0)),
        (1, 1, 250, 9, (1, 0, 0, 1)),
    ],
)
def test_agrees_with_the_interpreter(
    tile: int, batch: int, blocks: int, height: int, width: int, pads: tuple[int, ...]
) -> None:
    module = winograd(batch, blocks, height, width, tile, pads)
    assert parallel_loops(schedule_of(module, Target(SMALL))) == 1, "the case has bands"
    x = np.random.default_rng(0).standard_normal((batch, blocks, height, width, 16)).astype(np.float32)
    expected = np.asarray(run(module, [x]))
    artifact, _ = compile_module(module, [Target(SMALL)], options=Options(**ALONE))
    results = [np.asarray(Executable(artifact, threads)(x)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("height", "width"), [(56, 40), (52, 59), (64, 64), (37, 40)])
def test_an_open_number_of_pictures(height: int, width: int) -> None:
    """14, 13, 16 and 10 rows of patches. Each batch, an empty one too, has the numbers of single pictures."""
    module = winograd(N, 1, height, width, 4)
    assert parallel_loops(schedule_of(module, Target(SMALL))) == 1, "the case has bands"
    artifact, _ = compile_module(module, [Target(SMALL)], options=Options(**ALONE))
    x = np.random.default_rng(0).standard_normal((5, 1, height, width, 16)).astype(np.float32)
    expected = np.asarray(run(module, [x]))
    for images in (0, 1, 5):
        for threads in (1, 2):
            made = np.asarray(Executable(artifact, threads)(x[:images]))
            np.testing.assert_allclose(made, expected[:images], rtol=1e-4, atol=1e-5 * np.ptp(expected))


def test_an_open_batch_has_the_bands_of_a_known_one() -> None:
    """Where one picture fits the cache and a few do not."""
    target = Target("skylake-x -num-cores=2")
    loops = [parallel_loops(schedule_of(winograd(n, 2, 40, 40, 4), target)) for n in (4, N)]
    assert loops == [1, 1]


@given(
    rows=st.integers(1, 300),
    images=st.one_of(st.none(), st.integers(1, 20)),
    row=st.integers(1, 1 << 22),
    weights=st.integers(0, 1 << 23),
    l2=st.sampled_from((0, 1 << 18, 1 << 20)),
    cores=st.integers(1, 64),
)
def test_bands_fit_and_keep_the_cores_busy(
    rows: int, images: int | None, row: int, weights: int, l2: int, cores: int
) -> None:
    high = band_rows(rows, images, row, weights, l2, cores)
    if high is None:
        return
    bands = (images or 1) * (rows // high)
    assert 1 <= high <= rows
    assert high * row <= l2 // 2 or high == 1
    assert bands >= MIN_BUSY_SHARE * cores * -(-bands // cores)
    assert rows * (images or PICTURES) * row > l2 // 2, "else everything fits"
    assert rows % high == 0, "else a band reaches into the next picture"


def test_weights_from_far_need_high_bands() -> None:
    l2 = 1 << 20
    assert band_rows(48, 1, 100_000, 150_000, l2, 1) == 4
    assert band_rows(48, 1, 100_000, 1_100_000, l2, 1) == 4
    assert band_rows(48, 1, 100_000, 2_000_000, l2, 1) is None


def test_weights_that_do_not_stay_near_are_read_for_much_data() -> None:
    """Pictures of 20 × 20 with 96 channels took a tenth longer with bands than without."""
    l2, row = 2 << 20, 5 * 36 * 4 * 192
    assert band_rows(5, 4, row, 36 * 96 * 96 * 4, l2, 2) is None
    assert band_rows(5, 4, row, 36 * 32 * 96 * 4, l2, 2) == 5, "these weights stay near"
    assert band_rows(5, 16, row, 36 * 96 * 96 * 4, l2, 2) == 5
